// SPDX-License-Identifier: Apache-2.0
// L4. The attention that a segment's keys get, exactly.
#pragma once

#include <zoomr/math/products.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// ln of the sum of exp(logit) over a segment's keys: what attention to all of them would weigh. No summary holds as
/// much, and none is kept.
///
/// Weights are added in units of 2^-40 of the largest, as integers, so that their order does not matter. NaN if a logit
/// is.
/// @cost    reads the keys of all segments that can be chosen, for each choice: an exponential and a product of
///          head_dim numbers for each key and query head
/// @source  exact attention mass as a retriever: retrieval heads, arXiv:2404.15574
struct key_mass {
  using role = role::scorer;
  static constexpr const char* name = "key_mass";
  using summary = summary::none;
  static constexpr bool reads_keys = true;

  float score(view<float> logits) const { return detail::log_sum_of_exponentials(fastest_cpu_path(), logits); }
  friend constexpr bool operator==(const key_mass&, const key_mass&) = default;
};

static_assert(scorer<key_mass>);

}  // namespace zoomr::inline v0
