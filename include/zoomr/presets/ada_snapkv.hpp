// SPDX-License-Identifier: Apache-2.0
// L5. Ada-SnapKV: SnapKV, but the KV heads of a layer share one budget; nothing else is ever left out.
// Source: arXiv:2407.11550. What differs: policy/evict/layer_window.hpp; one set for each KV head, by the best of its
// query heads.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/evict/layer_window.hpp>

#include <algorithm>  // std::min

namespace zoomr::inline v0::presets {

/// `tokens` tokens of the prompt for each KV head on the average, the observed ones included: 32, or two thirds of them
/// if those are fewer.
constexpr auto ada_snapkv_with(index_t tokens) {
  return compose(layer_window{.tokens = tokens, .queries = std::min<index_t>(32, unchosen_share(tokens))},
                 zones{.recent = unlimited});
}

inline constexpr auto ada_snapkv = ada_snapkv_with(1024);

}  // namespace zoomr::inline v0::presets
