// SPDX-License-Identifier: Apache-2.0
// Queries, keys and values of the tokens of one step on the device: noise, other for each step and the same for each
// layer, which a reference can make again.
#pragma once

#include "device_time.hpp"
#include "texts.hpp"

namespace zoomr_bench {

inline constexpr index_t head_dim = 128;

/// Sequences make their tokens together; a prompt comes in chunks.
class device_inputs {
 public:
  static constexpr index_t chunk = toy ? 64 : 1024;  // of each sequence's prompt

  device_inputs(const head_count& of, index_t prompt)
      : of_(of),
        prompt_(prompt),
        queries_(tokens() * of.kv_heads * of.group * head_dim),
        keys_(tokens() * of.kv_heads * head_dim),
        values_(keys_.size()) {}

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
    const bool in_prompt = position < prompt_;
    const index_t first = in_prompt ? position / chunk * chunk : position;
    const index_t each = in_prompt ? std::min(prompt_, first + chunk) - first : 1;
    const std::int64_t row = std::int64_t{sequence} * each + position - first;
    return zoomr::to_float(
        stored_noise<zoomr::bfloat16>((row * heads + head) * head_dim + d, seed(first, part), scale));
  }

  head_count of_;
  index_t prompt_;
  device_buffer<zoomr::bfloat16> queries_, keys_, values_;
};

}  // namespace zoomr_bench
