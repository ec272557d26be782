// SPDX-License-Identifier: Apache-2.0
// CUDA's words as this library's kernels use them, against plain loops. Passes under support/simt.hpp and on a device,
// and so says that the two mean the same.
#include <doctest/doctest.h>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>

#include <algorithm>  // std::sort
#include <numeric>    // std::accumulate

namespace zoomr {

namespace {

using zoomr_test::device_array;
using zoomr_test::in_all_orders;

static_assert(sizeof(uint2) == 8 && alignof(uint2) == 8 && sizeof(float2) == 8 && alignof(float2) == 8);
static_assert(sizeof(int4) == 16 && alignof(int4) == 16 && sizeof(uint4) == 16 && alignof(uint4) == 16);
static_assert(sizeof(float4) == 16 && alignof(float4) == 16);

std::size_t size(index_t n) { return static_cast<std::size_t>(n); }

/// A thread's number in its block, and the block's in the grid.
__device__ index_t own_thread() {
  return static_cast<index_t>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
__device__ index_t own_block() {
  return static_cast<index_t>(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
}

template <class T>
std::vector<T> counted_from(T first, index_t count) {
  std::vector<T> made(size(count));
  std::iota(made.begin(), made.end(), first);
  return made;
}

// Shuffles.

enum class shuffle { from, flip, down, up };

/// The lane whose value lane `lane` gets, as the CUDA programming guide has it.
index_t source_of(shuffle how, index_t lane, index_t argument, index_t width) {
  const index_t group = lane / width * width;
  index_t source = lane;
  if (how == shuffle::from) source = group + (argument % width + width) % width;
  if (how == shuffle::flip && (lane ^ argument) < group + width) source = lane ^ argument;  // earlier groups, too
  if (how == shuffle::down && lane + argument < group + width) source = lane + argument;
  if (how == shuffle::up && lane - argument >= group) source = lane - argument;
  return source;
}

template <class T>
__global__ void shuffle_kernel(const T* in, shuffle how, int argument, int width, T* out) {
  const T value = in[own_thread()];
  T got{};
  if (how == shuffle::from) got = __shfl_sync(all_lanes, value, argument, width);
  if (how == shuffle::flip) got = __shfl_xor_sync(all_lanes, value, argument, width);
  if (how == shuffle::down) got = __shfl_down_sync(all_lanes, value, static_cast<unsigned>(argument), width);
  if (how == shuffle::up) got = __shfl_up_sync(all_lanes, value, static_cast<unsigned>(argument), width);
  out[own_thread()] = got;
}

template <class T>
void check_shuffles(T first, T step) {
  std::vector<T> values;
  for (index_t t = 0; t < 64; ++t) values.push_back(static_cast<T>(first + static_cast<T>(t) * step));
  device_array<T> in(values);
  device_array<T> out(64, T{});
  for (const shuffle how : {shuffle::from, shuffle::flip, shuffle::down, shuffle::up}) {
    for (index_t width = 1; width <= 32; width *= 2) {
      for (index_t argument = how == shuffle::from ? -3 : 0; argument < 32; argument += argument < 5 ? 1 : 3) {
        launch({1, 64}, stream_ref{}, &shuffle_kernel<T>, in.data(), how, argument, width, out.data());
        std::vector<T> expected;
        for (index_t t = 0; t < 64; ++t) {
          expected.push_back(values[size(t / 32 * 32 + source_of(how, t % 32, argument, width))]);
        }
        CAPTURE(static_cast<int>(how));
        CAPTURE(width);
        CAPTURE(argument);
        REQUIRE(out.values() == expected);
      }
    }
  }
}

}  // namespace

TEST_CASE("shuffles of all types, widths and distances give the lane that the programming guide names") {
  check_shuffles<int>(-7, 3);
  check_shuffles<unsigned>(0xfffffff0u, 0x01234567u);
  check_shuffles<long long>(-1, 1ll << 40);
  check_shuffles<std::int64_t>(-1, std::int64_t{1} << 40);
  check_shuffles<std::uint64_t>(~std::uint64_t{0}, 0x0123456789abcdefu);
  check_shuffles<float>(-0.75f, 0.125f);
  check_shuffles<double>(-0.75, 1e-3);
}

// Votes and reductions.

namespace {

/// What lanes [0, cut) and [cut, lanes that live) of a warp find among themselves.
struct found {
  unsigned ballot;
  int any, all, count_of_block, or_of_block, and_of_block;
  unsigned sum, least, most, least_signed, most_signed, sum_signed, both, either, differ;
};

__device__ unsigned lanes_below(int count) { return count == 32 ? all_lanes : (1u << count) - 1u; }

__global__ void votes_kernel(const int* in, int cut, int end, found* out) {
  const index_t t = own_thread();
  const int lane = t % 32;
  const int value = in[t];
  const bool low = lane < cut;
  // __syncthreads_* before some lanes end
  found mine{};
  mine.count_of_block = __syncthreads_count(value % 2);
  mine.or_of_block = __syncthreads_or(value == 77) != 0;
  mine.and_of_block = __syncthreads_and(value != 77) != 0;
  out[t] = mine;
  if (lane >= end) return;
  const unsigned mask = low ? lanes_below(cut) : all_lanes & ~lanes_below(cut);  // names lanes that have ended, too
  const auto bits = static_cast<unsigned>(value);
  mine.ballot = __ballot_sync(mask, value % 2);
  mine.any = __any_sync(mask, value == 77) != 0;
  mine.all = __all_sync(mask, value != 77) != 0;
  mine.sum = __reduce_add_sync(mask, bits);
  mine.sum_signed = static_cast<unsigned>(__reduce_add_sync(mask, value));
  mine.least = __reduce_min_sync(mask, bits);
  mine.most = __reduce_max_sync(mask, bits);
  mine.least_signed = static_cast<unsigned>(__reduce_min_sync(mask, value));
  mine.most_signed = static_cast<unsigned>(__reduce_max_sync(mask, value));
  mine.both = __reduce_and_sync(mask, bits);
  mine.either = __reduce_or_sync(mask, bits);
  mine.differ = __reduce_xor_sync(mask, bits);
  out[t] = mine;
}

/// The same in loops, for the lanes [first, last) of a block's values.
found found_in(const std::vector<int>& values, index_t first, index_t last) {
  found f{};
  f.all = 1;
  f.least = f.both = all_lanes;
  f.least_signed = 0x7fffffffu;
  f.most_signed = 0x80000000u;
  for (index_t t = first; t < last; ++t) {
    const int value = values[size(t)];
    const auto bits = static_cast<unsigned>(value);
    if (value % 2 != 0) f.ballot |= 1u << (t % 32);
    if (value == 77) f.any = 1, f.all = 0;
    f.sum += bits, f.sum_signed += bits;
    f.least = std::min(f.least, bits), f.most = std::max(f.most, bits);
    f.least_signed = static_cast<unsigned>(std::min(static_cast<int>(f.least_signed), value));
    f.most_signed = static_cast<unsigned>(std::max(static_cast<int>(f.most_signed), value));
    f.both &= bits, f.either |= bits, f.differ ^= bits;
  }
  return f;
}

std::vector<int> odd_numbers(index_t count, std::uint32_t seed) {
  std::vector<int> made;
  for (index_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    made.push_back(seed >> 28 == 0 ? 77 : static_cast<int>(seed >> 3) * (seed % 5 == 0 ? -1 : 1));
  }
  return made;
}

bool same(const found& a, const found& b) { return std::memcmp(&a, &b, sizeof(found)) == 0; }

void check_votes(index_t threads, index_t cut, index_t end, std::uint32_t seed) {
  CAPTURE(threads);
  CAPTURE(cut);
  CAPTURE(end);
  CAPTURE(seed);
  const std::vector<int> values = odd_numbers(threads, seed);
  device_array<int> in(values);
  device_array<found> out(threads, found{});
  launch({1, static_cast<unsigned>(threads)}, stream_ref{}, &votes_kernel, in.data(), cut, end, out.data());
  const std::vector<found> got = out.values();
  for (index_t t = 0; t < threads; ++t) {
    const index_t first = t / 32 * 32;
    const index_t last = std::min(threads, first + end);
    const index_t middle = std::min(last, first + cut);
    found expected{};
    if (t % 32 < end) expected = t % 32 < cut ? found_in(values, first, middle) : found_in(values, middle, last);
    const found all = found_in(values, 0, threads);
    expected.or_of_block = all.any, expected.and_of_block = all.all;
    for (const int value : values) expected.count_of_block += value % 2 != 0 ? 1 : 0;
    CAPTURE(t);
    REQUIRE(same(got[size(t)], expected));
  }
}

}  // namespace

TEST_CASE("votes and reductions are those of the lanes that take part and have not ended") {
  in_all_orders([](const std::string& order) {
    CAPTURE(order);
    std::uint32_t seed = 1;
    for (const index_t threads : {1, 16, 31, 32, 33, 48, 64, 97}) {
      for (const index_t cut : {1, 5, 16, 31, 32}) {
        for (const index_t end : {1, 17, 32}) check_votes(threads, cut, end, seed++);
      }
    }
  });
}

// Atomics.

namespace {

template <class T>
struct votes {
  T add, least, most, both, either, differ, last, swapped;
};

/// All threads work on one element of each; what was there before each addition is written out.
template <class T, class Address, class Bits>
__device__ void work_on(Address add, Address least, Address most, Bits both, Bits either, Bits differ, Bits swapped,
                        T value, T* before) {
  before[own_thread()] = atomicAdd(add, value);
  atomicMin(least, value);
  atomicMax(most, value);
  atomicAnd(both, value);
  atomicOr(either, value);
  atomicXor(differ, value);
  if (value == T{5}) atomicCAS(swapped, T{40}, value);
  atomicCAS(swapped, T{41}, value);  // is never there
}

template <class T>
__global__ void atomics_in_shared(votes<T> start, T* before, votes<T>* out) {
  __shared__ shared_array<T, 8> at;
  if (own_thread() == 0) {
    at[0] = start.add;
    at[1] = start.least;
    at[2] = start.most;
    at[3] = start.both;
    at[4] = start.either;
    at[5] = start.differ;
    at[6] = start.last;
    at[7] = start.swapped;
  }
  __syncthreads();
  const T value = static_cast<T>(own_thread() + 1);
  work_on(&at[0], &at[1], &at[2], &at[3], &at[4], &at[5], &at[7], value, before);
  atomicExch(&at[6], T{9});
  __syncthreads();
  if (own_thread() == 0) *out = {at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7]};
}

template <class T>
__global__ void atomics_in_global(T* before, votes<T>* at) {
  const T value = static_cast<T>(own_thread() + 1);
  work_on(&at->add, &at->least, &at->most, &at->both, &at->either, &at->differ, &at->swapped, value, before);
  atomicExch(&at->last, T{9});
}

template <class T>
void check_votes(const votes<T>& got, std::vector<T> before, index_t threads) {
  T sum{1};
  T both = static_cast<T>(~T{0});
  T either{0};
  T differ{0};
  std::vector<T> sums;
  for (index_t t = 1; t <= threads; ++t) {
    sum = static_cast<T>(sum + static_cast<T>(t));
    both = static_cast<T>(both & static_cast<T>(t));
    either = static_cast<T>(either | static_cast<T>(t));
    differ = static_cast<T>(differ ^ static_cast<T>(t));
  }
  CHECK(got.add == sum);
  CHECK(got.least == T{1});
  CHECK(got.most == static_cast<T>(threads));
  CHECK(got.both == both);
  CHECK(got.either == either);
  CHECK(got.differ == differ);
  CHECK(got.last == T{9});
  CHECK(got.swapped == (threads >= 5 ? T{5} : T{40}));
  // each thread has found another sum, and added to it
  std::vector<T> order = counted_from(T{0}, threads);
  std::sort(order.begin(), order.end(), [&](T a, T b) { return before[size(index_t(a))] < before[size(index_t(b))]; });
  T found_so_far{1};
  for (const T t : order) {
    CHECK(before[size(static_cast<index_t>(t))] == found_so_far);
    found_so_far = static_cast<T>(found_so_far + t + T{1});
  }
}

template <class T>
void check_atomics(index_t threads) {
  CAPTURE(threads);
  const votes<T> start{T{1}, T{50}, T{0}, static_cast<T>(~T{0}), T{0}, T{0}, T{7}, T{40}};
  const launch_shape shape{1, static_cast<unsigned>(threads)};
  device_array<T> before(threads, T{0});
  device_array<votes<T>> out(1, start);
  launch(shape, stream_ref{}, &atomics_in_shared<T>, start, before.data(), out.data());
  check_votes(out.values()[0], before.values(), threads);
  device_array<votes<T>> at(1, start);
  launch(shape, stream_ref{}, &atomics_in_global<T>, before.data(), at.data());
  check_votes(at.values()[0], before.values(), threads);
}

/// Sums of floating point; integers that pass zero, and counters that begin again.
__global__ void other_atomics(float* sum, double* double_sum, int* below_zero, unsigned* around, long long* largest,
                              float* last) {
  atomicAdd(sum, 0.5f);
  atomicAdd(double_sum, 0.25);
  atomicAdd(below_zero, -3);
  atomicInc(around, 4u);
  atomicMax(largest, (1ll << 40) + own_thread());
  atomicExch(last, 2.5f);
}

}  // namespace

TEST_CASE("atomics lose nothing, in shared and in global memory") {
  in_all_orders([](const std::string& order) {
    CAPTURE(order);
    for (const index_t threads : {1, 4, 5, 32, 33, 127}) {
      check_atomics<int>(threads);
      check_atomics<unsigned>(threads);
      check_atomics<unsigned long long>(threads);
    }
    device_array<float> sum(1, 1.0f);
    device_array<double> double_sum(1, 1.0);
    device_array<int> below_zero(1, 10);
    device_array<unsigned> around(1, 0u);
    device_array<long long> largest(1, -1ll);
    device_array<float> last(1, 0.0f);
    launch({3, 33}, stream_ref{}, &other_atomics, sum.data(), double_sum.data(), below_zero.data(), around.data(),
           largest.data(), last.data());
    CHECK(sum.values()[0] == 1.0f + 0.5f * 99);
    CHECK(double_sum.values()[0] == 1.0 + 0.25 * 99);
    CHECK(below_zero.values()[0] == 10 - 3 * 99);
    CHECK(around.values()[0] == 99 % 5);
    CHECK(largest.values()[0] == (1ll << 40) + 32);
    CHECK(last.values()[0] == 2.5f);
  });
}

// Bits, loads, shapes.

namespace {

struct bits_found {
  int popc, popcll, clz, clzll, ffs, ffsll;
};

__global__ void bits_kernel(const long long* in, bits_found* out) {
  const long long value = __ldg(in + own_thread());
  const auto low = static_cast<int>(value);
  out[own_thread()] = {__popc(static_cast<unsigned>(low)),
                       __popcll(static_cast<unsigned long long>(value)),
                       __clz(low),
                       __clzll(value),
                       __ffs(low),
                       __ffsll(value)};
}

__global__ void shape_kernel(index_t* out) {
  __shared__ shared_array<index_t, 1024> numbers;
  const index_t t = own_thread();
  const auto threads = static_cast<index_t>(blockDim.x * blockDim.y * blockDim.z);
  numbers[t] = static_cast<index_t>(threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z);
  __syncthreads();
  const index_t first_of_warp = __shfl_sync(all_lanes, t, 0);
  out[own_block() * threads + t] = first_of_warp == t / 32 * 32 ? numbers[threads - 1 - t] : -1;
}

}  // namespace

TEST_CASE("bits are counted as on a device, zero included") {
  std::vector<long long> values{0, 1, -1, 2, -2, 1ll << 31, 1ll << 32, 1ll << 63, 0x7fffffff, 0x0f0f0f0f0f0f0f0fll};
  device_array<long long> in(values);
  device_array<bits_found> out(static_cast<std::int64_t>(values.size()), {});
  launch({1, static_cast<unsigned>(values.size())}, stream_ref{}, &bits_kernel, in.data(), out.data());
  const auto got = out.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto all = static_cast<unsigned long long>(values[i]);
    bits_found expected{0, 0, 32, 64, 0, 0};
    for (int bit = 63; bit >= 0; --bit) {
      if ((all >> bit & 1u) == 0) continue;
      ++expected.popcll;
      expected.ffsll = bit + 1;
      if (expected.clzll == 64) expected.clzll = 63 - bit;
      if (bit >= 32) continue;
      ++expected.popc;
      expected.ffs = bit + 1;
      if (expected.clz == 32) expected.clz = 31 - bit;
    }
    CAPTURE(i);
    CHECK(std::memcmp(&got[i], &expected, sizeof expected) == 0);
  }
}

TEST_CASE("blocks and grids of three dimensions: x is innermost, and warps are threads in that order") {
  const dim3 grids[] = {1, {3, 1, 1}, {2, 3, 2}};
  const dim3 blocks[] = {1, 32, 1024, {5, 7, 3}, {32, 32, 1}, {1, 16, 64}, {3, 1, 11}};
  in_all_orders([&](const std::string& order) {
    CAPTURE(order);
    for (const dim3 grid : grids) {
      for (const dim3 block : blocks) {
        const auto threads = static_cast<index_t>(block.x * block.y * block.z);
        const auto all = static_cast<index_t>(grid.x * grid.y * grid.z) * threads;
        device_array<index_t> out(all, -2);
        launch({grid, block}, stream_ref{}, &shape_kernel, out.data());
        std::vector<index_t> expected;
        for (index_t i = 0; i < all; ++i) {
          const auto t = static_cast<unsigned>(threads - 1 - i % threads);
          expected.push_back(
              static_cast<index_t>(t % block.x + 100 * (t / block.x % block.y) + 10000 * (t / (block.x * block.y))));
        }
        REQUIRE(out.values() == expected);
      }
    }
  });
}

// Reductions, scans, and the last block.

namespace {

/// A running sum of the block's numbers: within warps by shuffles, between them by shared memory.
__device__ int running_sum(int value, shared_array<int, 32>& of_warp) {
  const index_t t = own_thread();
  const index_t lane = t % 32;
  const index_t warps = (static_cast<index_t>(blockDim.x) + 31) / 32;
  for (index_t apart = 1; apart < 32; apart *= 2) {
    const int before = __shfl_up_sync(all_lanes, value, static_cast<unsigned>(apart));
    if (lane >= apart) value += before;
  }
  if (lane == 31 || t == static_cast<index_t>(blockDim.x) - 1) of_warp[t / 32] = value;
  __syncthreads();
  if (t == 0) {
    for (index_t w = 1; w < warps; ++w) of_warp[w] += of_warp[w - 1];
  }
  __syncthreads();
  return value + (t < 32 ? 0 : static_cast<int>(of_warp[t / 32 - 1]));
}

__global__ void scan_kernel(const int* in, int* out) {
  __shared__ shared_array<int, 32> of_warp;
  const index_t at = own_block() * static_cast<index_t>(blockDim.x) + own_thread();
  out[at] = running_sum(in[at], of_warp);
}

/// Each block leaves its sum; the block that is the last to do so adds them up, in the order of blocks.
__global__ void sum_kernel(const float* in, index_t count, float* of_block, unsigned* done, float* out) {
  __shared__ shared_array<float, 128> sums;
  __shared__ shared_array<int, 1> last;
  const index_t t = own_thread();
  const auto blocks = static_cast<index_t>(gridDim.x);
  float sum = 0.0f;
  for (index_t i = own_block() * 128 + t; i < count; i += blocks * 128) sum += in[i];
  sums[t] = sum;
  __syncthreads();
  for (index_t half = 64; half > 0; half /= 2) {
    if (t < half) sums[t] += sums[t + half];
    __syncthreads();
  }
  if (t == 0) {
    of_block[own_block()] = sums[0];
    __threadfence();
    last[0] = atomicInc(done, gridDim.x - 1) == gridDim.x - 1 ? 1 : 0;
  }
  __syncthreads();
  if (last[0] == 0 || t != 0) return;
  __threadfence();
  float all = 0.0f;
  for (index_t b = 0; b < blocks; ++b) all += of_block[b];
  *out = all;
}

/// The same sum in the same order.
float sum_of(const std::vector<float>& values, index_t blocks) {
  float all = 0.0f;
  for (index_t b = 0; b < blocks; ++b) {
    float sums[128] = {};
    for (index_t t = 0; t < 128; ++t) {
      for (index_t i = b * 128 + t; i < static_cast<index_t>(values.size()); i += blocks * 128)
        sums[t] += values[size(i)];
    }
    for (index_t half = 64; half > 0; half /= 2) {
      for (index_t t = 0; t < half; ++t) sums[t] += sums[t + half];
    }
    all += sums[0];
  }
  return all;
}

std::vector<float> fractions(index_t count) {
  std::vector<float> made;
  for (const int number : odd_numbers(count, 7)) made.push_back(static_cast<float>(number) / 1024.0f);
  return made;
}

bool scan_is_right(index_t threads, index_t blocks) {
  std::vector<int> values = odd_numbers(threads * blocks, 3);
  for (int& value : values) value %= 1000;
  device_array<int> in(values);
  device_array<int> out(threads * blocks, -1);
  launch({static_cast<unsigned>(blocks), static_cast<unsigned>(threads)}, stream_ref{}, &scan_kernel, in.data(),
         out.data());
  for (index_t i = 0; i < threads * blocks; ++i) {
    if (i % threads > 0) values[size(i)] += values[size(i - 1)];
  }
  return out.values() == values;
}

bool sum_is_right(index_t count, index_t blocks) {
  const std::vector<float> values = fractions(count);
  device_array<float> in(values);
  device_array<float> of_block(blocks, not_a_number);
  device_array<unsigned> done(1, 0u);
  device_array<float> out(1, not_a_number);
  bool right = true;
  for (int time = 0; time < 2; ++time) {  // the counter is zero again after a launch
    launch({static_cast<unsigned>(blocks), 128}, stream_ref{}, &sum_kernel, in.data(), count, of_block.data(),
           done.data(), out.data());
    right = right && out.values()[0] == sum_of(values, blocks) && done.values()[0] == 0;
  }
  return right;
}

}  // namespace

TEST_CASE("a running sum is that of a loop, in blocks of any size") {
  in_all_orders([](const std::string& order) {
    CAPTURE(order);
    for (const index_t threads : {1, 2, 31, 32, 33, 64, 127, 1000, 1024}) {
      CAPTURE(threads);
      CHECK(scan_is_right(threads, 3));
    }
  });
  CHECK(zoomr_test::barriers_not_missed([] { return scan_is_right(97, 2); }).empty());
}

TEST_CASE("the last block to arrive adds up what all have left, whichever it is") {
  in_all_orders([](const std::string& order) {
    CAPTURE(order);
    for (const index_t count : {0, 1, 127, 128, 129, 2003}) {
      for (const index_t blocks : {1, 2, 7}) {
        CAPTURE(count);
        CAPTURE(blocks);
        CHECK(sum_is_right(count, blocks));
      }
    }
  });
  CHECK(zoomr_test::barriers_not_missed([] { return sum_is_right(1000, 3); }).empty());
}

// Tensor cores.

namespace {

/// Warps that multiply one pair of tiles each. All numbers lie as they are read by people: a [16][16], b [16][8].
template <class Number, bool ByShuffles>
__global__ void mma_kernel(const Number* a, const Number* b, const float* before, float* out) {
  const index_t warp = own_block() * (static_cast<index_t>(blockDim.x) / warp_lanes) + own_thread() / warp_lanes;
  const index_t row = own_thread() % warp_lanes / 4;
  const index_t pair = own_thread() % 4 * 2;
  const auto both = [](Number low, Number high) { return low.bits | static_cast<unsigned>(high.bits) << 16; };
  const auto of_a = [&](index_t r, index_t k) {
    const Number* at = a + (warp * 16 + r) * 16 + k;
    return both(at[0], at[1]);
  };
  const auto of_b = [&](index_t k) {
    const Number* at = b + (warp * 16 + k) * 8 + row;
    return both(at[0], at[8]);
  };
  const unsigned left[4] = {of_a(row, pair), of_a(row + 8, pair), of_a(row, pair + 8), of_a(row + 8, pair + 8)};
  const unsigned right[2] = {of_b(pair), of_b(pair + 8)};
  float sums[4];
  for (index_t i = 0; i < 4; ++i) sums[i] = before[(warp * 16 + row + i / 2 * 8) * 8 + pair + i % 2];
  if constexpr (ByShuffles) {
    mma_by_shuffles<Number>(sums, left, right);
  } else {
    mma_16x8x16<Number>(sums, left, right);
  }
  for (index_t i = 0; i < 4; ++i) out[(warp * 16 + row + i / 2 * 8) * 8 + pair + i % 2] = sums[i];
}

/// Small integers, so that every order of summation gives the same; three warps in two blocks.
template <class Number, bool ByShuffles>
bool products_are_right() {
  constexpr index_t warps = 6;
  std::vector<Number> a, b;
  std::vector<float> before, expected;
  for (const int number : odd_numbers(warps * 256, 5)) a.push_back(from_float<Number>(static_cast<float>(number % 99)));
  for (const int number : odd_numbers(warps * 128, 9)) b.push_back(from_float<Number>(static_cast<float>(number % 77)));
  for (const int number : odd_numbers(warps * 128, 4)) before.push_back(static_cast<float>(number % 1000) + 0.5f);
  for (index_t w = 0; w < warps; ++w) {
    for (index_t row = 0; row < 16; ++row) {
      for (index_t column = 0; column < 8; ++column) {
        float sum = before[size((w * 16 + row) * 8 + column)];
        for (index_t k = 0; k < 16; ++k) {
          sum += to_float(a[size((w * 16 + row) * 16 + k)]) * to_float(b[size((w * 16 + k) * 8 + column)]);
        }
        expected.push_back(sum);
      }
    }
  }
  device_array<Number> left(a), right(b);
  device_array<float> start(before), out(warps * 128, not_a_number);
  launch({2, 96}, stream_ref{}, &mma_kernel<Number, ByShuffles>, left.data(), right.data(), start.data(), out.data());
  return out.values() == expected;
}

}  // namespace

TEST_CASE("tiles are multiplied as by three loops, by tensor cores and by shuffles") {
  in_all_orders([](const std::string& order) {
    CAPTURE(order);
    CHECK(products_are_right<bfloat16, false>());
    CHECK(products_are_right<float16, false>());
    CHECK(products_are_right<bfloat16, true>());
    CHECK(products_are_right<float16, true>());
  });
}

}  // namespace zoomr
