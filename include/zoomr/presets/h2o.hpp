// SPDX-License-Identifier: Apache-2.0
// L5. H2O: the last tokens and the heavy hitters, those that have got most attention so far.
// Source: arXiv:2306.14048. Differs: one set for each KV head, by the attention of its query heads together (published
// for models without groups); 16 tokens are evicted at a time, published one by one, so that whole pages go; keys keep
// their positions; the prompt is attended densely and held whole until it ends.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/evict/accumulated_attention.hpp>

namespace zoomr::inline v0::presets {

/// `tokens` tokens of each KV lane, half of them recent, half heavy hitters.
constexpr auto h2o_with(index_t tokens) {
  return compose(accumulated_attention{.tokens = tokens, .recent = tokens - tokens / 2}, zones{.recent = unlimited});
}

inline constexpr auto h2o = h2o_with(1024);

}  // namespace zoomr::inline v0::presets
