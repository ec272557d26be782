// SPDX-License-Identifier: Apache-2.0
// L6. Erasing a span of a sequence: the tokens after it move up, and everything is as if those of the span had never
// come. Segments are found again from the classes of the tokens that are left, summaries are made from their keys, and
// what was chosen is chosen still.
//
// Nothing is written before all pages are there: those that other sequences share too, and over tiers all, are copied
// to free pages.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/state/erasable.hpp>

#include <algorithm>    // std::copy, std::max, std::min
#include <string>       // std::to_string
#include <type_traits>  // std::is_same_v
#include <utility>      // std::exchange, std::swap
#include <vector>       // std::vector

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Keys stay as they are.
struct unturned {};

/// Checks what turns keys, where it says how.
template <class Turn>
void expect_turns(const Turn& turn, const shape& model) {
  if constexpr (requires { turn.expect_fits(model.head_dim); }) turn.expect_fits(model.head_dim);
}

/// What was chosen, for the segments that are there without the erased tokens, in the memory of a choice not yet
/// committed. A segment of which something is left keeps its level; one that is new gets that of its summary.
/// @param position  of the token that made the choice, without the erased ones: later segments are not of it
template <class Pool>
void choose_again(cache_core<Pool>& core, index_t seq, token_range erased, index_t position) {
  const sequence_state& state = core.states[static_cast<std::size_t>(seq)];
  selection& choice = core.pending[static_cast<std::size_t>(seq)];
  for (index_t r = 0; r < choice.rows(); ++r) choice.renew(r, 0);
  index_t count = 0;
  const auto add = [&](index_t before, index_t closed_at) {  // -1: it was not there
    for (index_t r = 0; r < choice.rows() && closed_at <= position; ++r) {
      const selection_row& chosen = state.active_selection.row(r);
      selection_row& row = choice.add(r, before >= 0 ? chosen.level_at(before) : level::summary);
      if (before >= 0 && before == chosen.cut_segment) {
        row.cut_segment = count;
        row.cut_tokens = chosen.cut_tokens;
      }
    }
    ++count;
  };
  const index_t kept = state.segments_kept(erased);
  for (index_t id = 0; id < kept; ++id) add(id, state.segments[static_cast<std::size_t>(id)].closed_at);
  index_t next = kept;
  const auto find = [&](const segment& s) -> index_t {
    for (; next < state.segment_count(); ++next) {
      const segment& was = state.segments[static_cast<std::size_t>(next)];
      if (without(erased, was.end) > s.end) return -1;
      if (without(erased, was.begin) == s.begin && without(erased, was.split) == s.split &&
          without(erased, was.end) == s.end) {
        return next++;
      }
    }
    return -1;
  };
  state.feed_again(core.policy.segment, kept, erased, core.step.segmenting, [&](const segment& s) {
    if (count == core.sizes.most_segments) {
      raise(errc::capacity, "erase: what is left would have more than " + std::to_string(count) +
                                " segments: raise config.max_segments");
    }
    add(find(s), s.closed_at);
  });
}

/// Moves what is after erased slots up, and takes the pages for it.
template <class Pool, class Turn>
class slot_shift {
 public:
  slot_shift(cache_core<Pool>& core, sequence_state& state, token_range slots, const Turn& turn)
      : core_(core), state_(state), erased_(slots), left_(state.slots() - slots.size()), turn_(turn) {}

  /// @throws error(capacity) without pages to copy to
  void expect_room() {
    if constexpr (Pool::owns_pages) {
      each_page([&](index_t, bool copied) { copies_ += copied ? 1 : 0; });
      if (copies_ <= core_.pool.free_pages()) return;
      raise(errc::capacity, "erase: " + std::to_string(copies_) + " pages of " + std::to_string(page_tokens) +
                                " tokens are needed to move what lies behind, " +
                                std::to_string(core_.pool.free_pages()) + " are free; raise config.pool_tokens");
    }
  }
  /// What cannot be undone is written only where nothing can fail.
  /// @throws error(storage) if a page over tiers does not come: `forget` must follow
  /// @cost  reads and writes all keys and values after the span once
  void write() {
    for (index_t layer = 0; layer < core_.sizes.model.layers; ++layer) move_layer(layer);
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
    for (index_t& at : replaced) at = std::exchange(state_.pages[static_cast<std::size_t>(at)], core_.pool.take());
    for (const index_t page : replaced) core_.pool.give_back(page);
  }

 private:
  // visit(entry of the page table, it is not written where it is) for each page that changes. Those that are copied
  // become the stock's next ones, in this order.
  template <class Visit>
  void each_page(Visit visit) {
    for (index_t at = erased_.first / page_tokens; at < pages_for(left_); ++at) {
      visit(at, Pool::may_fail || core_.pool.holders(state_.pages[static_cast<std::size_t>(at)]) > 1);
    }
  }

  void move_layer(index_t layer) {
    const index_t heads = core_.sizes.model.kv_heads;
    core_.pool.begin_layer(layer);
    if constexpr (Pool::owns_pages) {
      index_t copies = 0;
      each_page([&](index_t at, bool copied) {
        const index_t goal = copied ? core_.pool.next(copies++) : state_.pages[static_cast<std::size_t>(at)];
        const index_t first = at * page_tokens;
        const token_range slots{copied ? first : (std::max)(first, erased_.first),
                                (std::min)(first + page_tokens, left_)};
        for (index_t head = 0; head < heads; ++head) {
          move_rows(layer, head, slots, core_.pool.kv_lane(layer, head, view<const index_t>(&goal, {1})), first);
        }
      });
    } else {
      for (index_t head = 0; head < heads; ++head) {
        move_rows(layer, head, {erased_.first, left_}, core_.kv_lane(state_, layer, head), 0);
      }
    }
  }

