// SPDX-License-Identifier: Apache-2.0
// L6. A choice by a rounded index: only those segments are looked at one by one that it may take, and only those near
// the end of its walk are scored exactly. What is taken is the same.
//
// A rounded score is off by `margin` at most. Let some segments with scores of `end` at least fill the selector's
// limits together. All of these have exact scores of end - margin at least. So the walk by exact scores ends no lower,
// and what it visits has a rounded score of end - 2 * margin at least. And let all with scores of `above` at least fit
// into the limits together. Whatever comes before one with a score of above + 2 * margin is among them: so it is taken.
//
//   taken | scored exactly, and walked over within the room that those taken leave | not taken
//         above + 2 * margin                                                      end - 2 * margin
#pragma once

#include <zoomr/cache/host/choosing/rounded_index.hpp>
#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/policy/any_policy.hpp>
#include <zoomr/policy/slot_map.hpp>
#include <zoomr/policy/take_best.hpp>

#include <algorithm>  // std::copy_n, std::fill, std::fill_n, std::max, std::max_element, std::min, std::nth_element, std::partition_point
#include <array>       // std::array
#include <bit>         // std::bit_width
#include <cmath>       // std::fabs
#include <cstddef>     // std::byte, std::size_t
#include <cstring>     // std::memchr
#include <functional>  // std::greater
#include <limits>      // std::numeric_limits
#include <vector>      // std::vector

namespace zoomr::inline v0::detail {

/// The segments of a sequence, as far as they are between the zones of the token that chooses.
struct offered_segments {
  view<const segment> segments;
  zone_bounds zone;
  slot_map slots;  // of the row's KV lane

  /// Details that a segment has left; 0: it is not eligible.
  /// @cost  O(1), or O(log kept) where the KV lane has been compacted
  index_t tokens(index_t id) const { return between_zones(segments[id].begin, segments[id].split, zone, slots).size(); }
  /// Of all segments together, at most.
  std::int64_t all_tokens() const { return slots.slot_of(zone.back) - slots.slot_of(zone.front); }
  /// Those that reach between the zones: all eligible ones are among them.
  /// @cost  O(log segments)
  token_range between() const {
    const auto first =
        std::partition_point(segments.begin(), segments.end(), [&](const segment& s) { return s.end <= zone.front; });
    const auto last =
        std::partition_point(first, segments.end(), [&](const segment& s) { return s.begin < zone.back; });
    return {static_cast<index_t>(first - segments.begin()), static_cast<index_t>(last - segments.begin())};
  }
};

/// Chooses for one row that is in one KV head, with its working memory.
class shortlist {
 public:
  shortlist(const layout& sizes, const any_policy& policy, const score_logits& logits)
      : policy_(policy), logits_(logits), cells_(static_cast<index_t>(sizes.segment_summary())), most_(most(sizes)) {
    if (most_ == 0) return;
    const auto group = static_cast<std::size_t>(sizes.model.group()), cells = static_cast<std::size_t>(cells_);
    const auto segments = static_cast<std::size_t>(sizes.most_segments), near_end = static_cast<std::size_t>(most_);
    weights_.resize(group * cells), sizes_.resize(cells), rounded_weights_.resize(group * cells / 2);
    offsets_.resize(group), rounded_offsets_.resize(group);
    largest_.resize(blocks(sizes)), ranked_.resize(largest_.size()), scores_.resize(largest_.size() * block_segments);
    counted_.resize(segments), candidates_.resize(segments), taken_.resize(segments);
    near_.resize(near_end), tokens_.resize(near_end), order_.resize(near_end);
    votes_.resize(near_end), levels_.resize(near_end);
    rows_.resize(cells * near_end), exact_.resize(group * near_end);
  }

  static byte_count bytes(const layout& sizes) {
    if (most(sizes) == 0) return 0;
    const auto each = [](std::size_t bytes) { return static_cast<byte_count>(bytes); };
    const byte_count group = sizes.model.group(), cells = sizes.segment_summary(), numbers = each(sizeof(float));
    return (group * cells + cells + group * cells / 2 + 2 * group) * numbers +
           each(blocks(sizes)) * (2 + block_segments) * numbers +
           sizes.most_segments * each(sizeof(candidate) + 2 * sizeof(index_t)) +
           most(sizes) * (each(3 * sizeof(index_t) + sizeof(votes_t) + sizeof(level)) + (cells + group) * numbers);
  }

