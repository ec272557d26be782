// SPDX-License-Identifier: Apache-2.0
// L6. Attention of a chunk of a prompt, to everything before it. It is bound by arithmetic, so its work is tiled: some
// pages of a KV head are widened once for the chunk, their keys dimension by dimension, and some queries at a time
// attend them one after the other, with copies of queries and outputs that lie side by side. Each query's sums are
// those of `gather_attend`, in its order.
#pragma once

#include <zoomr/attention/page_run.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>    // std::copy_n, std::max, std::min
#include <array>        // std::array
#include <type_traits>  // std::is_same_v, std::remove_cv_t
#include <vector>       // std::vector

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Working memory for one KV head and some tokens of a chunk, and the work itself: `begin` some pages, then `attend`
/// for all tokens of the chunk.
class prompt_tile {
 public:
  static constexpr index_t most_pages = 8;  // so many that copies of queries and outputs pay

  explicit prompt_tile(const shape& model)
      : head_dim_(model.head_dim),
        group_(model.group()),
        widened_(static_cast<std::size_t>(widened_size(model))),
        packed_(static_cast<std::size_t>(packed_size(model))),
        asks_(static_cast<std::size_t>(most_asking(model))),
        outs_(asks_.size()) {}
  static byte_count bytes(const shape& model) {
    return bounded_product({widened_size(model) + packed_size(model), sizeof(float)}) +
           bounded_product({most_asking(model), sizeof(run_query) + sizeof(float*)});
  }

  /// Tokens whose queries attend together.
  index_t tokens() const { return static_cast<index_t>(asks_.size()) / group_; }

  /// From now on these pages are attended: those that hold the slots [first, end), at most `most_pages`.
  /// @param first  the first slot of a page
  /// @throws error(storage) if a page does not come
  template <class Lane>
  void begin(const Lane& kv_lane, index_t first, index_t end) {
    first_ = first;
    pages_ = (std::min)(most_pages, pages_for(end - first));
    in_pairs_ = std::is_same_v<std::remove_cv_t<typename Lane::number>, bfloat16> &&
                multiplies_pairs(fastest_cpu_path(), head_dim_);
    for (index_t page = 0; page < pages_; ++page) {
      const index_t slot = first + page * page_tokens;
      tiles_[page] = widened(kv_lane, slot, (std::min)(page_tokens, end - slot), page);
    }
  }

  /// Some adjacent tokens attend the pages, the first at slot `at` up to its own slot, each further one up to one more.
  /// @param asks  asks(token, head of the group): its run_query
  /// @param by    the hook that logits go through; query 0 is that of the first token's first head
  template <class Asks, class Hook = plain_logits>
  void attend(index_t at, index_t tokens, Asks asks, float scale, const Hook& by = {}) {
    const index_t count = tokens * group_;
    for (index_t i = 0; i < count; ++i) pack(i, asks(i / group_, i % group_));
    for (index_t page = 0; page < pages_; ++page) {
      page_tile tile = tiles_[page];
      const index_t seen = at + 1 - first_ - page * page_tokens;  // of the page, by the first token
      if (seen >= tile.tokens) {
        attend(tile, 0, count, scale, hooked<Hook>{by, first_ + page * page_tokens, 0});
      } else {
        for (index_t t = (std::max)(0, 1 - seen); t < tokens; ++t) {
          tile.tokens = (std::min)(tiles_[page].tokens, seen + t);
          attend(tile, t * group_, group_, scale, hooked<Hook>{by, first_ + page * page_tokens, t * group_});
        }
      }
    }
    for (index_t i = 0; i < count; ++i) unpack(i);
  }

 private:
  static index_t most_asking(const shape& model) { return (std::max)(16 / model.group(), 1) * model.group(); }
  static std::int64_t packed_size(const shape& model) { return std::int64_t{2} * most_asking(model) * model.head_dim; }
  static std::int64_t widened_size(const shape& model) {
    return std::int64_t{2} * most_pages * page_tokens * model.head_dim;
  }

