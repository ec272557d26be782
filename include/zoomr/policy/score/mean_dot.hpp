// SPDX-License-Identifier: Apache-2.0
// L4. Query times mean key.
#pragma once

#include <zoomr/math/functions.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// q . mean key: the mean of the logits, times sqrt(head_dim).
/// @cost  1 fma for each dimension
struct mean_dot {
  using role = role::scorer;
  static constexpr const char* name = "mean_dot";
  using summary = summary::mean;
  static constexpr bool product = true;

  ZOOMR_HD float term(float acc, float query, const cells<1>& mean) const { return fused(query, mean.row[0], acc); }
  ZOOMR_HD float weight(float query, index_t) const { return query; }
  friend constexpr bool operator==(const mean_dot&, const mean_dot&) = default;
};

static_assert(scorer<mean_dot> && linear_scorer<mean_dot>);

}  // namespace zoomr::inline v0
