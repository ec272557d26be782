// SPDX-License-Identifier: Apache-2.0
// L6. Block tables of an engine: which of its pages a sequence has, as `begin` is told.
#pragma once

#include <zoomr/cache/host/core.hpp>

#include <string>  // std::to_string

namespace zoomr {
inline namespace v0 {
namespace detail {

/// The sequences of the step in progress have the pages that its items say. All items are looked at before any table
/// changes.
/// @pre     the items are planned, in this order
/// @throws  precondition_error if a table is too short for the step's tokens or names a page that there is
///          not; nothing has changed
template <class Pool>
void take_tables(cache_core<Pool>& core, view<const step_item> items) {
  const engine_memory& memory = core.limits.engine;
  for (index_t i = 0; i < items.size(); ++i) {
    const planned_item& planned = core.step.items[static_cast<std::size_t>(i)];
    const token_state& state = core.state_of(planned);
    const view<const index_t> pages = items[i].pages;
    const index_t needed = memory.pages_for(state.slot_end(planned.first + planned.tokens));
    const auto of_item = [&] { return "begin: the block table of item " + std::to_string(i) + " has "; };
    const index_t given = pages.size() > 0 ? pages.size() : static_cast<index_t>(state.pages.size());
    ZOOMR_EXPECTS(given >= needed, of_item() + std::to_string(given) + " pages, its tokens need " +
                                       std::to_string(needed) + " of " + std::to_string(memory.page_tokens) +
                                       " tokens: set step_item::pages");
    for (index_t at = 0; at < (std::min)(pages.size(), needed); ++at) {
      ZOOMR_EXPECTS(
          pages[at] >= 0 && pages[at] < memory.pages,
          of_item() + "page " + std::to_string(pages[at]) + ", config.engine.pages is " + std::to_string(memory.pages));
    }
  }
  for (index_t i = 0; i < items.size(); ++i) {
    const planned_item& planned = core.step.items[static_cast<std::size_t>(i)];
    sequence_state& state = core.state_of(planned);
    const index_t needed = memory.pages_for(state.slot_end(planned.first + planned.tokens));
    if (items[i].pages.size() > 0) state.pages.assign(items[i].pages.begin(), items[i].pages.begin() + needed);
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
