// SPDX-License-Identifier: Apache-2.0
// L6. Attention to the slots that are dealt out to several ranks: each has a state for what it has attended, and all
// ranks merge the states of all, in the order of ranks. So they have the same bits.
#pragma once

#include <zoomr/attention/stretches.hpp>
#include <zoomr/cache/planning/rank_messages.hpp>

#include <algorithm>  // std::fill_n

namespace zoomr::inline v0::detail {

/// The states of a step's queries in one layer. Without other ranks it holds nothing.
class state_exchange {
 public:
  state_exchange(const shape& model, const any_policy& policy, const config& limits)
      : heads_(model.heads), width_(model.value_width()), used_(!limits.token_ranks.alone()) {
    if (!used_) return;
    messages_ = rank_messages(limits.token_ranks.group, rank_configuration(model, policy, limits),
                              message_words(model, limits));
  }
  static byte_count bytes(const shape& model, const config& limits) {
    if (limits.token_ranks.alone()) return 0;
    return rank_messages::bytes(limits.token_ranks.group, message_words(model, limits));
  }
  /// Of the longest message.
  static std::int64_t message_words(const shape& model, const config& limits) {
    return bounded_product({limits.max_batched_tokens, model.heads, state_words(model.value_width())});
  }

  bool used() const { return used_; }
  const rank_statistics& counted() const { return messages_.counted(); }

  /// Keeps what this rank has attended of a query.
  /// @param row  of the pass
  void keep(index_t row, index_t head, const attention_state& state) {
    std::int64_t* const to = messages_.message(0).data() + place(row, head);
    const float ends[] = {state.max, state.sum};
    copy_floats(ends, to, 2);
    copy_floats(state.out, to + 1, width_);
  }
  /// Brings together what all ranks have kept of all queries of the pass.
  /// @param about   as of `rank_messages`
  /// @param out     [rows, heads, value width]
  /// @param finish  finish(state, row, head)  when all of it is there
  /// @throws error(ranks)
  template <class Finish>
  void merge(std::int64_t about, view<float, 3> out, Finish finish) {
    const view<const std::int64_t, 2> all = messages_.exchange(place(out.extent(0), 0), about);
    for (index_t row = 0; row < out.extent(0); ++row) {
      for (index_t head = 0; head < heads_; ++head) {
        attention_state sums{-infinity, 0.0f, out[row][head].data()};
        std::fill_n(sums.out, width_, 0.0f);
        for (index_t rank = 0; rank < messages_.ranks(); ++rank) {
          float numbers[std::size_t{2} + shape::most_head_dim];
          copy_floats(all[rank].data() + place(row, head), numbers, 2 + width_);
          add_stretch(sums, {numbers[0], numbers[1], numbers + 2}, width_);
        }
        finish(sums, row, head);
      }
    }
  }

 private:
  // Its largest logit and its sum, then its values.
  static constexpr index_t state_words(index_t width) { return float_words(2 + width); }
  index_t place(index_t row, index_t head) const { return (row * heads_ + head) * state_words(width_); }

  index_t heads_, width_;
  bool used_;
  rank_messages messages_;
};

}  // namespace zoomr::inline v0::detail
