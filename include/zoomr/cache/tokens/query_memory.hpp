// SPDX-License-Identifier: Apache-2.0
// L6. What the cache remembers of queries: the sum over the open segment, and the query of the last choice.
//
// One record for each of the last `rollback_tokens` + 1 committed tokens, so that a rollback finds the sums as they
// were: floats added in another order, or subtracted, would not give the same bits.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/core/token_range.hpp>
#include <zoomr/core/view.hpp>

#include <algorithm>  // std::copy_n, std::max

namespace zoomr::inline v0::detail {

/// Records of `parts` arrays [layers, heads, head_dim] each, by position, in a ring: position p is in record
/// p % records, where the one of p - records was, or as far from there as tokens were erased. The same serves as a
/// plain table, by place in a step or by sequence.
class query_memory {
 public:
  query_memory() = default;
  query_memory(const shape& model, index_t parts, index_t records)
      : shape_(model), parts_(parts), records_(records), memory_(elements(model, parts) * records) {}

  static std::int64_t elements(const shape& model, index_t parts) {
    return std::int64_t{parts} * model.layers * model.heads * model.head_dim;
  }
  static byte_count bytes(const shape& model, index_t parts, index_t records) {
    return bounded_product({elements(model, parts), records, sizeof(float)});
  }

  /// Part `part` of one layer in the record of `position`.  [heads, head_dim]
  /// @pre  part < parts, and records > 0; the memory is not initialised
  view<float, 2> at(index_t position, index_t part, index_t layer) {
    const std::int64_t layer_elements = std::int64_t{shape_.heads} * shape_.head_dim;
    float* record = memory_.data() + place(position);
    return {record + (part * shape_.layers + layer) * layer_elements, {shape_.heads, shape_.head_dim}};
  }

  /// Copies one whole record, of position `from` in another memory with the same model and parts, to position `to`
  /// here.
  void copy_from(const query_memory& other, index_t from, index_t to) {
    if (parts_ == 0) return;
    std::copy_n(other.memory_.data() + other.place(from), elements(shape_, parts_), memory_.data() + place(to));
  }
  /// The same for the positions [first, last), each to its own; of more than there are records for the last ones.
  void copy_from(const query_memory& other, token_range positions) {
    const index_t first = (std::max)({positions.first, positions.last - records_, 0});
    for (index_t position = first; position < positions.last; ++position) copy_from(other, position, position);
  }
  /// Positions after `erased` count so many less from now on, and their records are those of the new positions.
  /// @param known  positions that have records
  /// @cost  copies records before the erased ones, `records` at most; of those after none
  void erase(token_range erased, token_range known) {
    const index_t shift = erased.size() % records_;
    if (parts_ == 0 || shift == 0) return;
    const index_t first = (std::max)({known.first, known.last - records_, 0});
    for (index_t position = erased.first - 1; position >= first; --position) {
      std::copy_n(memory_.data() + place(position), elements(shape_, parts_), memory_.data() + place(position + shift));
    }
    turned_ = (turned_ + shift) % records_;
  }

 private:
  // Where the record of a position begins.
  std::int64_t place(index_t position) const {
    return (std::int64_t{position} + turned_) % records_ * elements(shape_, parts_);
  }

  shape shape_;
  index_t parts_ = 0;
  index_t records_ = 1;
  index_t turned_ = 0;  // records that the ring was turned by, since tokens were erased
  buffer<float> memory_;
};

}  // namespace zoomr::inline v0::detail
