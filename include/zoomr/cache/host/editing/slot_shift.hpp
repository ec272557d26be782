// SPDX-License-Identifier: Apache-2.0
// L6. Rows of a sequence that an edit writes again: those that move up behind slots that go, and those whose keys are
// turned.
//
// Nothing is written before all pages are there: those that other sequences share too, and over tiers all, are copied
// to free pages.
#pragma once

#include <zoomr/cache/host/core.hpp>

#include <algorithm>    // std::max, std::min
#include <string>       // std::to_string
#include <type_traits>  // std::is_same_v
#include <utility>      // std::exchange
#include <vector>       // std::vector

namespace zoomr::inline v0::detail {

/// Keys stay as they are.
struct unturned {};

/// Checks what turns keys, where it is a rotation.
template <class Turn>
void expect_turns(const Turn& turn, const shape& model) {
  if constexpr (requires { turn.expect_fits(model.head_dim); }) turn.expect_fits(model.head_dim);
}

/// Writes rows of one sequence again, and takes the pages for it.
template <class Pool, class Turn>
class slot_shift {
  static constexpr bool turns = !std::is_same_v<Turn, unturned>;

 public:
  /// @param call    name of the call, for error messages
  /// @param closed  slots that go, so that all after them move up; empty: no row moves
  /// @param turned  positions whose keys are turned, as they are counted before
  slot_shift(const char* call, cache_core<Pool>& core, sequence_state& state, token_range closed, token_range turned,
             const Turn& turn)
      : call_(call), core_(core), state_(state), closed_(closed), turned_(turned), turn_(turn) {
    left_ = state.slots() - closed.size();
    if (closed.size() > 0) {
      written_ = {closed.first, left_};
    } else if (turns && turned.size() > 0) {
      written_ = {left_, 0};
      for (index_t lane = 0; lane < core.sizes.stored.kv_lanes(); ++lane) {
        const token_range rows = turned_slots(lane);
        written_ = {(std::min)(written_.first, rows.first), (std::max)(written_.last, rows.last)};
      }
    }
  }

  /// A rotation has a distance of its own.
  /// @throws precondition_error if that is another distance
  void expect_distance(index_t distance) const {
    if constexpr (requires { turn_.distance(); }) {
      ZOOMR_EXPECTS(turn_.distance() == distance, std::string(call_) + ": keys are turned by " +
                                                      std::to_string(turn_.distance()) +
                                                      " positions, their tokens move by " + std::to_string(distance));
    }
  }
  /// @throws error(capacity) without pages to copy to
  void expect_room() {
    if constexpr (Pool::owns_pages) {
      each_page([&](index_t, bool copied) { copies_ += copied ? 1 : 0; });
      if (copies_ <= core_.pool.free_pages()) return;
      raise(errc::capacity, std::string(call_) + ": " + std::to_string(copies_) + " pages of " +
                                std::to_string(page_tokens) + " tokens are needed to move what lies behind, " +
                                std::to_string(core_.pool.free_pages()) + " are free; raise config.pool_tokens");
    }
  }
  /// What cannot be undone is written only where nothing can fail.
  /// @throws error(storage) if a page over tiers does not come: `forget` must follow
  /// @cost  reads and writes all keys and values that change, and over tiers and in shared pages those beside them
  void write() {
    for (index_t stored = 0; stored < core_.sizes.stored.layers; ++stored) move_layer(stored);
  }
  /// Of pages that were written, but belong to no sequence yet.
  void forget() {
    for (index_t copy = 0; copy < copies_; ++copy) core_.pool.forget(core_.pool.next(copy));
  }
  /// The pages that copies replace go back when all are taken.
  void take() {
    std::vector<index_t>& replaced = core_.replaced;
    replaced.clear();
    if constexpr (!Pool::owns_pages) return;
    each_page([&](index_t at, bool copied) {
      if (copied) replaced.push_back(at);
    });
    for (index_t& at : replaced) at = std::exchange(state_.pages[at], core_.pool.take());
    for (const index_t page : replaced) core_.pool.give_back(page);
  }

