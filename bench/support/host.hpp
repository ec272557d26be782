// SPDX-License-Identifier: Apache-2.0
// How host rows are timed, and their two ceilings, measured in the same run: how fast memory can be read, how fast the
// processor multiplies and adds: the best of some tries.
#pragma once

#include <zoomr/core/cpu_path.hpp>
#include <zoomr/core/executor.hpp>

#include <span>    // std::span
#include <vector>  // std::vector

#include "rows.hpp"

namespace zoomr_bench {

/// Keeps a number from being optimised away.
inline void use(float number) { asm volatile("" : : "g"(number) : "memory"); }

/// The sum of floats, a cache line after the other, on the path of the processor that the library takes too.
inline float sum_in_order(std::span<const float> numbers) {
  using line = float __attribute__((vector_size(64)));
  float all = 0;
  zoomr::detail::on_fastest_path([&] {
    line sum[8] = {};
    for (std::size_t i = 0; i + 128 <= numbers.size(); i += 128) {
      for (std::size_t j = 0; j < 8; ++j) {
        line one;
        __builtin_memcpy(&one, numbers.data() + i + j * 16, sizeof one);
        sum[j] += one;
      }
    }
    for (const line& each : sum) {
      for (int l = 0; l < 16; ++l) all += each[l];
    }
  });
  return all;
}

/// Bytes a second of reading `bytes` bytes in order, again and again, each thread a part of them.
inline double read_bandwidth(std::int64_t bytes, const zoomr::executor& workers = {}) {
  const std::vector<float> numbers(static_cast<std::size_t>(bytes) / sizeof(float), 1.0f);
  std::vector<double> seconds;
  const std::size_t part = numbers.size() / static_cast<std::size_t>(workers.threads());
  auto read = [&](zoomr::index_t i) {
    use(sum_in_order(std::span<const float>(numbers).subspan(static_cast<std::size_t>(i) * part, part)));
  };
  for (int repetition = 0; repetition < (toy ? 1 : 7); ++repetition) {
    const double from = now();
    workers.run(workers.threads(), zoomr::task_ref(read));
    seconds.push_back(now() - from);
  }
  return static_cast<double>(bytes) / std::max(quantile(seconds, 0.0), 1e-9);
}

using float_lanes = float __attribute__((vector_size(64)));

inline constexpr float multiply_add_factor = 0.999f, multiply_add_term = 0.001f;

/// Eight chains of x = x * factor + term, which begin at term, 2 term, ... 8 term; the sum of one lane of them. On the
/// fastest path, too.
inline float multiply_add(int rounds, float factor_of_all, float term_of_all) {
  float sum = 0;
  zoomr::detail::on_fastest_path([&] {
    const float_lanes factor = factor_of_all - float_lanes{}, term = term_of_all - float_lanes{};
    float_lanes a = term, b = a + term, c = b + term, d = c + term;
    float_lanes e = d + term, f = e + term, g = f + term, h = g + term;
    for (int r = 0; r < rounds; ++r) {  // each line is one fma where the processor has it
      a = a * factor + term;
      b = b * factor + term;
      c = c * factor + term;
      d = d * factor + term;
      e = e * factor + term;
      f = f * factor + term;
      g = g * factor + term;
      h = h * factor + term;
    }
    const float_lanes all = ((a + b) + (c + d)) + ((e + f) + (g + h));
    sum = all[0];
  });
  return sum;
}

/// Multiplications and additions a second of independent chains of fused multiply-adds, one thread.
inline double peak_flops() {
  const int rounds = toy ? 10 : 200000;
  std::vector<double> seconds;
  for (int repetition = 0; repetition < (toy ? 1 : 50); ++repetition) {
    const double from = now();
    use(multiply_add(rounds, multiply_add_factor, multiply_add_term + static_cast<float>(repetition)));
    seconds.push_back(now() - from);
  }
  constexpr double lanes = sizeof(float_lanes) / sizeof(float);
  return 2.0 * lanes * 8 * rounds / std::max(quantile(seconds, 0.0), 1e-9);
}

/// The ceilings of this run, measured when they are first asked for: memory read from far and from the cache.
struct ceilings {
  double far = read_bandwidth(toy ? 1 << 16 : std::int64_t{512} << 20);
  double near = read_bandwidth(toy ? 1 << 14 : std::int64_t{8} << 20);
  double flops = peak_flops();
};
inline const ceilings& the_ceilings() {
  static const ceilings measured;
  return measured;
}

/// Seconds of each iteration, after one to warm up.
template <class Body>
std::vector<double> timed_on_host(int iterations, Body body) {
  body();
  std::vector<double> seconds;
  for (int i = 0; i < iterations; ++i) {
    const double from = now();
    body();
    seconds.push_back(now() - from);
  }
  return seconds;
}

/// A repetition that reads and computes so much: with its shares of the ceilings.
/// @param near  what it reads fits into the last cache
inline result against_ceilings(std::vector<double> seconds, double bytes, double flops, bool near, double tokens = 0) {
  result of;
  const double median = std::max(quantile(seconds, 0.5), 1e-9);
  of.figures = {{"of_read", bytes / median / (near ? the_ceilings().near : the_ceilings().far)},
                {"of_fma", flops / median / the_ceilings().flops}};
  of.seconds = std::move(seconds);
  of.bytes = bytes;
  of.tokens = tokens;
  return of;
}

}  // namespace zoomr_bench
