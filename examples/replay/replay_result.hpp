// SPDX-License-Identifier: Apache-2.0
// What one policy has made of a trace.
#pragma once

#include <zoomr/cache/statistics.hpp>
#include <zoomr/paging/tiers/tier_statistics.hpp>

#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

#include <nlohmann/json_fwd.hpp>

namespace replay {

using zoomr::index_t;

/// Of one query head: means over its queries, which are the tokens after the prompt.
struct head_figures {
  double error = 0;        // |out - exact| / |exact|, of outputs as vectors
  double worst_error = 0;  // the largest of them
  double captured = 0;     // share of full attention's mass that falls on what was attended
  double recall = 0;       // share of the keys with the largest logits that were attended
  double attended = 0;     // tokens
  double churn = 0;        // share of what is attended, the token itself apart, that was not so a token before

  friend bool operator==(const head_figures&, const head_figures&) = default;
};

struct replay_result {
  std::string policy;               // as the command line names it, with its budget
  std::string options;              // all fields of the policy
  bool dense = false;               // all layers of the trace are among those in which it attends to everything
  std::int64_t queries = 0;         // of all query heads
  std::int64_t active = 0;          // those for which something was left out
  index_t active_tokens = 0;        // tokens of which a query was so
  std::vector<head_figures> heads;  // [layers, heads]
  zoomr::statistics stats;          // of the cache
  double attended_mean = 0;         // by these: second passes added
  zoomr::memory_use bytes;          // in use at the end
  zoomr::memory_use capacity;
  std::optional<zoomr::tier_statistics> tiers;  // where blocks have moved
  zoomr::byte_count prompt_in = 0;              // bytes of `tiers->bytes_in` that came for the prompt
  double seconds = 0;                           // of the cache's calls, the prompt included

  /// Something was left out of some query: without that, nothing follows from the figures.
  bool conclusive() const { return active > 0; }
  /// It attends to everything whatever there is: the baseline, which need not leave out anything.
  bool baseline() const { return policy == "full" || policy.starts_with("full@") || policy.starts_with("full+"); }
  /// Why nothing follows from the figures of one that is not conclusive.
  const char* reason() const {
    return dense ? "the trace has none but its dense layers" : "the trace is too short for it";
  }
  double active_share() const {
    return queries == 0 ? 0.0 : static_cast<double>(active) / static_cast<double>(queries);
  }
  /// What a device would hold at most, accounted; over tiers what memory has taken.
  zoomr::byte_count device_bytes() const { return tiers ? capacity.total() : stats.device_peak; }
  /// Over tiers: bytes that came to memory for each token after the prompt.
  double moved_in() const {
    const auto tokens = static_cast<double>(stats.tokens);
    return tiers && stats.tokens > 0 ? static_cast<double>(tiers->bytes_in - prompt_in) / tokens : 0.0;
  }
  /// Of all heads: means, and the largest of the worst errors.
  head_figures all_heads() const;

  friend bool operator==(const replay_result&, const replay_result&);
};

/// @param heads  of a layer
nlohmann::ordered_json to_json(const replay_result& result, index_t heads);

/// What `to_json` has made.
/// @param where  for the complaint
/// @throws decode::input_error
replay_result read_result(const nlohmann::json& value, const std::string& where);

}  // namespace replay
