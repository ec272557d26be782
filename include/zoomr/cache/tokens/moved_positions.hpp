// SPDX-License-Identifier: Apache-2.0
// L6. Where edits, and engines with positions of their own, have moved the model positions of a sequence.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/policy/position_map.hpp>

#include <string>  // std::to_string
#include <vector>  // std::erase_if

namespace zoomr::inline v0::detail {

/// The largest model position of a committed token: behind it there is room for the next ones.
inline constexpr index_t most_model_position = (index_t{1} << 30) - 1;

/// The spans of a `position_map`, with room for one at each token. Without any nothing was moved.
class moved_positions {
 public:
  /// Spans that a sequence may come to have; while one is edited there are two more.
  static constexpr index_t most(index_t most_tokens) { return most_tokens + 2; }

  explicit moved_positions(index_t most_tokens) { spans_.reserve(most(most_tokens)); }

  position_map map() const { return {view<const position_span>(spans_)}; }
  bool plain() const { return spans_.empty(); }
  index_t spans() const { return spans_.size(); }
  void clear() { spans_.clear(); }
  friend bool operator==(const moved_positions&, const moved_positions&) = default;

  /// Only the first `tokens` tokens are left; the next one comes after them.
  void cut(index_t tokens) {
    while (!spans_.empty() && spans_.back().first >= tokens) spans_.pop_back();
  }
  /// The next token, at `position`, has this model position.
  void add(index_t position, index_t model_position) {
    if (map().at(position) != model_position) spans_.push_back({position, model_position - position});
  }
  /// Tokens of a range have model positions that are `distance` further; with the last token the next ones, too.
  /// @param tokens  how many there are
  void shift(token_range moved, index_t distance, index_t tokens) {
    split(moved.first);
    if (moved.last < tokens) split(moved.last);
    for (position_span& span : spans_) {
      if (span.first >= moved.first && (span.first < moved.last || moved.last == tokens)) span.offset += distance;
    }
    join();
  }
  /// Some tokens are gone, and those after them are `distance` less far than they were.
  void erase(token_range erased, index_t distance) {
    split(erased.last);
    std::erase_if(spans_,
                  [&](const position_span& span) { return span.first >= erased.first && span.first < erased.last; });
    for (position_span& span : spans_) {
      if (span.first < erased.last) continue;
      span.first -= erased.size();
      span.offset += erased.size() - distance;
    }
    join();
  }

 private:
  // A span begins here.
  void split(index_t position) {
    const index_t offset = map().offset_at(position);
    auto at = spans_.begin();
    while (at != spans_.end() && at->first < position) ++at;
    if (at == spans_.end() || at->first > position) spans_.insert(at, {position, offset});
  }
  // Removes spans with the offset of the span before.
  void join() {
    index_t left = 0;
    for (const position_span& span : spans_) {
      if (span.offset != (left == 0 ? 0 : spans_[left - 1].offset)) spans_[left++] = span;
    }
    spans_.resize(left);
  }

  table<position_span> spans_;
};

/// Checks that model positions do not descend if those of a range become `distance` further.
/// @throws precondition_error if they would
inline void expect_shiftable(const position_map& positions, index_t tokens, token_range moved, index_t distance) {
  ZOOMR_EXPECTS(moved.first >= 0 && moved.first <= moved.last && moved.last <= tokens,
                "shift: the span must lie in 0 ... tokens(seq)");
  if (moved.size() == 0) return;
  const auto end = [&](index_t position) { return std::int64_t{positions.at(position)} + distance; };
  const std::int64_t first = end(moved.first), last = end(moved.last - 1);
  const index_t before = moved.first > 0 ? positions.at(moved.first - 1) : 0;
  const index_t behind = moved.last < tokens ? positions.at(moved.last) : most_model_position;
  ZOOMR_EXPECTS(first >= before && last <= behind, "shift: the span would have the model positions " +
                                                       std::to_string(first) + " to " + std::to_string(last) +
                                                       ", between its neighbours are " + std::to_string(before) +
                                                       " to " + std::to_string(behind));
}

}  // namespace zoomr::inline v0::detail
