// SPDX-License-Identifier: Apache-2.0
// L6. Which tokens eviction passes over, beside sinks and a KV lane's last ones: those of pinned spans, and of the
// question until there is another one.
#pragma once

#include <zoomr/cache/planning/plan.hpp>
#include <zoomr/cache/tokens/token_state.hpp>

#include <algorithm>  // std::any_of

namespace zoomr::inline v0::detail {

/// The pinned tokens of one sequence whose prompts have ended, by position. Valid until its tokens change.
class pinned_tokens {
 public:
  pinned_tokens() = default;
  /// @param planned  tokens with which the first prompt ends; none: those that are committed are all
  /// @cost  O(tokens); without messages and spans O(tokens that are planned)
  explicit pinned_tokens(const token_state& state, view<const planned_token> planned = {})
      : committed_(state.classes), planned_(planned), any_(state.marked) {
    const auto marks = [](const planned_token& token) {
      return has(token.classes, token_class::message | span_classes);
    };
    any_ = any_ || std::any_of(planned.begin(), planned.end(), marks);
    if (any_ && state.pins.most_question > 0) {
      const index_t first_end = planned.size() > 0 ? state.tokens() + planned.size() : state.prompt_end;
      question_ = find_question(*this, {0, first_end}, state.ended_later_prompts(), state.pins.most_question).tokens;
    }
  }

  /// False: there are none.
  bool any() const { return any_; }
  bool has_position(index_t position) const {
    const bool in_question = question_.first <= position && position < question_.last;
    return in_question || has((*this)[position], token_class::pinned);
  }
  /// The class of a token.
  token_class operator[](index_t position) const {
    const index_t count = committed_.size();
    return position < count ? committed_[position] : planned_[position - count].classes;
  }

 private:
  view<const token_class> committed_;       // [tokens]
  view<const planned_token> planned_ = {};  // those after them
  token_range question_;
  bool any_ = false;
};

}  // namespace zoomr::inline v0::detail