 private:
  // Those of one KV lane whose keys are turned, as they are counted before.
  token_range turned_slots(index_t lane) const {
    const slot_map slots = state_.slots_of(lane);
    return {slots.slot_of(turned_.first), slots.slot_of(turned_.last)};
  }
  // visit(entry of the page table, it is not written where it is) for each page that changes. Those that are copied
  // become the stock's next ones, in this order. What was given up has no rows.
  template <class Visit>
  void each_page(Visit visit) {
    for (index_t at = written_.first / page_tokens; at < pages_for(written_.last); ++at) {
      const index_t page = state_.pages[at];
      if (page >= 0) visit(at, Pool::may_fail || core_.pool.holders(page) > 1);
    }
  }

  void move_layer(index_t stored) {
    const index_t heads = core_.sizes.model.kv_heads, layer = core_.donors.layer_of(stored);
    core_.pool.begin_layer(stored);
    if constexpr (Pool::owns_pages) {
      index_t copies = 0;
      each_page([&](index_t at, bool copied) {
        const index_t goal = copied ? core_.pool.next(copies++) : state_.pages[at];
        const index_t first = at * page_tokens, last = (std::min)(first + page_tokens, left_);
        const token_range slots{copied ? first : (std::max)(first, written_.first),
                                copied ? last : (std::min)(last, written_.last)};
        for (index_t head = 0; head < heads; ++head) {
          move_rows(layer, head, slots, core_.pool.kv_lane(stored, head, view<const index_t>(&goal, {1})), first);
        }
      });
    } else {
      // What a window has passed may be another sequence's by now.
      const token_range slots{(std::max)(written_.first, state_.freed_pages * page_tokens), written_.last};
      for (index_t head = 0; head < heads; ++head) {
        move_rows(layer, head, slots, core_.kv_lane(state_, layer, head), 0);
      }
    }
  }

  // Rows of one KV lane to `slots`.
  // @param first  the slot that is the first of `to`
  template <class Lane>
  void move_rows(index_t layer, index_t kv_head, token_range slots, const Lane& to, index_t first) {
    const auto from = core_.kv_lane(state_, layer, kv_head);
    const token_range turned = turned_slots(core_.lane_of(layer, kv_head));
    for (index_t slot = slots.first; slot < slots.last; ++slot) {
      const index_t before = slot >= closed_.first ? slot + closed_.size() : slot;
      const auto* const key = from.key(before);
      auto* const goal = to.writable_key(slot - first);
      const bool stays = key == goal;
      if (!stays) copy_value(from, key, before, to, goal, slot - first);
      if (turns && before >= turned.first && before < turned.last) {
        turn_row(layer, kv_head, key, before, goal, slot);
      } else if (!stays) {
        copy_row(key, before, goal, slot, core_.sizes.model.head_dim);
      }
      core_.keep_key(layer, kv_head, to.pages, slot - first, goal);
    }
  }
  template <class T>
  void turn_row(index_t layer, index_t kv_head, const T* key, index_t before, T* goal, index_t slot) {
    float turned[shape::most_head_dim];
    const view<float> row(turned, {core_.sizes.model.head_dim});
    const float scale = core_.limits.key_scale.at(layer, kv_head);
    read_row(key, before, scale, row);
    core_.hadamard.key(row);
    if constexpr (turns) turn_(layer, row);
    core_.hadamard.key(row);
    store_row(view<const float>(row), scale, goal, slot);
  }

  const char* call_;
  cache_core<Pool>& core_;
  sequence_state& state_;
  token_range closed_;
  token_range turned_;
  const Turn& turn_;
  index_t left_ = 0;     // slots that are left
  token_range written_;  // outside of them no row changes; as they are counted afterwards
  index_t copies_ = 0;   // pages that are written again
};

}  // namespace zoomr::inline v0::detail
