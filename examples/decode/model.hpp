// SPDX-License-Identifier: Apache-2.0
// The forward pass of Llama, Qwen2, Qwen3 and Gemma 3: all of the model but its attention, which
// belongs to the cache. Any number of packed tokens pass together, so a prompt in chunks and one
// token at a time run the same lines.
//
// T = tokens of this pass, V = vocab, H = hidden, F = intermediate, N = heads, G = kv_heads,
// D = head_dim, R = rows whose logits are asked for
#pragma once

#include <algorithm>   // std::ranges::transform
#include <cmath>       // std::exp
#include <cstddef>     // std::size_t
#include <filesystem>  // std::filesystem::path
#include <utility>     // std::move
#include <vector>      // std::vector

#include <zoomr/core/executor.hpp>   // zoomr::executor
#include <zoomr/core/view.hpp>       // zoomr::view, zoomr::index_t
#include <zoomr/math/functions.hpp>  // zoomr::fused

#include "config.hpp"
#include "product.hpp"
#include "weights.hpp"

namespace decode {

/// Radians a position for each pair of dimensions (d, d + D/2) of a head: [D/2].
std::vector<double> rope_frequencies(const rotary& rope, std::size_t head_dim);
/// Those of the layers without a sliding window, for zoomr::config::rotary: these have the heads that vote.
std::vector<float> voter_frequencies(const model_config& c);

/// A model and the memory of one pass. Not for two threads at once.
class model {
 public:
  /// @param threads  that multiply; what runs them must outlive the model
  model(model_config config, model_weights weights, const zoomr::executor& threads = {});

  const model_config& config() const { return config_; }
  const zoomr::executor& threads() const { return threads_; }

  /// Which heads vote in the caches that are opened for it from now on.
  /// @param weights  [layers, heads]; empty: unknown
  /// @param keys     in what the keys that they read are kept
  void set_voters(std::vector<float> weights, const voter_bounds& bounds, zoomr::voter_storage keys) {
    config_.voters = std::move(weights), config_.bounds = bounds, config_.voter_keys = keys;
  }

  /// The same of whose choice layers read.
  void set_anchors(layer_tables anchors) { config_.anchors = std::move(anchors); }
  /// The same of which KV heads stream.
  void set_streaming(streaming_heads heads) { config_.streaming = std::move(heads); }

  /// One pass over packed tokens.
  ///
  /// @param step       takes each layer's rotated keys and values, then answers its queries:
  ///                     step.append(layer, k, v)        k, v [T, G, D]; not of a layer without keys of its own
  ///                     step.attend(layer, q, out)      q, out [T, N, D]; not yet scaled
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
      std::ranges::transform(weights_.embedding.row(static_cast<std::size_t>(tokens.data()[t])), &x_[t * c.hidden],
                             [scale = static_cast<float>(c.embedding_scale)](float x) { return x * scale; });

    for (std::size_t layer = 0; layer < c.layers; ++layer) {
      const layer_weights& w = weights_.layers[layer];
      normalize(x_.data(), count, w.attention_norm, h_.data());                   // h [T, H]
      multiply(h_.data(), count, w.q, q_.data());                                 // q [T, N, D]
      if (c.qk_norm) normalize(q_.data(), count * c.heads, w.q_norm, q_.data());  // each head, [D]
      const angles& turned = c.has_window(layer) ? window_angles_ : angles_;
      rotate(q_.data(), count, c.heads, turned);
      if (c.has_keys(layer)) {
        multiply(h_.data(), count, w.k, k_.data());  // k [T, G, D]
        multiply(h_.data(), count, w.v, v_.data());  // v [T, G, D]
        if (c.qk_norm) normalize(k_.data(), count * c.kv_heads, w.k_norm, k_.data());
        rotate(k_.data(), count, c.kv_heads, turned);
      }
      attend(step, layer, count);                  // a [T, N, D]
      multiply(a_.data(), count, w.o, h_.data());  // h [T, H]
      if (c.out_norms) normalize(h_.data(), count, w.attention_out_norm, h_.data());
      add(h_.data(), count * c.hidden, x_.data());

      normalize(x_.data(), count, w.feed_forward_norm, h_.data());  // h [T, H]
      multiply(h_.data(), count, w.gate, gate_.data());             // gate [T, F]
      multiply(h_.data(), count, w.up, up_.data());                 // up [T, F]
      for (std::size_t i = 0; i < count * c.intermediate; ++i)      // silu(gate) * up, or gelu(gate) * up
        gate_[i] *= up_[i] / (1.0f + std::exp(-(c.gelu ? gelu_slope(gate_[i]) : gate_[i])));
      multiply(gate_.data(), count, w.down, h_.data());  // h [T, H]
      if (c.out_norms) normalize(h_.data(), count, w.feed_forward_out_norm, h_.data());
      add(h_.data(), count * c.hidden, x_.data());
    }

