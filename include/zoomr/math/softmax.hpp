// SPDX-License-Identifier: Apache-2.0
// L2. A softmax over a few numbers, for whoever must know how a head would share out its attention.
#pragma once

#include <zoomr/math/functions.hpp>

namespace zoomr {
inline namespace v0 {

/// exp(logit(i)) / sum of exp(logit(j)) for i in [0, n). A NaN logit takes no part: its share is 0.
///
/// @tparam Logit  logit(i) is a float, natural; it must not change while this is in use
/// @cost   two passes to begin; an exponential for each number in the second, and for each share that is asked for
template <class Logit>
class softmax {
 public:
  ZOOMR_CALLS_EITHER
  ZOOMR_HD softmax(index n, Logit logit) : logit_(logit) {
    for (index i = 0; i < n; ++i) {
      const float x = logit_(i);
      if (x > largest_) largest_ = x;
    }
    for (index i = 0; i < n; ++i) sum_ += weight(i);
  }

  /// The sum of all weights, ascending; 0 if no number takes part. The largest weighs 1.
  ZOOMR_HD float sum() const { return sum_; }

  /// @pre sum() > 0
  ZOOMR_CALLS_EITHER
  ZOOMR_HD float share(index i) const { return weight(i) / sum_; }

 private:
  ZOOMR_CALLS_EITHER
  ZOOMR_HD float weight(index i) const {
    const float x = logit_(i);
    if (x != x) return 0.0f;
    return x == largest_ ? 1.0f : exponential(x - largest_);
  }

  Logit logit_;
  float largest_ = -infinity;
  float sum_ = 0.0f;
};

}  // namespace v0
}  // namespace zoomr
