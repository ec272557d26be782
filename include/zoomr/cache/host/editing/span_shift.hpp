// SPDX-License-Identifier: Apache-2.0
// L6. Moving the model positions of a span, without erasing anything: keys are turned where they are.
#pragma once

#include <zoomr/cache/host/editing/span_erasure.hpp>

#include <type_traits>  // std::is_same_v

namespace zoomr::inline v0::detail {

/// Shifts a span of a sequence: `prepare`, `write`, `finish`, so that groups of layers can all do one after the other.
template <class Pool, class Turn>
class span_shift {
 public:
  /// @param span  positions
  /// @param turn  turn(layer, key), for its keys; or `unturned`
  span_shift(cache_core<Pool>& core, index_t seq, token_range span, const Turn& turn, index_t distance)
      : core_(core),
        state_(core.states[seq]),
        span_(span),
        distance_(distance),
        shift_("shift", core, state_, {}, held(span), turn) {}

  /// @throws as `any_kv_cache::shift`, but for error(storage); nothing has changed
  void prepare() {
    expect_shift(core_.limits.logits.window, state_, span_, distance_);
    expect_moves_heard(core_.policy, core_.limits.logits);
    shift_.expect_distance(distance_);
    shift_.expect_room();
  }
  /// @throws error(storage) if pages over tiers do not come; `forget` must follow
  void write() { shift_.write(); }
  void forget() { shift_.forget(); }
  /// Nothing fails here.
  /// @return  no entries: all pages stay
  token_range finish() {
    if (span_.size() == 0) return {};
    shift_.take();
    state_.moved.shift(span_, distance_, state_.tokens());
    state_.masses.forget();
    if (std::is_same_v<Turn, unturned> && Pool::owns_pages) return {};
    index_t first = state_.segment_count();
    while (first > 0 && state_.segments[first - 1].cue_end > span_.first) --first;
    summarize_again(core_, state_, first);
    return {};
  }

 private:
  // A span that is none is refused later.
  token_range held(token_range span) const {
    const bool lies = span.first >= 0 && span.first <= span.last && span.last <= state_.tokens();
    return lies ? span : token_range{};
  }

  cache_core<Pool>& core_;
  sequence_state& state_;
  token_range span_;
  index_t distance_;
  slot_shift<Pool, Turn> shift_;
};

}  // namespace zoomr::inline v0::detail
