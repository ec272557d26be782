// SPDX-License-Identifier: Apache-2.0
// L6. Working memory for attention that several threads share along slots: a state for each stretch and query, so that
// pieces of work are stretches of some KV heads (cache/host/attending/layer_attention.hpp).
#pragma once

#include <zoomr/attention/stretches.hpp>
#include <zoomr/cache/config.hpp>
#include <zoomr/cache/host/thread_memory.hpp>
#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/core/table.hpp>

#include <algorithm>  // std::fill, std::max, std::min
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Tokens of one item whose queries read a page together, at most: so many queries of a KV head are worth it.
inline index_t tokens_together(const shape& model, const config& limits) {
  constexpr index_t most_asking = 64;
  return (std::min)({limits.max_draft_tokens, limits.max_batched_tokens, (std::max)(1, most_asking / model.group())});
}

/// How many KV heads a piece of work has, where a layer is cut along its stretches: a divisor of `kv_heads`.
///
/// Where keys lie side by side, so many that each thread has eight pieces to begin with. Else rows of other KV heads
/// are in between, which a processor fetches with those that it reads: then two pieces, if a piece's rows keep a KiB,
/// or one.
/// @param key_bytes     of one key
/// @param side_by_side  the keys of a KV head lie so
constexpr index_t piece_kv_heads(index_t kv_heads, index_t stretches, index_t threads, std::int64_t key_bytes,
                                 bool side_by_side) {
  index_t piece_heads = kv_heads;
  for (index_t fewer = kv_heads - 1; fewer > 0; --fewer) {
    const index_t pieces = side_by_side ? 8 : fewer * key_bytes < 1024 ? 1 : 2;
    if (kv_heads % fewer == 0 && kv_heads / piece_heads * stretches < pieces * threads) piece_heads = fewer;
  }
  return piece_heads;
}

/// Nothing, where one thread works, or no query reads more than one stretch.
class cut_states {
 public:
  cut_states(const layout& sizes, const config& limits, index_t threads)
      : heads_(sizes.model.heads), group_(sizes.model.group()), width_(sizes.model.value_width()) {
    if (!needed(limits, threads)) return;
    tokens_ = tokens_together(sizes.model, limits);
    stretches_.resize(most_stretches(limits.max_tokens));
    ranges_.resize(most_ranges(sizes));
    states_ = buffer<attention_state>(states_for(sizes.model, limits));
    outs_ = buffer<float>(outs_for(sizes.model, limits));
  }
  static byte_count bytes(const layout& sizes, const config& limits, index_t threads) {
    if (!needed(limits, threads)) return 0;
    return bounded_product({states_for(sizes.model, limits), sizeof(attention_state)}) +
           bounded_product({outs_for(sizes.model, limits), sizeof(float)}) +
           static_cast<byte_count>((static_cast<std::size_t>(most_stretches(limits.max_tokens)) + most_ranges(sizes)) *
                                   sizeof(token_range));
  }

  /// There is room for several stretches.
  bool ready() const { return tokens_ > 0; }
  /// For the ranges that all KV heads read.
  view<token_range> ranges() { return view<token_range>(ranges_); }

  /// Finds the stretches of ranges, as far as they are before slot `until`.
  /// @return  how many; `stretch` gives the slots between their bounds
  index_t find(view<const token_range> ranges, index_t until) {
    stretch_walk walk;
    count_ = 1, stretches_[0] = {0, until};
    for (const token_range& r : ranges) {
      walk.pass({r.first, (std::min)(r.last, until)}, [&](index_t slot) {
        stretches_[count_ - 1].last = slot;
        stretches_[count_++] = {slot, until};
      });
    }
    return count_;
  }
  token_range stretch(index_t i) const { return stretches_[i]; }
  index_t count() const { return count_; }

  /// The state of one stretch and query.
  /// @param t  token, the first of those that attend together is 0
  attention_state& at(index_t stretch, index_t t, index_t head) {
    const std::int64_t row = std::int64_t{stretch} * tokens_ + t;
    return states_.data()[state_place(row, head, heads_, group_)];
  }
  void begin(index_t stretch, index_t t, index_t head) {
    float* const out = outs_.data() + ((std::int64_t{stretch} * tokens_ + t) * heads_ + head) * width_;
    at(stretch, t, head) = {-infinity, 0.0f, out};
    std::fill(out, out + width_, 0.0f);
  }

 private:
  static bool needed(const config& limits, index_t threads) {
    return threads > 1 && limits.max_tokens > stretch_tokens;
  }
  static std::int64_t rows_for(const shape& model, const config& limits) {
    return std::int64_t{most_stretches(limits.max_tokens)} * tokens_together(model, limits);
  }
  static std::int64_t states_for(const shape& model, const config& limits) {
    return bounded_product({rows_for(model, limits), model.kv_heads, states_apart(model.group())});
  }
  static std::int64_t outs_for(const shape& model, const config& limits) {
    return bounded_product({rows_for(model, limits), model.heads, model.value_width()});
  }

  index_t heads_, group_, width_;
  index_t tokens_ = 0;
  index_t count_ = 0;
  table<token_range> stretches_;     // [most_stretches]  bounds, in slots
  std::vector<token_range> ranges_;  // as `resolve` needs
  buffer<attention_state> states_;   // [most_stretches, tokens_together, KV heads, states_apart]
  buffer<float> outs_;               // [most_stretches, tokens_together, heads, value width]
};

}  // namespace zoomr::inline v0::detail
