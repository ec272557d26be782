// SPDX-License-Identifier: Apache-2.0
// L5. SnapKV: of the prompt, each KV head keeps what its last queries attend; nothing else is ever left out.
// Source: arXiv:2404.14469. Differs: one set for each KV head, by the best of its query heads, where the released code
// keeps one for each query head; the pages of what is not kept are really given back.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/evict/observation_window.hpp>

#include <algorithm>  // std::min

namespace zoomr::inline v0::presets {

/// `tokens` tokens of the prompt, the observed ones included: 32, or two thirds of them if those are fewer.
constexpr auto snapkv_with(index_t tokens) {
  return compose(observation_window{.tokens = tokens, .queries = std::min<index_t>(32, unchosen_share(tokens))},
                 zones{.recent = unlimited});
}

inline constexpr auto snapkv = snapkv_with(1024);

}  // namespace zoomr::inline v0::presets
