// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <nlohmann/json.hpp>

#include "input_error.hpp"

namespace decode {
namespace {

rope_scaling read_rope_scaling(const field& scaling) {
  rope_scaling rope;
  const std::string type = scaling.text("rope_type", scaling.text("type", "default"));
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3")
    fail(scaling.where(), " has the type ", shown(type), "; llama3, linear and default are known");
  rope.method = type == "linear" ? rope_scaling::kind::linear : rope_scaling::kind::llama3;
  rope.factor = scaling.at("factor").number(1, 1e6);
  if (type == "linear") return rope;
  rope.low_frequency = scaling.at("low_freq_factor").number(1e-6, 1e6);
  rope.high_frequency = scaling.at("high_freq_factor").number(1e-6, 1e6);
  rope.original_context = scaling.at("original_max_position_embeddings").number(1, 1e9);
  if (rope.high_frequency <= rope.low_frequency)
    fail(scaling.where(), ": high_freq_factor must be larger than low_freq_factor");
  return rope;
}

std::vector<token_id> read_token_ids(const field& ids, std::size_t vocab) {
  std::vector<token_id> out;
  const auto one = [&](const field& id) { out.push_back(token_id(id.count(0, vocab - 1))); };
  if (!ids.value().is_array())
    one(ids);
  else
    for (const field& id : ids.elements()) one(id);
  return out;
}

// Llama, Qwen2 and Qwen3 in the file's words: `architectures`, or else `model_type`.
std::string read_family(const field& config) {
  const auto named = config.find("architectures");
  const auto list = named ? named->elements() : std::vector<field>{};
  const std::string name = list.empty() ? config.at("model_type").text() : list.front().text();
  if (name == "LlamaForCausalLM" || name == "llama") return "llama";
  if (name == "Qwen2ForCausalLM" || name == "qwen2") return "qwen2";
  if (name == "Qwen3ForCausalLM" || name == "qwen3") return "qwen3";
  fail(config.where(), "the architecture ", shown(name),
       " is unknown; LlamaForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM are known");
}

// What would change the arithmetic and is not done here.
void refuse_variants(const field& config) {
  if (const auto act = config.find("hidden_act"); act && act->text() != "silu")
    fail(act->where(), " is ", shown(act->text()), "; only silu is known");
  if (config.boolean("use_sliding_window", false))
    fail(config.where(), "use_sliding_window is true; only full attention is known");
  if (const auto types = config.find("layer_types"))
    for (const field& type : types->elements())
      if (type.text() != "full_attention")
        fail(type.where(), " is ", shown(type.text()), "; only full_attention is known");
  if (const auto part = config.find("partial_rotary_factor")) part->number(1, 1);
  if (config.find("quantization_config"))
    fail(config.where(), "quantization_config is set; only f32, f16 and bf16 weights are known");
}

}  // namespace

model_config parse_config(const json& text, const std::string& where) {
  const field config(text, where + ": ");
  const std::string family = read_family(config);
  refuse_variants(config);

  model_config c;
  c.vocab = config.at("vocab_size").count(1, 1u << 22);
  c.hidden = config.at("hidden_size").count(1, 1u << 16);
  c.intermediate = config.at("intermediate_size").count(1, 1u << 20);
  c.layers = config.at("num_hidden_layers").count(1, 1u << 10);
  c.heads = config.at("num_attention_heads").count(1, 1u << 10);
  c.context = config.at("max_position_embeddings").count(1, 1u << 28);
  c.norm_epsilon = config.at("rms_norm_eps").number(0, 1);

  const auto kv_heads = config.find("num_key_value_heads");
  c.kv_heads = kv_heads ? kv_heads->count(1, 1u << 10) : c.heads;
  if (c.heads % c.kv_heads != 0)
    fail(config.where(), "num_attention_heads (", c.heads, ") must be a multiple of num_key_value_heads (", c.kv_heads,
         ")");

  if (const auto head_dim = config.find("head_dim"))
    c.head_dim = head_dim->count(1, 256);
  else if (family == "qwen3")
    config.at("head_dim");
  else if (c.hidden % c.heads == 0)
    c.head_dim = c.hidden / c.heads;
  else
    fail(config.where(), "hidden_size (", c.hidden, ") must be a multiple of ", "num_attention_heads (", c.heads,
         ") where head_dim is not given");
  if (c.head_dim % 8 != 0 || c.head_dim > 256)
    fail(config.where(), "a head has ", c.head_dim, " dimensions, but must have a multiple of 8, at most 256");

  const auto parameters = config.find("rope_parameters");  // newer files keep both in here
  const auto scaling = parameters ? parameters : config.find("rope_scaling");
  if (scaling) c.rope = read_rope_scaling(*scaling);
  auto theta = config.find("rope_theta");
  if (!theta && parameters) theta = parameters->find("rope_theta");
  if (!theta && family != "llama") config.at("rope_theta");
  c.rope_theta = theta ? theta->number(1, 1e12) : 10000.0;  // Llama 2 does not write it down

  const bool attention_bias = config.boolean("attention_bias", false);
  c.qkv_bias = family == "qwen2" || attention_bias;
  c.output_bias = family != "qwen2" && attention_bias;
  c.mlp_bias = family == "llama" && config.boolean("mlp_bias", false);
  c.qk_norm = family == "qwen3";
  c.tied_head = config.boolean("tie_word_embeddings", false);

  if (const auto bos = config.find("bos_token_id")) {
    const auto ids = read_token_ids(*bos, c.vocab);
    if (!ids.empty()) c.bos = ids.front();
  }
  if (const auto eos = config.find("eos_token_id")) c.eos = read_token_ids(*eos, c.vocab);
  return c;
}

model_config read_config_file(const std::filesystem::path& file) {
  return parse_config(read_json(file), file.string());
}

model_config read_config(const std::filesystem::path& directory) { return read_config_file(directory / "config.json"); }

}  // namespace decode
