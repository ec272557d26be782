// SPDX-License-Identifier: Apache-2.0
// L4. Details in the pages of an engine. The cache keeps the index and the selections, and attends through the engine's
// block tables.
#pragma once

#include <zoomr/paging/engine_pool.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keys and values are in the engine's memory (`config.engine`), in pages that it takes and gives back with an
/// allocator of its own. With each step it passes the pages of a sequence (`step_item::pages`). Results are those of a
/// cache with pages of its own, bit for bit. Nothing is copied: `append` writes there, or the engine does. The engine
/// keeps track of pages that sequences share, such as a prefix: `step::moved_slots` lists where a commit will write.
struct engine_pages {
  using role = role::placement;
  static constexpr const char* name = "engine_pages";
  static constexpr bool details_on_host = false;
  static constexpr bool frees_unreachable = false;
  static constexpr bool prefetch = false;
  template <class T>
  using pool = engine_pool<T>;

  friend constexpr bool operator==(const engine_pages&, const engine_pages&) = default;
};

static_assert(component<engine_pages>);

}  // namespace zoomr::inline v0

#define ZOOMR_HAS_ENGINE_PAGES
#include <zoomr/compiled.inl>
