// SPDX-License-Identifier: Apache-2.0
// L3. The walk that most selectors are: segments, best first, until a limit is reached. A selector that is one declares
// its limits, and a device can make the same choice (policy/select/choose.cuh).
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// A selector that takes segments, best first, up to some limits; `room_used` as in `selection_input`. Room that
/// is `unlimited` while nothing is used is no limit at all.
template <class T>
concept limited_selector = selector<T> && requires(const T t, index_t room_used) {
  { t.limits(room_used) } -> std::same_as<take_limits>;
};

/// Takes segments, best first, until a limit is reached or one is below `input.least`. A segment that does not fit into
/// the room ends the walk, even if a worse one would fit.
/// @param limits  with a `share`, votes must add up without overflow
/// @cost          O(log segments) for each that is taken; with a `share`, O(segments) to begin
inline void take_best(best_first& order, const take_limits& limits, const selection_input& input, selection_row& row) {
  const bool shares = limits.share > 0.0f;
  votes_t total = 0;
  for (index_t id = 0; shares && id < input.tokens.size(); ++id)
    total += order.votes(id) == not_eligible ? 0 : order.votes(id);
  const votes_t share = limits.wanted(total);
  votes_t covered = 0;
  index_t room = limits.room;
  for (index_t taken = 0; taken < limits.segments && room > 0; ++taken) {
    if (shares && taken > 0 && covered >= share) return;
    const index_t id = order.next();
    if (id < 0 || order.votes(id) < input.least) return;
    if (input.tokens[id] > room) {
      if (limits.cut) row.take_part(id, room);
      return;
    }
    row.take(id);
    room -= input.tokens[id];
    if (shares) covered += order.votes(id);
  }
}

}  // namespace zoomr::inline v0
