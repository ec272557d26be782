// SPDX-License-Identifier: Apache-2.0
#include "summary.hpp"

#include <algorithm>  // std::max, std::ranges::stable_sort
#include <array>      // std::array
#include <cmath>      // std::exp2, std::isnan, std::nan, std::sqrt

#include <nlohmann/json.hpp>

namespace decode::perplexity {
namespace {

bool same_group(const row& a, const row& b) {
  return a.policy == b.policy && a.settings == b.settings && a.budget == b.budget && a.context == b.context &&
         a.tokens == b.tokens;
}

// Bits per byte beyond full's, on the passages that both have.
std::vector<double> beyond_full(const std::vector<row>& rows, const row& of) {
  std::vector<double> differences;
  for (const row& r : rows) {
    if (!same_group(r, of)) continue;
    for (const row& f : rows) {
      if (f.policy == "full" && f.settings.empty() && f.same_passage(r))
        differences.push_back((r.found.bits - f.found.bits) / static_cast<double>(r.bytes));
    }
  }
  return differences;
}

}  // namespace

double student_t(std::size_t degrees) {
  constexpr std::array table = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};
  if (degrees <= table.size()) return table[degrees - 1];
  return 1.960 + 2.46 / static_cast<double>(degrees);  // within 0.001
}

estimate estimate_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  estimate out;
  for (const double v : values) out.mean += v / count;
  if (values.size() < 2) return out;
  double squares = 0;
  for (const double v : values) squares += (v - out.mean) * (v - out.mean);
  out.half_width = student_t(values.size() - 1) * std::sqrt(squares / (count - 1) / count);
  return out;
}

group summarize(const std::vector<row>& rows, const row& of) {
  group g;
  g.task = of;
  std::vector<double> bits;
  double all_bits = 0, words = 0, seconds = 0, tokens = 0;
  for (const row& r : rows) {
    if (!same_group(r, of)) continue;
    bits.push_back(r.found.bits / static_cast<double>(r.bytes));
    all_bits += r.found.bits, words += static_cast<double>(r.words);
    seconds += r.found.seconds, tokens += static_cast<double>(r.tokens);
    g.attended_mean += r.found.attended_mean;
    g.bytes.details += r.found.bytes.details;
    g.bytes.summaries += r.found.bytes.summaries;
    g.bytes.metadata += r.found.bytes.metadata;
    g.device_peak = std::max(g.device_peak, r.found.device_peak);
  }
  g.passages = bits.size();
  const auto count = static_cast<zoomr::byte_count>(g.passages);
  g.attended_mean /= static_cast<double>(g.passages);
  g.bytes = {g.bytes.details / count, g.bytes.summaries / count, g.bytes.metadata / count};
  g.bits_per_byte = estimate_of(bits);
  g.perplexity_per_byte = std::exp2(g.bits_per_byte.mean);
  g.perplexity_per_word = words > 0 ? std::exp2(all_bits / words) : 0;
  g.tokens_per_second = seconds > 0 ? tokens / seconds : 0;
  const auto differences = beyond_full(rows, of);
  g.paired = differences.size();
  if (g.paired > 0) g.bits_beyond_full = estimate_of(differences);
  row window = of;
  window.policy = "window", window.settings.clear();
  const auto gap = beyond_full(rows, window);
  const double whole = gap.empty() ? 0 : estimate_of(gap).mean;
  g.gap_closed = g.paired > 0 && whole > 0 ? 1 - g.bits_beyond_full.mean / whole : std::nan("");
  return g;
}

std::vector<group> summarize(const std::vector<row>& rows) {
  std::vector<group> groups;
  for (const row& r : rows) {
    bool known = false;
    for (const group& g : groups) known = known || same_group(g.task, r);
    if (!known) groups.push_back(summarize(rows, r));
  }
  std::ranges::stable_sort(groups, {}, [](const group& g) { return g.task.context; });
  return groups;
}

nlohmann::ordered_json to_json(const group& g) {
  using nlohmann::ordered_json;
  const auto number = [](double value) { return std::isnan(value) ? ordered_json(nullptr) : ordered_json(value); };
  return {{"policy", g.task.policy},
          {"settings", g.task.settings},
          {"budget", g.task.budget > 0 ? ordered_json(g.task.budget) : ordered_json(nullptr)},
          {"context", g.task.context},
          {"scored_tokens", g.task.tokens},
          {"passages", g.passages},
          {"bits_per_byte", g.bits_per_byte.mean},
          {"bits_per_byte_95", g.bits_per_byte.half_width},
          {"perplexity_per_byte", g.perplexity_per_byte},
          {"perplexity_per_word", number(g.perplexity_per_word)},
          {"passages_paired_with_full", g.paired},
          {"bits_per_byte_beyond_full", g.bits_beyond_full.mean},
          {"bits_per_byte_beyond_full_95", g.bits_beyond_full.half_width},
          {"perplexity_beyond_full", g.beyond_full()},
          {"gap_closed", number(g.gap_closed)},
          {"attended_tokens_mean", g.attended_mean},
          {"tokens_per_second", g.tokens_per_second},
          {"device_bytes_peak", g.device_peak},
          {"bytes", {{"details", g.bytes.details}, {"summaries", g.bytes.summaries}, {"metadata", g.bytes.metadata}}}};
}

}  // namespace decode::perplexity
