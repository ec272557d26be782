// SPDX-License-Identifier: Apache-2.0
// L6. Erasing or shifting a span in groups of layers: in all of them, or in none.
#pragma once

#include <zoomr/cache/host/editing/span_shift.hpp>
#include <zoomr/cache/state/layer_groups.hpp>
#include <zoomr/core/table.hpp>

#include <type_traits>  // std::conditional_t, std::is_same_v

namespace zoomr::inline v0::detail {

/// What turns keys of the model, for the layers of one group.
template <class Turn>
struct turn_in_group {
  const Turn* turn = nullptr;
  table<index_t> layers = {};  // of the model, by the group's own numbers

  void operator()(index_t layer, view<float> key) const { (*turn)(layers[layer], key); }
};

/// Edits one sequence in each group.
/// @tparam Edit  span_erasure or span_shift
template <template <class, class> class Edit, class Pool, class Turn>
class group_edit {
  static constexpr bool turns = !std::is_same_v<Turn, unturned>;
  using turn_type = std::conditional_t<turns, turn_in_group<Turn>, unturned>;

 public:
  group_edit(const Turn& turn, const layer_groups& groups) : turns_(groups.groups()) {
    parts_.reserve(turns_.size());
    if constexpr (turns) {
      for (turn_type& group_turn : turns_) group_turn.turn = &turn;
      groups.each_place([&](index_t layer, grouped_layer place) { turns_[place.group].layers.push_back(layer); });
    }
  }
  /// Group by group.
  /// @param how  the last argument of the edit's constructor
  /// @throws as `Edit::prepare`; nothing has changed in any group
  template <class How>
  void prepare(cache_core<Pool>& core, index_t seq, token_range span, How how) {
    if constexpr (turns) expect_turns(*turns_[parts_.size()].turn, core.sizes.model);
    parts_.emplace_back(core, seq, span, turns_[parts_.size()], how);
    parts_.back().prepare();
  }
  /// @throws as `Edit::write`, for which `forget` must follow
  void write(index_t g) { parts_[g].write(); }
  void forget() {
    for (auto& part : parts_) part.forget();
  }
  auto finish(index_t g) { return parts_[g].finish(); }

 private:
  table<turn_type> turns_;              // [groups]
  table<Edit<Pool, turn_type>> parts_;  // the same
};

}  // namespace zoomr::inline v0::detail
