// SPDX-License-Identifier: Apache-2.0
// How good weights of heads are: what they find, how well their posterior says so, and the bound beyond which a choice
// is unsure.
#pragma once

#include <vector>  // std::vector

#include "learn.hpp"

namespace decode::retrieval {

/// The choice of one moment.
struct judged_choice {
  double weight = 1;
  double needed = 0;       // segments; 0: none that can be chosen
  double first = 0;        // 1: the likeliest segment is needed
  double in_set = 0;       // of what is needed, what is in the smallest set with nine tenths of the posterior of the
                           // segments, of at most four
  double taken = 0;        // segments of that set
  double bits = 0;         // by which the posterior is off: Kullback-Leibler, from an even one over what is needed;
                           // none counts in part
  double entropy = 0;      // bits, none of these among the classes
  bool none_wins = false;  // it is likelier than each segment

  /// Nothing of what is needed is in the set. What a part of it brings is another matter (`top_p.neighbours`), of which
  /// a posterior says nothing.
  bool missed() const { return needed > 0 && in_set == 0; }
  /// What a gate compares: where none wins no bound is too high.
  double unsureness() const { return none_wins ? std::numeric_limits<double>::infinity() : entropy; }
  bool gated(double bound) const { return none_wins || entropy > bound; }
};

std::vector<judged_choice> judge(const std::vector<const example*>& examples, const voter_weights& weights);

/// Means over choices, by their weights.
struct found {
  double examples = 0;  // sum of the weights of choices that need something
  double nothing = 0;   // of those that do not
  double first = 0, in_set = 0, taken = 0;
  double bits = 0;    // over all choices, as all that follows
  double gated = 0;   // by a bound
  double caught = 0;  // of those that miss what they need, the share that it gates; NaN if none does
};
found summary(const std::vector<judged_choice>& choices, double bound);

/// How likely a choice that misses is less sure than one that does not, of those that need something; half of what is
/// as sure counts. NaN if there are not both.
/// @cost  O(choices * log choices)
double area_of_unsureness(std::vector<judged_choice> choices);

/// The smallest bound in hundredths of a bit that gates at most a share of the choices that find what they need, or
/// some of it. Infinity if none of these wins in more of them.
double bound_by_needless(const std::vector<judged_choice>& choices, double share);

/// How often there is a head whose largest share is what is needed, if an oracle names the head at each moment.
struct best_heads {
  double of_all = 0;     // heads
  double of_voters = 0;  // those with a weight
  double by_chance = 0;  // of all heads: one whose largest share is some other segment, mean over these
};
/// @pre  something is needed in one of the examples at least
best_heads judge_heads(const std::vector<const example*>& examples, const voter_weights& weights);

}  // namespace decode::retrieval
