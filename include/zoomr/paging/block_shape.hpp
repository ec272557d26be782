// SPDX-License-Identifier: Apache-2.0
// L3. What moves between tiers: blocks. A page has one in each layer, or one in each layer for each KV head. Which of
// the two is decided once for a cache, by its policy (cache/planning/layout.hpp).
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>

namespace zoomr::inline v0 {

/// A block holds [key | value][heads][16][width]: all KV heads of a layer where they read the same tokens, so that
/// these come as one piece of memory; one KV head where each reads tokens of its own, so that nothing else comes.
struct block_shape {
  shape model;
  index_t heads = 0;  // KV heads of a block: model.kv_heads, or 1

  /// Blocks of a page: its pieces, by layers and then KV heads.
  index_t pieces() const { return model.kv_lanes() / heads; }
  /// The piece that holds a KV lane, in [0, pieces()).
  index_t piece_of(index_t layer, index_t kv_head) const { return (layer * model.kv_heads + kv_head) / heads; }
  /// Numbers of a block, and its bytes.
  template <class T>
  std::int64_t numbers() const {
    return heads * head_numbers<T>(model);
  }
  template <class T>
  byte_count bytes() const {
    return numbers<T>() * static_cast<byte_count>(sizeof(T));
  }
};

}  // namespace zoomr::inline v0
