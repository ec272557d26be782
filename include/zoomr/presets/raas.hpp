// SPDX-License-Identifier: Apache-2.0
// L5. RaaS: the prompt stays; of what is written, the page that has been of no use for longest goes.
// Source: arXiv:2502.11147. Differs: one set for each KV head, whose query heads each renew what they find useful; a
// page goes when the next is complete, so that up to 16 tokens more than the budget are held; the budget is for what is
// written, the prompt is not counted.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/evict/recently_attended_pages.hpp>

namespace zoomr::inline v0::presets {

/// `tokens` tokens of each KV lane beside the prompt, rounded up to pages of 16.
constexpr auto raas_with(index_t tokens) {
  const index_t pages = tokens / 16 + (tokens % 16 != 0 ? 1 : 0);
  return compose(recently_attended_pages{.tokens = tokens == unlimited ? unlimited : pages * 16},
                 zones{.recent = unlimited, .prompt = true});
}

inline constexpr auto raas = raas_with(1024);

}  // namespace zoomr::inline v0::presets
