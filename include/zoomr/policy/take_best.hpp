// SPDX-License-Identifier: Apache-2.0
// L3. The walk that most selectors are: segments, best first, until a limit is reached; and a second step, which brings
// the neighbours of what was taken. A selector that is made of them declares its limits, and how far it brings
// neighbours from, and a device can make the same choice (policy/select/choose.cuh).
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// A selector that takes segments, best first, up to some limits; `room_used` as in `selection_input`. Room that
/// is `unlimited` while nothing is used is no limit at all.
template <class T>
concept limited_selector = selector<T> && requires(const T t, index_t room_used) {
  { t.limits(room_used) } -> std::same_as<take_limits>;
};

/// A selector whose walk is followed by `take_neighbours`, within the room of its limits.
template <class T>
concept brings_neighbours = limited_selector<T> && requires(const T t) {
  { t.neighbours } -> std::same_as<const index_t&>;  // eligible segments on each side; 0: none
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

/// The ids from the farthest of the `reach` eligible segments before one to the farthest of those after it.
struct neighbourhood {
  index_t first = 0;
  index_t end = 0;

  /// @cost  O(reach), and the segments between that are not eligible
  neighbourhood(const best_first& order, index_t id, index_t reach, index_t segments) : first(id), end(id + 1) {
    index_t left = reach;
    for (index_t before = id; left > 0 && before-- > 0;) {
      if (order.votes(before) == not_eligible) continue;
      first = before;
      --left;
    }
    left = reach;
    for (index_t after = id + 1; left > 0 && after < segments; ++after) {
      if (order.votes(after) == not_eligible) continue;
      end = after + 1;
      --left;
    }
  }
};

/// The second step after `take_best`: the segments that it took, best first, bring their neighbours, in reading order:
/// the `reach` eligible segments before each, and the `reach` after it. Neighbours are eligible whatever their votes
/// are, even below `input.least`. One that is taken already counts as a neighbour, and is not taken again; what was
/// brought brings none. The first that does not fit into the room gives its first tokens, and ends the step.
/// @param order  as `take_best` has left it
/// @param room   for the tokens of all that is taken, in both steps
/// @cost         O(segments), and that of a `neighbourhood` for each segment that was taken
inline void take_neighbours(const best_first& order, index_t reach, index_t room, const selection_input& input,
                            selection_row& row) {
  if (reach == 0 || row.cut_segment >= 0) return;
  const index_t segments = input.tokens.size();
  index_t taken = 0;
  for (index_t id = 0; id < segments; ++id) {
    if (row.level_at(id) != level::details) continue;
    ++taken;
    room -= input.tokens[id];
  }
  if (taken == 0) return;
  // The walk may have ended at a segment that it did not take.
  const index_t last = row.level_at(order.walked(0)) == level::details ? 0 : 1;
  for (index_t ago = last + taken; ago-- > last;) {
    const neighbourhood around(order, order.walked(ago), reach, segments);
    for (index_t id = around.first; id < around.end; ++id) {
      if (order.votes(id) == not_eligible || row.level_at(id) == level::details) continue;
      if (room <= 0) return;
      if (input.tokens[id] > room) return row.take_part(id, room);
      row.take(id);
      room -= input.tokens[id];
    }
  }
}

}  // namespace zoomr::inline v0
