// SPDX-License-Identifier: Apache-2.0
// What a policy made of one problem, and of many: lines of a file, rows of a table.
#pragma once

#include <cstdint>   // std::int64_t
#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

#include "../../decode/json_file.hpp"
#include "script.hpp"
#include "trace_problem.hpp"

namespace decode::traces {

/// One policy on one problem.
struct trace_outcome {
  int asked = 0, right = 0;          // questions, and those whose value is true
  int as_written = 0;                // of them, those whose value is the one that the text has for that step
  int values = 0, values_right = 0;  // of steps that the model has worked out
  int choices = 0, found = 0;        // choices where something beyond the window is needed; all of it was taken
  double attended = 0;               // tokens, mean over the queries of the layers that the policy is for
  double agreeability = 0;
  std::optional<double> entropy;                   // bits of a choice's posterior, mean
  std::int64_t written = 0;                        // tokens behind the prompt, the study's too
  std::int64_t prompt = 0;                         // tokens
  std::int64_t device_peak = 0, prompt_bytes = 0;  // prompt_bytes: of all its keys and values

  std::string text;  // that was written
};
json to_json(const trace_outcome& result);
/// @throws input_error
trace_outcome trace_outcome_from(const field& line);

/// Compares a text with the truth.
void judge(const trace_problem& asked, const trace_script& text, trace_outcome& to);

/// One policy on all problems of a kind.
class trace_tally {
 public:
  void add(const trace_outcome& result);

  double right() const { return share(right_, asked_); }
  double as_written() const { return share(as_written_, asked_); }
  std::optional<double> values_right() const { return if_any(values_right_, values_); }
  std::optional<double> found() const { return if_any(found_, choices_); }
  std::optional<double> entropy() const { return if_any(entropy_, with_entropy_); }
  /// Bytes of the device's peak that are not the prompt's; below 0 where it did not hold all of the prompt.
  double beyond() const { return share(beyond_, problems_); }

  /// @param full_beyond  of full attention; 0: unknown
  std::vector<std::string> cells(const std::string& policy, const std::string& group, double full_beyond) const;
  json document(const std::string& policy, const std::string& group, double full_beyond) const;
  static std::vector<std::string> titles();

 private:
  static double share(double part, double of) { return of > 0 ? part / of : 0; }
  static std::optional<double> if_any(double part, double of) {
    if (of > 0) return part / of;
    return std::nullopt;
  }

  double problems_ = 0, asked_ = 0, right_ = 0, as_written_ = 0, values_ = 0, values_right_ = 0, choices_ = 0;
  double found_ = 0, attended_ = 0, agreeability_ = 0, entropy_ = 0, with_entropy_ = 0, written_ = 0, prompt_ = 0;
  double beyond_ = 0, peak_ = 0;
};

}  // namespace decode::traces
