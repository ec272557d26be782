// SPDX-License-Identifier: Apache-2.0
// L2. The order of selection: highest score first, ties to the lower id, NaN last. Floats are mapped to
// integers that sort the same way, so that scores, votes and mass share one order and one comparison.
#pragma once

#include <zoomr/core/types.hpp>
#include <zoomr/core/view.hpp>

#include <algorithm>  // std::make_heap, std::pop_heap

namespace zoomr::inline v0 {

/// The votes of a segment that cannot be chosen (nothing of it is left to attend).
inline constexpr votes_t not_eligible = (std::numeric_limits<votes_t>::min)();

/// An integer that orders as the float does: -inf < ... < -0 = +0 < ... < +inf, and NaN below -inf.
ZOOMR_HD inline votes_t order_key(float score) {
  constexpr votes_t lowest = -2147483648;  // the least 32-bit integer
  if (is_nan(score)) return lowest;
  const auto bits = bits_as<std::int32_t>(score);
  return bits >= 0 ? bits : lowest - bits;  // -0 is `lowest`, and becomes 0
}

/// Where a walk over segments, best first, ends: at the first limit that is reached.
struct take_limits {
  index_t segments = unlimited;  // so many are taken
  index_t room = unlimited;      // their tokens together
  bool cut = true;               // the first that does not fit gives its first tokens, or nothing
  float share = 0.0f;            // so much of all votes is covered, by at least one segment; 0: no such limit

  friend constexpr bool operator==(const take_limits&, const take_limits&) = default;

  /// The votes that must be covered.
  /// @param total  the sum of all votes
  ZOOMR_HD constexpr votes_t wanted(votes_t total) const {
    return static_cast<votes_t>(static_cast<double>(share) * static_cast<double>(total));
  }
};

/// The float that `order_key` made `key` of; of NaN's key, NaN.
ZOOMR_HD inline float unsorted(votes_t key) {
  constexpr votes_t lowest = -2147483648;
  if (key == lowest) return not_a_number;
  return bits_as<float>(static_cast<std::int32_t>(key >= 0 ? key : lowest - key));
}

/// Gives ids one after the other, best first: highest key, then lowest id. What is not eligible never comes.
///
/// Code that is compiled for several processors calls it, and so compiles its heap once.
/// @tparam Key  key(id) is a number of votes; it must not change while this is in use
/// @cost  O(segments) to begin, O(log segments) for each `next`; the working memory is the caller's
template <class Key>
class ranking {
 public:
  /// @param ids  [segments]  working memory
  [[gnu::noinline]] ranking(index_t segments, Key key, view<index_t> ids) : key_(key), ids_(ids.data()) {
    ZOOMR_ASSERT(ids.size() >= segments, "a ranking needs working memory for each segment");
    for (index_t id = 0; id < segments; ++id) {
      if (key_(id) != not_eligible) ids_[left_++] = id;
    }
    std::make_heap(ids_, ids_ + left_, order());
  }

  /// The next id, or -1 when there is none.
  [[gnu::noinline]] index_t next() {
    if (left_ == 0) return -1;
    std::pop_heap(ids_, ids_ + left_, order());
    return ids_[--left_];
  }
  /// The id that `next` gave so many ids ago; 0: the last one.
  /// @pre  it has given more than `ago`
  index_t walked(index_t ago) const { return ids_[left_ + ago]; }

  votes_t votes(index_t id) const { return key_(id); }

 private:
  auto order() const {  // "a comes after b": the heap's top is the best
    return [this](index_t a, index_t b) {
      const votes_t key_a = key_(a);
      const votes_t key_b = key_(b);
      return key_a != key_b ? key_a < key_b : a > b;
    };
  }

  Key key_;
  index_t* ids_;
  index_t left_ = 0;
};

/// Ranks by votes [segments].
struct by_votes {
  view<const votes_t> votes;
  votes_t operator()(index_t id) const { return votes[id]; }
};

/// What a selector receives.
using best_first = ranking<by_votes>;

}  // namespace zoomr::inline v0