  /// Makes a choice: `taken`, and the cut.
  /// @param queries    [heads, head_dim]
  /// @param summaries  [segments, head_dim, rows]
  /// @param limits     of the selector, for this row
  /// @return  false where more than an eighth of all segments that may be there would be scored exactly
  /// @cost    reads the rounded index, and the summaries of those that are scored exactly
  bool choose(view<const float, 2> queries, const rounded_lane& rounded, const float* summaries, take_limits limits,
              const offered_segments& offered) {
    count_ = 0;
    cut_segment = -1, cut_tokens = 0;
    if (limits.segments <= 0 || limits.room <= 0) return true;
    const token_range ids = offered.between();
    if (ids.size() <= 0) return true;
    if (!weigh(queries, rounded)) return false;
    score_rounded(rounded, ids, offered);
    const index_t count = list(limits, offered);
    const index_t near_end = divide(count, limits);
    if (near_end < 0) return false;
    if (near_end > 0) walk_exactly(queries, summaries, near_end, limits);
    for (index_t i = 0; i < count; ++i) {
      if (candidates_[static_cast<std::size_t>(i)].taken) taken_[static_cast<std::size_t>(count_++)] = id_of(i);
    }
    return true;
  }

  view<const index_t> taken() const { return {taken_.data(), {count_}}; }  // ascending
  index_t cut_segment = -1;
  index_t cut_tokens = 0;

 private:
  static constexpr float largest_margin = 1e30f;  // below it rounded scores have less than 1e36
  static constexpr std::int32_t unknown = (std::numeric_limits<std::int32_t>::min)();  // of what has no rounded score
  static constexpr std::int64_t lowest = std::int64_t{2} * unknown;                    // below any, and their slack
  static constexpr std::int32_t most_score = 1 << 29;

  struct candidate {
    index_t id = 0;
    index_t tokens = 0;
    std::int32_t score = 0;  // rounded
    bool taken = false;
  };
  struct walk_end {
    std::int64_t end = lowest;    // those with such a score or a higher one fill the limits together
    std::int64_t above = lowest;  // those fit into them
  };

  static index_t most(const layout& sizes) { return sizes.rounded_cells > 0 ? sizes.most_segments / 8 : 0; }
  static std::size_t blocks(const layout& sizes) {
    return (static_cast<std::size_t>(sizes.most_segments) + block_segments - 1) / block_segments;
  }
  index_t id_of(index_t i) const { return candidates_[static_cast<std::size_t>(i)].id; }

