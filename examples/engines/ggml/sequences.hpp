// SPDX-License-Identifier: Apache-2.0
// The sequences of an engine in a cache: which positions the engine gives to their tokens, and what llama_memory_* does
// to them. zoomr counts tokens from 0 without gaps; the engine's positions, which may have gaps and may begin anywhere,
// are its model positions.
#pragma once

#include <algorithm>  // std::lower_bound
#include <cstdint>    // std::int32_t
#include <exception>  // std::exception_ptr
#include <map>        // std::map
#include <stdexcept>  // std::runtime_error
#include <utility>    // std::exchange, std::move
#include <vector>     // std::vector

#include "cache.hpp"

namespace adaptor {

/// What the adaptor itself does not support: one sentence.
class refusal : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// How keys are turned when positions move.
struct rope {
  std::vector<float> frequencies;  // [pairs]; empty: it is not known
  zoomr::rotary_pairs pairs = zoomr::rotary_pairs::adjacent;
};

/// One sequence. A span in between that was removed stays in the cache until it is known whether the tokens after it
/// move, so that rows are written once: positions are without it already.
struct held_sequence {
  zoomr::sequence handle;
  std::vector<std::int32_t> positions;  // [tokens], ascending
  zoomr::token_range removed;           // tokens of the cache that are not in `positions`; empty: all are
  std::vector<std::int32_t> removed_positions;

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
class sequences {
 public:
  sequences(cache& in, rope turning) : cache_(in), rope_(std::move(turning)) {}

  held_sequence* find(std::int32_t id) {
    const auto at = held_.find(id);
    return at == held_.end() ? nullptr : &at->second;
  }
  const held_sequence* find(std::int32_t id) const { return const_cast<sequences*>(this)->find(id); }
  bool can_shift() const { return !rope_.frequencies.empty(); }

  /// The sequence, which is opened if it is not there, with nothing left to be erased.
  held_sequence& ready(std::int32_t id) {
    if (held_sequence* const there = find(id)) return settle(*there), *there;
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
    if (id < 0) return remove_everywhere(p0, p1);
    held_sequence* const s = find(id);
    const zoomr::token_range span = s == nullptr ? zoomr::token_range{} : s->tokens_in(p0, p1);
    if (span.size() == 0) return;
    if (span.size() == s->tokens()) return close(id);
    settle(*s);
    if (span.last == s->tokens()) return cut(*s, span.first);
    const auto first = s->positions.begin() + span.first, last = s->positions.begin() + span.last;
    s->removed_positions.assign(first, last);
    s->removed = span;
    s->positions.erase(first, last);
    if (!can_shift()) settle(*s);
  }

  void copy(std::int32_t from, std::int32_t to, std::int32_t p0, std::int32_t p1) {
    if (from == to) return;
    if (to < 0) throw refusal("seq_cp: a sequence has a negative id");
    held_sequence* const original = find(from);
    if (original != nullptr) settle(*original);
    const zoomr::token_range span = original == nullptr ? zoomr::token_range{} : original->tokens_in(p0, p1);
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
    held_sequence* const s = find(id);
    const zoomr::token_range span = s == nullptr ? zoomr::token_range{} : s->tokens_in(p0, p1);
    if (delta == 0 || span.size() == 0) return;
    if (!can_shift()) throw refusal("seq_add: it is not known how keys are turned: n_rot is 0");
    expect_room(*s, span, delta);
    const zoomr::key_rotation turn(view<const float>(rope_.frequencies), delta, rope_.pairs);
    if (closes_up(*s, span, delta)) {
      erase(*s, &turn);
    } else {
      settle(*s);
      cache_.shift(s->handle, span, turn);
    }
    for (auto p = s->positions.begin() + span.first; p != s->positions.begin() + span.last; ++p) *p += delta;
  }

  /// Erases what was removed: a gap is left.
  void settle(held_sequence& s) {
    if (s.removed.size() > 0) erase(s, nullptr);
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
  static bool closes_up(const held_sequence& s, zoomr::token_range span, std::int32_t delta) {
    return s.removed.size() > 0 && span.first == s.removed.first && span.last == s.tokens() &&
           s.removed_positions.front() - s.positions[static_cast<std::size_t>(span.first)] == delta;
  }
  void cut(held_sequence& s, index_t tokens) {
    cache_.rollback(s.handle, tokens);
    s.positions.resize(static_cast<std::size_t>(tokens));
  }
  // Where it fails the tokens are held as before.
  void erase(held_sequence& s, const zoomr::key_rotation* turn) {
    const zoomr::token_range span = std::exchange(s.removed, {});
    try {
      cache_.erase(s.handle, span, turn);
    } catch (...) {
      s.positions.insert(s.positions.begin() + span.first, s.removed_positions.begin(), s.removed_positions.end());
      throw;
    }
  }
  // Of each what can be removed; then the first complaint is thrown.
  void remove_everywhere(std::int32_t p0, std::int32_t p1) {
    std::vector<std::int32_t> ids;
    each([&](std::int32_t id, const held_sequence&) { ids.push_back(id); });
    std::exception_ptr first;
    for (const std::int32_t id : ids) {
      try {
        remove(id, p0, p1);
      } catch (...) {
        if (!first) first = std::current_exception();
      }
    }
    if (first) std::rethrow_exception(first);
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
  rope rope_;
  std::map<std::int32_t, held_sequence> held_;
};

}  // namespace adaptor
