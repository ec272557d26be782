// SPDX-License-Identifier: Apache-2.0
#include "study_units.hpp"

#include <algorithm>  // std::max, std::min
#include <cmath>      // std::sqrt
#include <utility>    // std::move

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"

namespace decode::ledger {

void unit_result::add(const unit_result& other) {
  each.insert(each.end(), other.each.begin(), other.each.end());
  attended_sum += other.attended_sum;
  captured_sum += other.captured_sum;
  device_peak = std::max(device_peak, other.device_peak);
  bytes = other.bytes;
  zooms += other.zooms, refreshes += other.refreshes;
  seconds += other.seconds, steps += other.steps;
  options = other.options;
}

unit_result result_of(const outcome& made) {
  unit_result kept;
  kept.each = made.each;
  kept.attended_sum = made.attended_mean * static_cast<double>(made.each.size());
  kept.captured_sum = made.captured_mean * static_cast<double>(made.each.size());
  kept.device_peak = made.device_peak;
  kept.bytes = made.bytes;
  kept.zooms = made.zooms_mean * static_cast<double>(made.each.size());
  kept.refreshes = made.refreshes_mean * static_cast<double>(made.each.size());
  kept.seconds = made.seconds, kept.steps = made.steps;
  kept.options = made.options;
  return kept;
}

static void to_json(json& to, const score& from) { to = {from.right, from.all}; }
static void from_json(const json& from, score& to) { from.at(0).get_to(to.right), from.at(1).get_to(to.all); }

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(scores, fine, coarse, answers, exact, trace, found, agreeability_right,
                                   agreeability_wrong, agreed_right, agreed_wrong)

namespace {

json to_line(const std::string& key, const unit_result& of) {
  return {{"unit", key},
          {"each", of.each},
          {"attended_sum", of.attended_sum},
          {"captured_sum", of.captured_sum},
          {"device_peak", of.device_peak},
          {"bytes", {of.bytes.details, of.bytes.summaries, of.bytes.metadata}},
          {"zooms", of.zooms},
          {"refreshes", of.refreshes},
          {"seconds", of.seconds},
          {"steps", of.steps},
          {"options", of.options}};
}

/// @throws input_error
unit_result from_line(const json& line, const std::string& where) try {
  unit_result of;
  line.at("each").get_to(of.each);
  line.at("attended_sum").get_to(of.attended_sum);
  of.captured_sum = line.value("captured_sum", 0.0);
  line.at("device_peak").get_to(of.device_peak);
  of.bytes.details = line.at("bytes").at(0), of.bytes.summaries = line.at("bytes").at(1);
  of.bytes.metadata = line.at("bytes").at(2);
  line.at("zooms").get_to(of.zooms);
  line.at("refreshes").get_to(of.refreshes), line.at("seconds").get_to(of.seconds);
  line.at("steps").get_to(of.steps), line.at("options").get_to(of.options);
  return of;
} catch (const json::exception&) {
  fail(where, " is not a unit of a study; name another file to --resume");
}

}  // namespace

unit_file::unit_file(const std::string& path)
    : lines_(path, [&](const json& line, const std::string& where) {
        unit_result made = from_line(line, where);
        done_[line.value("unit", "")] = std::move(made);
      }) {}

bool unit_file::has(const std::string& unit) {
  const std::scoped_lock lock(mutex_);
  return done_.contains(unit);
}

void unit_file::add(const std::string& unit, unit_result made) {
  const std::scoped_lock lock(mutex_);
  lines_.add(to_line(unit, made));
  done_[unit] = std::move(made);
}

estimate estimate_of(const std::vector<scores>& each, score scores::*part) {
  double right = 0, all = 0, squares = 0, count = 0;
  for (const scores& s : each) right += (s.*part).right, all += (s.*part).all, count += (s.*part).all > 0;
  if (all == 0) return {};
  const double share = right / all;
  for (const scores& s : each) {
    const double off = (s.*part).right - share * (s.*part).all;
    squares += off * off;
  }
  const double variance = count > 1 ? squares / (all * all) * count / (count - 1) : 0;
  const double trials = variance > 0 ? share * (1 - share) / variance : count;
  const double z = 1.959964;
  const double centre = (share + z * z / (2 * trials)) / (1 + z * z / trials);
  const double half =
      z / (1 + z * z / trials) * std::sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials));
  return {share, std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace decode::ledger
