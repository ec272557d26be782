// SPDX-License-Identifier: Apache-2.0
// L3. Pages that belong to an engine: where they lie, in which layout. Of the placement `engine_pages`.
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/core/view.hpp>

#include <cstdint>  // std::intptr_t

namespace zoomr {
inline namespace v0 {

/// The pool of an engine, as its block tables number it. The key of a token lies at
///   keys[layer] + page * page_stride + kv_head * head_stride + (place in the page) * token_stride
/// numbers of the cache's storage type, its value at the same place behind values[layer]. The numbers of a row lie side
/// by side. The memory and the tables of pointers are the caller's, and outlive the cache.
struct engine_memory {
  view<void* const> keys;    // [layers]  page 0, KV head 0, first token
  view<void* const> values;  // [layers]
  index_t pages = 0;         // that there are: ids in block tables are smaller
  index_t page_tokens = 16;  // of one page
  std::int64_t page_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;

  /// [pages, in_page, kv_heads, head_dim]
  static constexpr engine_memory nhd(view<void* const> keys, view<void* const> values, index_t pages, index_t in_page,
                                     const shape& model) {
    const std::int64_t row = model.head_dim;
    return {keys, values, pages, in_page, in_page * model.kv_heads * row, row, model.kv_heads * row};
  }
  /// [pages, kv_heads, in_page, head_dim]
  static constexpr engine_memory hnd(view<void* const> keys, view<void* const> values, index_t pages, index_t in_page,
                                     const shape& model) {
    const std::int64_t row = model.head_dim;
    return {keys, values, pages, in_page, in_page * model.kv_heads * row, in_page * row, row};
  }

  /// Pages that hold so many tokens.
  constexpr index_t pages_for(index_t tokens) const {
    return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0);
  }

  /// nullptr, or the sentence that says what is wrong.
  /// @param number_bytes  of the storage type
  const char* problem(const shape& model, std::size_t number_bytes) const {
    if (keys.size() != model.layers || values.size() != model.layers) {
      return "config: engine.keys and engine.values need a pointer for each layer";
    }
    if (pages < 1 || page_tokens < 1) return "config: engine.pages and engine.page_tokens must be at least 1";
    if (page_stride < 1 || head_stride < 1 || token_stride < model.head_dim) {
      return "config: engine's strides must be positive, and token_stride at least head_dim";
    }
    for (index_t layer = 0; layer < model.layers; ++layer) {
      if (keys[layer] == nullptr || values[layer] == nullptr) return "config: a pointer of engine is null";
      const auto apart = reinterpret_cast<std::intptr_t>(values[layer]) - reinterpret_cast<std::intptr_t>(keys[layer]);
      if (apart % static_cast<std::intptr_t>(number_bytes) != 0) {
        return "config: an engine's values must lie whole numbers of the storage type behind its keys";
      }
    }
    return nullptr;
  }
};

}  // namespace v0
}  // namespace zoomr
