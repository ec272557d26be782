// SPDX-License-Identifier: Apache-2.0
// Compares what a cache attends, and what it gives, with the naive reference.
#pragma once

#include <cache/support/driving.hpp>
#include <support/rounded_weights.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {

/// How many runs were compared, and how many had to stop at a close call: it must stay rare.
struct comparison {
  index_t ranges = 0;
  index_t stopped = 0;
  std::int64_t queries = 0;  // compared
  double worst = 0;          // largest difference of an output, as a share of what is allowed
};

/// Outputs and lse of one query against double-precision attention over the positions that the cache recorded.
template <class T>
void check_output(const token_result& got, const reference::history& past, std::size_t row, index_t position,
                  index_t pass, const auto& final_pass, comparison& all) {
  const shape& m = past.model;
  const auto layer = static_cast<index_t>(row) / m.heads;
  const auto head = static_cast<index_t>(row) % m.heads;
  const index_t kv_head = head / (m.heads / m.kv_heads);
  const auto pass_of = [&](index_t t) { return t == position ? pass : final_pass(t); };
  const std::vector<index_t>& positions = got.attended[row];
  const reference::attention wanted = reference::attend(
      positions, past.query(position, layer, head, pass), m.head_dim,
      [&](index_t t) { return past.key(t, layer, kv_head, pass_of(t)); },
      [&](index_t t) { return past.value(t, layer, kv_head, pass_of(t)); }, past.logits, static_cast<index_t>(row),
      m.heads, position);
  const double allowed =
      tolerance::end_to_end(m.head_dim, wanted.largest_logit, static_cast<double>(positions.size())) +
      tolerance::of_prompts<T>(m.head_dim, wanted.largest_logit);
  const double allowed_of_out = allowed + tolerance::of_path<T>(m.head_dim);
  CAPTURE(position);
  CAPTURE(wanted.lse);
  CAPTURE(got.lse.numbers[row]);
  CAPTURE(allowed);
  CHECK(tolerance::within(got.lse.numbers[row], wanted.lse, allowed * (1 + std::abs(wanted.lse))));
  const float* out = got.out.numbers.data() + row * static_cast<std::size_t>(m.head_dim);
  index_t wrong = -1;  // dimension
  for (index_t d = 0; d < m.head_dim; ++d) {
    const double right = wanted.out[static_cast<std::size_t>(d)];
    if (!tolerance::within(out[d], right, allowed_of_out * wanted.largest_value)) wrong = d;
    if (!std::isnan(right) && wanted.largest_value > 0) {
      all.worst = std::max(all.worst, std::abs(out[d] - right) / (allowed_of_out * wanted.largest_value));
    }
  }
  CHECK(wrong == -1);
}

/// Of the cases that are compared with the reference one in `stride()`, the first among them: which of the others
/// depends on how many came before, by no pattern that a grid may have, too.
inline bool is_compared() {
  static std::uint64_t cases = 0;
  const std::uint64_t number = cases++;
  return number == 0 || mixed(number) % static_cast<std::uint64_t>(stride()) == 0;
}

/// Attended positions exactly, outputs and lse within tolerance, segments, and statistics.
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
  const reference::replay<Policy> right(policy, past, limits.min_sparse_context);
  ++all.ranges;

  const auto found = plays.cache.segments(plays.at(0).seq);
  REQUIRE(std::vector<zoomr::segment>(found.begin(), found.end()) == right.segments());

  const auto pass_of = [&](index_t t) { return right.final_pass(t); };
  for (const auto& [at, got] : plays.at(0).log) {
    if (at.first < says.prompt) continue;
    const index_t position = at.first;
    const index_t pass = at.second;
    CAPTURE(position);
    CAPTURE(pass);
    const auto wanted = right.attended().find(at);
    const bool in_prompt = says.in_prompt(position);  // nothing is traced there
    const bool doubtful = right.first_doubt() <= at.first;
    if (in_prompt && doubtful && policy.evict.kept(says.size()) < says.size()) continue;
    if ((wanted == right.attended().end() || (wanted->second != got.attended && !in_prompt)) && doubtful) {
      ++all.stopped;
      return;
    }
    REQUIRE(wanted != right.attended().end());
    if (in_prompt) {
      token_result everything = got;
      everything.attended = wanted->second;
      for (std::size_t row = position % 3; row < everything.attended.size(); row += 3)
        check_output<T>(everything, past, row, position, pass, pass_of, all);
      continue;
    }
    REQUIRE(wanted->second.size() == got.attended.size());
    for (std::size_t row = 0; row < got.attended.size(); ++row) {
      CAPTURE(row);
      REQUIRE(got.attended[row] == wanted->second[row]);
      if ((row + static_cast<std::size_t>(at.first)) % 3 == 0)
        check_output<T>(got, past, row, at.first, at.second, pass_of, all);
      ++all.queries;
    }
  }
  const zoomr::statistics& counted = plays.cache.stats(plays.at(0).seq);
  index_t of_prompts = says.prompt;
  for (const zoomr::token_range& later : says.later_prompts) of_prompts += later.size();
  CHECK(counted.prompt_tokens == of_prompts);
  CHECK(counted.tokens == says.size() - of_prompts);
  for (const reference::whole_item& item : says.whole_items) {
    if (!item.complete) return;  // what is not accepted was attended too
  }
  CHECK(counted.passes == right.counted().passes);
  CHECK(counted.attended == right.counted().attended);
  CHECK(counted.refreshes == right.counted().refreshes);
  CHECK(counted.zooms == right.counted().zooms);
  CHECK(counted.chosen == right.counted().chosen);
  if (right.first_doubt() < says.size()) return;  // votes may differ where no position does
  CHECK(counted.agreeability_count == right.counted().agreeability_count);
  const double choices = static_cast<double>(counted.agreeability_count);
  CHECK(tolerance::within(counted.agreeability_sum, right.counted().agreeability_sum, 1e-4 * (1 + choices)));
  CHECK(counted.entropy_count == right.counted().entropy_count);
  CHECK(tolerance::within(counted.entropy_sum, right.counted().entropy_sum, 1e-4 * (1 + choices)));
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
