// SPDX-License-Identifier: Apache-2.0
// L4. What a block is given to make tallies of: the device's form of `consensus::add`. Each rule's device twin is an
// overload of `agree`, which all threads of a block call; thread t alone looks after the segments t, t + threads, ...
#pragma once

#include <zoomr/concepts.hpp>
#include <zoomr/core/block.cuh>
#include <zoomr/math/order.hpp>

namespace zoomr {
inline namespace v0 {

/// Scores of some heads, and the tallies that they add to.
struct agreeing {
  view<const float, 2> scores;  // [heads, segments]
  view<const index> tokens;     // [segments]  attendable details
  index head_dim = 0;
  view<tally> tallies;  // [segments]  not_eligible: left alone
};

}  // namespace v0
}  // namespace zoomr
