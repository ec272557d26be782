// SPDX-License-Identifier: Apache-2.0
// How device rows fill memory and are timed: CUDA events, a cold and a warm L2; and their ceiling, the bandwidth of a
// copy on the device.
#pragma once

#include <zoomr/core/device/streams.cuh>

#include <cstring>  // std::memset
#include <map>      // std::map

#include "device_buffer.hpp"
#include "noise.hpp"

namespace zoomr_bench {

/// Fills memory with stream `seed` of noise (noise.hpp).
template <class T>
__global__ void noise_kernel(T* to, std::int64_t count, std::uint32_t seed, float scale) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    to[i] = stored_noise<T>(i, seed, scale);
  }
}
template <class T>
void fill_with_noise(T* to, std::int64_t count, std::uint32_t seed, float scale = 1.0f) {
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(toy ? 2 : 4096, (count + 255) / 256));
  if (count > 0) zoomr::launch({dim3(blocks), dim3(256)}, the_stream(), noise_kernel<T>, to, count, seed, scale);
}

/// Reads memory in pieces of 16 bytes; `sum` is written only if they are not zeros.
template <class Piece>
__global__ void read_kernel(const Piece* from, std::int64_t count, unsigned* sum) {
  unsigned seen = 0;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += threads) {
    const Piece four = from[i];
    seen |= four.x | four.y | four.z | four.w;
  }
  if (seen != 0) *sum = seen;
}

/// Throws out what the L2 holds. It is full of zeros then that were read: of zeros that were only written it would
/// still owe the memory up to its size, and pay during what is timed.
inline void flush_l2() {
  static const device_buffer<std::byte> other(flushed_bytes());
  static const device_buffer<unsigned> sum(1);
  zoomr::zero_on_device(other.data(), other.bytes(), the_stream());
  const auto* from = reinterpret_cast<const uint4*>(other.data());
  zoomr::launch({dim3(toy ? 2 : 1024), dim3(256)}, the_stream(), read_kernel<uint4>, from, other.bytes() / 16,
                sum.data());
}

enum class l2 { cold, warm };
inline const char* name_of(l2 state) { return state == l2::cold ? "cold" : "warm"; }

/// How often a warm row enqueues the same between two events.
inline constexpr int warm_launches = toy ? 1 : 10;

/// Times what `enqueue` enqueues, after a warm-up. Cold: alone, after the L2 was flushed; while that runs, the host
/// gets ahead, so that launches do not count unless they take longer than the device. Warm: ten times in a row.
template <class Enqueue>
std::vector<double> timed(l2 state, int iterations, Enqueue enqueue) {
  static zoomr::stream_timer clock;
  enqueue(), wait();
  std::vector<double> seconds;
  const int launches = state == l2::cold ? 1 : warm_launches;
  for (int i = 0; i < iterations; ++i) {
    if (state == l2::cold) flush_l2();
    clock.start(the_stream());
    for (int l = 0; l < launches; ++l) enqueue();
    clock.stop(the_stream());
    seconds.push_back(clock.seconds() / launches);
  }
  return seconds;
}

/// The median of a copy that reads and writes so many bytes together, on the device, cold; measured when it is first
/// asked for.
inline double copy_seconds(std::int64_t bytes) {
  static std::map<std::int64_t, double> measured;
  const auto [at, is_new] = measured.try_emplace(bytes, 0.0);
  if (is_new) {
    const std::int64_t half = std::max<std::int64_t>(bytes / 32 * 16, 16);
    const device_buffer<std::byte> from(half), to(half);
    const auto seconds =
        timed(l2::cold, toy ? 1 : 20, [&] { copy_on_device(to.data(), from.data(), half, the_stream()); });
    at->second = std::max(quantile(seconds, 0.5), 1e-9);
  }
  return at->second;
}

/// Bytes read and written a second by a copy of 1 GiB on the device.
inline double copy_bandwidth() {
  const std::int64_t bytes = toy ? 8192 : std::int64_t{2} << 30;
  return static_cast<double>(bytes) / copy_seconds(bytes);
}

/// Bytes a second from pinned memory of the host, in one copy of 256 MiB.
inline double bus_bandwidth() {
  static const double measured = [] {
    const std::int64_t bytes = toy ? 4096 : std::int64_t{256} << 20;
    zoomr::pinned_memory from(bytes);
    std::memset(from.data(), 1, static_cast<std::size_t>(bytes));
    const device_buffer<std::byte> to(bytes);
    const auto copy = [&] { zoomr::copy_to_device(to.data(), from.data(), bytes, the_stream()); };
    const double seconds = quantile(timed(l2::cold, toy ? 1 : 10, copy), 0.5);
    wait();
    return static_cast<double>(bytes) / std::max(seconds, 1e-9);
  }();
  return measured;
}

/// A repetition that reads so many bytes: with its share of the copy's bandwidth, and the time of a copy that moves as
/// many bytes beside its own.
inline result reading(std::vector<double> seconds, double bytes, double tokens = 0) {
  result of;
  const double median = std::max(quantile(seconds, 0.5), 1e-9);
  of.figures = {{"p50_us", median * 1e6},
                {"p90_us", quantile(seconds, 0.9) * 1e6},
                {"of_copy", bytes / median / copy_bandwidth()},
                {"of_same_copy", bytes > 0 ? copy_seconds(static_cast<std::int64_t>(bytes)) / median : 0}};
  of.seconds = std::move(seconds);
  of.bytes = bytes;
  of.tokens = tokens;
  return of;
}

/// Blocks that share a row: enough to fill the device four times over, each with two tiles of tokens or more.
inline index_t splits_for(index_t rows, index_t tokens) {
  const index_t wanted = (4 * multiprocessors() + rows - 1) / rows;
  return std::max<index_t>(1, std::min<index_t>(wanted, tokens / 64));
}

}  // namespace zoomr_bench
