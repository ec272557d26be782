// SPDX-License-Identifier: Apache-2.0
// L6. Copy on write: which pages must be copied before a step. Forks of a sequence name the same pages until one of
// them writes there. A step writes after the committed tokens, and an eviction where it moves tokens to. Both follow
// from counts alone, so that `begin` copies what is shared, and nothing that comes later can lack a page.
#pragma once

#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/cache/state/sequences.hpp>
#include <zoomr/core/table.hpp>

#include <algorithm>  // std::max, std::min
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Entries of a sequence's page table whose pages a step may write, of those that are in the table before it.
struct page_writes {
  index_t open = -1;  // the page that has room for the next token; -1: none has
  token_range moved;  // pages that an eviction at the end of the step moves tokens to

  bool has(index_t at) const { return at == open || (at >= moved.first && at < moved.last); }
};

/// What the step in progress may write, and which pages of that others name too.
template <class Item, class State>
struct shared_writes {
  const any_policy& policy;
  const config& limits;
  bool eviction_may_fail;
  const page_stock& stock;
  const std::vector<Item>& items;
  table<State>& states;

  State& state_of(const Item& item) const { return states[item.seq]; }

  /// Slots that an eviction at the end of an item's step moves tokens to, if all its tokens are accepted. It keeps
  /// tokens at the front where they are; but where it may fail all tokens move to spare pages, and the pages that they
  /// leave become the next spare ones.
  token_range moved_by_eviction(const Item& item) const {
    if (!policy.evict.observes) return {};
    const State& state = state_of(item);
    const index_t held = state.slot_end(item.last() + 1);
    const bool due =
        item.prompt ? item.prompt_ends : evicts_after(policy, limits, state.evictions_begin(), item.last());
    const index_t kept = due ? kept_after_prompt(policy, state, item.last() + 1) : held;
    const index_t stay = (std::max)(policy.zone.sinks, state.pinned(policy.zone));
    if (kept >= held) return {};
    if (eviction_may_fail) return {0, kept};
    return {(std::max)(0, (std::min)(stay, kept - policy.evict.safe(held))), kept};  // as in observation::choose
  }

  page_writes writes_of(const Item& item) const {
    const index_t slots = state_of(item).slots();
    const token_range moved = moved_by_eviction(item);
    page_writes writes;
    if (slots % page_tokens != 0) writes.open = slots / page_tokens;
    if (moved.size() > 0) writes.moved = {moved.first / page_tokens, pages_for(moved.last)};
    return writes;
  }

  /// visit(state, at) for each entry of item `i`'s table whose page the step may write, and others name.
  /// @param before  items whose copies are yet to be made, but come earlier: they will name other pages by then
  template <class Visit>
  void each(std::size_t i, std::size_t before, Visit visit) const {
    State& state = state_of(items[i]);
    const page_writes writes = writes_of(items[i]);
    for (index_t at = 0; at < state.pages.size(); ++at) {
      const index_t page = state.pages[at];
      if (page < 0 || !writes.has(at)) continue;
      index_t other_holders = stock.holders(page) - 1;
      // What is shared has the same place in each table.
      for (std::size_t b = 0; b < before && other_holders > 0; ++b) {
        const auto& pages = state_of(items[b]).pages;
        const bool leaves = at < pages.size() && pages[at] == page && writes_of(items[b]).has(at);
        other_holders -= leaves ? 1 : 0;
      }
      if (other_holders > 0) visit(state, at);
    }
  }

  /// Pages that the step must copy.
  index_t count() const {
    index_t copies = 0;
    for (std::size_t i = 0; stock.any_shared() && i < items.size(); ++i) {
      each(i, i, [&](State&, index_t) { ++copies; });
    }
    return copies;
  }
};

}  // namespace zoomr::inline v0::detail
