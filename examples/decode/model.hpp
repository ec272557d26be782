// SPDX-License-Identifier: Apache-2.0
// The forward pass of Llama, Qwen2 and Qwen3: all of the model but its attention, which belongs to
// the cache. Any number of packed tokens pass together, so a prompt in chunks and one token at a
// time run the same lines.
//
// T = tokens of this pass, V = vocab, H = hidden, F = intermediate, N = heads, G = kv_heads,
// D = head_dim, R = rows whose logits are asked for
#pragma once

#include <algorithm>  // std::copy_n, std::max, std::min, std::ranges::copy
#include <cmath>      // std::cos, std::exp, std::pow, std::sin, std::sqrt
#include <cstddef>    // std::size_t
#include <numbers>    // std::numbers::pi
#include <stdexcept>  // std::invalid_argument
#include <utility>    // std::move
#include <vector>     // std::vector

#include <zoomr/core/executor.hpp>  // zoomr::executor
#include <zoomr/core/view.hpp>      // zoomr::view, zoomr::index_t

#include "config.hpp"
#include "product.hpp"
#include "weights.hpp"

namespace decode {

/// Radians a position for each pair of dimensions (d, d + D/2) of a head: [D/2].
inline std::vector<double> rope_frequencies(const model_config& c) {
  std::vector<double> frequencies;
  for (std::size_t d = 0; d < c.head_dim / 2; ++d) {
    double f = std::pow(c.rope_theta, -2.0 * double(d) / double(c.head_dim));
    if (c.rope.method == rope_scaling::kind::linear) f /= c.rope.factor;
    if (c.rope.method == rope_scaling::kind::llama3) {
      const double turns = c.rope.original_context * f / (2 * std::numbers::pi);
      const double blend = (turns - c.rope.low_frequency) / (c.rope.high_frequency - c.rope.low_frequency);
      const double keep = std::min(1.0, std::max(0.0, blend));  // 0: stretched, 1: as it is
      f = keep * f + (1 - keep) * f / c.rope.factor;
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

/// A model and the memory of one pass. Not for two threads at once.
class model {
 public:
  /// @param threads  that multiply; what runs them must outlive the model
  model(model_config config, model_weights weights, const zoomr::executor& threads = {})
      : config_(std::move(config)),
        weights_(std::move(weights)),
        threads_(threads),
        frequencies_(rope_frequencies(config_)) {}

  const model_config& config() const { return config_; }
  const zoomr::executor& threads() const { return threads_; }

  /// One pass over packed tokens.
  ///
  /// @param step       takes each layer's rotated keys and values, then answers its queries:
  ///                     step.append(layer, k, v)        k, v [T, G, D]
  ///                     step.attend(layer, q, out)      q, out [T, N, D]; not yet scaled by 1/√D
  /// @param tokens     [T]     ids below config().vocab
  /// @param positions  [T]     of each token in its sequence, from 0
  /// @param rows       [R]     which of the T tokens need logits
  /// @param logits     [R, V]  written
  /// @throws           std::invalid_argument where sizes, ids, positions or rows do not fit
  template <class Step>
  void forward(Step& step, zoomr::view<const token_id> tokens, zoomr::view<const zoomr::index_t> positions,
               zoomr::view<const zoomr::index_t> rows, zoomr::view<float, 2> logits) {
    check(tokens, positions, rows, logits);
    const auto& c = config_;
    const auto count = static_cast<std::size_t>(tokens.size());  // T
    reserve(count);
    rotate_by(positions);
    for (std::size_t t = 0; t < count; ++t)  // x [T, H]
      std::ranges::copy(weights_.embedding.row(static_cast<std::size_t>(tokens.data()[t])), &x_[t * c.hidden]);

    for (std::size_t layer = 0; layer < c.layers; ++layer) {
      const layer_weights& w = weights_.layers[layer];
      normalize(x_.data(), count, w.attention_norm, h_.data());  // h [T, H]
      multiply(h_.data(), count, w.q, q_.data());                // q [T, N, D]
      multiply(h_.data(), count, w.k, k_.data());                // k [T, G, D]
      multiply(h_.data(), count, w.v, v_.data());                // v [T, G, D]
      if (c.qk_norm) {
        normalize(q_.data(), count * c.heads, w.q_norm, q_.data());  // each head, [D]
        normalize(k_.data(), count * c.kv_heads, w.k_norm, k_.data());
      }
      rotate(q_.data(), count, c.heads);
      rotate(k_.data(), count, c.kv_heads);
      attend(step, layer, count);                  // a [T, N, D]
      multiply(a_.data(), count, w.o, h_.data());  // h [T, H]
      add(h_.data(), count * c.hidden, x_.data());

      normalize(x_.data(), count, w.feed_forward_norm, h_.data());  // h [T, H]
      multiply(h_.data(), count, w.gate, gate_.data());             // gate [T, F]
      multiply(h_.data(), count, w.up, up_.data());                 // up [T, F]
      for (std::size_t i = 0; i < count * c.intermediate; ++i)      // silu(gate) * up
        gate_[i] *= up_[i] / (1.0f + std::exp(-gate_[i]));
      multiply(gate_.data(), count, w.down, h_.data());  // h [T, H]
      add(h_.data(), count * c.hidden, x_.data());
    }

    const auto wanted = static_cast<std::size_t>(rows.size());  // R
    for (std::size_t r = 0; r < wanted; ++r)                    // h [R, H]
      normalize(&x_[static_cast<std::size_t>(rows.data()[r]) * c.hidden], 1, weights_.norm, &h_[r * c.hidden]);
    const matrix& head = weights_.head.empty() ? weights_.embedding : weights_.head;  // [V, H]
    decode::multiply(h_.data(), wanted, head, threads_, logits.data());
  }

 private:
  void check(zoomr::view<const token_id> tokens, zoomr::view<const zoomr::index_t> positions,
             zoomr::view<const zoomr::index_t> rows, zoomr::view<float, 2> logits) const {
    const auto vocab = static_cast<zoomr::index_t>(config_.vocab);
    const auto expects = [](bool condition, const char* sentence) {
      if (!condition) throw std::invalid_argument(sentence);
    };
    expects(positions.size() == tokens.size(), "forward: each token needs one position");
    expects(rows.size() <= tokens.size(), "forward: more rows of logits than tokens");
    expects(logits.has_shape({rows.size(), vocab}), "forward: logits must be [rows, vocab]");
    for (const token_id token : tokens)
      expects(token >= 0 && token < vocab, "forward: a token id is not in the vocabulary");
    for (const zoomr::index_t position : positions) expects(position >= 0, "forward: a position is negative");
    for (const zoomr::index_t row : rows)
      expects(row >= 0 && row < tokens.size(), "forward: a row is not one of the tokens");
  }

  // Memory for passes of `count` tokens: grows when a pass is larger than all before it.
  void reserve(std::size_t count) {
    const auto& c = config_;
    if (x_.size() >= count * c.hidden) return;
    for (auto* buffer : {&x_, &h_}) buffer->resize(count * c.hidden);
    for (auto* buffer : {&q_, &a_}) buffer->resize(count * c.heads * c.head_dim);
    for (auto* buffer : {&k_, &v_}) buffer->resize(count * c.kv_heads * c.head_dim);
    for (auto* buffer : {&gate_, &up_}) buffer->resize(count * c.intermediate);
    for (auto* buffer : {&cos_, &sin_}) buffer->resize(count * c.head_dim / 2);
  }

  // The angles of this pass, once for all its layers and heads: cos, sin [T, D/2].
  void rotate_by(zoomr::view<const zoomr::index_t> positions) {
    std::size_t i = 0;
    for (const zoomr::index_t position : positions)
      for (const double frequency : frequencies_) {
        cos_[i] = static_cast<float>(std::cos(position * frequency));
        sin_[i++] = static_cast<float>(std::sin(position * frequency));
      }
  }

  // Turns dimensions d and d + D/2 of each head by the angle of its token; x [T, heads, D].
  void rotate(float* x, std::size_t count, std::size_t heads) const {
    const std::size_t half = config_.head_dim / 2;
    for (std::size_t t = 0; t < count; ++t)
      for (std::size_t head = 0; head < heads; ++head, x += 2 * half)
        for (std::size_t d = 0; d < half; ++d) {
          const float cos = cos_[t * half + d], sin = sin_[t * half + d];
          const float first = x[d], second = x[d + half];
          x[d] = first * cos - second * sin;
          x[d + half] = second * cos + first * sin;
        }
  }

  template <class Step>
  void attend(Step& step, std::size_t layer, std::size_t count) {
    const auto t = static_cast<zoomr::index_t>(count);
    const auto d = static_cast<zoomr::index_t>(config_.head_dim);
    const auto n = static_cast<zoomr::index_t>(config_.heads);
    const auto g = static_cast<zoomr::index_t>(config_.kv_heads);
    const auto l = static_cast<zoomr::index_t>(layer);
    step.append(l, zoomr::view<const float, 3>{k_.data(), {t, g, d}},
                zoomr::view<const float, 3>{v_.data(), {t, g, d}});
    step.attend(l, zoomr::view<const float, 3>{q_.data(), {t, n, d}}, zoomr::view<float, 3>{a_.data(), {t, n, d}});
  }

  // RMSNorm of each row: x / sqrt(mean(x²) + ε) * weight; x, out [rows, weight.size()].
  void normalize(const float* x, std::size_t rows, const std::vector<float>& weight, float* out) const {
    const std::size_t width = weight.size();
    for (std::size_t row = 0; row < rows; ++row, x += width, out += width) {
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) squares += double{x[i]} * x[i];
      const double scale = 1.0 / std::sqrt(squares / double(width) + config_.norm_epsilon);
      for (std::size_t i = 0; i < width; ++i) out[i] = static_cast<float>(x[i] * scale) * weight[i];
    }
  }

  // y [rows, out] = x [rows, in] · Wᵀ + b, with W [out, in], b [out]
  void multiply(const float* x, std::size_t rows, const linear& l, float* y) const {
    decode::multiply(x, rows, l.weight, threads_, y);
    for (std::size_t row = 0; row < rows && !l.bias.empty(); ++row)
      add(l.bias.data(), l.bias.size(), y + row * l.bias.size());
  }

  // sum [size] += x [size]
  static void add(const float* x, std::size_t size, float* sum) {
    for (std::size_t i = 0; i < size; ++i) sum[i] += x[i];
  }

  model_config config_;
  model_weights weights_;
  zoomr::executor threads_;
  std::vector<double> frequencies_;  // [D/2]
  std::vector<float> x_, h_;         // [T, H]     the residual stream; what a block reads or adds
  std::vector<float> q_, a_;         // [T, N, D]  queries; what attention answers
  std::vector<float> k_, v_;         // [T, G, D]
  std::vector<float> gate_, up_;     // [T, F]
  std::vector<float> cos_, sin_;     // [T, D/2]
};

/// A checkpoint directory: config.json and the weights.
/// @param threads  that multiply; what runs them must outlive the model
inline model load_model(const std::filesystem::path& directory, const zoomr::executor& threads = {}) {
  const model_config config = read_config(directory);
  return model(config, read_weights(directory, config), threads);
}

}  // namespace decode
