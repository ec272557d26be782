// SPDX-License-Identifier: Apache-2.0
#include "weights.hpp"

#include <cstddef>  // std::size_t
#include <set>      // std::set
#include <string>   // std::string
#include <utility>  // std::move

#include "input_error.hpp"
#include "safetensors.hpp"

namespace decode {
namespace {

/// Takes tensors by name and remembers which were taken.
class weight_reader {
 public:
  explicit weight_reader(const std::filesystem::path& directory) : files_(directory) {}

  std::vector<float> vector(const std::string& name, std::size_t size) {
    taken_.insert(name);
    return widened(files_.load(name, {size}), 0, size);
  }
  decode::matrix matrix(const std::string& name, std::size_t rows, std::size_t columns) {
    taken_.insert(name);
    return {rows, columns, files_.load(name, {rows, columns})};
  }
  linear map(const std::string& name, std::size_t out, std::size_t in, bool bias) {
    linear l{matrix(name + ".weight", out, in), {}};
    if (bias) l.bias = vector(name + ".bias", out);
    return l;
  }

  void pass_over(const std::string& name) { taken_.insert(name); }

  /// A tensor that nobody asked for means another model: say so instead of being wrong.
  void expect_nothing_left(const model_config& c) const {
    for (const auto& [name, place] : files_.tensors()) {
      const bool known = name.ends_with(".rotary_emb.inv_freq")  // older files; computed here
                         || (c.tied_head && name == "lm_head.weight");
      if (!known && !taken_.contains(name))
        fail(named(place.file), ": the tensor ", shown(name), " has no place in the model that config.json describes");
    }
  }

 private:
  safetensors files_;
  std::set<std::string> taken_;
};

}  // namespace

model_weights read_weights(const std::filesystem::path& directory, const model_config& c) {
  const std::size_t q_size = c.heads * c.head_dim;      // N * D
  const std::size_t kv_size = c.kv_heads * c.head_dim;  // G * D
  weight_reader read(directory);
  const auto gains = [&](const std::string& name, std::size_t size) {  // of a norm
    std::vector<float> made = read.vector(name + ".weight", size);
    for (float& gain : made) gain += c.gains_less_one ? 1.0f : 0.0f;
    return made;
  };
  model_weights w;
  w.embedding = read.matrix("model.embed_tokens.weight", c.vocab, c.hidden);
  for (std::size_t layer = 0; layer < c.layers; ++layer) {
    const std::string at = "model.layers." + std::to_string(layer) + ".";
    layer_weights l;
    l.attention_norm = gains(at + "input_layernorm", c.hidden);
    l.q = read.map(at + "self_attn.q_proj", q_size, c.hidden, c.qkv_bias);
    if (c.qk_norm) l.q_norm = gains(at + "self_attn.q_norm", c.head_dim);
    if (c.has_keys(layer)) {
      l.k = read.map(at + "self_attn.k_proj", kv_size, c.hidden, c.qkv_bias);
      l.v = read.map(at + "self_attn.v_proj", kv_size, c.hidden, c.qkv_bias);
      if (c.qk_norm) l.k_norm = gains(at + "self_attn.k_norm", c.head_dim);
    } else {  // some files have them all the same
      for (const char* unused : {"k_proj.weight", "v_proj.weight", "k_norm.weight"})
        read.pass_over(at + "self_attn." + unused);
    }
    l.o = read.map(at + "self_attn.o_proj", c.hidden, q_size, c.output_bias);
    if (c.out_norms) {
      l.attention_out_norm = gains(at + "post_attention_layernorm", c.hidden);
      l.feed_forward_norm = gains(at + "pre_feedforward_layernorm", c.hidden);
      l.feed_forward_out_norm = gains(at + "post_feedforward_layernorm", c.hidden);
    } else {
      l.feed_forward_norm = gains(at + "post_attention_layernorm", c.hidden);
    }
    l.gate = read.map(at + "mlp.gate_proj", c.intermediate, c.hidden, c.mlp_bias);
    l.up = read.map(at + "mlp.up_proj", c.intermediate, c.hidden, c.mlp_bias);
    l.down = read.map(at + "mlp.down_proj", c.hidden, c.intermediate, c.mlp_bias);
    w.layers.push_back(std::move(l));
  }
  w.norm = gains("model.norm", c.hidden);
  if (!c.tied_head) w.head = read.matrix("lm_head.weight", c.vocab, c.hidden);
  read.expect_nothing_left(c);
  return w;
}

}  // namespace decode
