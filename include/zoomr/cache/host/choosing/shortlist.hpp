// SPDX-License-Identifier: Apache-2.0
// L6. Which segments a choice may take, by a rounded index; these alone are scored exactly. What is taken is the same.
//
// A rounded score is off by `margin` at most. Let the selector's walk, best first by rounded scores, fill its limits at
// a score `end`. All that it has visited has an exact score of end - margin at least. So the walk by exact scores ends
// no lower, and what it visits has a rounded score of end - 2 * margin at least: that is the list.
#pragma once

#include <zoomr/cache/host/choosing/rounded_index.hpp>
#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/math/order.hpp>
#include <zoomr/math/products.hpp>

#include <algorithm>  // std::copy_n, std::fill, std::max, std::min
#include <array>      // std::array
#include <cmath>      // std::fabs
#include <cstddef>    // std::byte, std::size_t
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Scores for one row that is in one KV head, with its working memory.
class shortlist {
 public:
  shortlist(const layout& sizes, const any_policy& policy, const score_logits& logits)
      : policy_(policy),
        logits_(logits),
        cells_(static_cast<index_t>(sizes.segment_summary())),
        most_(most(sizes)),
        ids_(static_cast<std::size_t>(most_)),
        tokens_(ids_.size()),
        order_(ids_.size()),
        votes_(ids_.size()) {
    const auto group = static_cast<std::size_t>(sizes.model.group());
    const auto cells = static_cast<std::size_t>(cells_);
    scores_.resize(group * ids_.size());
    rows_.resize(cells * ids_.size());
    if (most_ > 0) weights_.resize(group * cells), sizes_.resize(cells);
  }

  static byte_count bytes(const layout& sizes) {
    const byte_count listed = most(sizes), group = sizes.model.group(), cells = sizes.segment_summary();
    if (listed == 0) return 0;
    return (listed * (group + cells) + (group + 1) * cells) * static_cast<byte_count>(sizeof(float)) +
           listed * static_cast<byte_count>(3 * sizeof(index_t) + sizeof(votes_t));
  }

  /// Scores what the choice may take.
  /// @param queries    [heads, head_dim]
  /// @param summaries  [segments, head_dim, rows]
  /// @param limits     of the selector, for this row
  /// @param tokens     [segments]  0: not eligible
  /// @param scores     [heads, segments]  working memory
  /// @param votes      [segments]  0, or not_eligible; out: those of the list, and all others are not eligible
  /// @return  false, with votes as they were, where the list would be longer than an eighth of all that may be there
  /// @cost    reads the rounded index, and the summaries of the list
  bool score(view<const float, 2> queries, const rounded_lane& rounded, const float* summaries,
             const take_limits& limits, view<const index_t> tokens, view<float, 2> scores, view<votes_t> votes) {
    if (fills_late(limits, tokens)) return false;
    const view<float> pooled = scores[0];
    const float margin = pool_rounded(queries, rounded, scores);
    if (!(margin < largest_margin)) return false;
    for (index_t id = 0; id < pooled.size(); ++id) {
      if (tokens[id] == 0 || rounded.outside[id]) pooled[id] = out_of_reach;
    }
    const float end = end_of_walk(limits, tokens, pooled);
    const index_t count = list(end - 2.0f * margin, rounded, tokens, pooled);
    if (count < 0) return false;
    std::fill(votes.begin(), votes.end(), not_eligible);
    add_exactly(queries, summaries, count, votes);
    return true;
  }

 private:
  static constexpr std::size_t bins = 256;
  static constexpr float largest_margin = 1e30f;  // below it rounded scores have less than 1e36
  static constexpr float out_of_reach = -3e38f;   // of what has no rounded score: lower than any

  /// What has a score in one bin.
  struct bin {
    index_t segments = 0;
    index_t tokens = 0;
    float least = -out_of_reach;  // score
  };

  static index_t most(const layout& sizes) { return sizes.rounded_cells > 0 ? sizes.most_segments / 8 : 0; }

  // Segments of the size that they have on the average would make too long a list.
  bool fills_late(const take_limits& limits, view<const index_t> tokens) const {
    index_t eligible = 0;
    std::int64_t all = 0;
    for (const index_t each : tokens) all += each, eligible += each > 0 ? 1 : 0;
    return limits.segments >= most_ && std::int64_t{limits.room} * eligible >= std::int64_t{most_} * all;
  }

