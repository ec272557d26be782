// SPDX-License-Identifier: Apache-2.0
// The weights of a model, by the names that Hugging Face gives to them. Matrices stay in the type
// that the checkpoint has them in (matrix.hpp), mostly 2 bytes a parameter. Vectors, which are
// short, are float32.
//
// V = vocab, H = hidden, F = intermediate, N = heads, G = kv_heads, D = head_dim
#pragma once

#include <filesystem>  // std::filesystem::path
#include <vector>      // std::vector

#include "config.hpp"
#include "matrix.hpp"

namespace decode {

/// y = x Wᵀ + b.
struct linear {
  matrix weight;            // [out, in]
  std::vector<float> bias;  // [out], or empty
};

struct layer_weights {
  std::vector<float> attention_norm;         // [H]
  linear q;                                  // [N * D, H]
  linear k;                                  // [G * D, H]; empty where the layer has no keys of its own
  linear v;                                  // [G * D, H]; the same
  std::vector<float> q_norm;                 // [D], or empty
  std::vector<float> k_norm;                 // [D], or empty
  linear o;                                  // [H, N * D]
  std::vector<float> attention_out_norm;     // [H], or empty
  std::vector<float> feed_forward_norm;      // [H]
  linear gate;                               // [F, H]
  linear up;                                 // [F, H]
  linear down;                               // [H, F]
  std::vector<float> feed_forward_out_norm;  // [H], or empty
};

struct model_weights {
  matrix embedding;                   // [V, H]
  std::vector<layer_weights> layers;  // [layers]
  std::vector<float> norm;            // [H]
  matrix head;                        // [V, H], or empty: the embedding is the head
};

/// Every weight of the checkpoint, each with its shape checked and every number finite.
model_weights read_weights(const std::filesystem::path& directory, const model_config& c);

}  // namespace decode
