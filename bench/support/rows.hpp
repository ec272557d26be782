// SPDX-License-Identifier: Apache-2.0
// The rows of the benchmarks, without a framework: main.cpp gives them to Google Benchmark, dry.cpp runs each of them
// once at toy sizes. A row sets itself up, checks its output once (check.hpp), runs all iterations of one repetition
// and gives back what each took.
#pragma once

#include <algorithm>   // std::sort
#include <any>         // std::any
#include <cstdint>     // std::int64_t
#include <ctime>       // clock_gettime
#include <functional>  // std::function
#include <memory>      // std::shared_ptr
#include <stdexcept>   // std::runtime_error
#include <string>      // std::string
#include <utility>     // std::pair
#include <vector>      // std::vector

namespace zoomr_bench {

/// Sizes are toys, and times mean nothing: whether everything runs is all that is asked.
#if defined(ZOOMR_BENCH_DRY)
inline constexpr bool toy = true;
#else
inline constexpr bool toy = false;
#endif

/// One repetition of a row.
struct result {
  std::vector<double> seconds;                          // of each iteration
  double bytes = 0;                                     // of keys, values or summaries read by one iteration; 0: none
  double tokens = 0;                                    // made by one iteration; 0: none
  std::vector<std::pair<std::string, double>> figures;  // more of it, see README.md
};

/// A row that cannot be measured here says why.
class skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct row {
  std::string name;
  int iterations = 1;
  std::function<result(int iterations)> run;
};

inline std::vector<row>& rows() {
  static std::vector<row> all;
  return all;
}

/// Adds a row; rows run in the order in which they are added.
inline void add_row(std::string name, int iterations, std::function<result(int)> run) {
  rows().push_back({std::move(name), toy ? 1 : iterations, std::move(run)});
}

/// A quantile of some numbers, the lower one of two.
inline double quantile(std::vector<double> of, double share) {
  if (of.empty()) return 0;
  std::sort(of.begin(), of.end());
  return of[static_cast<std::size_t>(share * static_cast<double>(of.size() - 1))];
}

/// What was made last, by its key.
struct kept_thing {
  std::string key;
  std::any held;
};
inline kept_thing& last_kept() {
  static kept_thing last;
  return last;
}

/// What `make` makes for `key`, kept until another key is asked for, or until it says that it is `used_up`: repetitions
/// and neighbouring rows share it, and only one is in memory.
template <class T, class Make>
std::shared_ptr<T> kept(const std::string& key, Make make) {
  kept_thing& last = last_kept();
  bool missing = last.key != key || !last.held.has_value();
  if constexpr (requires(const T& thing) { thing.used_up(); })
    missing = missing || std::any_cast<std::shared_ptr<T>&>(last.held)->used_up();
  if (missing) {
    last.held.reset();  // first, or both would be in memory
    last.key = key;
    last.held = std::shared_ptr<T>(make());
  }
  return std::any_cast<std::shared_ptr<T>>(last.held);
}

/// Whether `now` counts what this process has used of the processor, which a busy machine changes less.
inline bool processor_time = false;

/// Seconds, wall-clock ones as a rule.
inline double now() {
  timespec at{};
  clock_gettime(processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &at);
  return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
}

}  // namespace zoomr_bench
