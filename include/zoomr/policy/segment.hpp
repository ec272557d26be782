// SPDX-License-Identifier: Apache-2.0
// L3. What the roles exchange about positions: segments, levels, token ranges, zones' bounds, one row of a selection.
#pragma once

#include <zoomr/core/token_range.hpp>
#include <zoomr/core/view.hpp>

namespace zoomr::inline v0 {

/// A closed piece of the token stream. All bounds are positions, first inclusive, last exclusive.
///
/// Details are [begin, split), the summary with its markers is [split, end), and the cue is the tokens whose
/// keys stand for the segment (without markers). A sentence has split = end and itself as its cue.
struct segment {
  index_t begin = 0;
  index_t split = 0;
  index_t end = 0;
  index_t cue_begin = 0;
  index_t cue_end = 0;
  index_t closed_at = 0;  // position of the token that closed it: end - 1, or later

  friend constexpr bool operator==(const segment&, const segment&) = default;
};

/// The segments that one token closes: at most three (one that waited for its summary, the one that the
/// token ends, and one that the end of the prompt cuts off).
struct closings {
  index_t count = 0;
  segment at[3] = {};

  ZOOMR_HD constexpr void add(const segment& closed) {
    ZOOMR_ASSERT(count < 3, "a token closes at most three segments");
    at[count++] = closed;
  }
};

/// What is attended of a segment: nothing; its summary tokens, if it has any; or its details, with the summary tokens
/// beside them unless `zones::own_summary` is off.
enum class level : std::uint8_t { dropped, summary, details };

/// Who shares one selection: all layers, one layer, one KV head, or one query head. From the first to the last there
/// are 1, layers, layers * kv_heads or layers * heads rows.
enum class scope : std::uint8_t { sequence, layer, kv_head, head };

/// One row of a selection: the level of each segment that existed when it was made, and one optional cut.
/// Segments closed later have their summary attended. It is a view: the levels belong to a selection of the cache.
/// A row of everything has all details at its levels, and attends later segments too.
struct selection_row {
  static constexpr index_t of_everything = -2;  // in the place of a cut

  view<level> levels;        // [segments at the time of choice]
  index_t cut_segment = -1;  // of this segment only the first `cut_tokens` of its details are attended
  index_t cut_tokens = 0;

  /// The level of any segment, those closed since the choice included.
  ZOOMR_HD constexpr level level_at(index_t id) const { return id < levels.size() ? levels[id] : level::summary; }

  /// All tokens are attended.
  ZOOMR_HD constexpr bool everything() const { return cut_segment == of_everything; }

  /// A selector takes the whole segment.
  ZOOMR_HD constexpr void take(index_t id) { levels[id] = level::details; }

  /// A selector takes the first `tokens` tokens of the segment's details that are between the zones: of one segment
  /// only, since a row has one cut.
  ZOOMR_HD constexpr void take_part(index_t id, index_t tokens) {
    take(id);
    cut_segment = id;
    cut_tokens = tokens;
  }
};

/// What a refresh rule sees of a token: counts and classes, never scores.
struct token_event {
  token_class classes = token_class::plain;
  index_t position = 0;      // of this token
  index_t open_tokens = 0;   // tokens of the open segment, this one included
  index_t since_choice = 0;  // tokens since the last choice, this one included
};

/// What a refresh rule returns for one token: the active selection stays, or there is none and only zones and summaries
/// are attended; a choice is made; everything kept is attended, without a choice.
enum class refresh_action : std::uint8_t { keep, choose, everything };

}  // namespace zoomr::inline v0
