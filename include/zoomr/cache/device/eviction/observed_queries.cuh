// SPDX-License-Identifier: Apache-2.0
// L6. Queries whose attention is observed, and what each one's softmax has so far while its kernels run
// (observation.cuh). Plain data: an argument of these kernels, and what they add up.
#pragma once

#include <zoomr/attention/token_list.cuh>
#include <zoomr/math/order.hpp>
#include <zoomr/policy/lane_logits.hpp>

namespace zoomr::inline v0::detail {

inline constexpr index_t observed_at_once = 32;  // queries of one launch, at most
/// The same of so wide queries: those of a head are in a block's shared memory.
template <index_t HeadDim>
inline constexpr index_t observed_together = HeadDim <= 256 ? observed_at_once : 8;

/// One query's softmax over its context, as far as it has been computed; all zero to begin with.
struct observed_sum {
  unsigned long long units = 0;  // weights, in units of 2^-40 of the largest
  unsigned largest = 0;          // logit, as a word that orders as it does; `odd` if one is NaN or infinitely large
  unsigned unused = 0;

  static constexpr unsigned odd = 0xffffffffu;

  __device__ static unsigned word_of(float logit) {
    if (is_nan(logit) || logit == infinity) return odd;
    return static_cast<unsigned>(order_key(logit) + 2147483648);
  }
  /// NaN if the shares are not numbers.
  __device__ float largest_logit() const {
    const float logit = largest == odd ? not_a_number : unsorted(static_cast<votes_t>(largest) - 2147483648);
    return logit == -infinity ? not_a_number : logit;
  }
};

/// Up to 32 queries of one layer over the tokens of one sequence.
template <class T, class Number>
struct observing_queries {
  stored_layer<T> layer;          // only its keys are read
  view<const index_t> pages;      // [pages of the sequence]
  view<const Number, 3> queries;  // [rows, heads, head_dim]  in ascending order from row `first_row` on, the row after
  index_t first_row = 0;          // the last being the first
  index_t count = 0;              // queries
  index_t context = 0;            // slots that the first one sees, its own the last; the next sees one more
  index_t group = 1;              // query heads of a KV head
  index_t known = 0;              // the first so many slots have received something before
  float scale = 1.0f, soft_cap = 0.0f;  // of the logits; 0: no cap
  const float* slopes = nullptr;        // [heads]  of a bias by distance; nullptr: none. What follows is for it alone
  index_t position = 0;                 // of the first query
  view<const index_t, 2> kept;          // [kv_heads, kept]  positions in the first slots; no columns: all are kept
  index_t compacted_end = 0;
  observed_sum* sums = nullptr;  // [heads][observed_at_once]  zero to begin with
  view<const float, 2> before;   // [heads, slots]  what they have received
  view<float, 2> received;       // [heads, slots]  out: with what these queries pay; may be `before`

  ZOOMR_HD index_t row_of(index_t query) const { return (first_row + query) % queries.extent(0); }
  ZOOMR_HD index_t held() const { return context + count - 1; }
  /// What is done to the logits of some heads of a KV head.
  ZOOMR_HD lane_logits logits_of(index_t head, index_t heads) const {
    lane_logits result{soft_cap, {}, {}};
    if (slopes == nullptr) return result;
    result.slopes = {slopes + head, {heads}};
    if (kept.extent(1) > 0) result.slots = {kept[head / group], compacted_end};
    return result;
  }
};

}  // namespace zoomr::inline v0::detail
