// SPDX-License-Identifier: Apache-2.0
// Device twin of ../model.hpp: the forward pass of Llama, Qwen2, Qwen3 and Gemma 3, line for line.
// Weights and activations are
// float32 on the device; attention belongs to the cache.
//
// T = tokens of this pass, V = vocab, H = hidden, F = intermediate, N = heads, G = kv_heads, D = head_dim
#pragma once

#include "../decode/model.hpp"
#include "kernels.cuh"
#include "product.cuh"

namespace decode::device {

/// `linear` on the device.
struct device_linear {
  index_t out = 0;
  index_t in = 0;
  device_array<float> weight;  // [out, in]
  device_array<float> bias;    // [out], or empty
};

/// `layer_weights` on the device.
struct device_layer {
  device_array<float> attention_norm;                             // [H]
  device_linear q, k, v;                                          // [N * D, H], [G * D, H], [G * D, H]
  device_array<float> q_norm, k_norm;                             // [D], or empty
  device_linear o;                                                // [H, N * D]
  device_array<float> feed_forward_norm;                          // [H]
  device_linear gate, up, down;                                   // [F, H], [F, H], [H, F]
  device_array<float> attention_out_norm, feed_forward_out_norm;  // [H], or empty
};

/// A model and the memory of one pass, on the device. Not for two threads at once.
class device_model {
 public:
  /// @param tokens  of the longest sequence
  /// @param chunk   most tokens of one pass
  device_model(const model_config& config, const model_weights& weights, index_t tokens, index_t chunk)
      : config_(config), chunk_(chunk), product_(on()) {
    upload(weights);
    angles_ = angles_of(config.rope, tokens);
    if (config.window > 0) window_angles_ = angles_of(config.window_rope, tokens);
    const auto make = [&](index_t width) { return device_array<float>(std::size_t(chunk) * std::size_t(width)); };
    for (auto* buffer : {&x_, &h_}) *buffer = make(hidden());
    for (auto* buffer : {&q_, &a_}) *buffer = make(heads() * head_dim());
    for (auto* buffer : {&k_, &v_}) *buffer = make(kv_heads() * head_dim());
    for (auto* buffer : {&gate_, &up_}) *buffer = make(intermediate());
    tokens_ = device_array<token_id>(std::size_t(chunk));
    positions_ = device_array<index_t>(std::size_t(chunk));
    logits_ = device_array<float>(config.vocab);
  }

  const model_config& config() const { return config_; }
  index_t chunk() const { return chunk_; }
  zoomr::stream_ref on() const { return stream_.get(); }

  /// Where a pass finds its tokens and leaves its logits.
  token_id* tokens() const { return tokens_.data(); }       // [T]
  index_t* positions() const { return positions_.data(); }  // [T]
  const float* logits() const { return logits_.data(); }    // [V]  of the last token

  /// Enqueues one pass over the first `count` of `tokens()` at `positions()`.
  ///
  /// @param step  takes each layer's rotated keys and values, then answers its queries:
  ///                step.append(layer, k, v)    k, v [T, G, D]
  ///                step.attend(layer, q, out)  q, out [T, N, D]; not yet scaled
  template <class Step>
  void forward(Step& step, index_t count) const {
    enqueue(count, look_up_kernel<float>, embedding_.data(), tokens(), hidden(),
            static_cast<float>(config_.embedding_scale), x_.data());  // x [T, H]

    for (index_t layer = 0; layer < static_cast<index_t>(layers_.size()); ++layer) {
      const device_layer& w = layers_[static_cast<std::size_t>(layer)];
      normalize(x_.data(), count, w.attention_norm, h_.data());  // h [T, H]
      multiply(h_.data(), count, w.q, q_.data());                // q [T, N, D]
      multiply(h_.data(), count, w.k, k_.data());                // k [T, G, D]
      multiply(h_.data(), count, w.v, v_.data());                // v [T, G, D]
      if (config_.qk_norm) {
        normalize(q_.data(), count * heads(), w.q_norm, q_.data());  // each head, [D]
        normalize(k_.data(), count * kv_heads(), w.k_norm, k_.data());
      }
      const angles& turned = config_.has_window(static_cast<std::size_t>(layer)) ? window_angles_ : angles_;
      rotate(q_.data(), count, heads(), turned);
      rotate(k_.data(), count, kv_heads(), turned);
      attend(step, layer, count);                  // a [T, N, D]
      multiply(a_.data(), count, w.o, h_.data());  // h [T, H]
      if (config_.out_norms) normalize(h_.data(), count, w.attention_out_norm, h_.data());
      each(count * hidden(), add_kernel<float>, h_.data(), size(count, hidden()), x_.data());

      normalize(x_.data(), count, w.feed_forward_norm, h_.data());  // h [T, H]
      multiply(h_.data(), count, w.gate, gate_.data());             // gate [T, F]
      multiply(h_.data(), count, w.up, up_.data());                 // up [T, F]
      each(count * intermediate(), gate_kernel<float>, gate_.data(), up_.data(), config_.gelu,
           size(count, intermediate()));
      multiply(gate_.data(), count, w.down, h_.data());  // h [T, H]
      if (config_.out_norms) normalize(h_.data(), count, w.feed_forward_out_norm, h_.data());
      each(count * hidden(), add_kernel<float>, h_.data(), size(count, hidden()), x_.data());
    }

    normalize(x_.data() + size(count - 1, hidden()), 1, norm_, h_.data());  // h [1, H]
    const device_array<float>& head = head_.empty() ? embedding_ : head_;   // [V, H]
    device::multiply(product_, h_.data(), 1, head.data(), vocab(), hidden(), 0.0f, logits_.data());
    if (const auto cap = static_cast<float>(config_.logit_cap); cap > 0)
      each(vocab(), cap_kernel<float>, cap, std::int64_t{vocab()}, logits_.data());
  }

