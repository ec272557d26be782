// SPDX-License-Identifier: Apache-2.0
// L2. A softmax over a few numbers, for estimates of how a head would share out its attention.
#pragma once

#include <zoomr/math/functions.hpp>

namespace zoomr::inline v0 {

/// A weight in [0, 1] in units of 2^-40: such integers add up to the same in any order.
ZOOMR_HD inline votes_t units_of(float weight) { return static_cast<votes_t>(weight * 1099511627776.0f + 0.5f); }
/// What so many units are.
ZOOMR_HD inline float sum_of_units(votes_t units) { return static_cast<float>(units) * (1.0f / 1099511627776.0f); }

/// What a share of so many units adds to an entropy, in units of 2^-40 bits: -p log2 p, which is 0 for none and all.
ZOOMR_HD inline votes_t entropy_units(votes_t share) {
  if (share <= 0) return 0;
  const float p = sum_of_units(share);
  return units_of(p * -1.44269504f * logarithm(p));
}

/// A logit, or the mark of a number that takes no part. NaN takes none.
struct softmax_logit {
  constexpr softmax_logit() = default;  // takes no part
  ZOOMR_HD constexpr softmax_logit(float logit) : value(logit), takes_part(!is_nan(logit)) {}

  float value = 0.0f;
  bool takes_part = false;
};

/// exp(logit(i)) / sum of exp(logit(j)) for i in [0, n). What takes no part has a share of 0.
///
/// Weights are added in units of 2^-40 of the largest, as integers: in whatever order, or by however many threads, the
/// sum has the same bits.
/// @tparam Logit  logit(i) is a float, natural, or a softmax_logit; it must not change while this is in use
/// @pre    n <= 2^22, so that the units of all stay below 2^63
/// @cost   two passes to begin; an exponential for each number in the second, and for each share that is read
template <class Logit>
class softmax {
 public:
  ZOOMR_CALLS_EITHER
  ZOOMR_HD softmax(index_t n, Logit logit) : logit_(logit) {
    for (index_t i = 0; i < n; ++i) {
      const softmax_logit x = logit_(i);
      if (x.takes_part && x.value > largest_) largest_ = x.value;
    }
    votes_t weights = 0;
    for (index_t i = 0; i < n; ++i) weights += units(i);
    sum_up(weights);
  }

  /// For those who find the largest logit, and the sum of all `units`, in their own way; until `sum_up`, only `units`
  /// may be called.
  ZOOMR_HD softmax(float largest, Logit logit) : logit_(logit), largest_(largest) {}
  ZOOMR_HD void sum_up(votes_t units_of_all) { sum_ = sum_of_units(units_of_all); }
  /// One whose `largest()` and `sum()` are known.
  ZOOMR_HD softmax(float largest, float sum, Logit logit) : logit_(logit), largest_(largest), sum_(sum) {}

  /// A weight in units of 2^-40 of the largest.
  ZOOMR_CALLS_EITHER
  ZOOMR_HD votes_t units(index_t i) const { return units_of(weight(i)); }

  /// Of the logits that take part; -infinity if none does.
  ZOOMR_HD float largest() const { return largest_; }
  /// The sum of all weights; 0 if no number takes part. The largest weighs 1.
  ZOOMR_HD float sum() const { return sum_; }
  /// ln(sum of exp(logit)): the largest if that is infinite, or if no number takes part.
  ZOOMR_HD float log_sum() const {
    return largest_ > -infinity && largest_ < infinity ? largest_ + logarithm(sum_) : largest_;
  }

  /// @pre sum() > 0
  ZOOMR_CALLS_EITHER
  ZOOMR_HD float share(index_t i) const { return quotient(weight(i), sum_); }

 private:
  ZOOMR_CALLS_EITHER
  ZOOMR_HD float weight(index_t i) const {
    const softmax_logit x = logit_(i);
    if (!x.takes_part) return 0.0f;
    return x.value == largest_ ? 1.0f : exponential(x.value - largest_);
  }

  Logit logit_;
  float largest_ = -infinity;
  float sum_ = 0.0f;
};

/// The workers of one thread of the host: a loop over items t, t + size, ... visits all of them. On a device the
/// threads of a block are the workers (`block_threads`), so that one body serves both.
struct single_worker {
  ZOOMR_HD static constexpr index_t thread() { return 0; }
  ZOOMR_HD static constexpr index_t size() { return 1; }
};

/// The softmaxes of several rows of n numbers: visit(row, i, the row's softmax) for each i of each row that has a sum.
/// All that is visited of one i is visited by the worker that looks after it, so that rows may be added up.
/// By a block: math/softmax.cuh.
/// @param logit  logit(row, i)  as of `softmax`
template <class Logit, class Visit>
ZOOMR_HD void each_softmax(single_worker&, index_t rows, index_t n, Logit logit, Visit visit) {
  for (index_t row = 0; row < rows; ++row) {
    const auto of_row = [&](index_t i) -> softmax_logit { return logit(row, i); };
    const softmax<decltype(of_row)> shares(n, of_row);
    if (shares.sum() == 0.0f) continue;
    for (index_t i = 0; i < n; ++i) visit(row, i, shares);
  }
}

}  // namespace zoomr::inline v0
