// SPDX-License-Identifier: Apache-2.0
// A model with random weights of a given shape, in bfloat16: how fast it is does not depend on what it says.
#pragma once

#include <zoomr/core/cpu_path.hpp>
#include <zoomr/core/executor.hpp>

#include <cstdint>  // std::int64_t, std::uint32_t
#include <utility>  // std::move

#include "../../decode/weights.hpp"

namespace decode::speed {

/// Number `i` of a stream: 32 random bits.
inline std::uint32_t random_bits(std::uint64_t i) {
  auto x = static_cast<std::uint32_t>(i) * 0x9e3779b9u + static_cast<std::uint32_t>(i >> 32) * 0x85ebca6bu;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/// Numbers `first` ... of a stream, between -1 and 1.
inline void fill_random(float* out, std::size_t count, std::uint64_t first) {
  zoomr::detail::on_fastest_path([=] {
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<float>(static_cast<std::int32_t>(random_bits(first + i))) * 0x1p-31f;
  });
}

/// Makes one matrix after the other.
class random_matrices {
 public:
  /// @param threads  that make them; the numbers do not depend on how many there are
  explicit random_matrices(const zoomr::executor& threads) : threads_(threads) {}

  /// Nearly normal, with deviation 0.02: the sum of four bytes.
  matrix operator()(std::size_t rows, std::size_t columns) {
    zoomr::buffer<zoomr::bfloat16> numbers(static_cast<std::int64_t>(rows * columns));
    zoomr::bfloat16* const out = numbers.data();
    zoomr::detail::for_each_piece(threads_, static_cast<zoomr::index_t>(rows), [&](zoomr::index_t row, zoomr::index_t) {
      const std::size_t begin = static_cast<std::size_t>(row) * columns;
      zoomr::detail::on_fastest_path([=, first = made_] {
        for (std::size_t i = begin; i < begin + columns; ++i) {
          const std::uint32_t x = random_bits(first + i);
          const auto sum = static_cast<std::int32_t>((x & 255u) + (x >> 8 & 255u) + (x >> 16 & 255u) + (x >> 24));
          out[i] = zoomr::from_float<zoomr::bfloat16>(static_cast<float>(sum - 510) * (0.02f / 147.8f));
        }
      });
    });
    made_ += rows * columns;
    return {rows, columns, std::move(numbers)};
  }

 private:
  zoomr::executor threads_;
  std::uint64_t made_ = 0;
};

/// All weights of a model; norms are 1, biases 0.
inline model_weights random_weights(const model_config& c, const zoomr::executor& threads) {
  random_matrices random(threads);
  const auto ones = [](std::size_t size) { return std::vector<float>(size, 1.0f); };
  const auto map = [&](std::size_t out, std::size_t in, bool bias) {
    return linear{random(out, in), std::vector<float>(bias ? out : 0)};
  };
  const std::size_t q_size = c.heads * c.head_dim, kv_size = c.kv_heads * c.head_dim;
  model_weights w;
  w.embedding = random(c.vocab, c.hidden);
  for (std::size_t layer = 0; layer < c.layers; ++layer) {
    layer_weights l;
    l.attention_norm = ones(c.hidden);
    l.q = map(q_size, c.hidden, c.qkv_bias);
    l.k = map(kv_size, c.hidden, c.qkv_bias);
    l.v = map(kv_size, c.hidden, c.qkv_bias);
    if (c.qk_norm) l.q_norm = l.k_norm = ones(c.head_dim);
    l.o = map(c.hidden, q_size, c.output_bias);
    l.feed_forward_norm = ones(c.hidden);
    l.gate = map(c.intermediate, c.hidden, c.mlp_bias);
    l.up = map(c.intermediate, c.hidden, c.mlp_bias);
    l.down = map(c.hidden, c.intermediate, c.mlp_bias);
    w.layers.push_back(std::move(l));
  }
  w.norm = ones(c.hidden);
  if (!c.tied_head) w.head = random(c.vocab, c.hidden);
  return w;
}

/// Bytes of all matrices.
inline std::size_t matrix_bytes(const model_weights& w) {
  std::size_t bytes = w.embedding.bytes() + w.head.bytes();
  for (const layer_weights& l : w.layers)
    for (const linear* map : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) bytes += map->weight.bytes();
  return bytes;
}

}  // namespace decode::speed
