// SPDX-License-Identifier: Apache-2.0
// What a policy made of one question in a form, and of many: lines of a file, rows of tables.
#pragma once

#include <cstdint>   // std::int64_t
#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

#include "../../decode/json_file.hpp"
#include "outcome.hpp"

namespace decode::retrieval {

/// One policy on one problem.
struct form_outcome {
  bool right = false;
  std::optional<bool> found;      // all that is needed is read after the first choice; none: choices differ by layer
  std::optional<double> entropy;  // bits of the first choice's posterior; none: it had none
  double attended = 0;            // tokens, mean over those of the answer
  std::optional<double> gated;    // share of the answer's tokens that read everything; none: there was no posterior
  std::int64_t device_peak = 0;
  std::int64_t prompt = 0;  // tokens before the answer

  std::string text;  // that was written
};
json to_json(const form_outcome& result);
/// @throws input_error
form_outcome form_outcome_from(const field& line);

/// How well a larger entropy says that nothing was found: the share of pairs of a miss and a hit in which the miss has
/// the larger one, ties by half. None where there is no such pair.
/// @cost  O(n log n)
std::optional<double> area_under_curve(const std::vector<double>& misses, const std::vector<double>& hits);

/// One policy on all problems of a form, or of several.
class form_tally {
 public:
  void add(const form_outcome& result);

  std::vector<std::string> cells(const std::string& policy, const std::string& form) const;
  json document(const std::string& policy, const std::string& form) const;
  static std::vector<std::string> titles();

  /// Of choices with an entropy: hits and misses, their mean entropies, the area under the curve.
  std::vector<std::string> entropy_cells(const std::string& policy) const;
  json entropy_document(const std::string& policy) const;
  static std::vector<std::string> entropy_titles();
  bool has_entropy() const { return !hits_.empty() || !misses_.empty(); }

 private:
  double mean(double sum) const { return problems_ > 0 ? sum / problems_ : 0; }
  std::optional<double> found() const;
  std::optional<double> entropy() const;
  std::optional<double> gated() const;

  int problems_ = 0;
  double right_ = 0, attended_ = 0, peak_ = 0, prompt_ = 0;
  double found_ = 0, choices_ = 0, gated_ = 0, with_gate_ = 0;
  double entropy_ = 0, with_entropy_ = 0;
  std::vector<double> hits_, misses_;  // entropies
};

}  // namespace decode::retrieval
