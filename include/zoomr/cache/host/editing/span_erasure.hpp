// SPDX-License-Identifier: Apache-2.0
// L6. Erasing a span of a sequence: the tokens after it move up, and everything is as if those of the span had never
// come. Segments are found again from the classes of the tokens that are left, summaries are made from their keys, and
// what was chosen is chosen still. Where whole pages go, no row moves: the page table loses their entries.
#pragma once

#include <zoomr/cache/host/editing/slot_shift.hpp>
#include <zoomr/cache/state/erasable.hpp>

#include <algorithm>  // std::copy, std::for_each, std::min
#include <string>     // std::to_string
#include <utility>    // std::exchange, std::swap

namespace zoomr::inline v0::detail {

/// What was chosen, for the segments that are there without the erased tokens, in the memory of a choice not yet
/// committed. A segment of which something is left keeps its level; one that is new gets that of its summary.
/// @param position  of the token that made the choice, without the erased ones: later segments are not of it
template <class Pool>
void choose_again(cache_core<Pool>& core, index_t seq, token_range erased, index_t position) {
  const sequence_state& state = core.states[seq];
  selection& choice = core.pending[seq];
  for (index_t r = 0; r < choice.rows(); ++r) {
    selection_row& row = choice.renew(r, 0);
    if (state.active_selection.row(r).everything()) row.cut_segment = selection_row::of_everything;
  }
  index_t count = 0;
  const auto add = [&](index_t before, index_t closed_at) {  // -1: it was not there
    for (index_t r = 0; r < choice.rows() && closed_at <= position; ++r) {
      const selection_row& chosen = state.active_selection.row(r);
      const level at = chosen.everything() ? level::details : before >= 0 ? chosen.level_at(before) : level::summary;
      selection_row& row = choice.add(r, at);
      if (before >= 0 && before == chosen.cut_segment) {
        row.cut_segment = count;
        row.cut_tokens = chosen.cut_tokens;
      }
    }
    ++count;
  };
  const index_t kept = state.segments_kept(erased);
  for (index_t id = 0; id < kept; ++id) add(id, state.segments[id].closed_at);
  index_t next = kept;
  const auto find = [&](const segment& s) -> index_t {
    for (; next < state.segment_count(); ++next) {
      const segment& was = state.segments[next];
      if (without(erased, was.end) > s.end) return -1;
      if (without(erased, was.begin) == s.begin && without(erased, was.split) == s.split &&
          without(erased, was.end) == s.end) {
        return next++;
      }
    }
    return -1;
  };
  state.feed_again(core.policy.segment, kept, erased, core.step.segmenting.state, [&](const segment& s) {
    if (count == core.sizes.most_segments) {
      raise(errc::capacity, "erase: what is left would have more than " + std::to_string(count) +
                                " segments: raise config.max_segments");
    }
    add(find(s), s.closed_at);
  });
}

/// What is remembered of queries, and the sums of attention, go with their tokens.
template <class Pool>
void move_records(const cache_core<Pool>& core, sequence_state& state, token_range erased) {
  const layout& sizes = core.sizes;
  const index_t tokens = state.tokens();
  state.masses.forget();
  if (sizes.question > 0) {
    const auto named = [](token_class of_token) { return has(of_token, token_class::question); };
    const view<const token_class> gone = view<const token_class>(state.classes).slice(erased.first, erased.last);
    if (std::any_of(gone.begin(), gone.end(), named)) state.questions.forget();
    state.questions.erase(erased);
  }
  if (sizes.remembered > 0) {
    const token_range known = state.known_queries();
    state.last_queries.erase({(std::min)(erased.first, known.last), (std::min)(erased.last, known.last)}, known);
  }
  if (!state.in_first_prompt()) {
    if (sizes.query_parts > 0) state.queries.erase(erased, {state.prompt_end - 1, tokens});
    if (sizes.noted > 0) state.noted.erase(erased, {state.prompt_end, tokens});
  }
  const token_range behind{state.slot_end(erased.last), state.slots()};
  for (std::int64_t head = 0; sizes.carried > 0 && head < sizes.stored.layers * sizes.model.heads; ++head) {
    float* const sums = state.received.committed.data() + head * sizes.carried;
    std::copy(sums + behind.first, sums + behind.last, sums + behind.first - erased.size());
  }
}

/// Tokens of a page.
template <class Pool>
index_t tokens_in_page(const cache_core<Pool>& core) {
  return Pool::owns_pages ? page_tokens : core.limits.engine.page_tokens;
}

/// Makes the summaries of the segments from `first` on again, or all of them where some are stale. If pages do not
/// come, the next step makes them.
template <class Pool>
void summarize_again(cache_core<Pool>& core, sequence_state& state, index_t first) {
  if (core.policy.evict.observes && state.in_first_prompt()) return;
  if (std::exchange(state.stale_summaries, true)) first = 0;
  ZOOMR_TRY {
    core.summaries.make(core.pool, state, first);
    state.stale_summaries = false;
  }
  ZOOMR_CATCH(const error& cause) {
    if (cause.code() != errc::storage) rethrow();
  }
}

/// Erases a span of a sequence: `prepare`, `write`, `finish`, so that groups of layers can all do one after the other.
template <class Pool, class Turn>
class span_erasure {
 public:
  /// @param erased  positions; some tokens are after them
  /// @param turn    turn(layer, key), for keys behind them; or `unturned`
  /// @param gap     model positions stay as they are
  span_erasure(cache_core<Pool>& core, index_t seq, token_range erased, const Turn& turn, bool gap)
      : core_(core),
        seq_(seq),
        state_(core.states[seq]),
        erased_(erased),
        gap_(gap),
        slots_{state_.slot_end(erased.first), state_.slot_end(erased.last)},
        shift_("erase", core, state_, whole_pages() ? token_range{} : slots_, {erased.last, state_.tokens()}, turn) {}

