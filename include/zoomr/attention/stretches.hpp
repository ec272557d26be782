// SPDX-License-Identifier: Apache-2.0
// L4. In which order the host adds up what a query attends. Slots are cut into stretches, each with a state of its own;
// the states are merged in ascending order. A stretch ends at the first multiple of 1,024 slots at which it holds 1,024
// tokens. So where it ends follows from the slots that are read alone: the sums have the same bits whether one thread
// reads all stretches or several share them, and in chunks of a prompt, drafts and tokens. Where less is read than one
// stretch holds, nothing is merged.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/core/cpu_path.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/core/token_range.hpp>
#include <zoomr/core/view.hpp>
#include <zoomr/math/attention_state.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>

#include <algorithm>  // std::copy_n, std::fill, std::min

namespace zoomr::inline v0::detail {

/// Tokens of a stretch, at least; and where one may end, in slots.
inline constexpr index_t stretch_tokens = 1024;
static_assert(stretch_tokens % page_tokens == 0, "a run of one page is in one stretch");

/// Stretches of so many slots, at most.
constexpr index_t most_stretches(index_t slots) { return slots / stretch_tokens + 1; }

/// Takes ranges in ascending order, and finds where stretches begin.
class stretch_walk {
 public:
  /// @param slots   after those before
  /// @param begins  begins(slot): the slot is the first one of a stretch; not called for the first stretch
  template <class Begins>
  void pass(token_range slots, Begins begins) {
    while (slots.first < slots.last) {
      if (slots.first >= end_) {
        begins(slots.first);
        tokens_ = 0;
        end_ = unlimited;
      }
      if (end_ == unlimited) {
        const index_t missing = stretch_tokens - tokens_;
        if (slots.size() < missing) {
          tokens_ += slots.size();
          return;
        }
        end_ = up(slots.first + missing);
      }
      slots.first = (std::min)(slots.last, end_);
    }
  }

 private:
  static constexpr index_t up(index_t slot) { return (slot + stretch_tokens - 1) / stretch_tokens * stretch_tokens; }

  index_t tokens_ = 0;       // of the present stretch, as long as it has no end
  index_t end_ = unlimited;  // once it holds enough
};

/// Adds a stretch to those before it; the first one is taken as it is.
inline void add_stretch(attention_state& sums, const attention_state& stretch, index_t width) {
  on_fastest_path([&] {
    if (sums.sum != 0.0f) return sums.merge(stretch, width);
    sums.max = stretch.max;
    sums.sum = stretch.sum;
    std::copy_n(stretch.out, width, sums.out);
  });
}

/// Numbers from the states of one KV head to those of the next, so that threads never write to the same cache line.
constexpr index_t states_apart(index_t group) { return (group + 3) / 4 * 4; }
static_assert(sizeof(attention_state) == 16, "four in a cache line");
/// Where the state of a query head is, of states [rows, KV heads, states_apart].
constexpr std::int64_t state_place(std::int64_t row, index_t head, index_t heads, index_t group) {
  return (row * (heads / group) + head / group) * states_apart(group) + head % group;
}

/// Of each query of a step: the state of the stretch that is added up now, and that of the stretches before it.
class stretch_sums {
 public:
  /// @param tokens  whose queries attend at the same time
  /// @param slots   that one of them may read
  stretch_sums(const shape& model, index_t tokens, index_t slots)
      : heads_(model.heads),
        group_(model.group()),
        width_(model.value_width()),
        states_(states_for(model, tokens)),
        before_(several(slots) ? states_.size() : 0),
        outs_(several(slots) ? std::int64_t{tokens} * model.heads * width_ : 0) {}
  static byte_count bytes(const shape& model, index_t tokens, index_t slots) {
    const byte_count states = bounded_product({states_for(model, tokens), sizeof(attention_state)});
    if (!several(slots)) return states;
    const byte_count outs = bounded_product({tokens, model.heads, model.value_width(), sizeof(float)});
    return (std::min)(2 * states + outs, too_many_bytes);
  }

  /// What is being added up for a query.
  /// @param head  query head
  attention_state& at(index_t t, index_t head) { return states_.data()[place(t, head)]; }

  /// A query begins, with nothing added.
  /// @param out  [value width]  the caller's
  void begin(index_t t, index_t head, view<float> out) {
    attention_state& state = at(t, head) = attention_state{};
    state.out = out.data();
    std::fill(out.begin(), out.end(), 0.0f);
    if (outs_.size() == 0) return;
    before_.data()[place(t, head)] = {-infinity, 0.0f, outs_.data() + (std::int64_t{t} * heads_ + head) * width_};
  }
  /// A stretch is over, the next one begins.
  /// @param state  as `at` has returned it
  void end_stretch(attention_state& state) {
    add_stretch(before(state), state, width_);
    state.max = -infinity;
    state.sum = 0.0f;
    std::fill(state.out, state.out + width_, 0.0f);
  }
  /// A stretch that was added up elsewhere, after those before.
  /// @param last  that may go on
  void take(index_t t, index_t head, const attention_state& stretch, bool last) {
    attention_state& state = at(t, head);
    if (!last) return add_stretch(before(state), stretch, width_);
    state.max = stretch.max;
    state.sum = stretch.sum;
    std::copy_n(stretch.out, width_, state.out);
  }
  /// All stretches as one state: nothing is added any more.
  attention_state& join(index_t t, index_t head) {
    attention_state& state = at(t, head);
    if (outs_.size() == 0) return state;
    attention_state& sums = before(state);
    if (sums.sum == 0.0f) return state;
    add_stretch(sums, state, width_);
    state.max = sums.max;
    state.sum = sums.sum;
    std::copy_n(sums.out, width_, state.out);
    return state;
  }

 private:
  static constexpr bool several(index_t slots) { return slots > stretch_tokens; }
  static std::int64_t states_for(const shape& model, index_t tokens) {
    return std::int64_t{tokens} * model.kv_heads * states_apart(model.group());
  }
  std::int64_t place(index_t t, index_t head) const { return state_place(t, head, heads_, group_); }
  attention_state& before(const attention_state& state) { return before_.data()[&state - states_.data()]; }

  index_t heads_, group_, width_;
  buffer<attention_state> states_;  // [tokens, KV heads, states_apart]
  buffer<attention_state> before_;  // the same, where there may be several stretches
  buffer<float> outs_;              // [tokens, heads, value width]  of `before_`
};

/// What is done where a stretch ends while one thread reads several; nothing for states that add up one alone.
struct stretch_ends {
  stretch_sums* sums = nullptr;

  void operator()(attention_state& state) const {
    if (sums != nullptr) sums->end_stretch(state);
  }
};

}  // namespace zoomr::inline v0::detail
