// SPDX-License-Identifier: Apache-2.0
#include "report.hpp"

#include <algorithm>  // std::any_of

#include "policies.hpp"
#include "table.hpp"

namespace decode {
namespace {

/// A mean over some choices; null of none.
nlohmann::ordered_json if_any(std::int64_t choices, double mean) {
  return choices > 0 ? nlohmann::ordered_json(mean) : nlohmann::ordered_json(nullptr);
}

}  // namespace

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
        {"agreeability", if_any(run.stats.agreeability_count, run.stats.agreeability())},
        {"entropy_bits", if_any(run.stats.entropy_count, run.stats.entropy())},
        {"churn", run.stats.churn()},
        {"cpu_path", zoomr::statistics::cpu_path()},
        {"options", run.options}}}};
  if (run.stats.captured_count > 0) out["stats"]["captured"] = run.stats.captured();
  if (run.stats.entropy_count > 0) {
    out["stats"]["unsure_choices"] = run.stats.unsure;
    out["stats"]["unsure_share"] = run.stats.unsure_share();
  }
  out.update(run.more);
  return out;
}

namespace {

/// Of the tokens that were given to it, those that it would have written.
std::string own_share(const run_report& run) {
  return std::to_string(run.own_tokens) + " of " + std::to_string(run.tokens.size());
}

}  // namespace

std::vector<std::pair<std::string, std::string>> figures(const run_report& run) {
  const zoomr::statistics& stats = run.stats;
  std::vector<std::pair<std::string, std::string>> rows = {
      {"budget", run.budget > 0             ? std::to_string(run.budget)
                 : takes_budget(run.policy) ? "the preset's"
                                            : "none"},
      {"prompt + later tokens", std::to_string(stats.prompt_tokens) + " + " + std::to_string(stats.tokens)},
      {"attended tokens, mean", fixed(run.attended_mean, 1)}};
  const auto add = [&](bool known, const char* name, const std::string& value) {
    if (known) rows.emplace_back(name, value);
  };
  const auto percent = [](double share) { return fixed(100 * share, 1) + " %"; };
  add(stats.captured_count > 0, "captured mass", percent(stats.captured()));
  add(run.given_text(), "tokens it would write too", own_share(run));
  add(run.cut > 0, "answers cut", std::to_string(run.cut) + " of " + std::to_string(run.answers));
  add(stats.agreeability_count > 0, "agreeability", fixed(stats.agreeability(), 3));
  add(stats.entropy_count > 0, "entropy, bits", fixed(stats.entropy(), 2));
  add(true, "choices", std::to_string(stats.refreshes));
  add(stats.unsure > 0, "unsure, of these", std::to_string(stats.unsure));
  add(stats.unsure > 0, "tokens that read everything for it", percent(stats.unsure_share()));
  add(true, "zoomed into", std::to_string(stats.zooms));
  add(stats.chosen > 0, "churn", percent(stats.churn()));
  add(true, "peak on a device, KiB", kib(run.device_peak));
  add(true, "details, KiB", kib(run.bytes.details));
  add(true, "summaries, KiB", kib(run.bytes.summaries));
  add(true, "metadata, KiB", kib(run.bytes.metadata));
  if (const auto tiers = run.more.find("tiers"); tiers != run.more.end()) {
    add(true, "hits in memory", percent(tiers->at("hit_rate").get<double>()));
    add(true, "moved to it, KiB", kib(tiers->at("bytes_in").get<zoomr::byte_count>()));
  }
  add(true, "passes", std::to_string(run.passes));
  add(true, "tokens a second", fixed(run.tokens_per_second(), 1));
  return rows;
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
  const bool one_text = std::any_of(runs.begin(), runs.end(), [](const auto& run) { return run.given_text(); });
  std::vector<std::string> head = {"policy",        "budget",       "tokens/s", "attended", "details KiB",
                                   "summaries KiB", "metadata KiB", "peak KiB", "peak/full"};
  if (one_text) head.push_back("would write too");
  table figures(head);
  for (const run_report& run : runs) {
    const bool compared = full != nullptr && full->device_peak > 0;
    std::vector<std::string> line = {
        run.policy,
        run.budget > 0 ? std::to_string(run.budget) : "-",
        fixed(run.tokens_per_second(), 1),
        fixed(run.attended_mean, 1),
        kib(run.bytes.details),
        kib(run.bytes.summaries),
        kib(run.bytes.metadata),
        kib(run.device_peak),
        compared
            ? fixed(100.0 * static_cast<double>(run.device_peak) / static_cast<double>(full->device_peak), 0) + " %"
            : "-"};
    if (one_text) line.push_back(run.given_text() ? own_share(run) : "all");
    figures.add(line);
  }
  figures.print(out);
  if (one_text) out << "All policies passed the text of the first (--same-text).\n";
}

}  // namespace decode
