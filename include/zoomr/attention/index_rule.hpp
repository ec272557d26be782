// SPDX-License-Identifier: Apache-2.0
// L4. How models that bring index keys of their own choose what a query reads: `list_by_index` lists tokens by such a
// rule, `attend_listed` reads them.
//
//   score(block) = sum over index heads of weight(head) * f(query(head) . keys of the block)
// The blocks with the highest scores are read, of equal ones the first.
#pragma once

#include <zoomr/core/types.hpp>

namespace zoomr::inline v0 {

/// What a block's products with a query become: the largest of them, or their mean, which is the product with the mean
/// key.
enum class block_product : std::uint8_t { largest, mean };

/// The block that holds the query's own token.
enum class own_block : std::uint8_t {
  ranked,      ///< by its score, as far as it has come
  first,       ///< before all others, among the most
  beside_open  ///< by its score if it is complete; else it is read beside the most
};

struct index_rule {
  index_t block = 1;    // tokens that are chosen together
  index_t most = 2048;  // blocks that are chosen
  block_product product = block_product::largest;
  bool relu = false;  // products below 0 count 0
  own_block own = own_block::ranked;

  /// Tokens that are listed for one query, at most.
  constexpr index_t most_tokens() const { return most * block + (own == own_block::beside_open ? block - 1 : 0); }
  /// nullptr, or a sentence: what is wrong.
  constexpr const char* problem() const {
    if (block < 1 || most < 1) return "index_rule: block and most must be at least 1";
    if (std::int64_t{block} * (std::int64_t{most} + 1) >= unlimited) return "index_rule: it lists 2^31 tokens or more";
    return nullptr;
  }
};

/// DeepSeek sparse attention, as DeepSeek-V3.2 and GLM-5 have it: head weights follow from the token.
/// @source  DeepSeek-V3.2
inline constexpr index_rule dsa_rule{1, 2048, block_product::largest, true, own_block::ranked};
/// MiniMax sparse attention: each KV head has an index head of its own.
/// @source  MiniMax-M3 (arXiv 2606.13392)
inline constexpr index_rule msa_rule{128, 16, block_product::largest, false, own_block::first};
/// Of Qwen3.8: four tokens have one pooled key, heads count alike.
/// @source  Qwen3.8-Flash-Next
inline constexpr index_rule qsa_rule{4, 512, block_product::mean, true, own_block::beside_open};

}  // namespace zoomr::inline v0