  // The weights of the row's heads in 16 bits, in steps that serve them all, and how far scores in these steps may be
  // from exact ones, twice.
  // @return  false where that is not known
  bool weigh(view<const float, 2> queries, const rounded_lane& rounded) {
    const index_t heads = queries.extent(0);
    const bool mean = policy_.aggregate.over_group == pool::mean;
    const view<float, 2> weights(weights_.data(), {heads, cells_});
    for (index_t h = 0; h < heads; ++h) policy_.score.weigh(queries[h], weights[h]);
    if (mean) pool_weights(heads);  // linear: the mean of the scores is the score of the mean
    rows_of_weights_ = mean ? 1 : heads;
    float margin = 0.0f, largest = 0.0f, first_offset = -infinity;
    for (index_t h = 0; h < rows_of_weights_; ++h) {
      const view<float> row = weights[h];
      for (index_t i = 0; i < cells_ && !mean; ++i) sizes_[static_cast<std::size_t>(i)] = std::fabs(row[i]);
      float& offset = offsets_[static_cast<std::size_t>(h)];
      const float of_head = rounded.weigh(row, view<const float>(sizes_), offset);
      if (!(of_head < largest_margin)) return false;
      margin = (std::max)(margin, of_head);
      first_offset = (std::max)(first_offset, offset);
      for (const float weight : row) largest = (std::max)(largest, std::fabs(weight));
    }
    const float most_weight = (std::min)(32767.0f, static_cast<float>(most_score / 127 / cells_));
    const float step = largest / most_weight;
    if (!(step > 1e-30f)) return false;
    // Half a step of each weight, and of the offset.
    const float units = 2.0f * (1.001f * margin / step + 0.51f * 127.0f * static_cast<float>(cells_) + 1.0f);
    if (!(units < static_cast<float>(most_score))) return false;
    slack_ = static_cast<std::int32_t>(units) + 1;
    for (index_t h = 0; h < rows_of_weights_; ++h) {
      round_weights(weights[h], 1.0f / step, rounded_weights_.data() + std::int64_t{h} * cells_ / 2);
      // What is this far behind another head has no part in the largest score.
      const double behind = (double{offsets_[static_cast<std::size_t>(h)]} - double{first_offset}) / double{step};
      rounded_offsets_[static_cast<std::size_t>(h)] =
          behind > -2.0 * most_score ? static_cast<std::int32_t>(behind - 0.5) : -2 * most_score;
    }
    return true;
  }
  // Into the first row: the mean of all; and the sizes of its terms.
  void pool_weights(index_t heads) {
    std::fill(sizes_.begin(), sizes_.end(), 0.0f);
    for (index_t h = 0; h < heads; ++h) {
      const float* const row = weights_.data() + std::int64_t{h} * cells_;
      for (std::size_t i = 0; i < sizes_.size(); ++i) {
        sizes_[i] += std::fabs(row[i]) / static_cast<float>(heads);
        weights_[i] = (h > 0 ? weights_[i] : 0.0f) + row[i] / static_cast<float>(heads);
      }
    }
  }
  static void round_weights(view<const float> weights, float units, std::int32_t* to) {
    const auto rounded = [&](index_t i) {
      const float number = weights[i] * units;
      return static_cast<std::int32_t>(number < 0.0f ? number - 0.5f : number + 0.5f);
    };
    for (index_t i = 0; i < weights.size(); i += 2) {
      const auto upper = static_cast<std::uint32_t>(rounded(i + 1)) << 16;
      to[i / 2] = static_cast<std::int32_t>(upper | (static_cast<std::uint32_t>(rounded(i)) & 0xffffu));
    }
  }

  // Those of `ids`; of all others in their blocks, and of what is outside, the score is unknown. Where the KV lane has
  // been compacted tokens are counted too, and those that have none left get no score.
  void score_rounded(const rounded_lane& rounded, token_range ids, const offered_segments& offered) {
    ids_ = ids;
    first_block_ = ids.first / block_segments;
    blocks_ = (ids.last - 1) / block_segments + 1 - first_block_;
    rounded.score({first_block_, first_block_ + blocks_}, {rounded_weights_.data(), {rows_of_weights_, cells_ / 2}},
                  rounded_offsets_.data(), scores_.data(), largest_.data());
    const index_t first = first_block_ * block_segments, last = (first_block_ + blocks_) * block_segments;
    for (index_t id = first; id < ids.first; ++id) score_of(id) = unknown;
    for (index_t id = ids.last; id < last; ++id) score_of(id) = unknown;
    find_largest(0), find_largest(blocks_ - 1);
    compacted_ = offered.slots.kept.size() > 0;
    eligible_ = ids.size();
    if (compacted_) count_tokens(offered);
    flags_ = rounded.outside;
    outside_ = false;
    const bool any = std::memchr(flags_.data() + ids.first, 1, static_cast<std::size_t>(ids.size())) != nullptr;
    for (index_t id = ids.first; any && id < ids.last; ++id) {
      if (!flags_[id]) continue;
      score_of(id) = unknown;
      outside_ = outside_ || tokens_of(id, offered) > 0;
    }
    for (index_t block = 0; (any || compacted_) && block < blocks_; ++block) find_largest(block);
  }
  void count_tokens(const offered_segments& offered) {
    ascending_slots ascending(offered.slots);
    eligible_ = 0;
    for (index_t id = ids_.first; id < ids_.last; ++id) {
      const segment& s = offered.segments[id];
      const index_t tokens = between_zones(s.begin, s.split, offered.zone, ascending).size();
      counted_[static_cast<std::size_t>(id)] = tokens;
      eligible_ += tokens > 0 ? 1 : 0;
      if (tokens == 0) score_of(id) = unknown;
    }
  }
  index_t tokens_of(index_t id, const offered_segments& offered) const {
    return compacted_ ? counted_[static_cast<std::size_t>(id)] : offered.tokens(id);
  }
  std::int32_t& score_of(index_t id) { return scores_[static_cast<std::size_t>(id - first_block_ * block_segments)]; }
  void find_largest(index_t block) {
    const std::int32_t* const of_block = scores_.data() + std::int64_t{block} * block_segments;
    largest_[static_cast<std::size_t>(block)] = *std::max_element(of_block, of_block + block_segments);
  }

