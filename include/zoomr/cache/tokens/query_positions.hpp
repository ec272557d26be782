// SPDX-License-Identifier: Apache-2.0
// L6. Whose queries score the segments of one choice.
#pragma once

#include <zoomr/core/token_range.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr::inline v0::detail {

/// A query that scores: that of the token at a position, or, turned, one of a question that scores from elsewhere.
struct scoring_query {
  index_t position = 0;
  bool turned = false;
};

/// Positions of tokens: those of a question, and the last ones behind it, the token that chooses among them.
struct query_positions {
  token_range question;
  token_range last;
  bool turned = false;  // the question is farther back: it scores from the end of the last prompt

  /// Of the choice that the token at `position` makes.
  /// @param last_ones  that always score
  /// @param most       the question's first token must be one of so many last ones
  /// @param named      the tokens of the question; none: it has no name
  /// @param known_from the first position whose query is remembered
  /// @param turned     tokens of a question farther back that score, its last ones; 0: none does
  static constexpr query_positions at(index_t position, index_t last_ones, index_t most, token_range named,
                                      index_t known_from, index_t turned = 0) {
    const index_t end = position + 1, first = (std::max)({end - (std::min)(last_ones, most), known_from, 0});
    if (named.size() == 0) return {{}, {first, end}};
    if (named.first < end - most) {
      const token_range farther{(std::max)(named.first, named.last - turned), (std::min)(named.last, first)};
      if (farther.size() <= 0 || turned == 0) return {{}, {first, end}};
      return {farther, {first, end}, true};
    }
    const index_t named_end = (std::min)(named.last, first);
    return {{(std::min)((std::max)(named.first, known_from), named_end), named_end}, {first, end}};
  }

  ZOOMR_HD constexpr index_t size() const { return question.size() + last.size(); }
  /// @param i  in [0, size()); 0: the token that chooses
  ZOOMR_HD constexpr index_t from_newest(index_t i) const {
    return i < last.size() ? last.last - 1 - i : question.last - 1 - (i - last.size());
  }
  /// Calls visit(query), ascending.
  template <class Visit>
  void each(Visit visit) const {
    for (index_t position = question.first; position < question.last; ++position) visit({position, turned});
    for (index_t position = last.first; position < last.last; ++position) visit({position, false});
  }
};

}  // namespace zoomr::inline v0::detail