 private:
  index_t hidden() const { return static_cast<index_t>(config_.hidden); }
  index_t intermediate() const { return static_cast<index_t>(config_.intermediate); }
  index_t heads() const { return static_cast<index_t>(config_.heads); }
  index_t kv_heads() const { return static_cast<index_t>(config_.kv_heads); }
  index_t head_dim() const { return static_cast<index_t>(config_.head_dim); }
  index_t vocab() const { return static_cast<index_t>(config_.vocab); }
  static std::int64_t size(index_t rows, index_t width) { return std::int64_t{rows} * width; }

  void upload(const model_weights& from) {
    const auto copy = [&](const std::vector<float>& values) { return device_array<float>(values, on()); };
    const auto map = [&](const linear& l) {
      return device_linear{index_t(l.weight.rows), index_t(l.weight.columns), copy(l.weight.all()), copy(l.bias)};
    };
    embedding_ = copy(from.embedding.all());
    for (const layer_weights& w : from.layers)
      layers_.push_back({copy(w.attention_norm), map(w.q), map(w.k), map(w.v), copy(w.q_norm), copy(w.k_norm), map(w.o),
                         copy(w.feed_forward_norm), map(w.gate), map(w.up), map(w.down), copy(w.attention_out_norm),
                         copy(w.feed_forward_out_norm)});
    norm_ = copy(from.norm);
    head_ = copy(from.head.all());
  }

  // A rotary embedding's angles of all positions, once for all passes; by the host, so that they are the host's.
  struct angles {
    device_array<float> cos, sin;  // [tokens, D/2]
  };
  angles angles_of(const rotary& rope, index_t tokens) const {
    std::vector<float> cosines, sines;
    const std::vector<double> frequencies = rope_frequencies(rope, config_.head_dim);
    for (index_t position = 0; position < tokens; ++position)
      for (const double frequency : frequencies) {
        cosines.push_back(static_cast<float>(std::cos(position * frequency)));
        sines.push_back(static_cast<float>(std::sin(position * frequency)));
      }
    return {device_array<float>(cosines, on()), device_array<float>(sines, on())};
  }

  // A kernel with so many blocks.
  template <class... Parameters, class... Arguments>
  void enqueue(index_t blocks, void (*kernel)(Parameters...), Arguments... arguments) const {
    zoomr::launch({dim3(static_cast<unsigned>(blocks)), dim3(block_size)}, on(), kernel, arguments...);
  }
  // A kernel with so many threads.
  template <class... Parameters, class... Arguments>
  void each(index_t threads, void (*kernel)(Parameters...), Arguments... arguments) const {
    enqueue((threads + block_size - 1) / block_size, kernel, arguments...);
  }

  // x, out [rows, weight.size()]
  void normalize(const float* x, index_t rows, const device_array<float>& weight, float* out) const {
    enqueue(rows, normalize_kernel<float>, x, weight.data(), static_cast<index_t>(weight.size()), config_.norm_epsilon,
            out);
  }

  // y [rows, out] = x [rows, in] · Wᵀ + b, with W [out, in], b [out]
  void multiply(const float* x, index_t rows, const device_linear& l, float* y) const {
    if (!l.bias.empty()) each(rows * l.out, repeat_kernel<float>, l.bias.data(), l.out, size(rows, l.out), y);
    device::multiply(product_, x, rows, l.weight.data(), l.out, l.in, l.bias.empty() ? 0.0f : 1.0f, y);
  }

  void rotate(float* x, index_t count, index_t heads, const angles& by) const {
    enqueue(count, rotate_kernel<float>, x, heads, head_dim() / 2, positions(), by.cos.data(), by.sin.data());
  }

  template <class Step>
  void attend(Step& step, index_t layer, index_t count) const {
    const zoomr::extents<3> of_queries{{count, heads(), head_dim()}};
    const zoomr::extents<3> of_keys{{count, kv_heads(), head_dim()}};
    step.append(layer, zoomr::view<const float, 3>(k_.data(), of_keys),
                zoomr::view<const float, 3>(v_.data(), of_keys));
    step.attend(layer, zoomr::view<const float, 3>(q_.data(), of_queries),
                zoomr::view<float, 3>(a_.data(), of_queries));
  }

  model_config config_;
  index_t chunk_;
  own_stream stream_;
  blas product_;
  device_array<float> embedding_;     // [V, H]
  std::vector<device_layer> layers_;  // [layers]
  device_array<float> norm_, head_;   // [H]; [V, H], or empty: the embedding is the head
  angles angles_, window_angles_;
  device_array<float> x_, h_;        // [T, H]     the residual stream; what a block reads or adds
  device_array<float> q_, a_;        // [T, N, D]  queries; what attention answers
  device_array<float> k_, v_;        // [T, G, D]
  device_array<float> gate_, up_;    // [T, F]
  device_array<float> logits_;       // [V]
  device_array<token_id> tokens_;    // [T]
  device_array<index_t> positions_;  // [T]
};

}  // namespace decode::device
