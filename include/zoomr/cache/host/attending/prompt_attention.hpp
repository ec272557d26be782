// SPDX-License-Identifier: Apache-2.0
// L6. Attention of a chunk of a prompt, to everything before it. It is bound by arithmetic, so its work is tiled: some
// pages of a KV head are widened once for the chunk, their keys dimension by dimension, and some queries at a time
// attend them one after the other, with copies of queries and outputs that are side by side. Each query's sums are
// those of `gather_attend`, in its order; its caller ends their stretches between tiles.
#pragma once

#include <zoomr/attention/gather.hpp>
#include <zoomr/core/buffer.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>    // std::copy_n, std::max, std::min
#include <array>        // std::array
#include <type_traits>  // std::is_same_v, std::remove_cv_t
#include <vector>       // std::vector

namespace zoomr::inline v0::detail {

/// Working memory for one KV head and some queries of a chunk, and the work itself: `begin` some pages, then `attend`
/// for all queries of the chunk. Queries are those of a token's heads in the group, and then of the next token's.
class prompt_tile {
 public:
  static constexpr index_t most_pages = 16;  // so many that copies of queries and outputs pay
  static constexpr index_t together = 16;    // queries that attend together, of whatever tokens

  explicit prompt_tile(const shape& model)
      : widths_{model.head_dim, model.value_width()},
        group_(model.group()),
        widened_(widened_size(model)),
        packed_(packed_size(model)),
        queries_(std::size_t{together}),
        outs_(queries_.size()) {}
  static byte_count bytes(const shape& model) {
    return bounded_product({widened_size(model) + packed_size(model), sizeof(float)}) +
           bounded_product({together, sizeof(run_query) + sizeof(float*)});
  }

  /// From now on these pages are attended: those that hold the slots [first, end), at most `most_pages`.
  /// @param first   the first slot of a page
  /// @param window  of the layer. Where there is one no token was evicted, so that slots are positions
  /// @throws error(storage) if a page does not come
  template <class Lane>
  void begin(const Lane& kv_lane, index_t first, index_t end, const seen_window& window) {
    first_ = first;
    window_ = window;
    pages_ = (std::min)(most_pages, pages_for(end - first));
    in_pairs_ = has_pairs<Lane> && multiplies_pairs(fastest_cpu_path(), widths_);
    keys_in_pairs_ = pairs_of_keys<Lane>(kv_lane, fastest_cpu_path());
    for (index_t page = 0; page < pages_; ++page) {
      const index_t slot = first + page * page_tokens, tokens = (std::min)(page_tokens, end - slot);
      tiles_[page] = widened(kv_lane, slot, tokens, page);
    }
  }

  /// Some adjacent queries attend the pages, those of the first token up to its own slot, those of each further one up
  /// to one more; under a window each from the first slot on that it sees.
  /// @param kv_lane  as in `begin`
  /// @param at       the slot of the first query's token
  /// @param head     the head of the group that the first query is of
  /// @param count    at most `together`
  /// @param query    query(i): its run_query
  /// @param hook     the hook that logits go through; query 0 is that of the first token's first head
  /// @throws error(storage) if a page does not come of which a window cuts off a part
  template <class Lane, class Query, class Hook = plain_logits>
  void attend(const Lane& kv_lane, index_t at, index_t head, index_t count, Query query, float scale,
              const Hook& hook = {}) {
    for (index_t i = 0; i < count; ++i) pack(i, query(i));
    const index_t tokens = (head + count - 1) / group_ + 1;
    for (index_t page = 0; page < pages_; ++page) {
      page_tile tile = tiles_[page];
      const index_t first = first_ + page * page_tokens;
      const index_t seen = at + 1 - first;  // of the page, by the first token
      if (seen >= tile.tokens && window_.first(at + tokens - 1) <= first) {
        attend<has_pairs<Lane>>(tile, {0, count}, scale, hooked<Hook>{hook, first, head});
        continue;
      }
      for (index_t t = (std::max)(0, 1 - seen); t < tokens; ++t) {
        const token_range its{(std::max)(0, t * group_ - head), (std::min)(count, (t + 1) * group_ - head)};
        tile.tokens = (std::min)(tiles_[page].tokens, seen + t);
        const token_range slots{window_.first(at + t), first + tile.tokens};
        if (slots.size() <= 0) continue;
        if (slots.first <= first) {
          attend<has_pairs<Lane>>(tile, its, scale, hooked<Hook>{hook, first, head + its.first});
        } else {
          attend_part(kv_lane, slots, its, head + its.first, scale, hook);
        }
      }
    }
    for (index_t i = 0; i < count; ++i) unpack(i);
  }