  // All eligible ones that the walk may visit: with such scores as the best ones of some blocks have, which are more
  // than fill the limits where segments have as many tokens as on the average; or of more blocks, or all.
  index_t list(const take_limits& limits, const offered_segments& offered) {
    const std::int64_t room = std::int64_t{limits.room} * eligible_ / (1 + offered.all_tokens());
    for (std::int64_t best = 2 + (std::min)(room, std::int64_t{limits.segments}); best < blocks_; best *= 2) {
      std::copy_n(largest_.begin(), blocks_, ranked_.begin());
      const auto last = ranked_.begin() + best;
      std::nth_element(ranked_.begin(), last, ranked_.begin() + blocks_, std::greater<>());
      if (*last == unknown) break;
      const index_t count = list_from(*last - std::int64_t{slack_}, offered);
      ends_ = walk({candidates_.data(), {count}}, limits);
      if (ends_.end >= *last) return count;
    }
    const index_t count = list_from(std::int64_t{unknown} + 1, offered);
    ends_ = walk({candidates_.data(), {count}}, limits);
    return count;
  }
  // All eligible ones that have such a score at least, or are outside.
  index_t list_from(std::int64_t least, const offered_segments& offered) {
    index_t count = 0;
    for (index_t block = 0; block < blocks_; ++block) {
      if (largest_[static_cast<std::size_t>(block)] < least && !outside_) continue;
      const index_t begin = (first_block_ + block) * block_segments;
      const index_t end = (std::min)(begin + block_segments, ids_.last);
      for (index_t id = (std::max)(begin, ids_.first); id < end; ++id) {
        const std::int32_t score = score_of(id);
        if (score < least && !(outside_ && flags_[id])) continue;
        const index_t tokens = tokens_of(id, offered);
        if (tokens > 0) candidates_[static_cast<std::size_t>(count++)] = {id, tokens, score};
      }
    }
    return count;
  }

  // Of those whose scores are known.
  walk_end walk(view<const candidate> all, const take_limits& limits) const {
    static constexpr std::int64_t bins = 256;
    struct bin {
      index_t segments = 0;
      std::int64_t tokens = 0;
    };
    std::int64_t low = -lowest, high = lowest;
    for (const candidate& each : all) {
      if (each.score == unknown) continue;
      low = (std::min)(low, std::int64_t{each.score}), high = (std::max)(high, std::int64_t{each.score});
    }
    if (low > high) return {};
    const auto width = static_cast<int>(std::bit_width(static_cast<std::uint64_t>((high - low) / bins)));
    std::array<bin, static_cast<std::size_t>(bins)> filled{};
    for (const candidate& each : all) {
      if (each.score == unknown) continue;
      bin& of_score = filled[static_cast<std::size_t>((each.score - low) >> width)];
      ++of_score.segments, of_score.tokens += each.tokens;
    }
    std::int64_t segments = 0, tokens = 0;
    for (std::int64_t i = (high - low) >> width; i >= 0; --i) {
      const bin& at = filled[static_cast<std::size_t>(i)];
      segments += at.segments, tokens += at.tokens;
      if (segments >= limits.segments || tokens >= limits.room) return {low + (i << width), low + ((i + 1) << width)};
    }
    return {};
  }

  // Marks those that are taken in any case, and lists those near the end, which takes what is left of the limits.
  // @return  how many these are; -1: there is no room for them
  index_t divide(index_t count, take_limits& limits) {
    const view<candidate> all(candidates_.data(), {count});
    take_limits beside_unknown = limits;  // these may come before all others
    for (index_t i = 0; outside_ && i < count; ++i) {
      if (all[i].score != unknown) continue;
      --beside_unknown.segments, beside_unknown.room -= (std::min)(beside_unknown.room, all[i].tokens);
    }
    if (outside_) ends_.above = above_in(all, beside_unknown);
    index_t near_end = 0;
    for (index_t i = 0; i < count; ++i) {
      candidate& each = all[i];
      const bool known = each.score != unknown;
      if (known && each.score < ends_.end - slack_) continue;
      if (known && each.score >= ends_.above + slack_) {
        each.taken = true;
        --limits.segments, limits.room -= each.tokens;
        continue;
      }
      if (near_end == most_) return -1;
      near_[static_cast<std::size_t>(near_end)] = i, tokens_[static_cast<std::size_t>(near_end)] = each.tokens;
      ++near_end;
    }
    return near_end;
  }
  std::int64_t above_in(view<const candidate> all, const take_limits& limits) const {
    return limits.segments <= 0 || limits.room <= 0 ? -lowest : walk(all, limits).above;
  }