  // The 16 slots from `slot` on, as far as they hold tokens.
  template <class Lane>
  page_tile widened(const Lane& kv_lane, index_t slot, index_t tokens, index_t page) {
    using T = std::remove_cv_t<typename Lane::number>;
    float* const wide_keys = widened_.data() + std::int64_t{2} * page * page_tokens * head_dim_;
    float* const wide_values = wide_keys + page_tokens * head_dim_;
    widen_rows(kv_lane, slot, tokens, 0, wide_values);  // on their way
    for (index_t t = 0; t < tokens; ++t) {
      for (index_t d = 0; d < head_dim_; ++d) wide_keys[d * page_tokens + t] = wide_values[t * head_dim_ + d];
    }
    if constexpr (std::is_same_v<T, bfloat16>) {
      if (in_pairs_) {
        pair(kv_lane, slot, tokens, wide_values);
        return {wide_keys, wide_values, tokens};
      }
    }
    widen_rows(kv_lane, slot, tokens, kv_lane.value_offset, wide_values);
    if constexpr (scales_rows<T>) {
      const T* const keys = kv_lane.key(slot);
      const T* const values = keys + kv_lane.value_offset;
      float* const scales = scales_.data() + std::int64_t{2} * page * page_tokens;
      for (index_t t = 0; t < tokens; ++t) {
        scales[t] = row_scale(keys + t * head_dim_, t, head_dim_);
        scales[page_tokens + t] = row_scale(values + t * head_dim_, t, head_dim_);
      }
      return {wide_keys, wide_values, tokens, scales, scales + page_tokens};
    }
    return {wide_keys, wide_values, tokens};
  }

  // @param offset  from keys to what is widened
  // @param to      [tokens, head_dim]
  template <class Lane>
  void widen_rows(const Lane& kv_lane, index_t slot, index_t tokens, std::int64_t offset, float* to) const {
    const index_t at_once = rows_side_by_side(kv_lane) ? tokens : 1;
    for (index_t t = 0; t < tokens; t += at_once) {
      widen(fastest_cpu_path(), kv_lane.key(slot + t) + offset, 1.0f,
            {to + std::int64_t{t} * head_dim_, {at_once * head_dim_}});
    }
  }

  // As a paired_tile's values.
  template <class Lane>
  void pair(const Lane& kv_lane, index_t slot, index_t tokens, float* pairs) const {
    for (index_t t = 0; t < tokens; t += 2) {
      const bfloat16* const values = kv_lane.key(slot + t) + kv_lane.value_offset;
      const bfloat16* const next = t + 1 < tokens ? kv_lane.key(slot + t + 1) + kv_lane.value_offset : nullptr;
      for (index_t d = 0; d < head_dim_; ++d) {
        const std::uint32_t upper = next != nullptr ? next[d].bits : 0u;
        *pairs++ = bits_as<float>(values[d].bits | upper << 16);
      }
    }
  }

  template <class Hook>
  void attend(const page_tile& tile, index_t first, index_t count, float scale, hooked<Hook> by) {
    const view<const run_query> asks(asks_.data() + first, {count});
    if (in_pairs_) {
      attend_run(fastest_cpu_path(), paired_tile{tile}, asks, head_dim_, scale, by);
    } else {
      attend_run(fastest_cpu_path(), tile, tile, asks, head_dim_, scale, by);
    }
  }

  // Rows of different tokens lie a multiple of 4 KiB apart, where the first cache has few places for them.
  float* query(index_t i) { return packed_.data() + std::int64_t{2} * i * head_dim_; }
  float* out(index_t i) { return query(i) + head_dim_; }
  void pack(index_t i, const run_query& from) {
    std::copy_n(from.query, head_dim_, query(i));
    std::copy_n(from.state->out, head_dim_, out(i));
    outs_[static_cast<std::size_t>(i)] = from.state->out;
    from.state->out = out(i);
    asks_[static_cast<std::size_t>(i)] = {query(i), from.state};
  }
  void unpack(index_t i) {
    attention_state& state = *asks_[static_cast<std::size_t>(i)].state;
    state.out = outs_[static_cast<std::size_t>(i)];
    std::copy_n(out(i), head_dim_, state.out);
  }

  index_t head_dim_;
  index_t group_;
  index_t first_ = 0;
  index_t pages_ = 0;
  bool in_pairs_ = false;  // values, of the pages
  page_tile tiles_[std::size_t{most_pages}];
  std::array<float, std::size_t{2 * most_pages * page_tokens}> scales_{};  // [most_pages]: of keys, of values
  std::vector<float> widened_;   // [most_pages]: keys [head_dim][page_tokens], values [page_tokens][head_dim]
  std::vector<float> packed_;    // [most_asking][query | out][head_dim]
  std::vector<run_query> asks_;  // [most_asking]
  std::vector<float*> outs_;     // [most_asking]  where the outputs really lie
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
