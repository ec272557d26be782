// SPDX-License-Identifier: Apache-2.0
// L3. Pages that belong to an engine: where they are, in which layout. Of the placement `engine_pages`.
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/core/storage_types.hpp>
#include <zoomr/core/view.hpp>

#include <cstdint>  // std::intptr_t

namespace zoomr::inline v0 {

/// Numbers from page to page, from KV head to KV head, and from token to token of a page.
struct kv_strides {
  std::int64_t page = 0;
  std::int64_t head = 0;
  std::int64_t token = 0;

  friend constexpr bool operator==(const kv_strides&, const kv_strides&) = default;
};

/// The pool of an engine, as its block tables number it. The key of a token is at
///   keys[layer] + page * page_stride + kv_head * head_stride + (place in the page) * token_stride
/// numbers of the cache's storage type, its value at the same place after values[layer], or at one by strides of its
/// own. The numbers of a row are side by side; of a type whose rows are blocks, 32 numbers are one block, and strides
/// are multiples of them. The memory and the tables of pointers are the caller's, and outlive the cache.
struct engine_memory {
  view<void* const> keys;    // [layers that store keys]  page 0, KV head 0, first token
  view<void* const> values;  // [layers]  not read where values are in keys
  index_t pages = 0;         // that there are: ids in block tables are smaller
  index_t page_tokens = 16;  // of one page
  std::int64_t page_stride = 0;
  std::int64_t head_stride = 0;
  std::int64_t token_stride = 0;
  kv_strides of_values = {};  // all 0: those of keys

  /// [pages, in_page, kv_heads, head_dim], and values [pages, in_page, kv_heads, value_width]
  static constexpr engine_memory nhd(view<void* const> keys, view<void* const> values, index_t pages, index_t in_page,
                                     const shape& model) {
    const std::int64_t heads = model.kv_heads;
    const auto strides = [&](std::int64_t width) -> kv_strides {
      return {in_page * heads * width, width, heads * width};
    };
    return dense(keys, values, pages, in_page, strides(model.head_dim), strides(model.value_width()));
  }
  /// [pages, kv_heads, in_page, head_dim], and values [pages, kv_heads, in_page, value_width]
  static constexpr engine_memory hnd(view<void* const> keys, view<void* const> values, index_t pages, index_t in_page,
                                     const shape& model) {
    const std::int64_t heads = model.kv_heads;
    const auto strides = [&](std::int64_t width) -> kv_strides {
      return {in_page * heads * width, in_page * width, width};
    };
    return dense(keys, values, pages, in_page, strides(model.head_dim), strides(model.value_width()));
  }

  constexpr kv_strides strides_of_keys() const { return {page_stride, head_stride, token_stride}; }
  constexpr kv_strides strides_of_values() const { return of_values == kv_strides{} ? strides_of_keys() : of_values; }

  /// Pages that hold so many tokens.
  constexpr index_t pages_for(index_t tokens) const {
    return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0);
  }

  /// nullptr, or a sentence: what is wrong.
  /// @param number_bytes   of the storage type
  /// @param block_numbers  numbers that are stored as one: those of a block, or 1
  const char* problem(const shape& model, std::size_t number_bytes, index_t block_numbers = 1) const {
    if (keys.size() != model.layers || (!model.values_in_keys && values.size() != model.layers)) {
      return "config: engine.keys and engine.values need a pointer for each layer";
    }
    if (pages < 1 || page_tokens < 1) return "config: engine.pages and engine.page_tokens must be at least 1";
    if (page_stride < 1 || head_stride < 1 || token_stride < model.head_dim) {
      return "config: engine's strides must be positive, and token_stride at least head_dim";
    }
    const kv_strides value_strides = strides_of_values();
    const bool wide_enough =
        value_strides.page > 0 && value_strides.head > 0 && value_strides.token >= model.value_width();
    if (!model.values_in_keys && !wide_enough) {
      return "config: engine's strides of values must be positive, and that of tokens at least as wide as a value";
    }
    for (const kv_strides& of_rows : {strides_of_keys(), value_strides}) {
      if (of_rows.page % block_numbers != 0 || of_rows.head % block_numbers != 0 ||
          of_rows.token % block_numbers != 0) {
        return not_in_blocks.text;
      }
    }
    for (index_t layer = 0; layer < model.layers; ++layer) {
      if (keys[layer] == nullptr) return "config: a pointer of engine is null";
      if (model.values_in_keys) continue;
      if (values[layer] == nullptr) return "config: a pointer of engine is null";
      const auto offset = reinterpret_cast<std::intptr_t>(values[layer]) - reinterpret_cast<std::intptr_t>(keys[layer]);
      if (offset % static_cast<std::intptr_t>(number_bytes) != 0) {
        return "config: an engine's values must lie whole numbers of the storage type after its keys";
      }
    }
    return nullptr;
  }

 private:
  static constexpr detail::sentence_on_types not_in_blocks{
      "config: engine's strides must be multiples of 32 numbers, which are a block of ", block_types{}, ""};

  static constexpr engine_memory dense(view<void* const> keys, view<void* const> values, index_t pages, index_t in_page,
                                       const kv_strides& of_keys, const kv_strides& of_values) {
    return {keys, values, pages, in_page, of_keys.page, of_keys.head, of_keys.token, of_values};
  }
};

}  // namespace zoomr::inline v0
