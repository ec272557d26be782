// SPDX-License-Identifier: Apache-2.0
// config.json: the shape of a Llama, Qwen2, Qwen3 or Gemma 3 model. Each number is checked here, once,
// so that everything below may multiply them without fear.
#pragma once

#include <algorithm>   // std::count
#include <cstddef>     // std::size_t
#include <filesystem>  // std::filesystem::path
#include <optional>    // std::optional
#include <string>      // std::string
#include <vector>      // std::vector

#include <zoomr/cache/config.hpp>  // zoomr::config, zoomr::voter_storage
#include <zoomr/core/shape.hpp>    // zoomr::shape
#include <zoomr/core/types.hpp>    // zoomr::token_id

#include "json_file.hpp"

namespace decode {

using zoomr::token_id;

/// Rotary angles, and how they are stretched beyond the context of pretraining.
struct rotary {
  enum class kind { none, linear, llama3 };
  double theta = 0;  // dimension d of a head turns by theta^(-2d / head_dim) a position
  kind method = kind::none;
  double factor = 1;            // wavelengths are multiplied by this (llama3: the long ones)
  double low_frequency = 1;     // llama3: fewer turns than this in `original_context`: stretched
  double high_frequency = 4;    // llama3: more turns than this: as they are; blended in between
  double original_context = 0;  // llama3: tokens

  friend bool operator==(const rotary&, const rotary&) = default;
};

/// When a posterior of the heads that vote is unsure: zoomr::config::voters_unsure, voters_none and its slope.
struct voter_bounds {
  float unsure = zoomr::infinity;  // bits
  float none = -zoomr::infinity;   // logit
  float none_slope = 0;            // less for each e-fold of segments

  void set_in(zoomr::config& limits) const {
    limits.voters_unsure = unsure, limits.voters_none = none, limits.voters_none_slope = none_slope;
  }
  friend bool operator==(const voter_bounds&, const voter_bounds&) = default;
};

/// Whose choice layers read: zoomr::config::anchors.
struct layer_tables {
  std::vector<zoomr::index_t> layers;    // [layers]; empty: each chooses
  std::vector<zoomr::index_t> kv_heads;  // [layers, kv_heads]
};

/// KV heads of two kinds, and what the second one keeps.
struct streaming_heads {
  std::vector<bool> retrieval;           // [layers, kv_heads]  false: it streams; empty: all are of one kind
  zoomr::index_t sinks = 0, recent = 0;  // tokens that those which stream keep
};

struct model_config {
  std::string family;            // llama, qwen2, qwen3, gemma3
  std::size_t vocab = 0;         // rows of the embedding; may exceed the tokenizer's size
  std::size_t hidden = 0;        // width of the residual stream
  std::size_t intermediate = 0;  // width inside the feed-forward block
  std::size_t layers = 0;
  std::size_t heads = 0;  // query heads; heads % kv_heads == 0
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;  // a multiple of 8, <= 256; heads * head_dim may differ from hidden
  std::size_t context = 0;   // tokens the model was made for (max_position_embeddings)
  double norm_epsilon = 0;
  rotary rope;                 // of layers that see all tokens before them, mostly all layers
  rotary window_rope;          // of the others
  std::size_t window = 0;      // others: a token at position i sees those at j with i - j < window; 0: there are none
  std::vector<bool> windows;   // [layers]  which layers are others; empty: none
  double attention_scale = 0;  // of q · k; 0: 1/√head_dim
  double embedding_scale = 1;  // Gemma 3: √hidden
  double logit_cap = 0;        // logits = cap * tanh(logits / cap) at last; 0: as they are
  bool qkv_bias = false;       // Qwen2
  bool output_bias = false;    // attention_bias of Llama and Qwen3: q, k, v and o
  bool mlp_bias = false;
  bool qk_norm = false;         // Qwen3, Gemma 3: RMSNorm over each head of q and k before the rotation
  bool out_norms = false;       // Gemma 3: RMSNorm of what attention and feed-forward add, too
  bool gains_less_one = false;  // Gemma 3: the file has the gains of all norms less 1
  bool gelu = false;            // Gemma 3: the gate is a gelu, by its formula with tanh; otherwise a silu
  bool tied_head = false;       // the output head is the embedding
  std::optional<token_id> bos;
  std::vector<token_id> eos;  // any of them ends the text
  zoomr::voter_storage voter_keys = zoomr::voter_storage::as_cache;
  std::vector<float> voters;  // [layers, heads]  weights of heads that find what is needed (voters.hpp); empty: unknown
  voter_bounds bounds;        // of their posterior
  layer_tables anchors;
  std::vector<std::size_t> donors;  // [layers]  whose keys and values each layer attends; empty: each has its own
  streaming_heads streaming;

  bool has_window(std::size_t layer) const { return !windows.empty() && windows[layer]; }
  bool has_keys(std::size_t layer) const { return donors.empty() || donors[layer] == layer; }
  std::size_t layers_in_window() const {
    return static_cast<std::size_t>(std::count(windows.begin(), windows.end(), true));
  }
};

/// Whose keys the layers with a sliding window attend, or the others, by their numbers among these, for
/// zoomr::config::donors.  [such layers], or empty: each has its own
std::vector<zoomr::index_t> donors_among(const model_config& c, bool windowed);

/// Of so many of its layers.
inline zoomr::shape shape_of(const model_config& c, std::size_t layers) {
  return {static_cast<zoomr::index_t>(layers), static_cast<zoomr::index_t>(c.heads),
          static_cast<zoomr::index_t>(c.kv_heads), static_cast<zoomr::index_t>(c.head_dim)};
}

/// The shape of a model, from the text of its config.json.
///
/// @param where  what to call the text in a complaint
/// @throws       input_error: unknown architecture, missing keys, wrong types, absurd values
model_config parse_config(const json& text, const std::string& where);

/// From a file, or from the config.json of a checkpoint's directory, where generation_config.json may name more ids
/// that end a text.
model_config read_config_file(const std::filesystem::path& file);
model_config read_config(const std::filesystem::path& directory);

/// For what gives all layers and KV heads one cache, or knows no scale but 1/√head_dim.
///
/// @param who  begins the complaint
/// @throws     input_error for Gemma 3, and where some KV heads stream
void expect_layers_alike(const model_config& c, const std::string& who);

}  // namespace decode
