// SPDX-License-Identifier: Apache-2.0
// L6. Which layers choose, and whose choice the heads of the others read: config.anchors, copied.
#pragma once

#include <zoomr/cache/layer_anchors.hpp>
#include <zoomr/core/error.hpp>
#include <zoomr/policy/any_policy.hpp>

#include <cstddef>  // std::size_t
#include <string>   // std::to_string
#include <vector>   // std::vector

namespace zoomr::inline v0::detail {

/// Empty where each layer chooses for itself, or all of them together.
class anchor_table {
 public:
  /// A query head of a layer.
  struct place {
    index_t layer = 0;
    index_t head = 0;
  };

  anchor_table(const shape& model, const any_policy& policy, const layer_anchors& anchors)
      : kv_heads_(model.kv_heads), group_(model.group()) {
    if (!used(policy, anchors)) return;
    index_t chosen = 0;
    for (index_t layer = 0; layer < model.layers; ++layer) {
      const bool chooses = anchors.layers[layer] == layer;
      anchors_.push_back(anchors.layers[layer]), numbers_.push_back(chooses ? chosen : -1);
      chosen += chooses ? 1 : 0;
      for (index_t head = 0; head < model.kv_heads; ++head) {
        heads_.push_back(chooses || anchors.kv_heads.data() == nullptr ? head : anchors.kv_heads(layer, head));
      }
    }
  }
  static bool used(const any_policy& policy, const layer_anchors& anchors) {
    return anchors.layers.size() > 0 && policy.selects && policy.aggregate.per != scope::sequence;
  }
  /// KV lanes that have an index: those of layers that choose.
  static index_t index_lanes(const shape& model, const any_policy& policy, const layer_anchors& anchors) {
    if (!used(policy, anchors)) return model.kv_lanes();
    index_t lanes = 0;
    for (index_t layer = 0; layer < model.layers; ++layer) lanes += anchors.layers[layer] == layer ? model.kv_heads : 0;
    return lanes;
  }

  bool used() const { return !anchors_.empty(); }
  /// The layer whose choice a layer reads.
  index_t anchor(index_t layer) const { return used() ? anchors_[static_cast<std::size_t>(layer)] : layer; }
  bool chooses(index_t layer) const { return anchor(layer) == layer; }
  /// The head whose choice a head reads.
  place source(index_t layer, index_t head) const {
    if (!used()) return {layer, head};
    const index_t kv_head = heads_[static_cast<std::size_t>(layer * kv_heads_ + head / group_)];
    return {anchor(layer), kv_head * group_ + head % group_};
  }
  /// The number of a KV lane among those that have an index; -1 if it has none.
  index_t index_lane(index_t kv_lane) const {
    if (!used()) return kv_lane;
    const index_t number = numbers_[static_cast<std::size_t>(kv_lane / kv_heads_)];
    return number < 0 ? -1 : number * kv_heads_ + kv_lane % kv_heads_;
  }

 private:
  index_t kv_heads_;
  index_t group_;
  std::vector<index_t> anchors_;  // [layers]
  std::vector<index_t> numbers_;  // [layers]  among those that choose; -1: it does not
  std::vector<index_t> heads_;    // [layers, kv_heads]
};

/// @throws precondition_error if a table cannot be
inline void expect_anchors(const shape& model, const any_policy& policy, const layer_anchors& anchors) {
  if (anchors.layers.data() == nullptr) return;
  expect_extents("config: anchors.layers are", anchors.layers, {{model.layers}});
  if (anchors.kv_heads.data() != nullptr)
    expect_extents("config: anchors.kv_heads are", anchors.kv_heads, {{model.layers, model.kv_heads}});
  const index_t wrong = anchors.wrong_layer(model, policy.zone.dense_layers);
  ZOOMR_EXPECTS(wrong < 0, "config: anchors: layer " + std::to_string(wrong) +
                               " must read its own choice, or that of an earlier layer that chooses, and its KV heads "
                               "those of KV heads there");
}

}  // namespace zoomr::inline v0::detail