 private:
  template <class Lane>
  static constexpr bool has_pairs = std::is_same_v<std::remove_cv_t<typename Lane::number>, bfloat16>;

  static std::int64_t packed_size(const shape& model) {
    return std::int64_t{together} * row_size({model.head_dim, model.value_width()});
  }
  // Keys are widened where values will be, before they are turned.
  static std::int64_t value_room(const shape& model) { return (std::max)(model.head_dim, model.value_width()); }
  static std::int64_t widened_size(const shape& model) {
    return most_pages * page_tokens * (model.head_dim + value_room(model));
  }

  // The 16 slots from `slot` on, as far as they hold tokens.
  template <class Lane>
  page_tile widened(const Lane& kv_lane, index_t slot, index_t tokens, index_t page) {
    using T = std::remove_cv_t<typename Lane::number>;
    float* const wide_keys = room(page);
    float* const wide_values = wide_keys + page_tokens * widths_.key;
    widen_rows(keys_side_by_side(kv_lane), tokens, widths_.key, wide_values,  // on their way
               [&](index_t t) { return kv_lane.key(slot + t); });
    for (index_t t = 0; t < tokens; ++t) {
      for (index_t d = 0; d < widths_.key; ++d) wide_keys[d * page_tokens + t] = wide_values[t * widths_.key + d];
    }
    if constexpr (has_pairs<Lane>) {
      if (in_pairs_) {
        pair(kv_lane, slot, tokens, wide_values);
        float* const key_pairs = wide_values + page_tokens / 2 * widths_.value;  // pairs take half of the room
        if (keys_in_pairs_) pair_keys(kv_lane, slot, tokens, key_pairs);
        return {wide_keys, wide_values, tokens, nullptr, nullptr, key_pairs};
      }
    }
    const auto value = [&](index_t t) { return kv_lane.value_of(kv_lane.key(slot + t), slot + t); };
    widen_rows(values_side_by_side(kv_lane), tokens, widths_.value, wide_values, value);
    if constexpr (scales_rows<T>) {
      const float* const scales = page_scales(kv_lane, slot, tokens, page);
      return {wide_keys, wide_values, tokens, scales, scales + page_tokens};
    }
    return {wide_keys, wide_values, tokens};
  }

  float* room(index_t page) { return widened_.data() + page * (widened_.size() / most_pages); }

  // Of keys, then of values.
  template <class Lane>
  const float* page_scales(const Lane& kv_lane, index_t slot, index_t tokens, index_t page) {
    const std::int64_t key_stride = kv_lane.rows.key_stride, value_stride = kv_lane.rows.value_stride;
    const auto* const keys = kv_lane.key(slot);
    const auto* const values = kv_lane.value_of(keys, slot);
    float* const scales = scales_.data() + std::int64_t{2} * page * page_tokens;
    for (index_t t = 0; t < tokens; ++t) {
      scales[t] = row_scale(keys + t * key_stride, t, key_stride);
      scales[page_tokens + t] = row_scale(values + t * value_stride, t, value_stride);
    }
    return scales;
  }

  // @param row  row(token)
  // @param to   [tokens, width]
  template <class Row>
  static void widen_rows(bool side_by_side, index_t tokens, index_t width, float* to, Row row) {
    const index_t at_once = side_by_side ? tokens : 1;
    for (index_t t = 0; t < tokens; t += at_once) {
      widen(fastest_cpu_path(), row(t), 1.0f, {to + std::int64_t{t} * width, {at_once * width}});
    }
  }

  // As a paired_tile's values.
  template <class Lane>
  void pair(const Lane& kv_lane, index_t slot, index_t tokens, float* pairs) const {
    for (index_t t = 0; t < tokens; t += 2) {
      const auto value = [&](index_t offset) { return kv_lane.value_of(kv_lane.key(slot + offset), slot + offset); };
      const bfloat16* const values = value(t);
      const bfloat16* const next = t + 1 < tokens ? value(t + 1) : nullptr;
      for (index_t d = 0; d < widths_.value; ++d) {
        *pairs++ = pair_of(values[d], next != nullptr ? next[d] : bfloat16{});
      }
    }
  }

