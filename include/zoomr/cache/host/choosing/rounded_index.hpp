// SPDX-License-Identifier: Apache-2.0
// L6. The index of each KV lane once more, in 8 bits: how far a score can be off is known, so that a choice scores only
// those segments exactly that it may take. A cache that only saves work: it follows from the index.
//
//   number of a summary = offset + step * rounded, to within half a step        offset, step of each cell of a KV lane
//   score = sum over cells of weight(query) * number                            a scorer that is such a sum
#pragma once

#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/core/buffer.hpp>
#include <zoomr/math/simd.hpp>

#include <algorithm>  // std::fill, std::fill_n, std::max, std::max_element, std::min
#include <cmath>      // std::fabs, std::nearbyint
#include <cstdint>    // std::int8_t
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Segments whose numbers are side by side, two of each: what one vector scores.
inline constexpr index_t block_segments = 16;

/// scores[s] = largest over heads of (offset + sum over cells of weight * number of segment s), in integers.
/// @param rows     [blocks, pairs, block_segments] of two numbers
/// @param pairs    of cells: an even number
/// @param weights  [heads, pairs] of two numbers in 16 bits, the first in the lower ones
/// @param offsets  [heads]
/// @param scores   [blocks, block_segments]  out
/// @param largest  [blocks]  out: of their scores
inline void score_blocks_plainly(const int8* rows, index_t blocks, index_t pairs, const std::int32_t* weights,
                                 const std::int32_t* offsets, index_t heads, std::int32_t* scores,
                                 std::int32_t* largest) {
  for (index_t block = 0; block < blocks; ++block, rows += 2 * block_segments * pairs, scores += block_segments) {
    for (index_t h = 0; h < heads; ++h) {
      std::int32_t sums[std::size_t{block_segments}] = {};
      for (index_t pair = 0; pair < pairs; ++pair) {
        const int8* const at = rows + 2 * block_segments * pair;
        const std::int32_t both = weights[h * pairs + pair];
        const std::int32_t first = static_cast<std::int16_t>(both), second = both >> 16;
        for (index_t s = 0; s < block_segments; ++s) sums[s] += first * at[2 * s].bits + second * at[2 * s + 1].bits;
      }
      for (index_t s = 0; s < block_segments; ++s) {
        scores[s] = h == 0 ? offsets[h] + sums[s] : (std::max)(scores[s], offsets[h] + sums[s]);
      }
    }
    largest[block] = *std::max_element(scores, scores + block_segments);
  }
}

}  // namespace zoomr::inline v0::detail

#define ZOOMR_EACH_CPU_PATH <zoomr/cache/host/choosing/rounded_index.inl>
#include <zoomr/core/each_cpu_path.inl>

namespace zoomr::inline v0::detail {

/// One KV lane of it, to be read.
struct rounded_lane {
  const int8* rows = nullptr;  // [segments / block_segments, cells / 2, block_segments, 2]
  view<const bool> outside;    // [segments]  a number is too far from the others, or not finite: nothing is known
  view<const float> offsets;   // [cells]
  view<const float> steps;     // [cells]
  index_t segments = 0;        // that it has; 0: it does not serve

  index_t cells() const { return steps.size(); }
  /// Where a number of a segment is in the rows.
  static std::int64_t place(index_t cells, index_t id, index_t cell) {
    return std::int64_t{id / block_segments} * cells * block_segments + cell / 2 * (2 * block_segments) +
           id % block_segments * 2 + cell % 2;
  }

  /// Makes of the weights of one query's cells those of the rounded numbers.
  /// @param weights  [cells]  in: of a summary's numbers; out: of a row
  /// @param sizes    [cells]  of the terms that an exact score adds for each
  /// @param offset   out: what every score has beside the row's
  /// @return  how far scores in float may be from each other, by either way; not finite if a weight is not
  float weigh(view<float> weights, view<const float> sizes, float& offset) const {
    // Both are sums of floats in some order. A sum of n terms is off by less than n units of 2^-23 of their sizes.
    const float units = static_cast<float>(weights.size() + 64) * 0x1p-22f;
    float margin = 0.0f;
    offset = 0.0f;
    for (index_t i = 0; i < weights.size(); ++i) {
      margin += std::fabs(weights[i]) * 0.51f * steps[i];
      margin += sizes[i] * units * (std::fabs(offsets[i]) + 128.0f * steps[i]);
      offset += weights[i] * offsets[i];
      weights[i] *= steps[i];
    }
    return 1.01f * margin;
  }

  /// Scores blocks [first, last) by weights in 16 bits: arguments as of `score_blocks_plainly`.
  /// @param of_heads  [heads]  the offsets
  /// @cost  reads the rows once
  void score(token_range blocks, view<const std::int32_t, 2> weights, const std::int32_t* of_heads,
             std::int32_t* scores, std::int32_t* largest) const {
    const index_t heads = weights.extent(0), pairs = weights.extent(1);
    const int8* const from = rows + place(cells(), blocks.first * block_segments, 0);
    const auto in_vectors = [&](auto path) {
      score_blocks(path, from, blocks.size(), pairs, weights.data(), of_heads, heads, scores, largest);
    };
    if (dispatch(fastest_cpu_path(), in_vectors)) return;
    score_blocks_plainly(from, blocks.size(), pairs, weights.data(), of_heads, heads, scores, largest);
  }
};

/// That of all KV lanes of a sequence. Who writes summaries renews it.
class rounded_index {
 public:
  rounded_index() = default;
  /// @param cells     numbers of a summary; 0: there is no such index
  /// @param segments  at most
  rounded_index(index_t kv_lanes, index_t cells, index_t segments) : cells_(cells), segments_(segments) {
    if (cells == 0) return;
    lanes_.resize(static_cast<std::size_t>(kv_lanes));
    rows_ = buffer<int8>(kv_lanes * row_numbers());
    outside_ = buffer<bool>(std::int64_t{kv_lanes} * segments);
    scales_ = buffer<float>(std::int64_t{kv_lanes} * 2 * cells);
  }
  static byte_count bytes(index_t kv_lanes, index_t cells, index_t segments) {
    if (cells == 0) return 0;
    const byte_count of_lane = bounded_product({whole_blocks(segments), cells}) + segments +
                               std::int64_t{2} * cells * static_cast<std::int64_t>(sizeof(float));
    return bounded_product({kv_lanes, of_lane + static_cast<std::int64_t>(sizeof(known))});
  }

