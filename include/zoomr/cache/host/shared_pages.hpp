// SPDX-License-Identifier: Apache-2.0
// L6. Copy on write. Forks of a sequence name the same pages until one of them writes there. A step writes behind the
// committed tokens, and an eviction where it moves tokens to; `begin` knows both from counts alone, so that it copies
// what is shared, and nothing that comes later can lack a page.
#pragma once

#include <zoomr/cache/host/core.hpp>

#include <algorithm>  // std::max, std::min
#include <string>     // std::to_string

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Slots that an eviction at the end of an item's step moves tokens to, if all its tokens are accepted. It keeps tokens
/// at the front where they lie; but where it may fail all tokens move to spare pages, and the pages that they leave
/// become the next spare ones.
template <class Pool>
token_range moved_by_eviction(cache_core<Pool>& core, const planned_item& item) {
  const any_policy& policy = core.policy;
  const token_state& state = core.state_of(item);
  if (!policy.evict.observes) return {};
  const index_t held = state.slot_end(item.last() + 1);
  index_t kept = held;
  index_t stay = policy.zone.sinks;
  if (item.prompt) {
    if (item.prompt_ends && !policy.zone.prompt) kept = policy.evict.kept(held);
  } else if (evicts_after(policy, core.limits, state.evictions_from, item.last())) {
    const index_t pinned = state.pinned(policy.zone);
    kept = pinned + policy.evict.kept(held - pinned);
    stay = (std::max)(stay, pinned);
  }
  if (kept >= held) return {};
  if (core.sizes.eviction_may_fail) return {0, kept};
  return {(std::max)(0, (std::min)(stay, kept - policy.evict.safe(held))), kept};  // as observation::choose says
}

/// Entries of a sequence's page table whose pages a step may write, of those that are in the table before it.
struct page_writes {
  index_t open = -1;  // the page that has room for the next token; -1: none has
  token_range moved;  // pages that an eviction at the end of the step moves tokens to

  bool has(index_t at) const { return at == open || (at >= moved.first && at < moved.last); }
};

template <class Pool>
page_writes writes_of(cache_core<Pool>& core, const planned_item& item) {
  const index_t slots = core.state_of(item).slots();
  const token_range moved = moved_by_eviction(core, item);
  page_writes made;
  if (slots % page_tokens != 0) made.open = slots / page_tokens;
  if (moved.size() > 0) made.moved = {moved.first / page_tokens, pages_for(moved.last)};
  return made;
}

/// visit(state, at) for each entry of item `i`'s table that the step may write, and whose page others name too.
/// @param before  items whose copies are yet to be made, but come earlier: they will name other pages by then
template <class Pool, class Visit>
void for_each_shared_write(cache_core<Pool>& core, std::size_t i, std::size_t before, Visit visit) {
  const auto& items = core.step.items;
  auto& state = core.state_of(items[i]);
  const page_writes writes = writes_of(core, items[i]);
  for (index_t at = 0; at < static_cast<index_t>(state.pages.size()); ++at) {
    const index_t page = state.pages[static_cast<std::size_t>(at)];
    if (page < 0 || !writes.has(at)) continue;
    index_t others = core.pool.holders(page) - 1;
    for (std::size_t b = 0; b < before && others > 0; ++b) {  // a page that is shared has the same place in each table
      const auto& pages = core.state_of(items[b]).pages;
      const bool leaves = at < static_cast<index_t>(pages.size()) && pages[static_cast<std::size_t>(at)] == page &&
                          writes_of(core, items[b]).has(at);
      others -= leaves ? 1 : 0;
    }
    if (others > 0) visit(state, at);
  }
}

/// Copies what the step in progress may write, and others name too, to the pages that the stock will give next; then
/// takes these. Until all are copied no table changes.
/// @pre    the stock has pages for them
/// @throws error(storage) if a page over tiers does not come; nothing has changed
template <class Pool>
void copy_shared_pages(cache_core<Pool>& core) {
  const auto& items = core.step.items;
  index_t copied = 0;
  const auto copy_all = [&] {
    for (std::size_t i = 0; i < items.size(); ++i) {
      for_each_shared_write(core, i, i, [&](sequence_state& state, index_t at) {
        handled<error>(
            [&] { core.pool.copy_page(state.pages[static_cast<std::size_t>(at)], core.pool.next(copied++)); },
            [&](const error& why) {
              raise(why.code(), "begin: item " + std::to_string(i) +
                                    ": a page that it shares with another sequence cannot be copied: " +
                                    (why.what() + error::prefix.size()));
            });
      });
    }
  };
  undone_if_error(copy_all, [&] {
    while (copied > 0) core.pool.forget(core.pool.next(--copied));
  });
  for (std::size_t i = 0; i < items.size(); ++i) {
    for_each_shared_write(core, i, 0, [&](sequence_state& state, index_t at) {
      index_t& page = state.pages[static_cast<std::size_t>(at)];
      const index_t copy = core.pool.take();
      core.pool.give_back(page);
      page = copy;
    });
  }
}

/// Takes the pages that the step in progress needs, those among them that it must copy.
/// @throws error(capacity) if they are not there, error(storage) as copy_shared_pages; nothing has changed
/// @cost   copies a page for each fork that goes on by itself, once; where one evicts, those that its tokens move to
template <class Pool>
void take_pages_to_write(cache_core<Pool>& core) {
  const auto& items = core.step.items;
  index_t copies = 0;
  for (std::size_t i = 0; core.pool.any_shared() && i < items.size(); ++i) {
    for_each_shared_write(core, i, i, [&](sequence_state&, index_t) { ++copies; });
  }
  take_pages(core.pool, items, core.states, copies, [&] {
    if (copies > 0) copy_shared_pages(core);
  });
}

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
