// SPDX-License-Identifier: Apache-2.0
#include "form_outcome.hpp"

#include <numeric>  // std::accumulate
#include <utility>  // std::move

#include <nlohmann/json.hpp>

#include "../../decode/table.hpp"
#include "judge.hpp"

namespace decode::retrieval {
namespace {

std::optional<double> mean_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::string in_cell(std::optional<double> value, int digits, double factor = 1) {
  return value ? fixed(factor * *value, digits) : "-";
}

}  // namespace

json to_json(const form_outcome& result) {
  json line = {{"right", result.right},
               {"attended", result.attended},
               {"peak", result.device_peak},
               {"prompt", result.prompt},
               {"text", result.text}};
  if (result.found) line["found"] = *result.found;
  if (result.entropy) line["entropy"] = *result.entropy;
  if (result.gated) line["gated"] = *result.gated;
  return line;
}

form_outcome form_outcome_from(const field& line) {
  form_outcome result;
  const auto count = [&](const char* name) { return static_cast<std::int64_t>(line.at(name).number(0, 1e15)); };
  result.right = line.at("right").boolean();
  if (const auto found = line.find("found")) result.found = found->boolean();
  if (const auto entropy = line.find("entropy")) result.entropy = entropy->number(0, 64);
  if (const auto gated = line.find("gated")) result.gated = gated->number(0, 1);
  result.attended = line.at("attended").number(0, 1e12);
  result.device_peak = count("peak"), result.prompt = count("prompt");
  result.text = line.at("text").text();
  return result;
}

std::optional<double> area_under_curve(const std::vector<double>& misses, const std::vector<double>& hits) {
  if (misses.empty() || hits.empty()) return std::nullopt;
  std::vector<judged_choice> choices;
  for (const double entropy : misses) choices.push_back({.needed = 1, .entropy = entropy});
  for (const double entropy : hits) choices.push_back({.needed = 1, .in_set = 1, .entropy = entropy});
  return area_of_unsureness(std::move(choices));
}

void form_tally::add(const form_outcome& result) {
  ++problems_, right_ += result.right ? 1 : 0;
  attended_ += result.attended, peak_ += static_cast<double>(result.device_peak);
  prompt_ += static_cast<double>(result.prompt);
  if (result.found) found_ += *result.found ? 1 : 0, ++choices_;
  if (result.gated) gated_ += *result.gated, ++with_gate_;
  if (result.entropy) entropy_ += *result.entropy, ++with_entropy_;
  if (result.found && result.entropy) (*result.found ? hits_ : misses_).push_back(*result.entropy);
}

std::optional<double> form_tally::found() const {
  if (choices_ == 0) return std::nullopt;
  return found_ / choices_;
}
std::optional<double> form_tally::entropy() const {
  if (with_entropy_ == 0) return std::nullopt;
  return entropy_ / with_entropy_;
}
std::optional<double> form_tally::gated() const {
  if (with_gate_ == 0) return std::nullopt;
  return gated_ / with_gate_;
}

std::vector<std::string> form_tally::titles() {
  return {"form", "policy",  "problems", "right %", "95 %",    "found %",
          "bits", "gated %", "attended", "before",  "peak KiB"};
}
std::vector<std::string> form_tally::cells(const std::string& policy, const std::string& form) const {
  const interval between = wilson(mean(right_), problems_);
  return {form,
          policy,
          std::to_string(problems_),
          fixed(100 * mean(right_), 1),
          fixed(100 * between.low, 0) + " - " + fixed(100 * between.high, 0),
          in_cell(found(), 1, 100),
          in_cell(entropy(), 2),
          in_cell(gated(), 1, 100),
          fixed(mean(attended_), 0),
          fixed(mean(prompt_), 0),
          fixed(mean(peak_) / 1024, 0)};
}

json form_tally::document(const std::string& policy, const std::string& form) const {
  const interval between = wilson(mean(right_), problems_);
  json row = {{"policy", policy},
              {"form", form},
              {"problems", problems_},
              {"right", mean(right_)},
              {"right_interval", {between.low, between.high}},
              {"attended_tokens_mean", mean(attended_)},
              {"prompt_tokens_mean", mean(prompt_)},
              {"device_bytes_peak_mean", mean(peak_)}};
  if (found()) row["found_first"] = *found();
  if (entropy()) row["entropy_bits_first"] = *entropy();
  if (gated()) row["gated"] = *gated();
  return row;
}

std::vector<std::string> form_tally::entropy_titles() {
  return {"first choices of", "found", "bits", "missed", "bits", "AUC"};
}
std::vector<std::string> form_tally::entropy_cells(const std::string& policy) const {
  return {policy,
          std::to_string(hits_.size()),
          in_cell(mean_of(hits_), 2),
          std::to_string(misses_.size()),
          in_cell(mean_of(misses_), 2),
          in_cell(area_under_curve(misses_, hits_), 3)};
}
json form_tally::entropy_document(const std::string& policy) const {
  json row = {{"policy", policy}, {"found", hits_.size()}, {"missed", misses_.size()}};
  if (const auto bits = mean_of(hits_)) row["entropy_bits_found"] = *bits;
  if (const auto bits = mean_of(misses_)) row["entropy_bits_missed"] = *bits;
  if (const auto area = area_under_curve(misses_, hits_)) row["area_under_curve"] = *area;
  return row;
}

}  // namespace decode::retrieval
