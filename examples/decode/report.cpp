// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include "table.hpp"

namespace decode {

nlohmann::ordered_json to_json(const run_report& run) {
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
        {"entropy_bits",
         run.stats.entropy_count > 0 ? nlohmann::ordered_json(run.stats.entropy()) : nlohmann::ordered_json(nullptr)},
        {"churn", run.stats.churn()},
        {"cpu_path", zoomr::statistics::cpu_path()},
        {"options", run.options}}}};
  out.update(run.more);
  return out;
}

void print_json(std::ostream& out, const std::vector<run_report>& runs) {
  nlohmann::ordered_json document = {{"runs", nlohmann::ordered_json::array()}};
  for (const run_report& run : runs) document["runs"].push_back(to_json(run));
  out << document.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

void print_table(std::ostream& out, const std::vector<run_report>& runs) {
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
