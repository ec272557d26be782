// SPDX-License-Identifier: Apache-2.0
// L4. A few keys that speak for the rest.
#pragma once

#include <zoomr/math/dot.hpp>
#include <zoomr/policy/concepts.hpp>

#include <algorithm>  // std::sort

namespace zoomr::inline v0 {

/// The mean of the `keys` most typical keys of the cue: those with the largest inner product with the mean of all,
/// which is the mean of their products with each. q . summary is the mean of the scores of those keys: it ranks as
/// their sum.
///
/// Means are of keys added in ascending order, products in the order of `dot`; ties to the earlier key, NaN last.
/// @cost    3 flops for each key and dimension, once, when the segment closes
/// @source  InfLLM, arXiv:2402.04617. Differs: typical for the keys of the segment; published for the queries after it.
struct typical_keys {
  using role = role::summarizer;
  static constexpr const char* name = "typical_keys";
  using summary = summary::mean;

  index_t keys = 4;

  /// `order` and `products` are working memory; the mean of all keys is in `out` until that of the chosen ones is.
  void make(view<const float, 2> cue_keys, view<index_t> order, view<float> products, view<float, 2> out) const {
    const index_t count = cue_keys.extent(0);
    const index_t dims = cue_keys.extent(1);
    for (index_t t = 0; t < count; ++t) order[t] = t;
    mean(cue_keys, order, out);
    for (index_t t = 0; t < count; ++t) products[t] = dot(cue_keys[t].data(), out.data(), dims);
    ranking best(
        count, [&](index_t t) { return order_key(products[t]); }, order);
    const index_t taken = keys < count ? keys : count;
    // `ranking` works in the front of `order` and frees its back: what it gives is put there
    for (index_t i = 0; i < taken; ++i) {
      const index_t t = best.next();
      order[count - 1 - i] = t;
    }
    const view<index_t> chosen = order.slice(count - taken, count);
    std::sort(chosen.begin(), chosen.end());
    mean(cue_keys, chosen, out);
  }
  constexpr const char* problem() const { return keys < 1 ? "typical_keys: keys must be at least 1" : nullptr; }
  static constexpr void each_field(auto& self, auto visit) { visit("keys", self.keys); }
  friend constexpr bool operator==(const typical_keys&, const typical_keys&) = default;

 private:
  static void mean(view<const float, 2> cue_keys, view<const index_t> tokens, view<float, 2> out) {
    for (index_t d = 0; d < cue_keys.extent(1); ++d) {
      float sum = 0.0f;
      for (const index_t t : tokens) sum += cue_keys(t, d);
      out(d, 0) = sum / static_cast<float>(tokens.size());
    }
  }
};

static_assert(summarizer<typical_keys> && block_summarizer<typical_keys>);

}  // namespace zoomr::inline v0
