// SPDX-License-Identifier: Apache-2.0
// L6. Rows of blocks with few bits are stored transformed: keys and values by a Walsh-Hadamard transform before they
// are rounded, queries by the same before they meet keys, outputs back. All that lies between sees transformed rows
// only.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/core/block_rows.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/math/hadamard.hpp>
#include <zoomr/math/products.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>  // std::copy_n
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Transforms rows of a cache that stores `T`, and has room for the queries of one layer and step.
template <class T>
class transformed_rows {
 public:
  /// @param own_pages  an engine's own kernels do not write or read transformed rows
  static bool used(const config& limits, bool own_pages) {
    return storage_traits<T>::transforms && own_pages && limits.transform_blocks;
  }
  transformed_rows(const shape& model, const config& limits, bool used)
      : key_width_(used ? hadamard_width(model.values_in_keys ? model.head_dim | model.value_width() : model.head_dim)
                        : 1),
        value_width_(used ? (model.values_in_keys ? key_width_ : hadamard_width(model.value_width())) : 1),
        queries_(static_cast<std::size_t>(bytes(model, limits, used)) / sizeof(float)) {}
  static byte_count bytes(const shape& model, const config& limits, bool used) {
    return used ? bounded_product({limits.max_batched_tokens, model.heads, model.head_dim, sizeof(float)}) : 0;
  }

  bool transforms() const { return key_width_ > 1; }

  /// @param rows  [tokens, heads, head_dim]  of at most max_batched_tokens
  view<const float, 3> queries(view<const float, 3> rows) {
    if (!transforms()) return rows;
    const view<float, 3> transformed(queries_.data(), {rows.extent(0), rows.extent(1), rows.extent(2)});
    for (index_t t = 0; t < rows.extent(0); ++t) {
      for (index_t head = 0; head < rows.extent(1); ++head) {
        std::copy_n(rows[t][head].data(), rows.extent(2), transformed[t][head].data());
        hadamard_transform(transformed[t][head], key_width_);
      }
    }
    return transformed;
  }
  /// @param rows  [tokens, heads, value_width]
  void transform_back(view<float, 3> rows) const {
    for (index_t t = 0; transforms() && t < rows.extent(0); ++t) {
      for (index_t head = 0; head < rows.extent(1); ++head) hadamard_transform(rows[t][head], value_width_);
    }
  }
  /// Of a key as the model has it, and back.
  void key(view<float> row) const {
    if (transforms()) hadamard_transform(row, key_width_);
  }

  /// Stores a row of the model.
  /// @param goal  row `slot` of its page
  template <class Number>
  void store_key(view<const Number> row, float scale, T* goal, index_t slot) const {
    store(row, key_width_, scale, goal, slot);
  }
  template <class Number>
  void store_value(view<const Number> row, float scale, T* goal, index_t slot) const {
    store(row, value_width_, scale, goal, slot);
  }

 private:
  template <class Number>
  static void store(view<const Number> row, index_t width, float scale, T* goal, index_t slot) {
    if constexpr (storage_traits<T>::transforms) {
      if (width > 1) {
        float numbers[shape::most_head_dim];
        const view<float> transformed(numbers, {row.size()});
        widen(fastest_cpu_path(), row.data(), 1.0f, transformed);
        hadamard_transform(transformed, width);
        return store_row(view<const float>(transformed), scale, goal, slot);
      }
    }
    store_row(row, scale, goal, slot);
  }

  index_t key_width_;
  index_t value_width_;
  std::vector<float> queries_;  // [max_batched_tokens, heads, head_dim]
};

}  // namespace zoomr::inline v0::detail
