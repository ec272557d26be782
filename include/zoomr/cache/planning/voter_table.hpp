// SPDX-License-Identifier: Apache-2.0
// L6. The heads that vote: those with a weight in config.voters, and which of them read the keys of one KV head.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/core/view.hpp>
#include <zoomr/policy/posterior_gate.hpp>

#include <algorithm>  // std::max
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Voters by layer and head, ascending.
class voter_table {
 public:
  /// The voters of one KV head of a layer.
  struct kv_lane {
    index_t layer = 0;
    index_t kv_head = 0;
    index_t first = 0;           // number of the first of them; the others follow
    std::vector<index_t> heads;  // of the layer
  };

  /// @param weights   [layers, heads]  of the model, or empty
  /// @param segments  of a choice, at most
  /// @param gate      of their posterior
  /// @param all       [layers, heads of all ranks]
  voter_table(const shape& model, view<const float, 2> weights, index_t segments, const posterior_gate& gate,
              view<const float, 2> all)
      : gate_(gate), segments_(segments) {
    float largest = 0.0f;
    each_weighted(all, [&](index_t layer, index_t head) { largest = (std::max)(largest, all(layer, head)); });
    each_weighted(weights,
                  [&](index_t layer, index_t head) { add(layer, head / model.group(), head, weights(layer, head)); });
    shares_ = buffer<float>(static_cast<std::int64_t>(weights_.size()) * segments);
    for (const float weight : weights_) votes_.push_back(votes_of(weight, largest));
  }
  static index_t count(view<const float, 2> weights) {
    index_t voters = 0;
    each_weighted(weights, [&](index_t, index_t) { ++voters; });
    return voters;
  }

  /// KV lanes that any of them reads.
  static index_t count_kv_lanes(const shape& model, view<const float, 2> weights) {
    index_t lanes = 0, before = -1;
    each_weighted(weights, [&](index_t layer, index_t head) {
      const index_t lane = layer * model.kv_heads + head / model.group();
      lanes += lane != before ? 1 : 0;
      before = lane;
    });
    return lanes;
  }

  view<const kv_lane> kv_lanes() const { return kv_lanes_; }
  view<const float> weights() const { return weights_; }  // [voters]
  /// What a vote of each counts, for a `weight_taker`.  [voters]
  view<const votes_t> votes() const { return votes_; }
  const posterior_gate& gate() const { return gate_; }
  /// KV lanes of one layer, ascending; none where no head votes.
  view<const kv_lane> kv_lanes_in(index_t layer) const {
    index_t first = 0, last = 0;
    for (const kv_lane& read : kv_lanes_) {
      first += read.layer < layer ? 1 : 0;
      last += read.layer <= layer ? 1 : 0;
    }
    return kv_lanes().slice(first, last);
  }
  /// The place of a KV lane in `kv_lanes`, or -1 if no voter reads it.
  index_t place_of(index_t layer, index_t kv_head) const {
    for (std::size_t at = 0; at < kv_lanes_.size(); ++at) {
      if (kv_lanes_[at].layer == layer && kv_lanes_[at].kv_head == kv_head) return static_cast<index_t>(at);
    }
    return -1;
  }
  /// The number of a voter, or -1 if the head is none.
  index_t number_of(index_t layer, index_t head) const {
    index_t number = -1;
    each_in(layer, [&](index_t voter, index_t its_head) { number = its_head == head ? voter : number; });
    return number;
  }
  /// visit(number of the voter, its head) for those of one layer.
  template <class Visit>
  void each_in(index_t layer, Visit visit) const {
    for (const kv_lane& lane : kv_lanes_) {
      for (std::size_t i = 0; lane.layer == layer && i < lane.heads.size(); ++i) {
        visit(lane.first + static_cast<index_t>(i), lane.heads[i]);
      }
    }
  }
  /// Room for their shares in one choice.  [voters, segments]
  view<float, 2> shares(index_t segments) {
    return {shares_.data(), {static_cast<index_t>(weights_.size()), segments}, {segments_, 1}};
  }

 private:
  // visit(layer, head) for each head that has a weight, ascending.
  template <class Visit>
  static void each_weighted(view<const float, 2> weights, Visit visit) {
    for (index_t layer = 0; layer < weights.extent(0); ++layer) {
      for (index_t head = 0; head < weights.extent(1); ++head) {
        if (weights(layer, head) > 0.0f) visit(layer, head);
      }
    }
  }
  // In 65536ths of the largest weight.
  static votes_t votes_of(float weight, float largest) {
    const auto votes = static_cast<votes_t>(double{weight} / double{largest} * 65536.0 + 0.5);
    return votes > 1 ? votes : 1;
  }
  void add(index_t layer, index_t kv_head, index_t head, float weight) {
    if (kv_lanes_.empty() || kv_lanes_.back().layer != layer || kv_lanes_.back().kv_head != kv_head) {
      kv_lanes_.push_back({layer, kv_head, static_cast<index_t>(weights_.size()), {}});
    }
    kv_lanes_.back().heads.push_back(head);
    weights_.push_back(weight);
  }

  std::vector<kv_lane> kv_lanes_;
  std::vector<float> weights_;
  std::vector<votes_t> votes_;
  posterior_gate gate_;
  index_t segments_ = 0;
  buffer<float> shares_;
};

}  // namespace zoomr::inline v0::detail
