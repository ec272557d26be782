// SPDX-License-Identifier: Apache-2.0
#include "outcome.hpp"

#include <algorithm>  // std::max, std::min
#include <cmath>      // std::sqrt
#include <sstream>    // std::ostringstream

#include <nlohmann/json.hpp>

#include "../../decode/table.hpp"

namespace decode::retrieval {

zoomr::statistics added_since(zoomr::statistics stats, const zoomr::statistics& before) {
  stats.taken -= before.taken, stats.attended -= before.attended, stats.unsure_tokens -= before.unsure_tokens;
  stats.agreeability_sum -= before.agreeability_sum, stats.agreeability_count -= before.agreeability_count;
  stats.entropy_sum -= before.entropy_sum, stats.entropy_count -= before.entropy_count;
  return stats;
}

json to_json(const outcome& result) {
  json line = {{"answers", result.answers},
               {"asked", result.asked},
               {"hit", result.hit},
               {"queries", result.queries},
               {"active", result.active},
               {"attended", result.attended},
               {"agreed", result.agreeability},
               {"peak", result.device_peak},
               {"prompt", result.prompt},
               {"text", result.text}};
  if (result.entropy) line["entropy"] = *result.entropy;
  if (result.place) line["place"] = *result.place;
  return line;
}

outcome outcome_from(const field& line) {
  outcome result;
  const auto count = [&](const char* name) { return static_cast<std::int64_t>(line.at(name).number(0, 1e15)); };
  result.answers = line.at("answers").number(0, 1);
  result.asked = static_cast<int>(line.at("asked").count(0, 1 << 30));
  result.hit = static_cast<int>(line.at("hit").count(0, 1 << 30));
  result.queries = count("queries"), result.active = count("active");
  result.attended = line.at("attended").number(0, 1e12);
  result.agreeability = line.at("agreed").number(0, 1);
  if (const auto entropy = line.find("entropy")) result.entropy = entropy->number(0, 64);
  if (const auto place = line.find("place")) result.place = place->number(0, 1);
  result.device_peak = count("peak"), result.prompt = count("prompt");
  result.text = line.at("text").text();
  return result;
}

interval wilson(double share, double trials) {
  if (trials <= 0) return {};
  const double z = 1.959964;
  const double centre = (share + z * z / (2 * trials)) / (1 + z * z / trials);
  const double half =
      z / (1 + z * z / trials) * std::sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials));
  return {share > 0 ? std::max(0.0, centre - half) : 0.0, share < 1 ? std::min(1.0, centre + half) : 1.0};
}

void tally::add(const outcome& result) {
  ++problems_, right_ += result.right() ? 1 : 0, answers_ += result.answers;
  asked_ += result.asked, hit_ += result.hit;
  queries_ += static_cast<double>(result.queries), active_ += static_cast<double>(result.active);
  attended_ += result.attended, agreeability_ += result.agreeability;
  if (result.entropy) entropy_ += *result.entropy, ++with_entropy_;
  peak_ += static_cast<double>(result.device_peak), prompt_ += static_cast<double>(result.prompt);
}

std::optional<double> tally::entropy() const {
  if (with_entropy_ == 0) return std::nullopt;
  return entropy_ / with_entropy_;
}

std::vector<std::string> tally::titles() {
  return {"policy",   "problem", "problems", "right %",  "95 %", "answers %", "found %",
          "active %", "agreed",  "bits",     "attended", "of",   "peak KiB"};
}
std::vector<std::string> tally::cells(const std::string& policy, const std::string& group) const {
  const interval between = of_right();
  return {policy,
          group,
          std::to_string(problems_),
          fixed(100 * right(), 1),
          fixed(100 * between.low, 0) + " - " + fixed(100 * between.high, 0),
          fixed(100 * answers(), 1),
          chose() ? fixed(100 * found(), 1) : "-",
          fixed(100 * active(), 1),
          fixed(agreeability(), 2),
          entropy() ? fixed(*entropy(), 2) : "-",
          fixed(attended(), 0),
          fixed(prompt(), 0),
          fixed(device_peak() / 1024, 0)};
}

const char* tally::csv_titles() {
  return "policy,group,problems,right,right_low,right_high,answers,hit,choices,active,attended,prompt_tokens,"
         "device_peak,entropy_bits\n";
}
std::string tally::csv(const std::string& policy, const std::string& group) const {
  const interval between = of_right();
  std::ostringstream line;
  line << policy << ',' << group << ',' << problems_ << ',' << right_ << ',' << between.low << ',' << between.high
       << ',' << answers() << ',' << hit_ << ',' << asked_ << ',' << active() << ',' << attended() << ',' << prompt()
       << ',' << device_peak() << ',';
  if (entropy()) line << *entropy();
  line << '\n';
  return line.str();
}

json tally::document(const std::string& policy, const std::string& group) const {
  const interval between = of_right();
  json row = {{"policy", policy},
              {"group", group},
              {"problems", problems_},
              {"right", right()},
              {"right_interval", {between.low, between.high}},
              {"answers", answers()},
              {"choices", static_cast<std::int64_t>(asked_)},
              {"active", active()},
              {"agreeability", agreeability()},
              {"attended_tokens_mean", attended()},
              {"prompt_tokens_mean", prompt()},
              {"device_bytes_peak_mean", device_peak()}};
  if (chose()) row["found"] = found();
  if (entropy()) row["entropy_bits"] = *entropy();
  return row;
}

}  // namespace decode::retrieval
