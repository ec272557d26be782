// SPDX-License-Identifier: Apache-2.0
// L6. Queries and outputs of 16 bits on the host, where all is computed in floats: they are widened and narrowed here.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/math/products.hpp>

#include <vector>  // std::vector

namespace zoomr::inline v0::detail {

/// Room for the rows of one layer and step, if config.half_queries is set.
class half_queries {
 public:
  half_queries(const shape& model, const config& limits)
      : queries_(numbers(limits, model.heads * model.head_dim)),
        out_(numbers(limits, model.heads * model.value_width())) {}
  static byte_count bytes(const shape& model, const config& limits) {
    const index_t widths = model.head_dim + model.value_width();
    return limits.half_queries ? bounded_product({limits.max_batched_tokens, model.heads, widths, sizeof(float)}) : 0;
  }

  /// @param rows  [tokens, heads, head_dim]  of at most max_batched_tokens
  template <class Number>
  view<const float, 3> widened(view<Number, 3> rows) {
    const view<float, 3> floats(queries_.data(), {rows.extent(0), rows.extent(1), rows.extent(2)});
    each_row(floats, [&](index_t t, index_t head, view<float> row) {
      widen(fastest_cpu_path(), rows[t][head].data(), 1.0f, row);
    });
    return floats;
  }
  view<float, 3> out(index_t tokens, index_t heads, index_t width) { return {out_.data(), {tokens, heads, width}}; }
  /// @param rows  as `out` has returned them
  template <class Number>
  void narrow_to(view<Number, 3> rows) const {
    const view<const float, 3> floats(out_.data(), {rows.extent(0), rows.extent(1), rows.extent(2)});
    each_row(floats, [&](index_t t, index_t head, view<const float> row) {
      narrow(fastest_cpu_path(), row, 1.0f, rows[t][head].data());
    });
  }

 private:
  static std::size_t numbers(const config& limits, index_t of_token) {
    return limits.half_queries
               ? static_cast<std::size_t>(limits.max_batched_tokens) * static_cast<std::size_t>(of_token)
               : 0;
  }
  template <class T, class Visit>
  static void each_row(view<T, 3> rows, Visit visit) {
    for (index_t t = 0; t < rows.extent(0); ++t) {
      for (index_t head = 0; head < rows.extent(1); ++head) visit(t, head, rows[t][head]);
    }
  }

  std::vector<float> queries_;  // [max_batched_tokens, heads, head_dim]
  std::vector<float> out_;      // [max_batched_tokens, heads, value_width]
};

}  // namespace zoomr::inline v0::detail