  /// Notes the summaries of one KV lane again, from `first` on.
  /// @param summaries  [segments, cells]
  /// @cost  rounds new ones; all of them each time that their number has doubled, for steps that suit them
  void renew(index_t kv_lane, const float* summaries, index_t first, index_t segments) {
    if (lanes_.empty()) return;
    known& lane = lanes_[static_cast<std::size_t>(kv_lane)];
    lane.segments = (std::min)(lane.segments, first);
    if (segments < least_segments) return;
    if (lane.segments == 0 || segments >= 2 * lane.scaled) {
      lane = {0, segments};
      set_scales(kv_lane, summaries, segments);
    }
    for (index_t id = lane.segments; id < segments; ++id) round(kv_lane, summaries + std::int64_t{id} * cells_, id);
    lane.segments = segments;
  }
  void forget() { std::fill(lanes_.begin(), lanes_.end(), known{}); }

  /// @param segments  that a choice has
  rounded_lane lane(index_t kv_lane, index_t segments) const {
    if (lanes_.empty() || segments < least_segments) return {};
    if (lanes_[static_cast<std::size_t>(kv_lane)].segments < segments) return {};
    const float* const scales = scales_.data() + std::int64_t{kv_lane} * 2 * cells_;
    return {rows_.data() + kv_lane * row_numbers(),
            {outside_.data() + std::int64_t{kv_lane} * segments_, {segments}},
            {scales, {cells_}},
            {scales + cells_, {cells_}},
            segments};
  }

 private:
  static constexpr index_t least_segments = layout::least_rounded_segments;
  struct known {
    index_t segments = 0;  // that are rounded
    index_t scaled = 0;    // that there were when the steps were set
  };

  static std::int64_t whole_blocks(index_t segments) {
    return (std::int64_t{segments} + block_segments - 1) / block_segments * block_segments;
  }
  std::int64_t row_numbers() const { return whole_blocks(segments_) * cells_; }  // of a KV lane

  static constexpr float most = 127.0f;      // steps from the offset
  static constexpr float most_size = 1e30f;  // numbers of this size, and what is not finite, have no part in the steps

  // The offset of a cell is in the middle of its numbers.
  void set_scales(index_t kv_lane, const float* summaries, index_t segments) {
    float* const offsets = scales_.data() + std::int64_t{kv_lane} * 2 * cells_;
    float* const steps = offsets + cells_;
    std::fill(offsets, offsets + cells_, most_size);  // the least, and the largest
    std::fill(steps, steps + cells_, -most_size);
    for (index_t id = 0; id < segments; ++id, summaries += cells_) {
      for (index_t i = 0; i < cells_; ++i) {
        const float number = summaries[i];
        if (!(std::fabs(number) < most_size)) continue;
        offsets[i] = (std::min)(offsets[i], number);
        steps[i] = (std::max)(steps[i], number);
      }
    }
    for (index_t i = 0; i < cells_; ++i) {
      const float least = offsets[i], largest = steps[i];
      const bool any = least <= largest;
      offsets[i] = any ? 0.5f * least + 0.5f * largest : 0.0f;
      steps[i] = any ? (0.5f * largest - 0.5f * least) / most : 0.0f;
    }
  }
  void round(index_t kv_lane, const float* summary, index_t id) {
    const float* const offsets = scales_.data() + std::int64_t{kv_lane} * 2 * cells_;
    const float* const steps = offsets + cells_;
    int8* const rows = rows_.data() + kv_lane * row_numbers();
    if (id % block_segments == 0)
      std::fill_n(rows + rounded_lane::place(cells_, id, 0), cells_ * block_segments, int8{});
    bool within = true;
    for (index_t i = 0; i < cells_; ++i) {
      const float distance = summary[i] - offsets[i];
      const float units = steps[i] > 0.0f ? distance / steps[i] : 0.0f;
      const bool fits = std::fabs(distance) <= steps[i] * (most + 0.4f);
      within = within && fits;  // what is not finite fits nowhere
      rows[rounded_lane::place(cells_, id, i)] = int8{static_cast<std::int8_t>(fits ? std::nearbyint(units) : 0.0f)};
    }
    outside_.data()[std::int64_t{kv_lane} * segments_ + id] = !within;
  }

  index_t cells_ = 0;
  index_t segments_ = 0;      // at most
  std::vector<known> lanes_;  // [KV lanes]
  buffer<int8> rows_;         // [KV lanes]  as those of a rounded_lane, in whole blocks
  buffer<bool> outside_;      // [KV lanes, segments]
  buffer<float> scales_;      // [KV lanes][offsets [cells], steps [cells]]
};

}  // namespace zoomr::inline v0::detail
