// SPDX-License-Identifier: Apache-2.0
// L6. A token after the prompt in one layer: whether it chooses there, and how far it sees.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/core/token_range.hpp>

namespace zoomr::inline v0::detail {

/// One token of an item, in one layer and pass. It holds references only, and is made for each token and layer.
template <class Pool>
struct layer_token {
  cache_core<Pool>& core;
  planned_item& item;
  index_t position;
  index_t layer;
  bool second_pass;

  sequence_state& state() const { return core.state_of(item); }
  planned_token& planned() const { return core.step.token(item, position); }

  /// Attends everything.
  bool dense() const {
    return position < core.limits.min_sparse_context || layer < core.policy.zone.dense_layers ||
           planned().action == refresh_action::everything;
  }
  /// Makes a choice in this pass, or may make one.
  bool may_choose() const {
    if (!core.policy.selects || second_pass) return false;
    return !core.policy.persists() || (item.chooses && position == item.last());
  }
  /// Makes the choices of this layer's rows. With one row for all layers there are none: the votes are complete only
  /// after the last layer.
  bool chooses() const {
    if (!may_choose() || core.policy.aggregate.per == scope::sequence) return false;
    if (layer < core.policy.zone.dense_layers) return false;
    return core.policy.persists() || (planned().action == refresh_action::choose && !dense());
  }

  /// Slots that full attention would read, from the first one of the sequence on.
  index_t slots() const { return state().slot_end(position + 1); }
  slot_map slots_of(index_t kv_head) const { return state().slots_of(layer * core.sizes.model.kv_heads + kv_head); }
  /// Those that it sees: after the begin of a layer's sliding window.
  token_range seen_slots(index_t kv_head) const {
    return {slots_of(kv_head).slot_of(core.window_of(state()).first(position)), slots()};
  }
  zone_bounds zone() const { return core.zone_of(state(), item, position); }
};

}  // namespace zoomr::inline v0::detail
