// SPDX-License-Identifier: Apache-2.0
// Part of support/simt.hpp: where threads wait for each other, and the launch.
#pragma once

#include <support/simt/block.hpp>

#include <algorithm>  // std::max, std::shuffle
#include <map>        // std::map
#include <numeric>    // std::iota
#include <utility>    // std::exchange

namespace simt {

// Barriers of the block.

/// True if this launch does without the barrier.
inline bool left_out(site at) {
  for (const known_barrier& known : block.barriers) {
    if (known.at == at) return known.left_out;
  }
  const std::string name = name_of(at);
  barriers_seen.insert(name);
  block.barriers.push_back({at, name == how.without});
  return block.barriers.back().left_out;
}

inline void open_barrier_if_all_are_there() {
  if (block.arrived == 0 || block.arrived < block.living) return;
  block.counted_votes = block.votes;
  block.counted_voters = block.arrived;
  block.votes = block.arrived = 0;
  ++block.time;
  for (int t = 0; t < block.size; ++t) {
    if (thread(t).now == status::waits && thread(t).at.lanes == 0) wake(t);
  }
}

struct poll {
  int votes;
  int voters;
};

/// Waits for the threads of the block that have not ended.
/// @return  for how many of them the predicate is true, and how many they are
inline poll meet_block(const char* name, bool predicate, site at) {
  if (left_out(at)) return {predicate ? 1 : 0, 1};
  thread_state& me = self();
  if (block.arrived == 0) {
    block.barrier_name = name;
    block.barrier = at;
  } else if (!(block.barrier == at && same_text(block.barrier_name, name))) {
    fail(std::string("the threads of a block are at different barriers: ") + name + " at " + name_of(at) + ", " +
         block.barrier_name + " at " + name_of(block.barrier));
  }
  me.at.name = name, me.at.at = at, me.at.lanes = 0;
  ++block.arrived;
  block.votes += predicate ? 1 : 0;
  wait_for_others(me);
  open_barrier_if_all_are_there();
  leave_thread();
  me.last_barrier = at;
  return {block.counted_votes, block.counted_voters};
}

// Collectives of a warp.

/// What these lanes did until now is ordered before what they do from now on.
inline void see_each_other(warp_state& of, unsigned lanes) {
  std::array<std::uint32_t, warp> newest{};
  for (std::size_t l = 0; l < warp; ++l) {
    if ((lanes >> l & 1u) == 0) continue;
    for (std::size_t other = 0; other < warp; ++other) newest[other] = std::max(newest[other], of.seen[l][other]);
  }
  for (std::size_t l = 0; l < warp; ++l) {
    if ((lanes >> l & 1u) == 0) continue;
    of.seen[l] = newest;
    ++of.seen[l][l];
  }
}

/// Goes on with the collective of `lanes` if all of them that live are in it.
inline void open_collective_if_all_are_there(int first, unsigned lanes) {
  warp_state& here = warp_of(first);
  const unsigned present = lanes & here.living;
  if (present == 0 || (present & ~here.waiting) != 0) return;
  const std::unique_ptr<thread_state>* const of_lane = &block.threads[static_cast<std::size_t>(first)];
  shown_values shown{.lanes = present};
  for (unsigned left = present; left != 0; left &= left - 1) {
    const int l = std::countr_zero(left);
    const meeting& at = of_lane[l]->at;
    if (at.lanes != lanes) return;
    shown.of[static_cast<std::size_t>(l)] = at.value;
  }
  here.waiting &= ~present;
  for (unsigned left = present; left != 0; left &= left - 1) {
    thread_state& each = *of_lane[std::countr_zero(left)];
    if (each.at.answer != nullptr) each.at.answer(shown, each.at);
    each.now = status::ready;
  }
  block.ready.add(first, present);
  if (of_lane[std::countr_zero(present)]->at.answer == nullptr) see_each_other(here, present);
}

/// Barriers of a warp may stand in several places, what exchanges values may not.
inline void must_be_the_same(const meeting& one, const meeting& other) {
  if (same_text(one.name, other.name) && (one.answer == nullptr || one.at == other.at)) return;
  fail(std::string("the lanes of a warp are in different collectives: ") + one.name + " at " + name_of(one.at) + ", " +
       other.name + " at " + name_of(other.at));
}

/// Waits for those of `mine.lanes` that have not ended.
inline std::uint64_t meet_warp(const meeting& mine) {
  const int first = own_warp() * warp;
  const unsigned own_bit = 1u << lane();
  warp_state& here = warp_of(first);
  thread_state& me = self();
  if ((mine.lanes & own_bit) == 0) {
    fail(std::string("a lane is in ") + mine.name + " at " + name_of(mine.at) + ", which does not name it");
  }
  for (unsigned left = mine.lanes & here.waiting; left != 0; left &= left - 1) {
    const meeting& other = thread(first + std::countr_zero(left)).at;
    if (other.lanes != mine.lanes) continue;
    must_be_the_same(mine, other);
    break;  // it has been compared with the rest
  }
  meeting& own = me.at;  // field by field: all at once would wait for the fields that were just written
  own.name = mine.name, own.at.file = mine.at.file, own.at.line = mine.at.line, own.lanes = mine.lanes;
  own.value = mine.value, own.source = mine.source, own.answer = mine.answer, own.undefined = false;
  here.waiting |= own_bit;
  wait_for_others(me);
  open_collective_if_all_are_there(first, mine.lanes);
  leave_thread();
  if (own.undefined) {
    fail(std::string("the value of a lane that takes no part is read, in ") + mine.name + " at " + name_of(mine.at));
  }
  return own.result;
}

inline void meet_warp_at_barrier(unsigned lanes, site at) {
  if (left_out(at)) return;
  meet_warp({.name = "__syncwarp", .at = at, .lanes = lanes});
  self().last_barrier = at;
}

// The launch.

inline void end_thread() {
  self().now = status::over;
  block.ready.remove(block.now);
  --block.living;
  open_barrier_if_all_are_there();
  warp_state& here = warp_of(block.now);
  here.living &= ~(1u << lane());
  const int first = own_warp() * warp;
  for (int l = 0; l < warp; ++l) {
    if ((here.waiting >> l & 1u) != 0) open_collective_if_all_are_there(first, thread(first + l).at.lanes);
  }
}

/// What each fiber does: block after block.
[[noreturn]] inline void run_threads() {
  for (;;) {
    try {
      if (!block.failure) block.body();
      if (!block.failure && !self().copies.empty()) fail("a thread ends while its copies are under way");
    } catch (const cancelled&) {
    } catch (...) {
      if (!block.failure) block.failure = std::current_exception();
    }
    end_thread();
    give_way();
  }
}

inline std::string deadlock() {
  std::map<std::string, int> waiting;
  for (int t = 0; t < block.size; ++t) {
    if (thread(t).now != status::waits) continue;
    const meeting& at = thread(t).at;
    std::string where = std::string(at.name) + " at " + name_of(at.at);
    if (at.lanes != 0) where += " for lanes " + std::to_string(at.lanes);
    ++waiting[where];
  }
  std::string sentence = "the threads of a block wait for each other:";
  for (const auto& [where, count] : waiting) sentence += " " + std::to_string(count) + " in " + where + ";";
  return sentence + " in block " + std::to_string(block.number);
}

inline void begin_block() {
  block.began = ++block.time;
  block.living = block.size;
  block.arrived = block.votes = 0;
  block.ready = block.resting = {};
  for (warp_state& each : block.warps) each.living = each.waiting = 0;
  for (int t = 0; t < block.size; ++t) {
    thread_state& each = thread(t);
    each.copies.clear();
    each.batches.clear();
    each.in_no_batch = 0;
    each.steps = 0;
    each.last_barrier = {};
    wake(t);
    warp_of(t).living |= 1u << (t % warp);
  }
}

inline void run_block() {
  begin_block();
  while (block.living > 0 && !block.failure) {
    const int next = next_thread();
    if (next < 0) {
      block.failure = std::make_exception_ptr(fault(deadlock()));
    } else {
      turn_to(next).ranges.enter();
    }
  }
  if (!block.failure) return;
  for (int t = 0; t < block.size; ++t) {
    if (thread(t).now != status::over) turn_to(t).ranges.enter();
  }
  std::rethrow_exception(std::exchange(block.failure, nullptr));
}

inline void prepare_threads(dim3 threads) {
  block.size = static_cast<int>(threads.x * threads.y * threads.z);
  while (block.threads.size() < static_cast<std::size_t>(block.size)) {
    block.threads.push_back(std::make_unique<thread_state>(&run_threads));
  }
  while (block.warps.size() * warp < block.threads.size()) block.warps.emplace_back();
  for (int t = 0; t < block.size; ++t) {
    const auto i = static_cast<unsigned>(t);
    thread(t).place = {i % threads.x, i / threads.x % threads.y, i / (threads.x * threads.y)};
  }
}

/// What a device would not start.
inline void must_be_possible(dim3 grid, dim3 threads) {
  if (block.running) throw fault("a kernel is launched by a kernel");
  const auto product = [](dim3 of) { return std::uint64_t{of.x} * of.y * of.z; };
  if (product(grid) == 0 || product(threads) == 0) throw fault("a launch without blocks, or of blocks without threads");
  if (threads.x > most_threads || threads.y > most_threads || threads.z > 64 || product(threads) > most_threads) {
    throw fault("a launch of blocks of more than 1024 threads, or deeper than 64");
  }
  if (grid.x > 0x7fffffffu || grid.y > 0xffffu || grid.z > 0xffffu) throw fault("a launch of too many blocks");
}

/// Brings the blocks of a launch, which are in ascending order, into that in which they run.
inline void put_in_order(std::vector<unsigned>& blocks) {
  const bool any = how.blocks == order::any;
  const order now = any ? static_cast<order>(block.orders() % 3) : how.blocks;
  if (now == order::reverse) std::reverse(blocks.begin(), blocks.end());
  if (now == order::random) std::shuffle(blocks.begin(), blocks.end(), any ? block.orders : block.random);
}

/// Runs a kernel; `body` is its call.
/// @throws  fault, or what the kernel throws; the next launch is none the worse for it
inline void run(dim3 grid, dim3 threads, kernel_call body) {
  must_be_possible(grid, threads);
  ++counted.launches;
  prepare_threads(threads);
  gridDim = grid;
  blockDim = threads;
  block.body = body;
  block.barriers.clear();
  block.random.seed(how.seed);
  std::vector<unsigned> turn(std::size_t{grid.x} * grid.y * grid.z);
  std::iota(turn.begin(), turn.end(), 0u);
  put_in_order(turn);
  struct running {
    running() { block.running = true; }
    ~running() { block.running = false; }
  } const while_it_runs;
  for (const unsigned b : turn) {
    block.number = static_cast<int>(b);
    blockIdx = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
    run_block();
  }
}

}  // namespace simt
