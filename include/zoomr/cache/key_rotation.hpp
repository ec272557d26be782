// SPDX-License-Identifier: Apache-2.0
// L6. Rotary embedding, for keys that move to other positions: an argument of `kv_cache::erase` and `shift`; and for
// queries that score from other positions than their own (config.rotary).
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/core/view.hpp>

#include <cmath>   // std::cos, std::sin
#include <string>  // std::to_string

namespace zoomr::inline v0 {

/// For `kv_cache::erase`: the tokens behind keep their model positions, so that a gap is left where the span was.
struct position_gap {};

/// Which dimensions of a key are turned together: i and i + pairs, or 2 i and 2 i + 1.
enum class rotary_pairs : std::uint8_t { halves, adjacent };

/// A model's rotary embedding: pair i of a head's dimensions is turned by the angle position * frequencies[i].
struct rotary_embedding {
  view<const float> frequencies = {};         // [pairs]  as of `key_rotation`; empty: it is not known
  rotary_pairs which = rotary_pairs::halves;  // dimensions that are turned together
  index_t first = 0;                          // the first dimension that is turned
};

/// Turns a key to a position `distance` further: pair i by the angle distance * frequencies[i]. The other dimensions
/// stay.
/// A model whose layers differ in this is served by a callable of the engine's own.
class key_rotation {
 public:
  /// @param frequencies  [pairs]  radians for each position, as base^(-2 i / rotary dimensions)
  /// @param distance     negative: to the front
  /// @param first        the first dimension that is turned: after the latent, with MLA
  key_rotation(view<const float> frequencies, index_t distance, rotary_pairs which = rotary_pairs::halves,
               index_t first = 0)
      : pairs_(frequencies.size()), first_(first), distance_(distance), which_(which) {
    ZOOMR_EXPECTS(pairs_ >= 1 && pairs_ <= most_pairs, "key_rotation: wanted 1 to " + std::to_string(most_pairs) +
                                                           " frequencies, given " + std::to_string(pairs_));
    ZOOMR_EXPECTS(first >= 0, "key_rotation: the first dimension that is turned is negative");
    for (index_t i = 0; i < pairs_; ++i) {
      const double angle = static_cast<double>(distance) * static_cast<double>(frequencies[i]);
      cos_[i] = static_cast<float>(std::cos(angle));
      sin_[i] = static_cast<float>(std::sin(angle));
    }
  }

  index_t distance() const { return distance_; }
  /// @param key  [head_dim], at least first + 2 * pairs
  void operator()(index_t, view<float> key) const {
    expect_fits(key.size());
    for (index_t i = 0; i < pairs_; ++i) {
      float& x = key[first_ + (which_ == rotary_pairs::halves ? i : 2 * i)];
      float& y = key[first_ + (which_ == rotary_pairs::halves ? i + pairs_ : 2 * i + 1)];
      const float before = x;
      x = before * cos_[i] - y * sin_[i];
      y = before * sin_[i] + y * cos_[i];
    }
  }

  /// @throws precondition_error if such a key has no dimension for some of the pairs
  void expect_fits(index_t head_dim) const {
    ZOOMR_EXPECTS(first_ <= head_dim - 2 * pairs_, "key_rotation: there are more frequencies than half of head_dim");
  }

 private:
  static constexpr index_t most_pairs = shape::most_head_dim / 2;

  index_t pairs_;
  index_t first_;
  index_t distance_;
  rotary_pairs which_;
  float cos_[std::size_t{most_pairs}];
  float sin_[std::size_t{most_pairs}];
};

}  // namespace zoomr::inline v0
