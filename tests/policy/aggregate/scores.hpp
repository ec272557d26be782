// SPDX-License-Identifier: Apache-2.0
// Scores of some heads for some segments, and the votes that an aggregator makes of them.
#pragma once

#include <core/random.hpp>
#include <zoomr/policy/concepts.hpp>

#include <cmath>   // std::abs, std::tanh
#include <vector>  // std::vector

namespace unit {

using votes = std::vector<zoomr::votes_t>;

struct score_table {
  zoomr::index_t heads = 0;
  zoomr::index_t segments = 0;
  std::vector<float> scores;           // [heads, segments]
  std::vector<zoomr::index_t> tokens;  // [segments]
  votes before;                        // [segments]  0, or not_eligible
  zoomr::index_t head_dim = 64;

  float at(zoomr::index_t head, zoomr::index_t id) const { return scores[size(head * segments + id)]; }
  bool eligible(zoomr::index_t id) const { return before[size(id)] != zoomr::not_eligible; }
};

/// One token in each segment, all eligible.
inline score_table table(zoomr::index_t heads, std::vector<float> scores) {
  const auto segments = static_cast<zoomr::index_t>(scores.size()) / heads;
  return {heads, segments, std::move(scores), std::vector<zoomr::index_t>(size(segments), 1), votes(size(segments), 0)};
}

/// Scores with ties, infinities and NaN; some segments with nothing left to attend.
inline score_table random_table(random& random, zoomr::index_t heads, zoomr::index_t segments, bool special) {
  score_table made;
  made.heads = heads;
  made.segments = segments;
  made.scores = random.floats(size(heads * segments), -20.0f, 20.0f);
  const float specials[] = {
      zoomr::infinity, -zoomr::infinity, std::numeric_limits<float>::quiet_NaN(), 0.0f, -0.0f, 1.0f};
  for (float& score : made.scores) {
    if (special && random.chance(0.4)) score = specials[random.below(6)];
  }
  for (zoomr::index_t id = 0; id < segments; ++id) {
    const bool eligible = random.chance(0.8);
    made.tokens.push_back(eligible ? random.between(1, 300) : 0);
    made.before.push_back(eligible ? 0 : zoomr::not_eligible);
  }
  return made;
}

/// Adds the heads [first, last) of the table to `into`.
template <class Aggregator>
void add_heads(const Aggregator& aggregate, const score_table& table, zoomr::index_t first, zoomr::index_t last,
               votes& into) {
  std::vector<zoomr::index_t> order(size(table.segments));
  const zoomr::view<const float, 2> scores(table.scores.data(), {table.heads, table.segments});
  aggregate.add(scores.slice(first, last), table.tokens, table.head_dim, into, order);
}

template <class Aggregator>
votes agreed(const Aggregator& aggregate, const score_table& table) {
  votes made = table.before;
  add_heads(aggregate, table, 0, table.heads, made);
  return made;
}

/// The votes of heads with these weights.
template <class Aggregator>
votes weighed(const Aggregator& aggregate, const score_table& table, const std::vector<zoomr::votes_t>& weights) {
  votes made = table.before;
  std::vector<zoomr::index_t> order(size(table.segments));
  aggregate.add_weighted({table.scores.data(), {table.heads, table.segments}}, weights, table.tokens,
                         zoomr::score_logits(table.head_dim), made, order);
  return made;
}

/// True if masses under a scale and a soft cap of the model's own are those of scores that were capped before.
template <class Aggregator>
bool caps_scores(const Aggregator& aggregate, random& random) {
  score_table given = random_table(random, 5, 30, false);
  zoomr::score_logits own = 64;
  own.scale = random.uniform(0.05f, 0.6f), own.soft_cap = random.uniform(0.5f, 8.0f);
  votes made = given.before;
  std::vector<zoomr::index_t> order(size(given.segments));
  aggregate.add({given.scores.data(), {given.heads, given.segments}}, given.tokens, own, made, order);
  for (float& score : given.scores) {
    score = static_cast<float>(8.0 * double{own.soft_cap} *
                               std::tanh(double{score} * double{own.scale} / double{own.soft_cap}));
  }
  const votes right = agreed(aggregate, given);
  for (std::size_t i = 0; i < made.size(); ++i) {
    const auto wanted = static_cast<double>(right[i]);
    if (std::abs(static_cast<double>(made[i]) - wanted) > given.heads + 2e-5 * std::abs(wanted)) return false;
  }
  return true;
}

}  // namespace unit