  // As a page_tile's key_pairs.
  template <class Lane>
  void pair_keys(const Lane& kv_lane, index_t slot, index_t tokens, float* pairs) const {
    for (index_t t = 0; t < tokens; ++t) {
      const bfloat16* const key = kv_lane.key(slot + t);
      for (index_t p = 0; p < widths_.key / 2; ++p) pairs[p * page_tokens + t] = pair_of(key[2 * p], key[2 * p + 1]);
    }
  }
  static float pair_of(bfloat16 lower, bfloat16 upper) {
    return bits_as<float>(lower.bits | static_cast<std::uint32_t>(upper.bits) << 16);
  }

  // Queries of one token attend a page from somewhere in it on, as they would after the prompt: tiles begin where pages
  // do.
  // @param some         of `queries_`
  // @param first_query  the number of the first of them, for the hook
  template <class Lane, class Hook>
  void attend_part(const Lane& kv_lane, token_range slots, token_range some, index_t first_query, float scale,
                   const Hook& hook) {
    const view<const run_query> queries(queries_.data() + some.first, {some.size()});
    const lane_queries<Lane, Hook> row_queries{&kv_lane, queries, scale, &hook, first_query};
    gather_within(view<const token_range>(&slots, {1}), {0, unlimited},
                  view<const lane_queries<Lane, Hook>>(&row_queries, {1}));
  }

  template <bool Pairs, class Hook>
  void attend(const page_tile& tile, token_range some, float scale, hooked<Hook> hook) {
    const view<const run_query> queries(queries_.data() + some.first, {some.size()});
    if constexpr (Pairs) {
      if (in_pairs_) return attend_run(fastest_cpu_path(), paired_tile{tile}, queries, widths_, scale, hook);
    }
    attend_run(fastest_cpu_path(), tile, tile, queries, widths_, scale, hook);
  }

  // Rows of different tokens are a multiple of 4 KiB apart, where the first cache has few places for them.
  float* query(index_t i) { return packed_.data() + std::int64_t{i} * row_size(widths_); }
  float* pairs(index_t i) { return query(i) + widths_.key; }
  float* out(index_t i) { return pairs(i) + widths_.key / 2; }
  static index_t row_size(kv_widths widths) { return widths.key + widths.key / 2 + widths.value; }
  void pack(index_t i, const run_query& from) {
    std::copy_n(from.query, widths_.key, query(i));
    const bool in_pairs = kept_in_pairs(from, keys_in_pairs_, widths_.key).pairs;
    if (in_pairs) {
      dispatch_pairs(fastest_cpu_path(),
                     [&](auto vectors) { pair_numbers(vectors, from.query, pairs(i), widths_.key); });
    }
    std::copy_n(from.state->out, widths_.value, out(i));
    outs_[static_cast<std::size_t>(i)] = from.state->out;
    from.state->out = out(i);
    queries_[static_cast<std::size_t>(i)] = {query(i), from.state, in_pairs};
  }
  void unpack(index_t i) {
    attention_state& state = *queries_[static_cast<std::size_t>(i)].state;
    state.out = outs_[static_cast<std::size_t>(i)];
    std::copy_n(out(i), widths_.value, state.out);
  }

  kv_widths widths_;
  seen_window window_;
  index_t group_;
  index_t first_ = 0;
  index_t pages_ = 0;
  bool in_pairs_ = false;       // values, of the pages
  bool keys_in_pairs_ = false;  // for queries that are numbers of bfloat16
  page_tile tiles_[std::size_t{most_pages}];
  std::array<float, std::size_t{2 * most_pages * page_tokens}> scales_{};  // [most_pages]: of keys, of values
  buffer<float> widened_;           // [most_pages]: keys [key width][page_tokens], values [page_tokens][value width]
  buffer<float> packed_;            // [together][query | its pairs | out]
  std::vector<run_query> queries_;  // [together]
  std::vector<float*> outs_;        // [together]  where the outputs really are
};

}  // namespace zoomr::inline v0::detail
