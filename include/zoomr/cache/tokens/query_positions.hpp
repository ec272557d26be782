// SPDX-License-Identifier: Apache-2.0
// L6. Whose queries score the segments of one choice.
#pragma once

#include <zoomr/core/token_range.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr::inline v0::detail {

/// Positions of tokens: those of a question, and the last ones behind it, the token that chooses among them.
struct query_positions {
  token_range question;
  token_range last;

  /// Of the choice that the token at `position` makes.
  /// @param last_ones  that always score
  /// @param most       the question's first token must be one of so many last ones
  /// @param named      the tokens of the question; none: it has no name
  /// @param known_from the first position whose query is remembered
  static constexpr query_positions at(index_t position, index_t last_ones, index_t most, token_range named,
                                      index_t known_from) {
    const index_t end = position + 1, first = (std::max)({end - (std::min)(last_ones, most), known_from, 0});
    if (named.size() == 0 || named.first < end - most) return {{}, {first, end}};
    const index_t named_end = (std::min)(named.last, first);
    return {{(std::min)((std::max)(named.first, known_from), named_end), named_end}, {first, end}};
  }

  ZOOMR_HD constexpr index_t size() const { return question.size() + last.size(); }
  /// @param i  in [0, size()); 0: the token that chooses
  ZOOMR_HD constexpr index_t from_newest(index_t i) const {
    return i < last.size() ? last.last - 1 - i : question.last - 1 - (i - last.size());
  }
  /// Calls visit(position), ascending.
  template <class Visit>
  void each(Visit visit) const {
    for (index_t position = question.first; position < question.last; ++position) visit(position);
    for (index_t position = last.first; position < last.last; ++position) visit(position);
  }
};

}  // namespace zoomr::inline v0::detail
