// SPDX-License-Identifier: Apache-2.0
// What a policy did on one problem, and on many: lines of a file, rows of a table.
#pragma once

#include <zoomr/cache/statistics.hpp>

#include <cstdint>   // std::int64_t
#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

#include "../../decode/json_file.hpp"

namespace decode::retrieval {

/// One policy on one problem.
struct outcome {
  double answers = 0;        // share of the answers that were written
  int asked = 0;             // choices after the prompt, where one row serves all layers
  int hit = 0;               // of them, those that took what is needed next
  std::int64_t queries = 0;  // of all heads and layers that the policy is for, passes counted
  std::int64_t active = 0;   // of them, those that attended to less than all before them
  double attended = 0;       // tokens, mean over them
  double agreeability = 0;
  std::optional<double> entropy;  // bits of a choice's posterior, mean; none where no choice had one
  std::int64_t device_peak = 0;
  std::int64_t prompt = 0;      // tokens
  std::optional<double> place;  // of what is needed, as a share of the prompt before it; none if it is several

  std::string text;  // that was written

  bool right() const { return answers == 1; }
};

/// What was counted since `before`, but for the peak.
zoomr::statistics added_since(zoomr::statistics stats, const zoomr::statistics& before);

json to_json(const outcome& result);
/// @throws input_error
outcome outcome_from(const field& line);

/// A share, and where it lies with a probability of 95 %: Wilson's interval for so many independent trials.
struct interval {
  double low = 0, high = 1;
};
interval wilson(double share, double trials);

/// One policy on all problems of a kind.
class tally {
 public:
  void add(const outcome& result);

  int problems() const { return problems_; }
  double right() const { return right_ / count(); }
  double answers() const { return answers_ / count(); }
  bool chose() const { return asked_ > 0; }
  double found() const { return chose() ? hit_ / asked_ : 0; }
  double active() const { return queries_ > 0 ? active_ / queries_ : 0; }
  double agreeability() const { return agreeability_ / count(); }
  /// Mean over the problems where choices had a posterior.
  std::optional<double> entropy() const;
  double attended() const { return attended_ / count(); }
  double prompt() const { return prompt_ / count(); }
  double device_peak() const { return peak_ / count(); }
  interval of_right() const { return wilson(right(), problems_); }

  std::vector<std::string> cells(const std::string& policy, const std::string& group) const;
  std::string csv(const std::string& policy, const std::string& group) const;
  json document(const std::string& policy, const std::string& group) const;

  static std::vector<std::string> titles();
  static const char* csv_titles();

 private:
  double count() const { return problems_ > 0 ? problems_ : 1; }

  int problems_ = 0;
  double right_ = 0, answers_ = 0, asked_ = 0, hit_ = 0, queries_ = 0, active_ = 0;
  double agreeability_ = 0, attended_ = 0, prompt_ = 0, peak_ = 0;
  double entropy_ = 0, with_entropy_ = 0;
};

}  // namespace decode::retrieval
