// SPDX-License-Identifier: Apache-2.0
// L6. Block tables of an engine: which of its pages a sequence has, as given to `begin`, `load` and `block_table`.
#pragma once

#include <zoomr/cache/state/sequences.hpp>

#include <algorithm>  // std::min
#include <string>     // std::to_string

namespace zoomr::inline v0::detail {

/// A block table must have `needed` pages, and all of these must be the engine's, but for those that a layer's window
/// has passed.
/// @param passed     tokens before this one are not read again
/// @param table      empty: the sequence keeps the `pages` pages that it has
/// @param what       what() begins the sentence: "begin: the block table of item 0"
/// @param too_short  too_short(sentence) raises for a table with too few pages, and adds what the caller can do about
///                   it
/// @throws  what `too_short` raises; precondition_error if there is no such page
template <class What, class Short>
void expect_block_table(const engine_memory& memory, index_t passed, view<const index_t> table, index_t pages,
                        index_t needed, What what, Short too_short) {
  if (pages < needed) {
    too_short(what() + " has " + std::to_string(pages) + " pages, its tokens need " + std::to_string(needed) + " of " +
              std::to_string(memory.page_tokens) + " tokens");
  }
  for (index_t at = passed / memory.page_tokens; at < (std::min)(table.size(), needed); ++at) {
    ZOOMR_EXPECTS(
        table[at] >= 0 && table[at] < memory.pages,
        what() + " has page " + std::to_string(table[at]) + ", config.engine.pages is " + std::to_string(memory.pages));
  }
}

/// Forgets the pages after the committed tokens.
inline void trim_table(const engine_memory& memory, token_state& state) {
  const index_t needed = memory.pages_for(state.slots());
  if (state.pages.size() > needed) state.pages.resize(needed);
}

/// Looks at the block tables of a step's items.
/// @pre     the items are planned, in this order
/// @throws  precondition_error if a table is too short for the step's tokens or names a page that there is not
template <class Core>
void expect_tables(Core& core, view<const step_item> items) {
  const engine_memory& memory = core.limits.engine;
  for (index_t i = 0; i < items.size(); ++i) {
    const planned_item& planned = core.step.items[static_cast<std::size_t>(i)];
    const token_state& state = core.state_of(planned);
    const view<const index_t> pages = items[i].pages;
    const index_t needed = memory.pages_for(state.slot_end(planned.first + planned.tokens));
    expect_block_table(
        memory, state.freed_pages * page_tokens, pages, pages.size() > 0 ? pages.size() : state.pages.size(), needed,
        [&] { return "begin: the block table of item " + std::to_string(i); },
        [](const std::string& reason) { raise_precondition(reason + ": set step_item::pages"); });
  }
}

/// The sequences of the step in progress have the pages of its items' block tables.
/// @pre     expect_tables
template <class Core>
void take_tables(Core& core, view<const step_item> items) {
  for (index_t i = 0; i < items.size(); ++i) {
    const planned_item& planned = core.step.items[static_cast<std::size_t>(i)];
    token_state& state = core.state_of(planned);
    const index_t needed = core.limits.engine.pages_for(state.slot_end(planned.first + planned.tokens));
    if (items[i].pages.size() > 0) state.pages.assign(items[i].pages.begin(), items[i].pages.begin() + needed);
  }
}

/// One sequence has the pages of this table from now on, in no step.
/// @param what, too_short  as of expect_block_table, which throws; nothing has changed then
template <class Short>
void take_table(const engine_memory& memory, token_state& state, view<const index_t> table, const char* what,
                Short too_short) {
  const index_t needed = memory.pages_for(state.slots());
  expect_block_table(
      memory, state.freed_pages * page_tokens, table, table.size(), needed, [=] { return std::string(what); },
      too_short);
  state.pages.assign(table.begin(), table.begin() + needed);
}

}  // namespace zoomr::inline v0::detail
