// SPDX-License-Identifier: Apache-2.0
// What a row does before it is timed: its output is made once and compared with a reference. Tolerances are those of
// the tests (tests/support/tolerance.hpp).
#pragma once

#include <cmath>      // std::abs
#include <cstdint>    // std::int64_t
#include <set>        // std::set
#include <sstream>    // std::ostringstream
#include <stdexcept>  // std::runtime_error
#include <string>     // std::string
#include <utility>    // std::move

#include "../../tests/support/tolerance.hpp"

namespace zoomr_bench {

namespace tolerance = zoomr_test::tolerance;

/// Output that is not what the reference says: its row gives this sentence instead of a time.
class wrong : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// True: the first number of each comparison is made a wrong one, to see that the row notices (`bench_dry --faults`).
inline bool& planted_faults() {
  static bool planted = false;
  return planted;
}

/// Compares numbers with those of a reference, one after the other.
class comparison {
 public:
  /// @param what  of the row is compared: "out"
  explicit comparison(std::string what) : what_(std::move(what)) {}

  /// @param allowed  largest difference; NaN is never close
  /// @throws wrong
  void close(double got, double expected, double allowed) {
    if (planted_faults() && compared_ == 0) got = expected + 2.0 * allowed + 1.0;
    if (got != expected && !(std::abs(got - expected) <= allowed)) {
      std::ostringstream said;
      said.precision(10);
      said << what_ << ": number " << compared_ << " of those compared is " << got << ", the reference says "
           << expected << " and allows " << allowed;
      throw wrong(said.str());
    }
    ++compared_;
  }
  void same(std::int64_t got, std::int64_t expected) {
    close(static_cast<double>(got), static_cast<double>(expected), tolerance::exact);
  }
  /// @throws wrong  if nothing was compared
  void expect_some() const {
    if (compared_ == 0) throw wrong(what_ + ": nothing was compared");
  }

 private:
  std::string what_;
  std::int64_t compared_ = 0;
};

inline std::set<std::string>& all_checked() {
  static std::set<std::string> names;
  return names;
}
/// Calls `check()` unless it has passed for this name before: repetitions need it once.
template <class Check>
void check_once(const std::string& name, Check check) {
  if (all_checked().count(name) > 0) return;
  check();
  all_checked().insert(name);
}

}  // namespace zoomr_bench