  /// @throws as `any_kv_cache::erase`, but for error(storage); nothing has changed
  void prepare() {
    expect_erasable(core_.policy.segment, core_.limits.logits.window, state_, erased_, gap_);
    if (gap_) expect_moves_heard(core_.policy, core_.limits.logits);
    const position_map positions = state_.moved.map();
    if (!gap_) shift_.expect_distance(positions.at(erased_.first) - positions.at(erased_.last));
    choose_again(core_, seq_, erased_, chosen_at());
    shift_.expect_room();
  }
  /// @throws error(storage) if pages over tiers do not come; `forget` must follow
  void write() { shift_.write(); }
  void forget() { shift_.forget(); }
  /// Nothing fails here.
  /// @return  entries of the page table, as it was, whose pages are not the sequence's any more
  token_range finish() {
    shift_.take();
    const token_range entries = drop_pages();
    move_records(core_, state_, erased_);
    const index_t made_anew = state_.segments_kept(erased_);
    const bool had_chosen = state_.log.last_position() >= 0;
    const index_t chosen = chosen_at();
    state_.erase(core_.policy.segment, erased_, core_.policy.evict.spacing(), gap_);
    if (!core_.policy.persists()) {
      state_.active_selection.clear();
    } else if (had_chosen) {
      std::swap(state_.active_selection, core_.pending[seq_]);
      state_.log.clear();
      state_.log.push(chosen, state_.active_selection, level::summary);
      state_.log.mark_dropped();
    }
    core_.trim_pages(state_);
    if constexpr (Pool::owns_pages) {
      if (state_.freed_pages > 0 && frees_unreachable_pages(core_.policy, core_.limits)) look_at_pages_again();
    }
    summarize_again(core_, state_, made_anew);
    return entries;
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
  bool whole_pages() const {
    const index_t tokens = tokens_in_page(core_);
    return slots_.first % tokens == 0 && slots_.last % tokens == 0;
  }
  // Those of the erased slots, where they are whole; else those at the end, which are trimmed.
  token_range drop_pages() {
    const index_t tokens = tokens_in_page(core_);
    const index_t entries = state_.pages.size();
    if (!whole_pages()) return {(state_.slots() - slots_.size() + tokens - 1) / tokens, entries};
    const token_range dropped{slots_.first / tokens, slots_.last / tokens};
    const auto first = state_.pages.begin() + dropped.first, last = state_.pages.begin() + dropped.last;
    if constexpr (Pool::owns_pages) std::for_each(first, last, [&](index_t page) { core_.pool.give_back(page); });
    state_.pages.erase(first, last);
    return dropped;
  }

  cache_core<Pool>& core_;
  index_t seq_;
  sequence_state& state_;
  token_range erased_;
  bool gap_;
  token_range slots_;  // the erased ones
  slot_shift<Pool, Turn> shift_;
};

}  // namespace zoomr::inline v0::detail