  void walk_exactly(view<const float, 2> queries, const float* summaries, index_t count, const take_limits& limits) {
    const auto summary = [&](index_t i) {
      return summaries + std::int64_t{id_of(near_[static_cast<std::size_t>(i)])} * cells_;
    };
    for (index_t i = 0; i < count; ++i) {
      for (index_t cell = 0; cell < cells_; cell += 16) __builtin_prefetch(summary(i) + cell);
    }
    for (index_t i = 0; i < count; ++i) std::copy_n(summary(i), cells_, rows_.data() + std::int64_t{i} * cells_);
    std::fill_n(votes_.begin(), count, votes_t{0});
    std::fill_n(levels_.begin(), count, level::summary);
    const view<float, 2> scores(exact_.data(), {queries.extent(0), count});
    const view<votes_t> votes(votes_.data(), {count});
    const view<const index_t> tokens(tokens_.data(), {count});
    const view<index_t> order(order_.data(), {count});
    policy_.score.score(queries, reinterpret_cast<const std::byte*>(rows_.data()), votes, scores);
    policy_.aggregate.add(scores, tokens, logits_, votes, order);
    best_first best(count, by_votes{votes}, order);
    selection_row row{view<level>(levels_.data(), {count})};
    take_best(best, limits, {.tokens = tokens, .least = policy_.aggregate.least}, row);
    for (index_t i = 0; i < count; ++i) {
      const auto place = static_cast<std::size_t>(near_[static_cast<std::size_t>(i)]);
      candidates_[place].taken = row.level_at(i) == level::details;
    }
    if (row.cut_segment >= 0) {
      cut_segment = id_of(near_[static_cast<std::size_t>(row.cut_segment)]), cut_tokens = row.cut_tokens;
    }
  }

  const any_policy& policy_;
  score_logits logits_;
  index_t cells_ = 0;  // numbers of a summary
  index_t most_ = 0;   // segments that are scored exactly
  index_t count_ = 0;  // segments taken
  token_range ids_;    // that reach between the zones
  index_t eligible_ = 0;
  index_t first_block_ = 0;
  index_t blocks_ = 0;
  index_t rows_of_weights_ = 0;                // heads, or their mean
  std::int32_t slack_ = 0;                     // twice the margin
  walk_end ends_;                              // of the walk by rounded scores
  view<const bool> flags_;                     // rounded_lane::outside
  bool compacted_ = false;                     // the KV lane has been: tokens are counted
  bool outside_ = false;                       // some have no rounded scores
  std::vector<float> weights_;                 // [group, cells]
  std::vector<float> sizes_;                   // [cells]  of the weights
  std::vector<float> offsets_;                 // [group]
  std::vector<std::int32_t> rounded_weights_;  // [group, cells / 2]
  std::vector<std::int32_t> rounded_offsets_;  // [group]
  std::vector<std::int32_t> scores_;           // [blocks, block_segments]
  std::vector<std::int32_t> largest_;          // [blocks]  of these
  std::vector<std::int32_t> ranked_;           // [blocks]  the same, in part ranked
  std::vector<index_t> counted_;               // [segments]  tokens
  std::vector<candidate> candidates_;          // [segments]
  std::vector<index_t> taken_;                 // [segments]
  std::vector<index_t> near_;                  // [most]  numbers of candidates
  std::vector<index_t> tokens_;                // [most]
  std::vector<index_t> order_;                 // [most]
  std::vector<votes_t> votes_;                 // [most]
  std::vector<level> levels_;                  // [most]
  std::vector<float> rows_;                    // [most, cells]
  std::vector<float> exact_;                   // [group, most]  scores
};

}  // namespace zoomr::inline v0::detail
