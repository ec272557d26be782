// SPDX-License-Identifier: Apache-2.0
// L6. Which layers store keys and values, and whose the others attend: config.donors, copied.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/core/error.hpp>
#include <zoomr/core/shape.hpp>

#include <cstddef>  // std::size_t
#include <string>   // std::to_string
#include <vector>   // std::vector

namespace zoomr::inline v0::detail {

/// Layers that store keys and values are numbered in their order: pages, the index and what is kept of evicted lanes
/// go by these numbers, all else by layers of the model.
class donor_table {
 public:
  donor_table(const shape& model, view<const index_t> donors) {
    for (index_t layer = 0; layer < model.layers; ++layer) {
      const index_t donor = donors.size() > 0 ? donors[layer] : layer;
      if (donor == layer) layers_.push_back(layer);
      stored_.push_back(donor == layer ? static_cast<index_t>(layers_.size()) - 1 : stored(donor));
    }
  }
  /// The model of those layers that store.
  static shape stored_shape(shape model, view<const index_t> donors) {
    for (index_t layer = 0; layer < donors.size(); ++layer) model.layers -= donors[layer] != layer ? 1 : 0;
    return model;
  }

  /// The number of the layer whose keys and values a layer attends.
  index_t stored(index_t layer) const { return stored_[static_cast<std::size_t>(layer)]; }
  /// The layer of the model that has this number.
  index_t layer_of(index_t stored) const { return layers_[static_cast<std::size_t>(stored)]; }
  bool stores(index_t layer) const { return layer_of(stored(layer)) == layer; }

 private:
  std::vector<index_t> stored_;  // [layers]
  std::vector<index_t> layers_;  // [layers that store]
};

/// @throws precondition_error if the table cannot be
inline void expect_donors(const shape& model, const config& limits) {
  const view<const index_t> donors = limits.donors;
  if (donors.data() == nullptr) return;
  expect_extents("config: donors are", donors, {{model.layers}});
  ZOOMR_EXPECTS(limits.anchors.layers.data() == nullptr,
                "config: donors and anchors: layers that share keys choose for themselves");
  for (index_t layer = 0; layer < model.layers; ++layer) {
    const index_t donor = donors[layer];
    ZOOMR_EXPECTS(donor >= 0 && donor <= layer && donors[donor] == donor,
                  "config: donors: layer " + std::to_string(layer) +
                      " must have keys of its own, or attend those of an earlier layer that has some");
    for (index_t head = 0; head < model.kv_heads; ++head) {
      ZOOMR_EXPECTS(limits.key_scale.at(layer, head) == limits.key_scale.at(donor, head) &&
                        limits.value_scale.at(layer, head) == limits.value_scale.at(donor, head),
                    "config: donors: layer " + std::to_string(layer) + " must have the scales of layer " +
                        std::to_string(donor) + ", whose keys and values it attends");
    }
  }
}

}  // namespace zoomr::inline v0::detail
