// SPDX-License-Identifier: Apache-2.0
// What a run has cost, as JSON and as a table.
#pragma once

#include <zoomr/cache/statistics.hpp>

#include <ostream>  // std::ostream
#include <string>   // std::string
#include <utility>  // std::pair
#include <vector>   // std::vector

#include <nlohmann/json.hpp>

#include "config.hpp"

namespace decode {

/// One policy at one budget.
struct run_report {
  std::string policy;
  zoomr::index_t budget = 0;     // 0: the preset's own
  std::vector<token_id> tokens;  // generated
  std::string text;
  double seconds = 0;      // of generation, second passes included
  std::int64_t steps = 0;  // tokens passed after the prompt
  double attended_mean = 0;
  zoomr::memory_use bytes;  // in use at the end
  zoomr::byte_count device_peak = 0;
  std::int64_t passes = 0;
  std::int64_t own_tokens = 0;  // of `tokens`, those that the sampler drew
  std::int64_t answers = 0;     // that a decoder has written
  std::int64_t cut = 0;         // of these, those that were as long as they may be before they ended
  zoomr::statistics stats;
  std::string options;                                             // all fields of the policy
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  // what a task measures beside

  /// It has passed the text of another run.
  bool given_text() const { return more.contains("own_tokens"); }
  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(steps) / seconds : 0; }
};

/// What a session has counted so far.
template <class Session>
void take_counters(run_report& report, const Session& run) {
  report.stats = run.stats();
  report.steps = report.stats.tokens;
  report.passes = report.stats.passes;
  report.attended_mean = run.attended_mean();
  report.device_peak = report.stats.device_peak;
  report.bytes = run.bytes();
}

nlohmann::ordered_json to_json(const run_report& run);

/// The same for people: names and values.
std::vector<std::pair<std::string, std::string>> figures(const run_report& run);

/// One document, with nothing before or after it.
void print_json(std::ostream& out, const std::vector<run_report>& runs);

/// The figures of all runs; against the first run of `full`, if there is one.
void print_table(std::ostream& out, const std::vector<run_report>& runs);

}  // namespace decode
