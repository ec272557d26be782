// SPDX-License-Identifier: Apache-2.0
// The units of a study, which run in any order, and the file that remembers those that are done.
#pragma once

#include <cstdint>  // std::int64_t
#include <map>      // std::map
#include <mutex>    // std::mutex
#include <string>   // std::string
#include <vector>   // std::vector

#include "../evaluate/line_file.hpp"
#include "evaluate.hpp"

namespace decode::ledger {

/// What is kept of an outcome: it can be written to a file, and joined with that of other problems.
struct unit_result {
  std::vector<scores> each;  // of each problem
  double attended_sum = 0;   // over problems
  zoomr::byte_count device_peak = 0;
  zoomr::memory_use bytes;
  double captured_sum = 0;          // over problems, of those audited
  double zooms = 0, refreshes = 0;  // over problems
  double seconds = 0;
  std::int64_t steps = 0;
  std::string options;

  void add(const unit_result& other);
};

unit_result result_of(const outcome& made);

/// Results by unit, in memory and, if a file is named, there too. Safe for several threads.
class unit_file {
 public:
  /// @throws input_error
  explicit unit_file(const std::string& path);

  bool has(const std::string& unit);
  const unit_result& at(const std::string& unit) const { return done_.at(unit); }

  void add(const std::string& unit, unit_result made);

 private:
  std::map<std::string, unit_result> done_;
  line_file lines_;
  std::mutex mutex_;
};

/// A share, and where it lies with a probability of 95 %.
struct estimate {
  double share = 0, low = 0, high = 0;
};

/// The share of `part` in all problems together. The interval is Wilson's, for as many independent trials as have the
/// variance that the problems show among each other (fetches of one problem are not independent); if all or none are
/// right, for as many trials as there are problems.
estimate estimate_of(const std::vector<scores>& each, score scores::*part);

}  // namespace decode::ledger
