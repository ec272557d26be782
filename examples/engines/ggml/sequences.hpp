// SPDX-License-Identifier: Apache-2.0
// The sequences of an engine in a cache: which positions the engine gives to their tokens, and what llama_memory_* does
// to them. zoomr counts tokens from 0 without gaps; the engine's positions, which may have gaps and may begin anywhere,
// are its model positions.
#pragma once

#include <algorithm>  // std::lower_bound
#include <cstdint>    // std::int32_t
#include <map>        // std::map
#include <stdexcept>  // std::runtime_error
#include <vector>     // std::vector

#include "cache.hpp"

namespace adaptor {

/// What the adaptor itself does not support: one sentence.
class refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One sequence. A span in between that was removed stays in the cache until it is known whether the tokens after it
/// move, so that rows are written once: positions are without it already.
struct held_sequence {
  zoomr::sequence handle;
  std::vector<std::int32_t> positions;  // [tokens], ascending
  zoomr::token_range removed;           // tokens of the cache that are not in `positions`; empty: all are
  std::int32_t removed_from = 0;        // the position of the first of them

  index_t tokens() const { return static_cast<index_t>(positions.size()); }
  index_t before(std::int32_t position) const {
    return static_cast<index_t>(std::lower_bound(positions.begin(), positions.end(), position) - positions.begin());
  }
  /// Tokens whose positions are in [p0, p1).
  zoomr::token_range tokens_in(std::int32_t p0, std::int32_t p1) const {
    const index_t first = p0 < 0 ? 0 : before(p0);
    const index_t last = p1 < 0 ? tokens() : before(p1);
    return {first, last < first ? first : last};
  }
};

/// All sequences that are held. Each call leaves them as they were where it throws.
///
/// What `remove` takes out in between is written by the next call that changes anything, whatever its sequence: so the
/// cache is still the one that has said that it can, and the writing does not fail.
class sequences {
 public:
  /// @param in, ropes  outlive this
  sequences(cache& in, const rope_table& ropes) : cache_(in), ropes_(ropes) {}

  held_sequence* find(std::int32_t id) {
    const auto at = held_.find(id);
    return at == held_.end() ? nullptr : &at->second;
  }
  const held_sequence* find(std::int32_t id) const { return const_cast<sequences*>(this)->find(id); }
  bool can_shift() const { return ropes_.known() && cache_.holds_all(); }

  /// The sequence, which is opened if it is not there.
  /// @pre  all is settled
  held_sequence& ready(std::int32_t id) {
    if (held_sequence* const there = find(id)) return *there;
    if (id < 0) throw refusal("a sequence has a negative id");
    return adopt(id, [&] { return cache_.open(); });
  }
  /// @param handle  handle()  a sequence of the cache that becomes `id`
  template <class Handle>
  held_sequence& adopt(std::int32_t id, Handle handle) {
    held_sequence& made = held_[id];
    try {
      made.handle = handle();
    } catch (...) {
      held_.erase(id);
      throw;
    }
    return made;
  }
  void close(std::int32_t id) {
    if (const held_sequence* const there = find(id)) cache_.close(there->handle), held_.erase(id);
  }
  void close_empty() {
    close_if([](std::int32_t, const held_sequence& s) { return s.positions.empty(); });
  }
  void clear() {
    close_if([](std::int32_t, const held_sequence&) { return true; });
  }
  void keep(std::int32_t id) {
    close_if([&](std::int32_t other, const held_sequence&) { return other != id; });
  }

  void remove(std::int32_t id, std::int32_t p0, std::int32_t p1) {
    settle();
    if (id < 0) return remove_everywhere(p0, p1);
    held_sequence* const s = find(id);
    const zoomr::token_range span = s == nullptr ? zoomr::token_range{} : s->tokens_in(p0, p1);
    expect_removable(s, span);
    remove(id, s, span);
  }

  void copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) {
    if (from == to) return;
    if (to < 0) throw refusal("seq_cp: a sequence has a negative id");
    settle();
    held_sequence* const original = find(from);
    const zoomr::token_range span = original == nullptr ? zoomr::token_range{} : original->tokens_in(p0, p1);
    if (span.size() > 0) {
      expect_removable(original, {0, span.first});
      expect_removable(original, {span.last, original->tokens()});
    }
    close(to);
    if (span.size() == 0) return;
    held_sequence& made = adopt(to, [&] { return cache_.fork(original->handle); });
    try {
      made.positions = original->positions;
      if (span.last < made.tokens()) cut(made, span.last);
      if (span.first > 0) {
        cache_.erase(made.handle, {0, span.first}, nullptr);
        made.positions.erase(made.positions.begin(), made.positions.begin() + span.first);
      }
    } catch (...) {
      close(to);
      throw;
    }
  }