    const auto wanted = static_cast<std::size_t>(rows.size());  // R
    for (std::size_t r = 0; r < wanted; ++r)                    // h [R, H]
      normalize(&x_[static_cast<std::size_t>(rows.data()[r]) * c.hidden], 1, weights_.norm, &h_[r * c.hidden]);
    const matrix& head = weights_.head.empty() ? weights_.embedding : weights_.head;  // [V, H]
    decode::multiply(h_.data(), wanted, head, threads_, logits.data());
    if (const auto cap = static_cast<float>(c.logit_cap); cap > 0)
      for (std::size_t i = 0; i < wanted * c.vocab; ++i) logits.data()[i] = cap * std::tanh(logits.data()[i] / cap);
  }

 private:
  void check(zoomr::view<const token_id> tokens, zoomr::view<const zoomr::index_t> positions,
             zoomr::view<const zoomr::index_t> rows, zoomr::view<float, 2> logits) const;

  // Memory for passes of `count` tokens: grows when a pass is larger than all before it.
  void reserve(std::size_t count);

  // A rotary embedding, and its angles in this pass, once for all layers and heads that have it.
  struct angles {
    std::vector<double> frequencies;  // [D/2]
    std::vector<float> cos, sin;      // [T, D/2]
  };
  void rotate_by(zoomr::view<const zoomr::index_t> positions);

  // Turns dimensions d and d + D/2 of each head by the angle of its token; x [T, heads, D].
  void rotate(float* x, std::size_t count, std::size_t heads, const angles& by) const;

  // gelu(x) = x / (1 + exp(-gelu_slope(x))), since (1 + tanh(s)) / 2 = 1 / (1 + exp(-2 s)). Fused by its own word: left
  // to the compiler, `forward` would give other bits for one kind of step than for another.
  static float gelu_slope(float x) {
    constexpr float slope = 1.5957691216057308f;  // 2 √(2/π)
    return slope * x * zoomr::fused(0.044715f, x * x, 1.0f);
  }

  template <class Step>
  void attend(Step& step, std::size_t layer, std::size_t count) {
    const auto t = static_cast<zoomr::index_t>(count);
    const auto d = static_cast<zoomr::index_t>(config_.head_dim);
    const auto n = static_cast<zoomr::index_t>(config_.heads);
    const auto g = static_cast<zoomr::index_t>(config_.kv_heads);
    const auto l = static_cast<zoomr::index_t>(layer);
    if (config_.has_keys(layer))
      step.append(l, zoomr::view<const float, 3>{k_.data(), {t, g, d}},
                  zoomr::view<const float, 3>{v_.data(), {t, g, d}});
    step.attend(l, zoomr::view<const float, 3>{q_.data(), {t, n, d}}, zoomr::view<float, 3>{a_.data(), {t, n, d}});
  }

  // RMSNorm of each row: x / sqrt(mean(x²) + ε) * weight; x, out [rows, weight.size()].
  void normalize(const float* x, std::size_t rows, const std::vector<float>& weight, float* out) const;

  // y [rows, out] = x [rows, in] · Wᵀ + b, with W [out, in], b [out]
  void multiply(const float* x, std::size_t rows, const linear& l, float* y) const;

  // sum [size] += x [size]
  static void add(const float* x, std::size_t size, float* sum);

  model_config config_;
  model_weights weights_;
  zoomr::executor threads_;
  angles angles_, window_angles_;
  std::vector<float> x_, h_;      // [T, H]     the residual stream; what a block reads or adds
  std::vector<float> q_, a_;      // [T, N, D]  queries; what attention answers
  std::vector<float> k_, v_;      // [T, G, D]
  std::vector<float> gate_, up_;  // [T, F]
};

/// A checkpoint directory: config.json and the weights.
/// @param threads  that multiply; what runs them must outlive the model
model load_model(const std::filesystem::path& directory, const zoomr::executor& threads = {});

}  // namespace decode
