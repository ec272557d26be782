// SPDX-License-Identifier: Apache-2.0
// L5. ArkVale: pages of 32 tokens go to the host and leave a cuboid behind; the best of each layer come back.
// Source: NeurIPS 2024, "ArkVale: Efficient Generative LLM Inference with Recallable Key-Value Eviction", and its
// released code: the "cuboid mean" of a page's keys, the mean over the heads of a layer, the first two layers dense; of
// the 32 pages that are attended the first one and the last two, of which the last is being written. Differs: what is
// recalled is what is attended, where the published system keeps more pages resident than it attends.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/score/box_bound.hpp>
#include <zoomr/policy/segment/fixed_pages.hpp>
#include <zoomr/policy/select/top_k.hpp>
#include <zoomr/policy/summarize/key_cuboid.hpp>

namespace zoomr::inline v0::presets {

/// As many pages of `page` tokens as `tokens` attended tokens make, rounded up, four at least: the first, the last two,
/// and the best of the others.
constexpr auto arkvale_with(index_t tokens, index_t page = 32) {
  const index_t pages = tokens > 0 ? (tokens - 1) / page + 1 : 0;
  return compose(fixed_pages{.longest = page}, key_cuboid{}, box_bound{}, pooled_score{.per = scope::layer},
                 top_k{.segments = pages - 3}, every_token{},
                 zones{.sinks = page, .recent = 2 * page, .align = page, .open = unlimited, .dense_layers = 2},
                 placement{.details_on_host = true});
}

inline constexpr auto arkvale = arkvale_with(1024);

}  // namespace zoomr::inline v0::presets
