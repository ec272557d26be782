// SPDX-License-Identifier: Apache-2.0
// L6. Layers that read what an earlier layer has chosen (config.anchors).
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/core/view.hpp>

namespace zoomr::inline v0 {

/// An *anchor* is a layer that chooses; layers after it may read its choice, from keys and values of their own: they
/// attend to much the same tokens. Such a layer scores nothing and has no index.
///
/// It is for policies that choose for each layer, KV head or query head; nothing else reads it. Tables may go once the
/// cache is there.
/// Source: arXiv:2512.16391 (Kascade). Differs: any such policy, not exact top tokens alone.
struct layer_anchors {
  /// [layers]  the layer whose choice each one reads: its own, or that of an earlier one that reads its own. Empty:
  /// each chooses.
  view<const index_t> layers = {};
  /// [layers, kv_heads]  the KV head there whose choice each KV head reads. Empty: the one with its number.
  view<const index_t, 2> kv_heads = {};

  /// @param dense_layers  the first layers, which read everything and choose nothing
  /// @return  the first layer whose entry cannot be, or -1
  constexpr index_t wrong_layer(const shape& model, index_t dense_layers) const {
    for (index_t layer = 0; layer < layers.size(); ++layer) {
      const index_t anchor = layers[layer];
      const bool earlier = anchor >= 0 && anchor <= layer && layers[anchor] == anchor;
      if (!earlier || (anchor < dense_layers && layer >= dense_layers)) return layer;
      for (index_t head = 0; head < kv_heads.extent(1); ++head) {
        if (kv_heads(layer, head) < 0 || kv_heads(layer, head) >= model.kv_heads) return layer;
      }
    }
    return -1;
  }
};

}  // namespace zoomr::inline v0
