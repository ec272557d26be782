// SPDX-License-Identifier: Apache-2.0
// What support/simt.hpp must find: one small kernel for each kind of fault, with the same kernel put right beside it.
#include <doctest/doctest.h>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>

#include <numeric>  // std::accumulate
#include <vector>   // std::vector

namespace zoomr {

namespace {

using zoomr_test::device_array;
using zoomr_test::in_all_orders;

index_t thread_number() { return static_cast<index_t>(threadIdx.x); }
index_t block_number() { return static_cast<index_t>(blockIdx.x); }
index_t threads_of_block() { return static_cast<index_t>(blockDim.x); }

/// One element for each thread of all blocks.
std::vector<int> outcome(void (*kernel)(int*), unsigned threads = 64, unsigned blocks = 1) {
  device_array<int> out(std::int64_t{threads} * blocks, -1);
  launch({blocks, threads}, stream_ref{}, kernel, out.data());
  return out.values();
}

/// The kernel never gets through, whatever the order; in some order it is for this reason.
void must_fail(void (*kernel)(int*), const std::string& reason, unsigned threads = 64, unsigned blocks = 1) {
  CAPTURE(reason);
  std::string reasons;
  in_all_orders([&](const std::string& order) {
    CAPTURE(order);
    std::string what;
    try {
      outcome(kernel, threads, blocks);
    } catch (const simt::fault& caught) {
      what = caught.what();
    }
    CHECK(!what.empty());
    reasons += what + "\n";
  });
  CAPTURE(reasons);
  CHECK(reasons.find(reason) != std::string::npos);
}

/// The kernel gets through in every order, and each thread has what `expected(thread of all blocks)` says.
template <class Expected>
void must_pass(void (*kernel)(int*), Expected expected, unsigned threads = 64, unsigned blocks = 1) {
  in_all_orders([&](const std::string& order) {
    CAPTURE(order);
    std::vector<int> wanted;
    for (int t = 0; t < static_cast<int>(threads * blocks); ++t) wanted.push_back(expected(t));
    std::vector<int> got;
    CHECK_NOTHROW(got = outcome(kernel, threads, blocks));
    CHECK(got == wanted);
  });
}

// A named element is none: `auto x = a[i]` would be a value on a device, and a reference here.
static_assert(std::is_convertible_v<simt::shared_reference<int>, int>);
static_assert(!std::is_convertible_v<simt::shared_reference<int>&, int>);
static_assert(std::is_assignable_v<simt::shared_reference<int>, int>);
static_assert(!std::is_assignable_v<simt::shared_reference<int>&, int>);

int opposite(int t) { return 63 - t; }
int itself(int t) { return t; }

// Barriers of a block.

/// Warp 0 writes, warp 1 reads.
template <bool Right>
__global__ void read_after_write(int* out) {
  __shared__ shared_array<int, 32> values;
  const index_t t = thread_number();
  out[t] = t;
  if (t < 32) values[t] = t;
  if constexpr (Right) __syncthreads();
  if (t >= 32) out[t] = values[63 - t] + 32;
}
int read_backwards(int t) { return t < 32 ? t : 95 - t; }

/// Warp 1 reads before warp 0 writes again.
template <bool Right>
__global__ void write_after_read(int* out) {
  __shared__ shared_array<int, 32> values;
  const index_t t = thread_number();
  out[t] = t;
  if (t < 32) values[t] = t;
  __syncthreads();
  if (t >= 32) out[t] = values[63 - t] + 32;
  if constexpr (Right) __syncthreads();
  if (t < 32) values[t] = -1;
}

/// Warp 1 overwrites what warp 0 has written.
template <bool Right>
__global__ void write_after_write(int* out) {
  __shared__ shared_array<int, 32> values;
  const index_t t = thread_number();
  if (t < 32) values[t] = -1;
  if constexpr (Right) __syncthreads();
  if (t >= 32) values[63 - t] = t;
  __syncthreads();
  out[t] = values[t % 32];
}

/// Everybody reads; a lane of warp 1 writes once its own warp has read.
template <bool Right>
__global__ void write_after_many_reads(int* out) {
  __shared__ shared_array<int, 1> value;
  const index_t t = thread_number();
  if (t == 0) value[0] = 5;
  __syncthreads();
  out[t] = value[0];
  Right ? __syncthreads() : __syncwarp();
  if (t == 32) value[0] = 6;
}

/// Warp 0 reads; warp 1 passes many barriers of its own before it writes.
template <bool Right>
__global__ void write_after_a_while(int* out) {
  __shared__ shared_array<int, 1> value;
  const index_t t = thread_number();
  if (t == 0) value[0] = 5;
  __syncthreads();
  out[t] = t < 32 ? value[0] : 5;
  for (int i = 0; t >= 32 && i < 500; ++i) __syncwarp();
  if constexpr (Right) __syncthreads();
  if (t == 32) value[0] = 6;
}

/// Each thread has read before all its neighbours write.
template <bool Right>
__global__ void shifted_in_place(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  values[t] = t;
  __syncthreads();
  const int next = values[(t + 1) % 64];
  if constexpr (Right) __syncthreads();
  values[t] = next;
  __syncthreads();
  out[t] = values[63 - t];
}

// Barriers of a warp.

enum class by { nothing, shuffle, half, all };

/// What orders the lanes of a warp: the lower half reads what the upper half writes.
template <by What>
__global__ void within_warp(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  const bool upper = t % 32 >= 16;
  if (upper) values[t] = t;
  if constexpr (What == by::shuffle) __shfl_sync(all_lanes, t, 0);
  if constexpr (What == by::half) __syncwarp(upper ? 0xffff0000u : 0x0000ffffu);
  if constexpr (What == by::all) __syncwarp();
  out[t] = upper ? t : values[t ^ 31];
}

/// Each half looks at its own values.
__global__ void within_halves(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  values[t] = t;
  __syncwarp(t % 32 < 16 ? 0x0000ffffu : 0xffff0000u);
  out[t] = values[t ^ 15];
}

/// A barrier of a warp may stand in several places, but not be passed more often by some.
template <bool Right>
__global__ void from_two_branches(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  if (t % 2 == 0) {
    values[t] = t;
    __syncwarp();
  } else {
    __syncwarp();
    values[t] = values[t - 1] + 1;
    if constexpr (!Right) __syncwarp();
  }
  __syncthreads();
  out[t] = values[63 - t];
}

/// Lane 0 learns of lane 31 through lane 16: order goes on from barrier to barrier.
template <bool Right>
__global__ void along_a_chain(int* out) {
  __shared__ shared_array<int, 2> values;
  const index_t t = thread_number();
  constexpr unsigned later = 1u << 16 | 1u << 31;
  constexpr unsigned earlier = 1u << 0 | 1u << 16;
  out[t] = t;
  if (t == 31) values[0] = 0;
  if constexpr (!Right) {
    if ((earlier >> t & 1u) != 0) __syncwarp(earlier);
  }
  if ((later >> t & 1u) != 0) __syncwarp(later);
  if constexpr (Right) {
    if ((earlier >> t & 1u) != 0) __syncwarp(earlier);
  }
  if (t == 0) out[t] = values[0];
}

template <bool Right>
__global__ void between_warps(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  values[t] = t + 1;
  Right ? __syncthreads() : __syncwarp();
  out[t] = values[t & ~32];
}

// What has never been written.

template <bool Right>
__global__ void unwritten(int* out) {
  __shared__ shared_array<int, 65> values;
  const index_t t = thread_number();
  values[t] = t;
  if (Right && t == 0) values[64] = 64;
  __syncthreads();
  out[t] = values[t + 1] - 1;
}

/// The first block does not write for the others.
template <bool Right>
__global__ void of_an_earlier_block(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  if (Right || block_number() == 0) values[t] = t;
  __syncthreads();
  out[block_number() * 64 + t] = values[63 - t];
}

// Asynchronous copies.

/// 0 ... 63
const std::vector<uint4> up_to_63 = [] {
  std::vector<uint4> made;
  for (unsigned i = 0; i < 64; i += 4) made.push_back({i, i + 1, i + 2, i + 3});
  return made;
}();

enum class flaw { none, no_commit, no_wait, no_barrier, barrier_before_wait, changed_source };

template <flaw Flaw>
__global__ void copied(int* out) {
  __shared__ shared_array<uint4, 16> pieces;
  const index_t t = thread_number();
  uint4 own = up_to_63[static_cast<std::size_t>(t % 16)];
  if (t < 16) copy_async(pieces[t], &own);
  if constexpr (Flaw != flaw::no_commit) copy_async_commit();
  if constexpr (Flaw == flaw::changed_source) own.x = 77;
  if constexpr (Flaw == flaw::barrier_before_wait) __syncthreads();
  if constexpr (Flaw != flaw::no_wait) copy_async_wait<0>();
  if constexpr (Flaw != flaw::barrier_before_wait && Flaw != flaw::no_barrier) __syncthreads();
  out[t] = t;
  if (t < 32) return;
  const uint4 opposite_piece = pieces[(63 - t) / 4];
  out[t] = static_cast<int>(opposite_piece.x) + (63 - t) % 4 + 32;
}

/// Each thread reads what it has copied itself: no barrier is needed.
template <bool Right>
__global__ void copied_for_oneself(int* out) {
  __shared__ shared_array<uint4, 64> pieces;
  const index_t t = thread_number();
  copy_async(pieces[t], &up_to_63[static_cast<std::size_t>(t / 4)]);
  copy_async_commit();
  copy_async_wait<Right ? 0 : 1>();
  const uint4 piece = pieces[t];
  out[t] = static_cast<int>(piece.x) + t % 4;
}

/// Tiles of 64 numbers one after the other, the next one on its way while one is read.
template <bool Right>
__global__ void two_stages(int* out) {
  __shared__ shared_array<uint4, 32> stages;
  const index_t t = thread_number();
  constexpr int tiles = 5;
  const auto copy = [&](int tile) {
    if (tile < tiles && t < 16) copy_async(stages[tile % 2 * 16 + t], &up_to_63[static_cast<std::size_t>(t)]);
    copy_async_commit();
  };
  int sum = 0;
  copy(0);
  for (int tile = 0; tile < tiles; ++tile) {
    copy(tile + 1);  // the last batch is empty, and nobody waits for it
    copy_async_wait<1>();
    __syncthreads();
    const uint4 piece = stages[tile % 2 * 16 + (63 - t) / 4];
    sum += static_cast<int>(piece.x) + (63 - t) % 4;
    if constexpr (Right) __syncthreads();
  }
  out[t] = sum / tiles;
}

/// Each thread changes what it has copied itself.
template <bool Right>
__global__ void changed_on_its_way(int* out) {
  __shared__ shared_array<uint4, 64> pieces;
  const index_t t = thread_number();
  copy_async(pieces[t], &up_to_63[static_cast<std::size_t>(t / 4)]);
  copy_async_commit();
  if constexpr (Right) copy_async_wait<0>();
  pieces[t] = uint4{static_cast<unsigned>(t), 0, 0, 0};
  copy_async_wait<0>();
  const uint4 piece = pieces[t];
  out[t] = static_cast<int>(piece.x);
}

template <bool Right>
__global__ void never_waited_for(int* out) {
  __shared__ shared_array<uint4, 64> pieces;
  const index_t t = thread_number();
  copy_async(pieces[t], &up_to_63[0]);
  copy_async_commit();
  if constexpr (Right) copy_async_wait<0>();
  out[t] = t;
}

template <bool Right>
__global__ void source_not_aligned(int* out) {
  __shared__ shared_array<uint4, 1> piece;
  const index_t t = thread_number();
  const auto* const from = reinterpret_cast<const unsigned char*>(up_to_63.data()) + (Right ? 0 : 4);
  if (t == 0) copy_async(piece[0], reinterpret_cast<const uint4*>(from));
  copy_async_commit();
  copy_async_wait<0>();
  out[t] = t;
}

// Collectives, and waiting.

template <bool Right>
__global__ void different_collectives(int* out) {
  const index_t t = thread_number();
  const bool low = t % 32 < 16;
  if constexpr (Right) {
    const bool agreed = low ? __ballot_sync(0x0000ffffu, 1) == 0x0000ffffu : __any_sync(0xffff0000u, 1) == 1;
    out[t] = agreed ? t : -2;
  } else {
    out[t] = low ? static_cast<int>(__ballot_sync(all_lanes, 1)) : __any_sync(all_lanes, 1);
  }
}

template <bool Right>
__global__ void one_collective_in_two_places(int* out) {
  const index_t t = thread_number();
  if constexpr (Right) {
    out[t] = __shfl_sync(all_lanes, t, t % 32);
  } else if (t % 2 == 0) {
    out[t] = __shfl_sync(all_lanes, t, t % 32);
  } else {
    out[t] = __shfl_sync(all_lanes, t, t % 32);
  }
}

template <bool Right>
__global__ void different_masks(int* out) {
  const index_t t = thread_number();
  const unsigned mask = Right ? (t % 32 < 16 ? 0x0000ffffu : 0xffff0000u) : t % 32 < 16 ? 0x0000ffffu : all_lanes;
  out[t] = __shfl_xor_sync(mask, t, 0);
  __syncthreads();
}

template <bool Right>
__global__ void not_named(int* out) {
  const index_t t = thread_number();
  out[t] = __shfl_sync(Right ? all_lanes : 0x7fffffffu, t, t % 32);
}

/// Tensor cores work for whole warps: half of the second one has ended, or asks for nothing.
template <bool Right>
__global__ void tiles_of_half_a_warp(int* out) {
  const index_t t = thread_number();
  out[t] = t;
  if (t >= (Right ? 32 : 48)) return;
  float sums[4] = {};
  const unsigned ones[4] = {0x3f803f80u, 0x3f803f80u, 0x3f803f80u, 0x3f803f80u};
  mma_16x8x16<bfloat16>(sums, ones, {0x3f803f80u, 0x3f803f80u});
  out[t] = static_cast<int>(sums[t % 4]) - 16 + t;
}

/// Half of the lanes have ended.
template <bool Right>
__global__ void value_of_nobody(int* out) {
  const index_t t = thread_number();
  out[t] = t;
  if (t % 32 >= 16) return;
  const int from = t % 32 < 15 || !Right ? t % 32 + 1 : t % 32;
  out[t] = __shfl_sync(all_lanes, t, from) - (from - t % 32);
}

template <bool Right>
__global__ void different_barriers(int* out) {
  const index_t t = thread_number();
  if (Right || t < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[t] = t;
}

/// Threads that have ended are not waited for, and do not vote.
__global__ void some_end_early(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  out[t] = values[t] = t;
  __syncthreads();
  if (t >= 40) return;
  const int other = values[(t + 40) % 64];
  const int voters = __syncthreads_count(1);
  out[t] = voters == 40 && __syncthreads_and(1) != 0 ? other : -2;
  values[t] = 0;
}

template <bool Right>
__global__ void barriers_of_block_and_warp(int* out) {
  const index_t t = thread_number();
  if (Right || t != 40) __syncwarp();
  __syncthreads();
  out[t] = t;
}

template <bool Right>
__global__ void waits_for_a_value(int* out) {
  __shared__ shared_array<unsigned, 1> flag;
  const index_t t = thread_number();
  if (t == 0) flag[0] = 0;
  __syncthreads();
  while (t == 0 && atomicAdd(&flag[0], 0u) == 0) {
  }
  if (t == 40 && Right) atomicExch(&flag[0], 1u);
  out[t] = t;
}

template <bool Right>
__global__ void endless_loop(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  values[t] = 0;
  while (values[t] < t) values[t] += Right ? 1 : 0;
  out[t] = values[t];
}

// Indices.

template <int Offset>
__global__ void shared_index(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  values[t] = t;
  out[t] = values[t + Offset];
}

// Atomics.

/// Thread 0 sets the counter to zero, warp 0 counts, and warp 1 reads the sum.
enum class left { nothing, first_barrier, second_barrier, zero };
template <left Left>
__global__ void counted(int* out) {
  __shared__ shared_array<int, 1> count;
  const index_t t = thread_number();
  if (t == 0 && Left != left::zero) count[0] = 0;
  if constexpr (Left != left::first_barrier) __syncthreads();
  if (t < 32) atomicAdd(&count[0], 1);
  if constexpr (Left != left::second_barrier) __syncthreads();
  out[t] = t < 32 ? 32 : count[0];
}

/// Nobody looks but those who count.
template <bool Right>
__global__ void counted_from_nothing(int* out) {
  __shared__ shared_array<int, 1> count;
  const index_t t = thread_number();
  if (t == 0 && Right) count[0] = 0;
  __syncthreads();
  out[t] = atomicAdd(&count[0], 1) < 64 ? t : -2;
}

/// Warp 0 has counted before warp 1 begins again.
template <bool Right>
__global__ void set_after_counting(int* out) {
  __shared__ shared_array<int, 1> count;
  const index_t t = thread_number();
  if (t == 0) count[0] = 0;
  __syncthreads();
  if (t < 32) atomicAdd(&count[0], 1);
  if constexpr (Right) __syncthreads();
  if (t == 32) count[0] = 77;
  __syncthreads();
  out[t] = count[0];
}

/// Warp 1 reads before warp 0 counts on.
template <bool Right>
__global__ void counted_on(int* out) {
  __shared__ shared_array<int, 1> count;
  const index_t t = thread_number();
  if (t == 0) count[0] = 64;
  __syncthreads();
  out[t] = t < 32 ? 64 : count[0];
  if constexpr (Right) __syncthreads();
  if (t < 32) atomicAdd(&count[0], 1);
}

}  // namespace

TEST_CASE("a missing barrier of the block is found, whoever comes first") {
  must_fail(read_after_write<false>, "read that another thread has written, with no barrier between");
  must_pass(read_after_write<true>, read_backwards);
  must_fail(write_after_read<false>, "written that another thread has read, with no barrier between");
  must_pass(write_after_read<true>, read_backwards);
  must_fail(write_after_write<false>, "written by two threads, with no barrier between");
  must_pass(write_after_write<true>, [](int t) { return 63 - t % 32; });
  must_fail(write_after_many_reads<false>, "written that another thread has read, with no barrier between");
  must_pass(write_after_many_reads<true>, [](int) { return 5; });
  must_fail(write_after_a_while<false>, "written that another thread has read, with no barrier between");
  must_pass(write_after_a_while<true>, [](int) { return 5; });
  must_fail(shifted_in_place<false>, "written that another thread has read, with no barrier between");
  must_pass(shifted_in_place<true>, [](int t) { return (64 - t) % 64; });
  must_fail(between_warps<false>, "read that another thread has written, with no barrier between");
  must_pass(between_warps<true>, [](int t) { return t % 32 + 1; });
}

TEST_CASE("a missing barrier of a warp is found; shuffles order nothing, and masks count") {
  must_fail(within_warp<by::nothing>, "read that another thread has written, with no barrier between");
  must_fail(within_warp<by::shuffle>, "read that another thread has written, with no barrier between");
  must_fail(within_warp<by::half>, "read that another thread has written, with no barrier between");
  must_pass(within_warp<by::all>, [](int t) { return t % 32 < 16 ? t ^ 31 : t; });
  must_pass(within_halves, [](int t) { return t ^ 15; });
  must_fail(from_two_branches<false>, "the threads of a block wait for each other");
  must_pass(from_two_branches<true>, opposite);
  must_fail(along_a_chain<false>, "shared memory is read that nobody has written", 32);
  must_fail(along_a_chain<false>, "read that another thread has written, with no barrier between", 32);
  must_pass(along_a_chain<true>, itself, 32);
}

TEST_CASE("shared memory holds nothing at first, whatever an earlier block or launch has left there") {
  must_fail(unwritten<false>, "shared memory is read that nobody has written");
  must_pass(unwritten<true>, itself);
  must_fail(unwritten<false>, "shared memory is read that nobody has written");
  must_fail(of_an_earlier_block<false>, "shared memory is read that only an earlier block has written", 64, 3);
  must_pass(
      of_an_earlier_block<true>, [](int t) { return opposite(t % 64); }, 64, 3);
  must_pass(of_an_earlier_block<false>, opposite, 64, 1);
}

TEST_CASE("asynchronous copies are there once they are committed, waited for and followed by a barrier") {
  must_fail(copied<flaw::no_commit>, "read while a copy into it is under way");
  must_fail(copied<flaw::no_wait>, "read while a copy into it is under way");
  must_fail(copied<flaw::no_barrier>, "read that another thread has written, with no barrier between");
  must_fail(copied<flaw::barrier_before_wait>, "read that another thread has written, with no barrier between");
  must_fail(copied<flaw::changed_source>, "the source of an asynchronous copy changes while the copy is under way");
  must_pass(copied<flaw::none>, read_backwards);
  must_fail(copied_for_oneself<false>, "read while a copy into it is under way");
  must_pass(copied_for_oneself<true>, itself);
  must_fail(changed_on_its_way<false>, "written while a copy into it is under way");
  must_pass(changed_on_its_way<true>, itself);
  must_fail(never_waited_for<false>, "a thread ends while its copies are under way");
  must_pass(never_waited_for<true>, itself);
  must_fail(source_not_aligned<false>, "an asynchronous copy from an address that is not aligned");
  must_pass(source_not_aligned<true>, itself);
}

TEST_CASE("a stage that is overwritten while others still read it is found") {
  must_fail(two_stages<false>, "written that another thread has read, with no barrier between");
  must_fail(two_stages<false>, "read while a copy into it is under way");
  must_pass(two_stages<true>, opposite);
}

TEST_CASE("lanes that are not in the same collective are found") {
  must_fail(different_collectives<false>, "the lanes of a warp are in different collectives");
  must_pass(different_collectives<true>, itself);
  must_fail(one_collective_in_two_places<false>, "the lanes of a warp are in different collectives");
  must_pass(one_collective_in_two_places<true>, itself);
  must_fail(different_masks<false>, "the threads of a block wait for each other");
  must_pass(different_masks<true>, itself);
  must_fail(not_named<false>, "which does not name it");
  must_pass(not_named<true>, itself);
  must_fail(value_of_nobody<false>, "the value of a lane that takes no part is read");
  must_pass(value_of_nobody<true>, itself);
  must_fail(tiles_of_half_a_warp<false>, "the value of a lane that takes no part is read");
  must_pass(tiles_of_half_a_warp<true>, itself);
}

TEST_CASE("threads that wait for ever, or go on for ever, are found") {
  must_fail(different_barriers<false>, "the threads of a block are at different barriers");
  must_pass(different_barriers<true>, itself);
  must_fail(barriers_of_block_and_warp<false>, "the threads of a block wait for each other");
  must_pass(barriers_of_block_and_warp<true>, itself);
  must_pass(some_end_early, [](int t) { return t < 40 ? (t + 40) % 64 : t; });
  must_fail(waits_for_a_value<false>, "a thread goes on for ever");
  must_pass(waits_for_a_value<true>, itself);
  must_fail(endless_loop<false>, "a thread goes on for ever");
  must_pass(endless_loop<true>, itself);
}

TEST_CASE("indices out of range are found") {
  must_fail(shared_index<1>, "index 64 of a shared array of 64");
  must_fail(shared_index<-1>, "index -1 of a shared array of 64");
  must_pass(shared_index<0>, itself);
}

TEST_CASE("atomics need no barrier among themselves, but one before and after") {
  must_fail(counted<left::first_barrier>, "read that another thread has written, with no barrier between");
  must_fail(counted<left::second_barrier>, "read that another thread has written, with no barrier between");
  must_fail(counted<left::zero>, "shared memory is read that nobody has written");
  must_pass(counted<left::nothing>, [](int) { return 32; });
  must_fail(counted_from_nothing<false>, "shared memory is read that nobody has written");
  must_pass(counted_from_nothing<true>, itself);
  must_fail(set_after_counting<false>, "written by two threads, with no barrier between");
  must_pass(set_after_counting<true>, [](int) { return 77; });
  must_fail(counted_on<false>, "written that another thread has read, with no barrier between");
  must_pass(counted_on<true>, [](int) { return 64; });
}

// Launches.

namespace {

__global__ void read_view(view<const int> in, int* out) { out[thread_number()] = in[thread_number()]; }

__global__ void launches_another(int* out) { out[0] = outcome(read_after_write<true>)[0]; }

int rank = 0;
/// As which one each thread comes.
__global__ void ranks(int* out) { out[block_number() * threads_of_block() + thread_number()] = rank++; }

}  // namespace

TEST_CASE("what a kernel throws comes out of the launch or the wait, and the next one is none the worse") {
  device_array<int> in(63, 7);
  device_array<int> out(1024, -1);
  for (int time = 0; time < 3; ++time) {
    CHECK_THROWS_AS((launch({1, 64}, stream_ref{}, read_view, in.view(), out.data()), simt::finish({})),
                    precondition_error);
    launch({1, 63}, stream_ref{}, read_view, in.view(), out.data());
    CHECK(out.values()[62] == 7);
    CHECK_THROWS_AS(outcome(barriers_of_block_and_warp<false>), simt::fault);
    CHECK_THROWS_AS(outcome(read_after_write<false>, 64, 2), simt::fault);
    CHECK_THROWS_AS(outcome(copied<flaw::no_commit>), simt::fault);
    CHECK(outcome(read_after_write<true>)[63] == 32);
    CHECK(outcome(copied<flaw::none>)[63] == 32);
    CHECK(outcome(barriers_of_block_and_warp<true>, 1024)[1023] == 1023);
  }
}

TEST_CASE("a launch that no device would start is a fault") {
  const auto start = [](dim3 grid, dim3 block) {
    device_array<int> out(1024, -1);
    launch({grid, block}, stream_ref{}, barriers_of_block_and_warp<true>, out.data());
  };
  CHECK_NOTHROW(start(1, 1024));
  CHECK_NOTHROW(start(1, {1024, 1, 1}));
  CHECK_NOTHROW(start(1, {1, 16, 64}));
  CHECK_NOTHROW(start({1, 2, 3}, 1));
  CHECK_THROWS_AS(start(1, 1025), simt::fault);
  CHECK_THROWS_AS(start(1, {513, 2}), simt::fault);
  CHECK_THROWS_AS(start(1, {1, 1, 65}), simt::fault);
  CHECK_THROWS_AS(start(0, 32), simt::fault);
  CHECK_THROWS_AS(start(1, 0), simt::fault);
  CHECK_THROWS_AS(start({1, 65536}, 1), simt::fault);
  CHECK_THROWS_AS(start({1, 1, 65536}, 1), simt::fault);
  CHECK_THROWS_WITH_AS(outcome(launches_another), "a kernel is launched by a kernel", simt::fault);
  CHECK_NOTHROW(start(1, 32));
}

TEST_CASE("threads and blocks run forward, in reverse, or as the seed says") {
  const auto ranks_in = [](simt::order threads, simt::order blocks, std::uint64_t seed) {
    const simt::scoped_settings until_then({threads, blocks, seed, {}});
    rank = 0;
    return outcome(ranks, 48, 7);
  };
  using enum simt::order;
  std::vector<int> expected;
  for (int i = 0; i < 7 * 48; ++i) expected.push_back(i);
  CHECK(ranks_in(forward, forward, 1) == expected);
  for (int i = 0; i < 7 * 48; ++i) expected[static_cast<std::size_t>(i)] = i / 48 * 48 + 47 - i % 48;
  CHECK(ranks_in(reverse, forward, 1) == expected);
  for (int i = 0; i < 7 * 48; ++i) expected[static_cast<std::size_t>(i)] = (6 - i / 48) * 48 + i % 48;
  CHECK(ranks_in(forward, reverse, 1) == expected);
  CHECK(ranks_in(random, forward, 1) == ranks_in(random, forward, 1));
  CHECK(ranks_in(random, forward, 1) != ranks_in(random, forward, 2));
  CHECK(ranks_in(forward, random, 1) == ranks_in(forward, random, 1));
  CHECK(ranks_in(forward, random, 1) != ranks_in(forward, random, 2));
  CHECK(simt::how.threads == forward);
  // Each launch in another order; as a rule all three are among so many.
  simt::block.orders.seed(1);
  std::set<std::vector<int>> seen;
  for (int launches = 0; launches < 24; ++launches) seen.insert(ranks_in(forward, any, 1));
  CHECK(seen.count(ranks_in(forward, forward, 1)) == 1);
  CHECK(seen.count(ranks_in(forward, reverse, 1)) == 1);
  CHECK(seen.size() > 4);
}

// Barriers that are left out.

namespace {

int needed = 0;  // lines of barriers
int needed_by_warp = 0;
int needed_for_votes = 0;
int superfluous = 0;
int superfluous_in_warp = 0;

__global__ void some_barriers_too_many(int* out) {
  __shared__ shared_array<int, 64> values;
  const index_t t = thread_number();
  superfluous = __LINE__ + 1;
  __syncthreads();
  values[t] = t;
  needed_by_warp = __LINE__ + 1;
  __syncwarp();
  const int neighbour = values[t ^ 1];
  superfluous_in_warp = __LINE__ + 1;
  __syncwarp();
  needed = __LINE__ + 1;
  __syncthreads();
  const int other = values[63 - t] + neighbour - (t ^ 1);
  needed_for_votes = __LINE__ + 1;
  out[t] = __syncthreads_count(t % 2) == 32 ? other : -2;
}

/// No shared memory: threads get wrong numbers in some orders.
__global__ void through_global_memory(int* out) {
  const index_t t = thread_number();
  out[t] = t;
  needed = __LINE__ + 1;
  __syncthreads();
  const int other = out[63 - t];
  superfluous = __LINE__ + 1;
  __syncwarp();
  __syncthreads();
  out[t] = other;
}

std::string in_this_file(int line) { return "shim_test.cpp:" + std::to_string(line); }

std::vector<int> expected_of(int (*expected)(int)) {
  std::vector<int> made;
  for (int t = 0; t < 64; ++t) made.push_back(expected(t));
  return made;
}

}  // namespace

TEST_CASE("barriers that nobody misses are named, and only those") {
  const auto body = [] { return outcome(some_barriers_too_many) == expected_of(opposite); };
  const auto not_missed = zoomr_test::barriers_not_missed(body);
  CHECK(not_missed == std::vector{in_this_file(superfluous), in_this_file(superfluous_in_warp)});
  std::vector<std::string> how;
  zoomr_test::for_each_barrier_left_out(
      body, [&](const zoomr_test::left_out_barrier& one) { how.push_back(one.noticed ? one.by : "not noticed"); });
  REQUIRE(how.size() == 5);
  CHECK(how[0] == "not noticed");
  CHECK(how[1].find("threads forward, blocks forward, seed 1: shared memory is read that") == 0);
  CHECK(how[2] == "not noticed");
  CHECK(how[3].find("threads forward, blocks forward, seed 1: shared memory is read that") == 0);
  CHECK(how[4] == "threads forward, blocks forward, seed 1: a wrong result");
}

TEST_CASE("a barrier that orders global memory is missed if the result tells") {
  const auto body = [] { return outcome(through_global_memory) == expected_of(opposite); };
  const auto not_missed = zoomr_test::barriers_not_missed(body);
  CHECK(not_missed == std::vector{in_this_file(superfluous)});
}

TEST_CASE("all barriers of right kernels are needed, each for itself") {
  const auto not_missed = [](void (*kernel)(int*), int (*expected)(int)) {
    return zoomr_test::barriers_not_missed([=] { return outcome(kernel) == expected_of(expected); });
  };
  CHECK(not_missed(read_after_write<true>, read_backwards).empty());
  CHECK(not_missed(write_after_read<true>, read_backwards).empty());
  CHECK(not_missed(write_after_write<true>, [](int t) { return 63 - t % 32; }).empty());
  CHECK(not_missed(between_warps<true>, [](int t) { return t % 32 + 1; }).empty());
  CHECK(not_missed(within_halves, [](int t) { return t ^ 15; }).empty());
  CHECK(not_missed(copied<flaw::none>, read_backwards).empty());
  CHECK(not_missed(two_stages<true>, opposite).empty());
  CHECK(not_missed(counted<left::nothing>, [](int) { return 32; }).empty());
}

TEST_CASE("settings are as before when barriers have been left out, and a test that fails anyway is refused") {
  const simt::scoped_settings until_then({simt::order::reverse, simt::order::random, 9, "nowhere:1"});
  simt::barriers_seen = {"somewhere:2"};
  CHECK_THROWS_AS(zoomr_test::barriers_not_missed([] { return false; }), std::logic_error);
  CHECK_THROWS_AS(zoomr_test::barriers_not_missed([] { return true; }), std::logic_error);
  CHECK_THROWS_AS(zoomr_test::barriers_not_missed([] { return !outcome(read_after_write<false>).empty(); }),
                  simt::fault);
  CHECK(zoomr_test::barriers_not_missed([] {
          return outcome(read_after_write<true>) == expected_of(read_backwards);
        }).empty());
  CHECK(simt::how.threads == simt::order::reverse);
  CHECK(simt::how.blocks == simt::order::random);
  CHECK(simt::how.seed == 9);
  CHECK(simt::how.without == "nowhere:1");
  CHECK(simt::barriers_seen == std::set<std::string>{"somewhere:2"});
  simt::barriers_seen.clear();
  outcome(read_after_write<true>);
  outcome(read_after_write<true>);
  CHECK(simt::barriers_seen.size() == 1);
}

}  // namespace zoomr
