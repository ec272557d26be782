// SPDX-License-Identifier: Apache-2.0
// One launch of gather_attend on the device with everything around it: keys and values in shuffled pages, tokens in
// ranges, drafts that read them together; and its check.
#pragma once

#include <zoomr/attention/gather.cuh>

#include <cmath>  // std::sqrt

#include "device_time.hpp"
#include "reference.hpp"

namespace zoomr_bench {

/// How the keys and values of a model lie.
struct shared_heads {  // 8 KV heads, each of some query heads
  static constexpr index_t head_dim = 128, kv_heads = toy ? 2 : 8;
  using values = zoomr::values_apart<head_dim>;
};
struct latents {  // of MLA: one KV head of all query heads, values in keys
  static constexpr index_t head_dim = 576, kv_heads = 1;
  using values = zoomr::values_in_keys<512>;
};
inline constexpr index_t range_tokens = 24;
inline constexpr index_t stretch_tokens = 96;  // a range of 24 in each

/// Keys and values, [page][key | value][kv_head][16][head_dim], or keys alone; each sequence has pages of its own.
template <class T, class Model = shared_heads>
struct page_memory {
  index_t sequences = toy ? 2 : 32;
  index_t sequence_pages = zoomr::pages_for(toy ? 4 * stretch_tokens : 8192 / range_tokens * stretch_tokens + 256);

  static constexpr index_t head_dim = Model::head_dim;
  static constexpr std::int64_t head = std::int64_t{zoomr::page_tokens} * head_dim;
  static constexpr index_t to_values = Model::values::in_keys ? 0 : Model::kv_heads;  // heads before them
  static constexpr std::int64_t page = (Model::kv_heads + to_values) * head;

  std::vector<index_t> order = shuffled_pages(sequences * sequence_pages);
  device_buffer<index_t> pages{order};  // [sequences][sequence_pages]
  device_buffer<T> numbers{static_cast<std::int64_t>(order.size()) * page};

  page_memory() { fill(); }
  /// For some sequences of up to so many tokens each.
  page_memory(index_t of_sequences, index_t tokens)
      : sequences(of_sequences), sequence_pages(zoomr::pages_for(tokens)) {
    fill();
  }
  view<const index_t> pages_of(index_t sequence) const {
    return {pages.data() + std::int64_t{sequence} * sequence_pages, {sequence_pages}};
  }
  zoomr::stored_layer<T> layer() const {
    return {numbers.data(), numbers.data() + to_values * head, page, head, head_dim, 4};
  }
  /// Of the key or the value of a token of a sequence, made again.
  float number(index_t sequence, index_t slot, bool value, index_t kv_head, index_t d) const {
    const index_t of = order[static_cast<std::size_t>(sequence * sequence_pages + slot / zoomr::page_tokens)];
    const index_t row = (value ? to_values : 0) + kv_head;
    return zoomr::to_float(stored_noise<T>(of * page + row * head + slot % zoomr::page_tokens * head_dim + d, 7));
  }

 private:
  void fill() { fill_with_noise(numbers.data(), numbers.size(), 7); }
};

/// One launch: every sequence attends to the same number of tokens.
struct problem {
  index_t sequences = 1;
  index_t tokens = 0;
  bool scattered = false;
  index_t splits = 1;
  index_t draft = 1;  // query tokens of each sequence, all of which attend to all of them

  std::vector<zoomr::token_range> ranges() const {
    if (!scattered) return {{0, tokens}};
    std::vector<zoomr::token_range> made;
    for (index_t first = 0, position = 0; first < tokens; first += range_tokens, position += stretch_tokens) {
      const index_t at = position + first / range_tokens * 7 % (stretch_tokens - range_tokens);
      made.push_back({at, at + std::min(range_tokens, tokens - first)});
    }
    return made;
  }
};

template <class Tokens>
struct listed_rows {
  view<const zoomr::attending_row<Tokens>> listed;
  index_t count = 0;
  ZOOMR_HD zoomr::attending_row<Tokens> at(index_t i) const { return listed[i]; }
};

/// Compares the first head of the first token and the last head of the last one with attention in double over all of
/// their tokens; of the others only that they are finite: on the host they would take longer than all that is timed.
/// @param sums     [sequences * draft][kv_heads][heads of a KV head]  natural log of the sum of exp(logit)
/// @param rounded  what weights, and states before they are merged, are rounded by, as a share of the largest |value|
/// @param summed   what weights are rounded by before they are added up, as a share of each
/// @throws wrong
template <class T, class Model>
void expect_attended(const problem& p, const page_memory<T, Model>& held, const device_buffer<zoomr::bfloat16>& queries,
                     const device_buffer<zoomr::bfloat16>& out, const std::vector<float>& sums, double rounded,
                     double summed = 0.0) {
  constexpr index_t head_dim = Model::head_dim, width = Model::values::width;
  const auto given = out.values(), asked = queries.values();
  std::vector<index_t> slots;
  for (const zoomr::token_range& r : p.ranges()) {
    for (index_t slot = r.first; slot < r.last; ++slot) slots.push_back(slot);
  }
  const auto heads = static_cast<std::int64_t>(sums.size());
  for (const std::int64_t row : {std::int64_t{0}, heads - 1}) {
    const index_t sequence = row == 0 ? 0 : p.sequences - 1, kv_head = row == 0 ? 0 : Model::kv_heads - 1;
    std::vector<float> query;
    for (index_t d = 0; d < head_dim; ++d) {
      query.push_back(zoomr::to_float(asked[static_cast<std::size_t>(row * head_dim + d)]));
    }
    const auto number = [&](index_t t, index_t d, bool value) {
      return held.number(sequence, slots[static_cast<std::size_t>(t)], value, kv_head, d);
    };
    const auto expected = attention(
        query, p.tokens, [&](index_t t, index_t d) { return number(t, d, false); },
        [&](index_t t, index_t d) { return number(t, d, true); }, width);
    expect_lse(expected, sums[static_cast<std::size_t>(row)], summed);
    expect_outputs(expected,
                   [&](index_t d) { return zoomr::to_float(given[static_cast<std::size_t>(row * width + d)]); },
                   {tolerance::rounded(7), rounded});
  }
  comparison finite("out is finite");
  for (const zoomr::bfloat16 number : given) finite.same(std::isfinite(zoomr::to_float(number)), true);
}

}  // namespace zoomr_bench
