// SPDX-License-Identifier: Apache-2.0
// What several query tokens attend to, as one list, against a look at each slot.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>
#include <zoomr/attention/query_tile.cuh>

#include <vector>  // std::vector

namespace zoomr {
namespace {

using zoomr_test::device_array;
using lists_of_ranges = std::vector<std::vector<token_range>>;

struct joined {
  std::vector<token_range> ranges;
  std::vector<index_t> before;
  std::vector<unsigned> attending;
  attended_size size;

  friend bool operator==(const joined& a, const joined& b) {
    return a.ranges == b.ranges && a.before == b.before && a.attending == b.attending && a.size.tokens == b.size.tokens;
  }
};

index_t end_of(const lists_of_ranges& lists) {
  index_t end = 0;
  for (const auto& list : lists) end = list.empty() || list.back().last < end ? end : list.back().last;
  return end;
}

joined by_slots(const lists_of_ranges& lists) {
  std::vector<unsigned> attending(unit::size(end_of(lists)) + 1, 0u);
  for (std::size_t j = 0; j < lists.size(); ++j) {
    for (const token_range& r : lists[j]) {
      for (index_t slot = r.first; slot < r.last; ++slot) attending[unit::size(slot)] |= 1u << j;
    }
  }
  joined made;
  for (index_t slot = 0; slot < end_of(lists); ++slot) {
    const unsigned by = attending[unit::size(slot)];
    if (by == 0) continue;
    if (slot == 0 || attending[unit::size(slot - 1)] != by) {
      made.ranges.push_back({slot, slot});
      made.before.push_back(made.size.tokens);
      made.attending.push_back(by);
    }
    made.ranges.back().last = slot + 1;
    ++made.size.tokens;
  }
  made.size.ranges = static_cast<index_t>(made.ranges.size());
  return made;
}

struct listed {
  view<const token_range> ranges;  // of all lists
  view<const index_t> first;

  __device__ range_edges operator()(index_t j) const { return {ranges.slice(first[j], first[j + 1])}; }
};

__global__ void share_with(listed lists, index_t count, shared_list to, attended_size* size) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const attended_size all = join_ranges(block, lists, count, to);
  if (block.thread() == block.size() - 1) *size = all;  // every thread knows it
}

joined on_device(const lists_of_ranges& lists, index_t threads) {
  std::vector<token_range> all;
  std::vector<index_t> first{0};
  for (const auto& list : lists) {
    all.insert(all.end(), list.begin(), list.end());
    first.push_back(static_cast<index_t>(all.size()));
  }
  const std::int64_t room = 2 * first.back();
  device_array<token_range> given(all);
  device_array<index_t> firsts(first);
  device_array<token_range> ranges(room, token_range{-7, -7});
  device_array<index_t> before(room, 1000000007);
  device_array<unsigned> attending(room, 77u);
  device_array<attended_size> size(1, attended_size{});
  launch({dim3(1), dim3(static_cast<unsigned>(threads))}, zoomr::stream_ref{}, share_with,
         listed{given.view(), firsts.view()}, static_cast<index_t>(lists.size()),
         shared_list{{ranges.data(), {static_cast<index_t>(room)}},
                     {before.data(), {static_cast<index_t>(room)}},
                     {attending.data(), {static_cast<index_t>(room)}}},
         size.data());
  joined made{ranges.values(), before.values(), attending.values(), size.values()[0]};
  made.ranges.resize(unit::size(made.size.ranges));
  made.before.resize(unit::size(made.size.ranges));
  made.attending.resize(unit::size(made.size.ranges));
  return made;
}

/// Lists that have much in common: some of the same ranges, a few of them cut short, and some of their own.
lists_of_ranges random_lists(unit::random& random, index_t count, index_t ranges) {
  lists_of_ranges made(unit::size(count));
  const index_t gap = random.chance(0.3) ? 1 : 9;
  for (auto& list : made) {
    if (random.chance(0.1)) continue;  // attends to nothing
    index_t end = random.between(0, 2);
    for (index_t r = 0; r < ranges; ++r) {
      const token_range base{20 * r, 20 * r + 13};
      const bool own = random.chance(0.2);
      const index_t first = own ? base.first + random.between(0, gap) : base.first;
      const index_t last = random.chance(0.2) ? first + random.between(1, 6) : base.last;
      if (first <= end && r > 0) continue;  // runs of one list do not touch
      if (random.chance(0.1)) continue;
      list.push_back({first, last});
      end = last;
    }
  }
  return made;
}

}  // namespace

TEST_CASE("runs that query tokens share are those that a look at each slot finds") {
  unit::random random(11);
  for (const index_t count : {1, 2, 3, 7, 16, 32}) {
    for (const index_t ranges : {0, 1, 2, 5, 17, 40}) {
      const lists_of_ranges lists = random_lists(random, count, ranges);
      for (const index_t threads : {32, 64, 256}) {
        CAPTURE(count);
        CAPTURE(ranges);
        CAPTURE(threads);
        CHECK(on_device(lists, threads) == by_slots(lists));
      }
    }
  }
}
TEST_CASE("lists that are the same, one within the other, apart, or end to end") {
  const std::vector<lists_of_ranges> each{
      {{{3, 9}, {12, 40}}, {{3, 9}, {12, 40}}},  // one list
      {{{0, 100}}, {{10, 20}, {30, 31}}},        // holes
      {{{0, 5}}, {{5, 9}}, {{9, 10}}},           // each begins where another ends
      {{{7, 8}}, {{2000000000, 2000000001}}},    // far apart
      {{}, {}, {}},
  };
  for (const lists_of_ranges& lists : each) {
    if (end_of(lists) < 1000) CHECK(on_device(lists, 32) == by_slots(lists));
  }
  const joined far = on_device(each[3], 32);
  CHECK(far.ranges == std::vector<token_range>{{7, 8}, {2000000000, 2000000001}});
  CHECK(far.attending == std::vector<unsigned>{1u, 2u});
  CHECK(far.size.tokens == 2);
}
TEST_CASE("sharing runs: the order of threads changes nothing, and no barrier can be left out") {
  unit::random random(12);
  const lists_of_ranges many = random_lists(random, 5, 40);
  // their edges fit one round of the threads, and some are the same
  const lists_of_ranges few{{{0, 3}, {5, 9}, {12, 40}, {50, 53}}, {{0, 3}, {5, 7}, {12, 40}, {60, 70}}};
  const auto same = [&] { return on_device(many, 64) == by_slots(many) && on_device(few, 64) == by_slots(few); };
  zoomr_test::in_all_orders([&](const std::string& order) {
    INFO(order);
    CHECK(same());
  });
  CHECK(zoomr_test::barriers_not_missed(same) == zoomr_test::barrier_list{});
}

}  // namespace zoomr
