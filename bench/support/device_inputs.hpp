// SPDX-License-Identifier: Apache-2.0
// Queries, keys and values of the tokens of one step on the device: noise, other for each step and the same for each
// layer, which a reference can make again.
#pragma once

#include "device_time.hpp"
#include "texts.hpp"

namespace zoomr_bench {

inline constexpr index_t head_dim = 128;

/// Sequences make their tokens together; the context comes in chunks.
class device_inputs {
 public:
  static constexpr index_t chunk = toy ? 64 : 1024;  // of each sequence's prompts

  device_inputs(const head_count& of, const text& says)
      : of_(of),
        says_(says),
        queries_(tokens() * of.kv_heads * of.group * head_dim),
        keys_(tokens() * of.kv_heads * head_dim),
        values_(keys_.size()) {}

  /// The tokens of a sequence that are passed with this one: a chunk of a prompt, or it alone.
  zoomr::token_range passed_with(index_t position) const {
    if (position >= says_.timed_from) return {position, position + 1};
    const zoomr::token_range prompt = says_.prompt_at(position);
    const index_t first = prompt.first + (position - prompt.first) / chunk * chunk;
    return {first, std::min(prompt.last, first + chunk)};
  }

  /// Tokens [first, last) of each sequence, one sequence after the other.
  void fill(index_t first, index_t last) const {
    const std::int64_t rows = std::int64_t{of_.batch} * (last - first);
    fill_with_noise(queries_.data(), rows * of_.kv_heads * of_.group * head_dim, seed(first, 1), query_scale);
    fill_with_noise(keys_.data(), rows * of_.kv_heads * head_dim, seed(first, 2));
    fill_with_noise(values_.data(), rows * of_.kv_heads * head_dim, seed(first, 3));
  }

  view<zoomr::bfloat16, 3> queries() const { return packed(queries_, of_.kv_heads * of_.group); }
  view<zoomr::bfloat16, 3> keys() const { return packed(keys_, of_.kv_heads); }
  view<zoomr::bfloat16, 3> values() const { return packed(values_, of_.kv_heads); }

  // The same, made again.

  float query(index_t sequence, index_t position, index_t head, index_t d) const {
    return number(sequence, position, 1, of_.kv_heads * of_.group, head, d, query_scale);
  }
  float key(index_t sequence, index_t position, index_t kv_head, index_t d) const {
    return number(sequence, position, 2, of_.kv_heads, kv_head, d, 1.0f);
  }
  float value(index_t sequence, index_t position, index_t kv_head, index_t d) const {
    return number(sequence, position, 3, of_.kv_heads, kv_head, d, 1.0f);
  }

 private:
  std::int64_t tokens() const { return std::int64_t{of_.batch} * chunk; }
  static std::uint32_t seed(index_t first, std::uint32_t part) { return static_cast<std::uint32_t>(3 * first) + part; }
  view<zoomr::bfloat16, 3> packed(const device_buffer<zoomr::bfloat16>& numbers, index_t heads) const {
    return {numbers.data(), {static_cast<index_t>(tokens()), heads, head_dim}};
  }

  float number(index_t sequence, index_t position, std::uint32_t part, index_t heads, index_t head, index_t d,
               float scale) const {
    const zoomr::token_range together = passed_with(position);
    const std::int64_t row = std::int64_t{sequence} * together.size() + position - together.first;
    return zoomr::to_float(
        stored_noise<zoomr::bfloat16>((row * heads + head) * head_dim + d, seed(together.first, part), scale));
  }

  head_count of_;
  text says_;
  device_buffer<zoomr::bfloat16> queries_, keys_, values_;
};

}  // namespace zoomr_bench
