// SPDX-License-Identifier: Apache-2.0
// L6. The index of each KV lane once more, in 8 bits: how far a score can be off is known, so that a choice scores only
// those segments exactly that it may take. A cache that only saves work: it follows from the index.
//
//   number of a summary = offset + step * rounded, to within half a step        offset, step of each cell of a KV lane
//   score = sum over cells of weight(query) * number                            a scorer that is such a sum
#pragma once

#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/core/buffer.hpp>

#include <algorithm>  // std::fill, std::max, std::min
#include <cmath>      // std::fabs, std::nearbyint
#include <cstdint>    // std::int8_t
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// One KV lane of it, to be read.
struct rounded_lane {
  const int8* rows = nullptr;  // [segments, cells]
  view<const bool> outside;    // [segments]  a number is too far from the others, or not finite: nothing is known
  view<const float> offsets;   // [cells]
  view<const float> steps;     // [cells]
  index_t segments = 0;        // that it has; 0: it does not serve

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
    rows_ = buffer<int8>(std::int64_t{kv_lanes} * segments * cells);
    outside_ = buffer<bool>(std::int64_t{kv_lanes} * segments);
    scales_ = buffer<float>(std::int64_t{kv_lanes} * 2 * cells);
  }
  static byte_count bytes(index_t kv_lanes, index_t cells, index_t segments) {
    if (cells == 0) return 0;
    const byte_count of_lane = bounded_product({segments, std::int64_t{cells} + 1}) +
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
    return {rows_.data() + std::int64_t{kv_lane} * segments_ * cells_,
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
    const std::int64_t place = std::int64_t{kv_lane} * segments_ + id;
    int8* const row = rows_.data() + place * cells_;
    bool within = true;
    for (index_t i = 0; i < cells_; ++i) {
      const float distance = summary[i] - offsets[i];
      const float units = steps[i] > 0.0f ? distance / steps[i] : 0.0f;
      const bool fits = std::fabs(distance) <= steps[i] * (most + 0.4f);
      within = within && fits;  // what is not finite fits nowhere
      row[i] = int8{static_cast<std::int8_t>(fits ? std::nearbyint(units) : 0.0f)};
    }
    outside_.data()[place] = !within;
  }

  index_t cells_ = 0;
  index_t segments_ = 0;      // at most
  std::vector<known> lanes_;  // [KV lanes]
  buffer<int8> rows_;         // [KV lanes, segments, cells]
  buffer<bool> outside_;      // [KV lanes, segments]
  buffer<float> scales_;      // [KV lanes][offsets [cells], steps [cells]]
};

}  // namespace zoomr::inline v0::detail
