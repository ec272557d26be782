// SPDX-License-Identifier: Apache-2.0
// L2. The order of selection: highest score first, ties to the lower id, NaN last. Floats are mapped to
// integers that sort the same way, so that scores, votes and mass share one order and one comparison.
#pragma once

#include <zoomr/core/types.hpp>
#include <zoomr/core/view.hpp>

#include <algorithm>  // std::make_heap, std::pop_heap

namespace zoomr {
inline namespace v0 {

/// The tally of a segment that cannot be chosen (nothing of it is left to attend).
inline constexpr tally not_eligible = std::numeric_limits<tally>::min();

/// An integer that orders as the float does: -inf < ... < -0 = +0 < ... < +inf, and NaN below -inf.
ZOOMR_HD inline tally sortable(float score) {
  constexpr tally lowest = -2147483648;  // the least 32-bit integer
  if (is_nan(score)) return lowest;
  const auto bits = bits_as<std::int32_t>(score);
  return bits >= 0 ? bits : lowest - bits;  // -0 is `lowest`, and becomes 0
}

/// Where a walk over segments, best first, ends: at the first limit that is reached.
struct take_limits {
  index segments = unlimited;  // so many are taken
  index room = unlimited;      // their tokens together
  bool cut = true;             // the first that does not fit gives its first tokens, or nothing
  float share = 0.0f;          // so much of all tallies is covered, by at least one segment; 0: no such limit

  friend constexpr bool operator==(const take_limits&, const take_limits&) = default;

  /// The tallies that must be covered.
  /// @param all  the sum of all tallies
  ZOOMR_HD constexpr tally wanted(tally all) const {
    return static_cast<tally>(static_cast<double>(share) * static_cast<double>(all));
  }
};

/// The float that `sortable` made `key` of; of NaN's key, NaN.
ZOOMR_HD inline float unsorted(tally key) {
  constexpr tally lowest = -2147483648;
  if (key == lowest) return not_a_number;
  return bits_as<float>(static_cast<std::int32_t>(key >= 0 ? key : lowest - key));
}

/// Gives ids one after the other, best first: highest key, then lowest id. What is not eligible never comes.
///
/// @tparam Key  key(id) is a tally; it must not change while this is in use
/// @cost  O(segments) to begin, O(log segments) for each `next`; the working memory is the caller's
template <class Key>
class ranking {
 public:
  /// @param ids  [segments]  working memory
  ranking(index segments, Key key, view<index> ids) : key_(key), ids_(ids.data()) {
    ZOOMR_ASSERT(ids.size() >= segments, "a ranking needs working memory for each segment");
    for (index id = 0; id < segments; ++id) {
      if (key_(id) != not_eligible) ids_[left_++] = id;
    }
    std::make_heap(ids_, ids_ + left_, order());
  }

  /// The next id, or -1 when there is none.
  index next() {
    if (left_ == 0) return -1;
    std::pop_heap(ids_, ids_ + left_, order());
    return ids_[--left_];
  }

  tally of(index id) const { return key_(id); }

 private:
  auto order() const {  // "a comes after b": the heap's top is the best
    return [this](index a, index b) {
      const tally key_a = key_(a);
      const tally key_b = key_(b);
      return key_a != key_b ? key_a < key_b : a > b;
    };
  }

  Key key_;
  index* ids_;
  index left_ = 0;
};

/// Ranks by tallies [segments].
struct by_tally {
  view<const tally> tallies;
  tally operator()(index id) const { return tallies[id]; }
};

/// What a selector is given.
using best_first = ranking<by_tally>;

}  // namespace v0
}  // namespace zoomr
