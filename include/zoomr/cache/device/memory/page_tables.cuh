// SPDX-License-Identifier: Apache-2.0
// L6. Which pages the sequences of a device cache have, on the host: taken, copied where others share them, or an
// engine's; and which of them a step must upload. A core is a device_core.
#pragma once

#include <zoomr/cache/device/memory/sequence.cuh>
#include <zoomr/cache/device/memory/sizes.cuh>
#include <zoomr/cache/device/memory/uploads.cuh>
#include <zoomr/cache/state/engine_tables.hpp>
#include <zoomr/cache/state/shared_writes.hpp>

#include <algorithm>  // std::min
#include <string>     // std::to_string
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Copies to the device where an engine's pages begin in each layer.
template <class Core>
void copy_engine_layers(Core& core, stream_ref stream) {
  std::vector<decltype(core.layer(0).keys)> begins;  // [layers][keys | values]  page 0 of an engine's memory
  for (index_t layer = 0; layer < core.sizes.model.layers; ++layer) {
    const auto pages = core.layer(layer);
    begins.push_back(pages.keys);
    begins.push_back(pages.values);
  }
  core.constants.copy(core.arrays.engine, begins, stream);
}

/// Takes the pages that the step in progress needs. What it will write and others share is copied: listed in the first
/// table.
/// @throws error(capacity) if they are not there; nothing has changed
template <class Core>
void take_pages_to_write(Core& core) {
  const auto& items = core.step.items;
  const shared_writes<device_item, device_sequence> shared{core.policy, core.limits, false,
                                                           core.stock,  items,       core.states};
  take_pages(core.stock, items, core.states, shared.count(), [&] {
    for (std::size_t i = 0; core.stock.any_shared() && i < items.size(); ++i) {
      shared.each(i, 0, [&](device_sequence& state, index_t at) {
        index_t& page = state.pages[at];
        const index_t copy = core.stock.take();
        core.listed[step_table::first_pass].copies.push_back({items[i].seq, at, page, copy});
        core.stock.give_back(page);
        page = copy;
      });
    }
  });
}

/// Of a step that was dropped before its upload: the pages that it shared are shared again. Others have named them all
/// the time.
template <class Core>
void undo_copies(Core& core) {
  auto& copies = core.listed[step_table::first_pass].copies;
  for (; !copies.empty(); copies.pop_back()) {
    const device_page_copy& copy = copies.back();
    core.stock.share(copy.from);
    core.stock.give_back(copy.to);
    core.state(copy.sequence).pages[copy.at] = copy.from;
  }
}

/// Entries of a sequence's table that the device has, if an engine gives `pages`; empty: the table stays.
inline index_t known_of_table(const device_sequence& state, view<const index_t> pages) {
  if (pages.size() == 0) return state.known_pages;
  const index_t most = (std::min)(state.known_pages, pages.size());
  index_t same = 0;
  while (same < most && state.pages[same] == pages[same]) ++same;
  return same;
}

/// The sequences of the step in progress have the pages of an engine that are in its items.
/// @throws precondition_error as expect_tables; error(capacity) if more of them are new than a table has room for;
///         nothing has changed
template <class Core>
void take_engine_pages(Core& core, view<const step_item> items) {
  expect_tables(core, items);
  std::int64_t unknown = 0;
  for (index_t i = 0; i < items.size(); ++i) {
    const device_item& item = core.step.items[static_cast<std::size_t>(i)];
    const device_sequence& state = core.state_of(item);
    unknown += core.sizes.pages_of(state.slot_end(item.first + item.tokens)) - known_of_table(state, items[i].pages);
  }
  if (unknown > core.sizes.most_pages()) {
    raise(errc::capacity, "begin: the device does not know " + std::to_string(unknown) +
                              " pages of the items' block tables, a step has room for " +
                              std::to_string(core.sizes.most_pages()) + ": tell it of them with block_table before");
  }
  for (const step_item& item : items) {
    device_sequence& state = core.state(item.seq.id);
    state.known_pages = known_of_table(state, item.pages);
  }
  take_tables(core, items);
}

/// Lists for the first table the pages that an item needs and the device does not have yet. It has them once the step
/// is committed.
template <class Core>
void list_pages(Core& core, device_item& item) {
  auto& pages = core.listed[step_table::first_pass].pages;
  const device_sequence& state = core.state_of(item);
  item.pages = core.sizes.pages_of(state.slot_end(item.first + item.tokens));
  for (index_t at = state.known_pages; at < item.pages; ++at) {
    ZOOMR_ASSERT(pages.size() < pages.capacity(), "a table has too few entries for pages");
    pages.push_back({item.seq, at, state.pages[at]});
  }
}

}  // namespace zoomr::inline v0::detail
