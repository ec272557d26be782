// SPDX-License-Identifier: Apache-2.0
// L6. The voters' queries at the tokens that spans name as questions, so that a question can score long after its
// tokens have left the ring of the last ones.
#pragma once

#include <zoomr/cache/tokens/query_memory.hpp>
#include <zoomr/core/table.hpp>

#include <algorithm>  // std::max

namespace zoomr::inline v0::detail {

/// Queries of named tokens, by their number among all of a sequence's, in a ring: those of a question, as many as a
/// rollback may bring back, and those of the chunk in progress. What a rollback has dropped stays until something comes
/// in its place: who reads asks for tokens that there are.
class question_queries {
 public:
  /// @param heads   as of `layout::asked_heads`
  /// @param tokens  of a question that score, at most; 0: nothing is kept
  question_queries(const shape& heads, index_t tokens, index_t rollback_depth)
      : tokens_(tokens),
        memory_(heads, 1, records(tokens, rollback_depth)),
        positions_(records(tokens, rollback_depth)) {}
  static byte_count bytes(const shape& heads, index_t tokens, index_t rollback_depth) {
    const index_t count = records(tokens, rollback_depth);
    return query_memory::bytes(heads, 1, count) + count * static_cast<byte_count>(sizeof(index_t));
  }

  /// Of a question that score, at most.
  index_t tokens() const { return tokens_; }

  /// The number of the next named token, if the sequence has so many tokens: what is kept of later ones goes.
  index_t next(index_t tokens) {
    while (count_ > oldest_ && position_of(count_ - 1) >= tokens) --count_;
    return count_;
  }
  /// Where the queries of the token with such a number go, which may be `tokens()` numbers from the next one on. They
  /// are not found before `commit`.  [voters, head_dim]
  view<float, 2> place(index_t number) {
    oldest_ = (std::max)(oldest_, number + 1 - positions_.size());
    return memory_.at(number, 0, 0);
  }
  /// The token with the next number is committed; its queries are in its place.
  void commit(index_t position) { positions_[count_++ % positions_.size()] = position; }

  /// Those of one token.  [voters, head_dim]; without memory: they are not kept
  view<float, 2> find(index_t position) {
    for (index_t number = count_; number > oldest_; --number) {
      if (position_of(number - 1) == position) return memory_.at(number - 1, 0, 0);
    }
    return {};
  }
  /// True if after a rollback to so many tokens some may be missing that were kept then.
  bool loses(index_t to) const {
    index_t left = count_;
    while (left > oldest_ && position_of(left - 1) >= to) --left;
    return to > 0 && oldest_ > 0 && left - oldest_ < tokens_;
  }

  /// For saving: those of a sequence of so many tokens.
  bool has_dropped() const { return oldest_ > 0; }
  index_t kept(index_t tokens) { return next(tokens) - oldest_; }
  index_t position(index_t i) const { return position_of(oldest_ + i); }
  view<float, 2> queries(index_t i) { return memory_.at(oldest_ + i, 0, 0); }
  /// Forgets everything, as if something had been dropped before or not.
  void forget(bool dropped = false) { oldest_ = count_ = dropped ? 1 : 0; }

  /// Tokens are gone, none of which is named; those behind them count so many less.
  void erase(token_range erased) {
    for (index_t number = oldest_; number < count_; ++number) {
      index_t& position = positions_[number % positions_.size()];
      if (position >= erased.last) position -= erased.size();
    }
  }
  /// Becomes those of another sequence.
  void become(const question_queries& other) {
    if (tokens_ == 0) return;
    oldest_ = count_ = other.oldest_;
    for (index_t number = other.oldest_; number < other.count_; ++number) {
      memory_.copy_from(other.memory_, number, number);
      commit(other.position_of(number));
    }
  }

 private:
  static index_t records(index_t tokens, index_t rollback_depth) {
    return tokens > 0 ? 2 * tokens + rollback_depth : 0;
  }
  index_t position_of(index_t number) const { return positions_[number % positions_.size()]; }

  index_t tokens_ = 0;
  query_memory memory_;
  table<index_t> positions_;  // [records]
  index_t oldest_ = 0;        // number of the first one that is there
  index_t count_ = 0;         // numbers that tokens have
};

}  // namespace zoomr::inline v0::detail
