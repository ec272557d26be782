// SPDX-License-Identifier: Apache-2.0
// How keys of each layer are turned when positions move.
#pragma once

#include <zoomr/cache/key_rotation.hpp>

#include <optional>  // std::optional
#include <vector>    // std::vector

namespace adaptor {

/// The rotary embedding of a layer.
struct rope {
  std::vector<float> frequencies;  // [pairs]; empty: keys are not rotated
  zoomr::rotary_pairs pairs = zoomr::rotary_pairs::adjacent;

  bool operator==(const rope&) const = default;
};

/// Those of a model.
struct rope_table {
  std::vector<rope> ropes;             // that differ
  std::vector<std::size_t> rope_of{};  // [layers]

  /// That of the next layer.
  void add(const rope& next) {
    std::size_t at = 0;
    while (at < ropes.size() && !(ropes[at] == next)) ++at;
    if (at == ropes.size()) ropes.push_back(next);
    rope_of.push_back(at);
  }
  const rope& at(zoomr::index_t layer) const { return ropes[rope_of[static_cast<std::size_t>(layer)]]; }
  /// Some layer's keys are rotated.
  bool known() const {
    for (const rope& each : ropes) {
      if (!each.frequencies.empty()) return true;
    }
    return false;
  }
};

/// Turns keys of any layer to positions that are `distance` further.
class layer_rotation {
 public:
  /// @param table  outlives this
  layer_rotation(const rope_table& table, zoomr::index_t distance) : table_(table), distance_(distance) {
    for (const rope& each : table.ropes) {
      turns_.emplace_back();
      if (each.frequencies.empty()) continue;
      turns_.back().emplace(zoomr::view<const float>(each.frequencies), distance, each.pairs);
    }
  }
  zoomr::index_t distance() const { return distance_; }
  void operator()(zoomr::index_t layer, zoomr::view<float> key) const {
    const auto& turn = turns_[table_.rope_of[static_cast<std::size_t>(layer)]];
    if (turn) (*turn)(layer, key);
  }

 private:
  const rope_table& table_;
  zoomr::index_t distance_;
  std::vector<std::optional<zoomr::key_rotation>> turns_;  // [ropes]
};

}  // namespace adaptor