  // Into the first row of scores: those of the row's heads, pooled.
  // @return  how far they may be off; the largest margin where nothing is known of some of them
  float pool_rounded(view<const float, 2> queries, const rounded_lane& rounded, view<float, 2> scores) {
    const index_t heads = queries.extent(0);
    const view<float, 2> weights(weights_.data(), {heads, cells_});
    for (index_t h = 0; h < heads; ++h) policy_.score.weigh(queries[h], weights[h]);
    if (policy_.aggregate.over_group == pool::mean) {
      std::fill(sizes_.begin(), sizes_.end(), 0.0f);
      for (index_t h = 0; h < heads; ++h) {
        const float* const row = weights[h].data();
        for (std::size_t i = 0; i < sizes_.size(); ++i) {
          sizes_[i] += std::fabs(row[i]) / static_cast<float>(heads);
          weights_[i] = (h > 0 ? weights_[i] : 0.0f) + row[i] / static_cast<float>(heads);
        }
      }
      return score_rounded(rounded, weights[0], scores[0]);  // linear: it is the score of the mean
    }
    float margin = 0.0f;
    for (index_t h = 0; h < heads; ++h) {
      for (index_t i = 0; i < cells_; ++i) sizes_[static_cast<std::size_t>(i)] = std::fabs(weights(h, i));
      const float of_head = score_rounded(rounded, weights[h], scores[h]);
      margin = (std::max)(margin, of_head);
    }
    for (index_t h = 1; h < heads; ++h) {
      for (index_t id = 0; id < scores.extent(1); ++id) scores(0, id) = (std::max)(scores(0, id), scores(h, id));
    }
    return margin;
  }
  float score_rounded(const rounded_lane& rounded, view<float> weights, view<float> scores) const {
    float offset = 0.0f;
    const float margin = rounded.weigh(weights, view<const float>(sizes_), offset);
    if (!(margin < largest_margin)) return largest_margin;
    products(fastest_cpu_path(), view<const float, 2>(weights.data(), {1, cells_}), rounded.rows, cells_,
             view<float, 2>(scores.data(), {1, scores.size()}));
    for (float& score : scores) score += offset;
    return margin;
  }

  // A score that those have, or a higher one, which fill the limits together; out_of_reach: all do not fill them.
  static float end_of_walk(const take_limits& limits, view<const index_t> tokens, view<const float> scores) {
    float least = -out_of_reach, largest = out_of_reach;
    for (const float score : scores) {
      least = score > out_of_reach && score < least ? score : least;
      largest = score > largest ? score : largest;
    }
    if (least >= largest) return out_of_reach;
    const float width = (largest - least) / static_cast<float>(bins);
    if (width <= 0.0f) return out_of_reach;  // too small for a float
    std::array<bin, bins> filled{};
    for (index_t id = 0; id < scores.size(); ++id) {
      if (scores[id] == out_of_reach) continue;
      bin& of_score = filled[(std::min)(static_cast<std::size_t>((scores[id] - least) / width), bins - 1)];
      ++of_score.segments;
      of_score.tokens += tokens[id];
      of_score.least = (std::min)(of_score.least, scores[id]);
    }
    index_t segments = 0, room = limits.room;
    float end = -out_of_reach;
    for (std::size_t i = bins; i-- > 0;) {
      segments += filled[i].segments;
      room -= (std::min)(room, filled[i].tokens);
      end = (std::min)(end, filled[i].least);
      if (segments >= limits.segments || room <= 0) return end;
    }
    return out_of_reach;
  }

  // @return  how many are in the list; -1: there is no room for them
  index_t list(float least, const rounded_lane& rounded, view<const index_t> tokens, view<const float> scores) {
    index_t count = 0;
    for (index_t id = 0; id < scores.size(); ++id) {
      const bool reached = scores[id] >= least && scores[id] > out_of_reach;
      if (!reached && !(rounded.outside[id] && tokens[id] > 0)) continue;
      if (count == most_) return -1;
      ids_[static_cast<std::size_t>(count)] = id;
      tokens_[static_cast<std::size_t>(count)] = tokens[id];
      ++count;
    }
    return count;
  }

  void add_exactly(view<const float, 2> queries, const float* summaries, index_t count, view<votes_t> votes) {
    for (index_t i = 0; i < count; ++i) {
      const std::int64_t id = ids_[static_cast<std::size_t>(i)];
      std::copy_n(summaries + id * cells_, cells_, rows_.data() + std::int64_t{i} * cells_);
      votes_[static_cast<std::size_t>(i)] = 0;
    }
    const view<float, 2> scores(scores_.data(), {queries.extent(0), count});
    const view<votes_t> listed(votes_.data(), {count});
    policy_.score.score(queries, reinterpret_cast<const std::byte*>(rows_.data()), listed, scores);
    policy_.aggregate.add(scores, view<const index_t>(tokens_.data(), {count}), logits_, listed,
                          view<index_t>(order_.data(), {count}));
    for (index_t i = 0; i < count; ++i) votes[ids_[static_cast<std::size_t>(i)]] = listed[i];
  }

  const any_policy& policy_;
  score_logits logits_;
  index_t cells_ = 0;            // numbers of a summary
  index_t most_ = 0;             // segments in the list
  std::vector<index_t> ids_;     // [most]
  std::vector<index_t> tokens_;  // [most]
  std::vector<index_t> order_;   // [most]
  std::vector<votes_t> votes_;   // [most]
  std::vector<float> scores_;    // [group, most]
  std::vector<float> rows_;      // [most, cells]
  std::vector<float> weights_;   // [group, cells]
  std::vector<float> sizes_;     // [cells]  of the weights
};

}  // namespace zoomr::inline v0::detail
