// SPDX-License-Identifier: Apache-2.0
// Weights of heads by multinomial logistic regression: of several segments some are needed, and each head has a share
// of each. Beside the segments there is a class "none of these".
//
//   logit of a segment = sum over heads of w * ln share, w >= 0        logit of none = b - slope * ln segments
//   log likelihood = sum over examples of weight * ln (p(what is needed) + part * p(none)) / sum of the weights
//                    - penalty * sum of w
//
// Where something is needed that no head looks at, none is the better answer than any segment: what reads everything
// then loses nothing but time. So it counts in part. Shares of what no head looks at fall with the number of segments,
// and so does its logit.
#pragma once

#include <zoomr/core/types.hpp>

#include <cmath>     // std::log
#include <cstddef>   // std::size_t
#include <cstdint>   // std::uint8_t
#include <limits>    // std::numeric_limits
#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

namespace decode::retrieval {

using zoomr::index_t;

/// What the heads have made of one moment of a problem.
struct example {
  std::string group;                // task and tokens, for the table
  index_t number = 0;               // of the problem
  double weight = 1;                // of all examples of one problem together 1
  std::vector<std::size_t> needed;  // segments, ascending; empty: nothing that can be chosen is needed
  std::size_t segments = 0;         // that could be chosen; at least 1
  std::vector<float> log_share;     // [heads, segments]  at least -87
};

/// What ln p is where several segments are needed at once.
enum class objective : std::uint8_t {
  any,  // of the sum of their probabilities: one of them will do
  each  // the mean of theirs: all are needed
};

/// What none counts where something is needed.
inline constexpr double part_of_none = 0.1;

/// The logit of a class that is not there.
inline constexpr double no_class = -std::numeric_limits<double>::infinity();

struct learning {
  double penalty = 0.02;  // the larger, the fewer heads
  double rate = 0.05;
  int rounds = 1500;
  objective goal = objective::each;
  std::size_t left_out = 0;  // so many first heads get no weight
};

/// The logit of none, by the number of segments.
struct none_logit {
  double one = no_class;  // among one
  double slope = 0;       // what ln of their number takes off

  double among(std::size_t segments) const { return one - slope * std::log(static_cast<double>(segments)); }
};

/// What is learnt.
struct voter_weights {
  std::vector<float> heads;  // [heads]
  none_logit none;
};

/// The log likelihood without its penalty, and its derivatives.
struct slopes {
  double value = 0;
  std::vector<double> heads;  // [heads]
  double none = 0;            // by its logit among one segment
  double none_slope = 0;      // by its slope
};

/// Log likelihoods of one set of examples.
class likelihood {
 public:
  /// @param examples  all with the same number of heads; must outlive this
  /// @pre   one at least, with a weight
  likelihood(const std::vector<const example*>& examples, std::size_t heads);

  /// @param part  what none counts where something is needed
  /// @cost  heads * segments of all examples
  slopes at(const std::vector<double>& weights, none_logit none, objective goal, double part = part_of_none);
  /// With this slope, a logit of none at which the likelihood is largest, in one place at least. Without examples in
  /// which nothing is needed there is no such class.
  /// @throws std::invalid_argument  nothing is needed in any of them
  none_logit best_none(const std::vector<double>& weights, objective goal, double part = part_of_none,
                       double slope = 0);
  /// The same with the best slope, from 0 to 8. It is 0 unless the examples in which nothing is needed have numbers of
  /// segments of which the largest is at least twice the smallest: nothing can be learnt of it from one length.
  none_logit best_none_by_length(const std::vector<double>& weights, objective goal, double part = part_of_none);

 private:
  void pass(const std::vector<double>& weights);
  double slope_of_none(std::size_t of_example, double none, objective goal, double part) const;
  none_logit best_none_of_pass(objective goal, double part, double slope) const;
  template <class Visit>
  void each_target(std::size_t of_example, double none, objective goal, double part, Visit visit) const;

  const std::vector<const example*>& examples_;
  double weight_ = 0;                        // of all examples
  double weight_of_none_ = 0;                // of those in which nothing is needed
  std::vector<std::vector<float>> by_head_;  // [examples][segments, heads]  log shares
  std::vector<std::vector<double>> logits_;  // [examples][segments]
  std::vector<double> log_sums_;             // [examples]  of the segments alone
};

/// The probabilities of segments, and at the end that of none.
std::vector<double> posterior(const example& from, const voter_weights& weights);

/// @param examples  all with the same number of heads, one at least in which something is needed
/// @return  weights below 1e-3 are 0
///
/// In the first third of the rounds none does not count where something is needed: weights that have found nothing yet
/// would leave everything to it.
/// @cost    rounds * heads * segments of all examples
voter_weights learn(const std::vector<const example*>& examples, std::size_t heads, const learning& how = {});

}  // namespace decode::retrieval