  // Rows of one KV lane to `slots`.
  // @param first  the slot that is the first of `to`
  template <class Lane>
  void move_rows(index_t layer, index_t kv_head, token_range slots, const Lane& to, index_t first) {
    const index_t dims = core_.sizes.model.head_dim;
    const auto from = core_.kv_lane(state_, layer, kv_head);
    for (index_t slot = slots.first; slot < slots.last; ++slot) {
      const bool moves = slot >= erased_.first;
      const index_t before = moves ? slot + erased_.size() : slot;
      const auto* const key = from.key(before);
      auto* const goal = to.writable_key(slot - first);
      copy_value(from, key, before, to, goal, slot - first);
      if (!std::is_same_v<Turn, unturned> && moves) {
        turn_row(layer, kv_head, key, before, goal, slot);
      } else {
        copy_row(key, before, goal, slot, dims);
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
    if constexpr (!std::is_same_v<Turn, unturned>) turn_(layer, row);
    store_row(view<const float>(row), scale, goal, slot);
  }

  cache_core<Pool>& core_;
  sequence_state& state_;
  token_range erased_;
  index_t left_;  // slots that are left
  const Turn& turn_;
  index_t copies_ = 0;  // pages that are written again
};

/// What is remembered of queries, and the sums of attention, go with their tokens.
template <class Pool>
void move_records(const cache_core<Pool>& core, sequence_state& state, token_range erased) {
  const layout& sizes = core.sizes;
  const index_t tokens = state.tokens();
  state.masses.forget();
  if (sizes.remembered > 0) {
    const token_range known = state.known_queries();
    state.last_queries.erase({(std::min)(erased.first, known.last), (std::min)(erased.last, known.last)}, known);
  }
  if (!state.in_first_prompt()) {
    if (sizes.query_parts > 0) state.queries.erase(erased, {state.prompt_end - 1, tokens});
    if (sizes.noted > 0) state.noted.erase(erased, {state.prompt_end, tokens});
  }
  const token_range behind{state.slot_end(erased.last), state.slots()};
  for (std::int64_t head = 0; sizes.carried > 0 && head < sizes.model.layers * sizes.model.heads; ++head) {
    float* const sums = state.received.committed.data() + head * sizes.carried;
    std::copy(sums + behind.first, sums + behind.last, sums + behind.first - erased.size());
  }
}

/// Erases a span of a sequence: `prepare`, `write`, `finish`, so that groups of layers can all do one after the other.
template <class Pool, class Turn>
class span_erasure {
 public:
  /// @param erased  positions; some tokens are after them
  /// @param turn    turn(layer, key), for keys that move; or `unturned`
  span_erasure(cache_core<Pool>& core, index_t seq, token_range erased, const Turn& turn)
      : core_(core),
        seq_(seq),
        state_(core.states[static_cast<std::size_t>(seq)]),
        erased_(erased),
        shift_(core, state_, {state_.slot_end(erased.first), state_.slot_end(erased.last)}, turn) {}

  /// @throws as `any_kv_cache::erase`, but for error(storage); nothing has changed
  void prepare() {
    expect_erasable(core_.policy.segment, core_.limits.logits.window, state_, erased_);
    choose_again(core_, seq_, erased_, chosen_at());
    shift_.expect_room();
  }
  /// @throws error(storage) if pages over tiers do not come; `forget` must follow
  void write() { shift_.write(); }
  void forget() { shift_.forget(); }
  /// Nothing fails here.
  void finish() {
    shift_.take();
    move_records(core_, state_, erased_);
    const index_t made_anew = state_.stale_summaries ? 0 : state_.segments_kept(erased_);
    const bool had_chosen = state_.log.last_position() >= 0;
    const index_t chosen = chosen_at();
    state_.erase(core_.policy.segment, erased_, core_.policy.evict.spacing());
    if (!core_.policy.persists()) {
      state_.active_selection.clear();
    } else if (had_chosen) {
      std::swap(state_.active_selection, core_.pending[static_cast<std::size_t>(seq_)]);
      state_.log.clear();
      state_.log.push(chosen, state_.active_selection, level::summary);
      state_.log.mark_dropped();
    }
    core_.trim_pages(state_);
    if constexpr (Pool::owns_pages) {
      if (state_.freed_pages > 0 && frees_unreachable_pages(core_.policy, core_.limits)) look_at_pages_again();
    }
    if (core_.policy.evict.observes && state_.in_first_prompt()) return;
    summarize(made_anew);
  }

 private:
  // The position of the token that has made the last choice, without the erased ones; -1: there is none.
  index_t chosen_at() const {
    const index_t last = state_.log.last_position();
    return last < 0 ? -1 : without(erased_, last + 1) - 1;
  }
  // What no query reaches is other pages now, since segments and the prompt may end elsewhere: those that were given up
  // are some of them.
  void look_at_pages_again() {
    state_.freed_pages = 0;
    free_unreachable_pages(core_.policy, state_.tokens() - (std::min)(state_.least_tokens(), state_.tokens()), state_,
                           core_.pool);
  }
  void summarize(index_t made_anew) {
    state_.stale_summaries = true;  // if pages do not come: the next step makes them
    ZOOMR_TRY {
      core_.summaries.make(core_.pool, state_, made_anew);
      state_.stale_summaries = false;
    }
    ZOOMR_CATCH(const error& why) {
      if (why.code() != errc::storage) rethrow();
    }
  }

  cache_core<Pool>& core_;
  index_t seq_;
  sequence_state& state_;
  token_range erased_;
  slot_shift<Pool, Turn> shift_;
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
