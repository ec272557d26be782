// SPDX-License-Identifier: Apache-2.0
// L5. R-KV: every 128 tokens, each KV head keeps tokens that get attention and whose keys are not redundant.
// Source: arXiv:2505.24133, and its released code: of the logits of a group's query heads the maximum, before the
// softmax; that leaves the observed tokens out; lambda = 0.07 (0.1 in the paper). Differs: the buffer is counted from
// the end of the prompt, where eviction happens too, and there in whole multiples of the length of the text.
#pragma once

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/evict/redundancy_aware.hpp>

#include <algorithm>  // std::min

namespace zoomr::inline v0::presets {

/// `tokens` tokens of each KV lane, the observed ones included: 8, or two thirds of them if those are fewer.
constexpr auto r_kv_with(index_t tokens) {
  return compose(redundancy_aware{.tokens = tokens, .queries = std::min<index_t>(8, unchosen_share(tokens))},
                 zones{.recent = unlimited});
}

inline constexpr auto r_kv = r_kv_with(1024);

}  // namespace zoomr::inline v0::presets
