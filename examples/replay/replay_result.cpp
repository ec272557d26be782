// SPDX-License-Identifier: Apache-2.0
#include "replay_result.hpp"

#include <algorithm>  // std::max
#include <utility>    // std::pair

#include <nlohmann/json.hpp>

#include "../decode/input_error.hpp"

namespace replay {
namespace {

using nlohmann::ordered_json;

// Each of these calls visit(name, member) for all that a file has of a struct.
void each_member(auto& of_stats, auto visit) requires(requires { of_stats.prompt_tokens; }) {
  visit("prompt_tokens", of_stats.prompt_tokens), visit("tokens", of_stats.tokens), visit("passes", of_stats.passes);
  visit("taken", of_stats.taken), visit("attended", of_stats.attended), visit("refreshes", of_stats.refreshes),
      visit("zooms", of_stats.zooms);
  visit("chosen", of_stats.chosen);
  visit("agreeability_sum", of_stats.agreeability_sum), visit("agreeability_count", of_stats.agreeability_count);
  visit("entropy_sum", of_stats.entropy_sum), visit("entropy_count", of_stats.entropy_count);
  visit("captured_sum", of_stats.captured_sum), visit("captured_count", of_stats.captured_count);
  visit("device_peak", of_stats.device_peak);
}
void each_member(auto& bytes, auto visit) requires(requires { bytes.details; }) {
  visit("details", bytes.details), visit("summaries", bytes.summaries), visit("metadata", bytes.metadata);
  visit("workspace", bytes.workspace), visit("file", bytes.file);
}
void each_member(auto& tiers, auto visit) requires(requires { tiers.hits; }) {
  visit("hits", tiers.hits), visit("misses", tiers.misses), visit("stalls", tiers.stalls);
  visit("prefetched", tiers.prefetched), visit("bytes_in", tiers.bytes_in), visit("bytes_out", tiers.bytes_out);
  visit("moving_ns", tiers.times.moving_ns), visit("waited_ns", tiers.times.waited_ns);
}

template <class Struct>
ordered_json members_of(const Struct& from) {
  ordered_json out;
  each_member(from, [&](const char* name, const auto& member) { out[name] = member; });
  return out;
}
template <class Struct>
void read_members(const nlohmann::json& in, Struct& into) {
  each_member(into, [&](const char* name, auto& member) { in.at(name).get_to(member); });
}

constexpr std::pair<const char*, double head_figures::*> figures[] = {
    {"error", &head_figures::error},       {"worst_error", &head_figures::worst_error},
    {"captured", &head_figures::captured}, {"recall", &head_figures::recall},
    {"attended", &head_figures::attended}, {"churn", &head_figures::churn}};

}  // namespace

head_figures replay_result::all_heads() const {
  head_figures all;
  for (const auto& [name, member] : figures) {
    for (const head_figures& one : heads) all.*member += one.*member / static_cast<double>(heads.size());
  }
  all.worst_error = 0;
  for (const head_figures& one : heads) all.worst_error = std::max(all.worst_error, one.worst_error);
  return all;
}

bool operator==(const replay_result& a, const replay_result& b) { return to_json(a, 1) == to_json(b, 1); }

ordered_json to_json(const replay_result& result, index_t heads) {
  const head_figures all = result.all_heads();
  ordered_json out = {
      {"policy", result.policy},          {"options", result.options}, {"dense", result.dense},
      {"queries", result.queries},        {"active", result.active},   {"active_tokens", result.active_tokens},
      {"conclusive", result.conclusive()}};
  for (const auto& [name, member] : figures) out[name] = all.*member;
  out["seconds"] = result.seconds;
  out["stats"] = members_of(result.stats);
  out["stats"]["attended_tokens_mean"] = result.attended_mean;
  out["bytes"] = members_of(result.bytes);
  out["capacity"] = members_of(result.capacity);
  out["tiers"] = result.tiers ? members_of(*result.tiers) : ordered_json(nullptr);
  out["prompt_bytes_in"] = result.prompt_in;
  for (const auto& [name, member] : figures) {
    ordered_json& rows = out["heads"][name] = ordered_json::array();
    for (std::size_t i = 0; i < result.heads.size(); ++i) {
      if (i % static_cast<std::size_t>(heads) == 0) rows.push_back(ordered_json::array());
      rows.back().push_back(result.heads[i].*member);
    }
  }
  return out;
}

replay_result read_result(const nlohmann::json& value, const std::string& where) {
  replay_result result;
  try {
    value.at("policy").get_to(result.policy);
    value.at("options").get_to(result.options);
    result.dense = value.value("dense", false);
    value.at("queries").get_to(result.queries);
    value.at("active").get_to(result.active);
    value.at("active_tokens").get_to(result.active_tokens);
    value.at("seconds").get_to(result.seconds);
    read_members(value.at("stats"), result.stats);
    value.at("stats").at("attended_tokens_mean").get_to(result.attended_mean);
    read_members(value.at("bytes"), result.bytes);
    read_members(value.at("capacity"), result.capacity);
    if (!value.at("tiers").is_null()) read_members(value.at("tiers"), result.tiers.emplace());
    value.at("prompt_bytes_in").get_to(result.prompt_in);
    for (const auto& [name, member] : figures) {
      std::size_t head = 0;
      for (const nlohmann::json& row : value.at("heads").at(name)) {
        for (const nlohmann::json& number : row) {
          if (head == result.heads.size()) result.heads.emplace_back();
          number.get_to(result.heads[head++].*member);
        }
      }
    }
  } catch (const nlohmann::json::exception&) {
    decode::fail(where, ": it is no result of a replay");
  }
  return result;
}

}  // namespace replay
