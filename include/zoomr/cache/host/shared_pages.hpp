// SPDX-License-Identifier: Apache-2.0
// L6. Copy on write on the host: `begin` copies what the step will write and others share
// (cache/state/shared_writes.hpp).
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/state/shared_writes.hpp>

#include <string>  // std::to_string

namespace zoomr::inline v0::detail {

template <class Pool>
shared_writes<planned_item, sequence_state> shared_writes_of(cache_core<Pool>& core) {
  return {core.policy, core.limits, core.sizes.eviction_may_fail, core.pool, core.step.items, core.states};
}

/// Copies a page that item `i` may write to one of the stock's next ones.
/// @throws error(storage) if it does not come; some of it is copied then
template <class Pool>
void copy_shared_page(cache_core<Pool>& core, std::size_t i, index_t from, index_t to) {
  ZOOMR_TRY {
    core.pool.copy_page(from, to);
    core.keys.copy_page(from, to);
  }
  ZOOMR_CATCH(const error& cause) {
    raise(cause.code(), "begin: item " + std::to_string(i) +
                            ": a page that it shares with another sequence cannot be copied: " +
                            (cause.what() + error::prefix.size()));
  }
}

/// Copies what the step in progress may write, and others name too, to the pages that the stock will give next; then
/// takes these. Until all are copied no table changes.
/// @pre    the stock has pages for them
/// @throws error(storage) if a page over tiers does not come; nothing has changed
template <class Pool>
void copy_shared_pages(cache_core<Pool>& core) {
  const auto shared = shared_writes_of(core);
  const std::size_t items = core.step.items.size();
  index_t copied = 0;
  ZOOMR_TRY {
    for (std::size_t i = 0; i < items; ++i) {
      shared.each(i, i, [&](sequence_state& state, index_t at) {
        const index_t from = state.pages[at], to = core.pool.next(copied++);
        copy_shared_page(core, i, from, to);
      });
    }
  }
  ZOOMR_CATCH(const error& cause) {
    while (copied > 0) core.pool.forget(core.pool.next(--copied));
    rethrow();
  }
  for (std::size_t i = 0; i < items; ++i) {
    shared.each(i, 0, [&](sequence_state& state, index_t at) {
      index_t& page = state.pages[at];
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
  const index_t copies = core.pool.any_shared() ? shared_writes_of(core).count() : 0;
  take_pages(core.pool, core.step.items, core.states, copies, [&] {
    if (copies > 0) copy_shared_pages(core);
  });
}

}  // namespace zoomr::inline v0::detail
