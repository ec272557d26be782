// SPDX-License-Identifier: Apache-2.0
// What a run has cost, as JSON and as a table.
#pragma once

#include <zoomr/cache/statistics.hpp>

#include <cstdio>   // std::snprintf
#include <ostream>  // std::ostream
#include <string>   // std::string
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
  zoomr::statistics stats;
  std::string options;                                             // all fields of the policy
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  // what a task measures beside

  double tokens_per_second() const { return seconds > 0 ? static_cast<double>(steps) / seconds : 0; }
};

inline nlohmann::ordered_json to_json(const run_report& run) {
  nlohmann::ordered_json out = {
      {"policy", run.policy},
      {"budget", run.budget > 0 ? nlohmann::ordered_json(run.budget) : nlohmann::ordered_json(nullptr)},
      {"tokens", run.tokens},
      {"text", run.text},
      {"tokens_per_second", run.tokens_per_second()},
      {"attended_tokens_mean", run.attended_mean},
      {"device_bytes_peak", run.device_peak},
      {"bytes", {{"details", run.bytes.details}, {"summaries", run.bytes.summaries}, {"metadata", run.bytes.metadata}}},
      {"passes", run.passes},
      {"stats",
       {{"prompt_tokens", run.stats.prompt_tokens},
        {"tokens", run.stats.tokens},
        {"refreshes", run.stats.refreshes},
        {"zooms", run.stats.zooms},
        {"chosen", run.stats.chosen},
        {"agreeability", run.stats.agreeability()},
        {"churn", run.stats.churn()},
        {"cpu_path", zoomr::statistics::cpu_path()},
        {"options", run.options}}}};
  out.update(run.more);
  return out;
}

/// One document, with nothing before or after it.
inline void print_json(std::ostream& out, const std::vector<run_report>& runs) {
  nlohmann::ordered_json document = {{"runs", nlohmann::ordered_json::array()}};
  for (const run_report& run : runs) document["runs"].push_back(to_json(run));
  out << document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

/// Columns with names, right-aligned but for the first.
class table {
 public:
  explicit table(std::vector<std::string> names) : rows_{std::move(names)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

  void print(std::ostream& out) const {
    std::vector<std::size_t> width(rows_.front().size());
    for (const auto& row : rows_) {
      for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
    }
    for (const auto& row : rows_) {
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string pad(width[c] - row[c].size(), ' ');
        out << (c == 0 ? row[c] + pad : "  " + pad + row[c]);
      }
      out << '\n';
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A number with so many digits after the point.
inline std::string fixed(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// Bytes in KiB.
inline std::string kib(zoomr::byte_count bytes) { return fixed(static_cast<double>(bytes) / 1024, 1); }

/// The figures of all runs; against the first run of `full`, if there is one.
inline void print_table(std::ostream& out, const std::vector<run_report>& runs) {
  const run_report* full = nullptr;
  for (const run_report& run : runs) {
    if (full == nullptr && run.policy == "full") full = &run;
  }
  table figures({"policy", "budget", "tokens/s", "attended", "details KiB", "summaries KiB", "metadata KiB", "peak KiB",
                 "peak/full"});
  for (const run_report& run : runs) {
    const bool compared = full != nullptr && full->device_peak > 0;
    figures.add(
        {run.policy, run.budget > 0 ? std::to_string(run.budget) : "-", fixed(run.tokens_per_second(), 1),
         fixed(run.attended_mean, 1), kib(run.bytes.details), kib(run.bytes.summaries), kib(run.bytes.metadata),
         kib(run.device_peak),
         compared
             ? fixed(100.0 * static_cast<double>(run.device_peak) / static_cast<double>(full->device_peak), 0) + " %"
             : "-"});
  }
  figures.print(out);
}

}  // namespace decode