  void add(std::int32_t id, std::int32_t p0, std::int32_t p1, std::int32_t delta) {
    settle(id);
    held_sequence* const s = find(id);
    const zoomr::token_range span = s == nullptr ? zoomr::token_range{} : s->tokens_in(p0, p1);
    if (delta == 0 || span.size() == 0) return;
    if (!ropes_.known()) throw refusal("seq_add: it is not known how keys are turned: rope.n_rot is 0");
    expect_room(*s, span, delta);
    const layer_rotation turn(ropes_, delta);
    if (closes_up(*s, span, turn)) {
      erase(*s, &turn);
    } else {
      settle();
      cache_.shift(s->handle, span, turn);
    }
    for (auto p = s->positions.begin() + span.first; p != s->positions.begin() + span.last; ++p) *p += delta;
  }

  /// Erases what was removed: a gap is left.
  /// @param except  of this sequence it is not erased yet
  void settle(std::int32_t except = -1) {
    for (auto& [id, s] : held_) {
      if (id != except && s.removed.size() > 0) erase(s, nullptr);
    }
  }

  template <class Visit>
  void each(Visit visit) const {
    for (const auto& [id, s] : held_) visit(id, s);
  }

 private:
  static void expect_room(const held_sequence& s, zoomr::token_range span, std::int32_t delta) {
    const auto at = [&](index_t t) { return std::int64_t{s.positions[static_cast<std::size_t>(t)]}; };
    const std::int64_t first = at(span.first) + delta, last = at(span.last - 1) + delta;
    const bool before = span.first > 0 ? first > at(span.first - 1) : first >= 0;
    const bool after = last < (span.last < s.tokens() ? at(span.last) : std::int64_t{1} << 30);
    if (!before || !after) throw refusal("seq_add: tokens would have the positions of others, or none");
  }
  /// What was removed is all that is between, and all behind it moves to where it began.
  bool closes_up(const held_sequence& s, zoomr::token_range span, const layer_rotation& turn) const {
    if (s.removed.size() == 0 || span.first != s.removed.first || span.last != s.tokens()) return false;
    if (s.removed_from - s.positions[static_cast<std::size_t>(span.first)] != turn.distance()) return false;
    try {
      cache_.plan_erase(s.handle, s.removed, &turn);
    } catch (const zoomr::error&) {
      return false;  // the window of a layer would move back: a gap can be left, and then seq_add says why
    }
    return true;
  }
  // Of a sequence that is held, or of none. All of it can always go.
  void expect_removable(const held_sequence* s, zoomr::token_range span) const {
    if (span.size() > 0 && span.size() < s->tokens()) cache_.plan_erase(s->handle, span, nullptr);
  }
  void remove(std::int32_t id, held_sequence* s, zoomr::token_range span) {
    if (span.size() == 0) return;
    if (span.size() == s->tokens()) return close(id);
    if (span.last == s->tokens()) return cut(*s, span.first);
    const auto first = s->positions.begin() + span.first;
    s->removed = span, s->removed_from = *first;
    s->positions.erase(first, s->positions.begin() + span.last);
    if (!ropes_.known()) settle();
  }
  void cut(held_sequence& s, index_t tokens) {
    cache_.rollback(s.handle, tokens);
    s.positions.resize(static_cast<std::size_t>(tokens));
  }
  void erase(held_sequence& s, const layer_rotation* turn) {
    cache_.erase(s.handle, s.removed, turn);
    s.removed = {};
  }
  // Of all sequences, or of none.
  void remove_everywhere(std::int32_t p0, std::int32_t p1) {
    std::vector<std::int32_t> ids;
    each([&](std::int32_t id, const held_sequence& s) {
      expect_removable(&s, s.tokens_in(p0, p1));
      ids.push_back(id);
    });
    for (const std::int32_t id : ids) {
      held_sequence* const s = find(id);
      remove(id, s, s->tokens_in(p0, p1));
      settle();
    }
  }
  template <class Wanted>
  void close_if(Wanted wanted) {
    for (auto at = held_.begin(); at != held_.end();) {
      if (!wanted(at->first, at->second)) {
        ++at;
        continue;
      }
      cache_.close(at->second.handle);
      at = held_.erase(at);
    }
  }

  cache& cache_;
  const rope_table& ropes_;
  std::map<std::int32_t, held_sequence> held_;
};

}  // namespace adaptor
