// SPDX-License-Identifier: Apache-2.0
// Compares what a cache attends, and what it gives, with the naive reference.
#pragma once

#include <cache/support/driving.hpp>
#include <support/rounded_weights.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

#include <functional>  // std::function
#include <vector>      // std::vector

namespace zoomr_test {

/// How many runs were compared, and how many had to stop at a close call: it must stay rare.
struct comparison {
  index_t ranges = 0;
  index_t stopped = 0;
  std::int64_t queries = 0;  // compared
  double worst = 0;          // largest difference of an output, as a share of what is allowed
};

/// By how much a storage type may be off, beside float's own arithmetic.
using allowance = double (*)(index_t head_dim);
template <class T>
inline constexpr allowance allowed_of = [](index_t head_dim) { return tolerance::of_path<T>(head_dim); };

/// Outputs and lse of one query against double-precision attention over the positions that the cache recorded.
/// @param final_pass  of a position: the pass whose keys are in the cache
void check_output(const token_result& got, const reference::history& past, std::size_t row, index_t position,
                  index_t pass, const std::function<index_t(index_t)>& final_pass, allowance off, comparison& all);

/// Of the cases that are compared with the reference one in `stride()`, the first among them: which of the others
/// depends on how many came before, by no pattern that a grid may have, too.
inline bool is_compared() {
  static std::uint64_t cases = 0;
  const std::uint64_t number = cases++;
  return number == 0 || mixed(number) % static_cast<std::uint64_t>(stride()) == 0;
}

/// What a cache has come to with a text that it played alone.
struct played {
  const tape& says;
  const result_log& log;
  std::vector<zoomr::segment> segments;
  zoomr::statistics counted;
  bool keeps_all;  // nothing is evicted from a text of this length
};
/// Attended positions exactly, outputs and lse within tolerance, segments, and statistics.
void check_played(const played& got, const reference::replayed& right, const reference::history& past, allowance off,
                  comparison& all);

/// The same of a policy, which plays the text.
/// @param exact  scores are exact in float, so that no close call is an excuse
template <class T = float, class Policy>
void check_against_reference(const Policy& policy, const tape& says, zoomr::config limits, bool exact,
                             comparison& all) {
  if (!is_compared()) return;
  player<Policy, T> plays(says.numbers.model, policy, limits);
  plays.open(says);
  plays.play_plainly();
  reference::history past = history_of<T>(says, limits.key_scale.all, limits.value_scale.all);
  past.exact = exact;
  past.logits = logits_of(limits.logits);
  past.logits.positions = says.positions;
  past.voters_unsure = limits.voters_unsure;
  past.voters_none = limits.voters_none;
  past.voters_none_slope = limits.voters_none_slope;
  past.rotary.assign(limits.rotary.frequencies.begin(), limits.rotary.frequencies.end());
  past.donors.assign(limits.donors.begin(), limits.donors.end());
  past.anchors.assign(limits.anchors.layers.begin(), limits.anchors.layers.end());
  for (index_t layer = 0; layer < limits.anchors.kv_heads.extent(0); ++layer) {
    for (const index_t head : limits.anchors.kv_heads[layer]) past.anchor_kv_heads.push_back(head);
  }
  const reference::replay<Policy> right(policy, past, limits.min_sparse_context);
  const auto& voice = plays.at(0);
  const auto found = plays.cache.segments(voice.seq);
  check_played({says,
                voice.log,
                {found.begin(), found.end()},
                plays.cache.stats(voice.seq),
                policy.evict.kept(says.size()) >= says.size()},
               right, past, allowed_of<T>, all);
}

/// Stopped runs must be rare, and something must have been compared.
inline void check_rarely_stopped(const std::string& what, const comparison& all) {
  MESSAGE(what << ": " << all.ranges << " runs, " << all.queries << " queries, " << all.stopped
               << " stopped at a close call, largest difference " << all.worst << " of what is allowed");
  const bool sampled = stride() > 1;  // of few runs one may stop
  CHECK((all.stopped * 50 <= all.ranges || (sampled && all.stopped == 1)));
  CHECK((all.queries > 0 || sampled));
}

}  // namespace zoomr_test
