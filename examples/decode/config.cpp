// SPDX-License-Identifier: Apache-2.0
#include "config.hpp"

#include <algorithm>  // std::find, std::ranges::count
#include <cmath>      // std::sqrt
#include <set>        // std::set

#include <nlohmann/json.hpp>

#include "input_error.hpp"

namespace decode {
namespace {

void expect_whole_rotation(const field& given) {
  const auto part = given.find("partial_rotary_factor");
  if (part && part->number(0, 1) != 1)
    fail(part->where(), " is ", part->number(0, 1), "; only 1 is known: every dimension of a head is rotated");
}

// What is said in one of a config's places; a member that would be skipped is refused. theta: 0 if it is not said.
rotary read_rotary(const field& given) {
  expect_whole_rotation(given);
  const auto named = given.find("rope_type"), older = given.find("type");
  if (named && older && named->text() != older->text())
    fail(given.where(), " has the rope_type ", shown(named->text()), ", but the type ", shown(older->text()));
  if (!named && !older && given.find("factor")) fail(given.where(), " has a factor, but no rope_type");
  const std::string type = given.text("rope_type", given.text("type", "default"));
  std::set<std::string> known{"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  rotary rope;
  if (const auto theta = given.find("rope_theta")) rope.theta = theta->number(1, 1e12);
  if (type == "linear" || type == "llama3") {
    known.insert("factor");
    rope.method = type == "linear" ? rotary::kind::linear : rotary::kind::llama3;
    rope.factor = given.at("factor").number(1, 1e6);
  } else if (type != "default") {
    fail(given.where(), " has the type ", shown(type), "; llama3, linear and default are known");
  }
  if (type == "llama3") {
    known.insert({"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
    rope.low_frequency = given.at("low_freq_factor").number(1e-6, 1e6);
    rope.high_frequency = given.at("high_freq_factor").number(1e-6, 1e6);
    rope.original_context = given.at("original_max_position_embeddings").number(1, 1e9);
    if (rope.high_frequency <= rope.low_frequency)
      fail(given.where(), ": high_freq_factor must be larger than low_freq_factor");
  }
  for (const auto& [name, value] : given.value().items()) {
    if (value.is_null() || known.contains(name)) continue;
    if (value.is_object())
      fail(given.where(), ".", name, " is for some layers, but this model's layers have one rotary embedding");
    fail(given.where(), " has the member ", shown(name), ", which the type ", shown(type), " does not have");
  }
  return rope;
}

// One rotary embedding from all of a config's places, which must agree.
// @param base        where its theta stands beside them
// @param parameters  newer files: theta is there
// @param scaling     older files
rotary read_rotary(const field& config, const std::string& base, const std::optional<field>& parameters,
                   const std::optional<field>& scaling) {
  rotary rope;
  if (scaling) rope = read_rotary(*scaling);
  if (parameters) {
    rotary other = rope;
    rope = read_rotary(*parameters);
    other.theta = rope.theta;
    if (scaling && other != rope)
      fail(parameters->where(), " and rope_scaling are both there, and do not say the same");
  }
  for (const auto& place : {config.find(base), scaling ? scaling->find("rope_theta") : std::nullopt}) {
    if (!place) continue;
    const double theta = place->number(1, 1e12);
    if (rope.theta != 0 && rope.theta != theta)
      fail(place->where(), " is ", theta, ", but ", rope.theta, " elsewhere in this file");
    rope.theta = theta;
  }
  return rope;
}

// Gemma 3 alone has two: newer files name their layers in rope_parameters, older ones scale the first of them.
void read_rotaries(const field& config, model_config& c) {
  expect_whole_rotation(config);
  auto parameters = config.find("rope_parameters");
  const auto scaling = config.find("rope_scaling");
  if (c.family == "gemma3") {
    const auto both = parameters;
    if (both) parameters = both->find("full_attention");
    const auto of_windows = both ? both->find("sliding_attention") : std::nullopt;
    if (both)
      for (const auto& [name, value] : both->value().items())
        if (name != "full_attention" && name != "sliding_attention")
          fail(both->where(), " has the member ", shown(name), "; full_attention and sliding_attention are known");
    c.window_rope = read_rotary(config, "rope_local_base_freq", of_windows, std::nullopt);
    if (c.window_rope.theta == 0) config.at("rope_local_base_freq");
  }
  c.rope = read_rotary(config, "rope_theta", parameters, scaling);
  if (c.rope.theta == 0 && c.family == "llama") c.rope.theta = 10000.0;  // Llama 2 does not write it down
  if (c.rope.theta == 0) config.at("rope_theta");
}

// Which layers have a window: `layer_types` says it, or every layer has one but the last of each
// `sliding_window_pattern`.
void read_windows(const field& config, model_config& c) {
  c.windows.resize(c.layers);
  if (const auto types = config.find("layer_types")) {
    const auto each = types->elements();
    if (each.size() != c.layers)
      fail(types->where(), " has ", each.size(), " elements, but num_hidden_layers is ", c.layers);
    for (std::size_t layer = 0; layer < c.layers; ++layer) {
      c.windows[layer] = each[layer].text() == "sliding_attention";
      if (!c.windows[layer] && each[layer].text() != "full_attention")
        fail(each[layer].where(), " is ", shown(each[layer].text()),
             "; sliding_attention and full_attention are known");
    }
  } else {
    const auto pattern = config.find("sliding_window_pattern");
    const std::size_t period = pattern ? pattern->count(1, 1u << 10) : 6;
    for (std::size_t layer = 0; layer < c.layers; ++layer) c.windows[layer] = (layer + 1) % period != 0;
  }
  const auto count = static_cast<std::size_t>(std::ranges::count(c.windows, true));
  if (count == c.layers) fail(config.where(), "every layer has a sliding window; some must see all tokens");
  if (count == 0)
    c.windows.clear();
  else
    c.window = config.at("sliding_window").count(1, 1u << 28);
}

// The last layers attend the keys of the last layer before them that has a window too, or none.
void read_donors(const field& config, model_config& c) {
  const auto shared = config.find("num_kv_shared_layers");
  const std::size_t count = shared ? shared->count(0, c.layers - 1) : 0;
  if (count == 0) return;
  const std::size_t first = c.layers - count;
  for (std::size_t layer = 0; layer < c.layers; ++layer) {
    std::size_t donor = std::min(layer + 1, first);  // one behind it
    while (donor > 0 && layer >= first && c.has_window(donor - 1) != c.has_window(layer)) --donor;
    if (donor == 0)
      fail(shared->where(), " is ", count, ", but layer ", layer,
           " has no layer of its kind before these that it shares keys with");
    c.donors.push_back(donor - 1);
  }
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

// Llama, Qwen2, Qwen3 and Gemma 3 in the file's words: `architectures`, or else `model_type`.
std::string read_family(const field& config) {
  const auto named = config.find("architectures");
  const auto list = named ? named->elements() : std::vector<field>{};
  const std::string name = list.empty() ? config.at("model_type").text() : list.front().text();
  if (name == "LlamaForCausalLM" || name == "llama") return "llama";
  if (name == "Qwen2ForCausalLM" || name == "qwen2") return "qwen2";
  if (name == "Qwen3ForCausalLM" || name == "qwen3") return "qwen3";
  if (name == "Gemma3ForCausalLM" || name == "gemma3_text") return "gemma3";
  fail(config.where(), "the architecture ", shown(name),
       " is unknown; LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM and Gemma3ForCausalLM are known");
}

// What would change the arithmetic and is not done here.
void refuse_variants(const field& config, bool gemma3) {
  const std::string known = gemma3 ? "gelu_pytorch_tanh" : "silu";
  if (const auto act = config.find(gemma3 ? "hidden_activation" : "hidden_act"); act && act->text() != known)
    fail(act->where(), " is ", shown(act->text()), "; only ", known, " is known");
  if (config.boolean("use_sliding_window", false))
    fail(config.where(), "use_sliding_window is true; only full attention is known");
  if (const auto types = config.find("layer_types"); types && !gemma3)
    for (const field& type : types->elements())
      if (type.text() != "full_attention")
        fail(type.where(), " is ", shown(type.text()), "; only full_attention is known");
  if (config.boolean("use_bidirectional_attention", false))
    fail(config.where(), "use_bidirectional_attention is true; only causal attention is known");
  if (config.find("attn_logit_softcapping"))
    fail(config.where(), "attn_logit_softcapping is set; no cap of attention's logits is known");
  if (const auto shared = config.find("num_kv_shared_layers"); shared && !gemma3 && shared->count(0, 1u << 10) > 0)
    fail(shared->where(), " is set; layers share keys in models like Gemma 3 alone");
  if (config.find("quantization_config"))
    fail(config.where(), "quantization_config is set; only f32, f16 and bf16 weights are known");
}

}  // namespace

model_config parse_config(const json& text, const std::string& where) {
  const field config(text, where + ": ");
  model_config c;
  c.family = read_family(config);
  const bool gemma3 = c.family == "gemma3";
  refuse_variants(config, gemma3);

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
  else if (c.family == "qwen3" || gemma3)
    config.at("head_dim");
  else if (c.hidden % c.heads == 0)
    c.head_dim = c.hidden / c.heads;
  else
    fail(config.where(), "hidden_size (", c.hidden, ") must be a multiple of ", "num_attention_heads (", c.heads,
         ") where head_dim is not given");
  if (c.head_dim % 8 != 0 || c.head_dim > 256)
    fail(config.where(), "a head has ", c.head_dim, " dimensions, but must have a multiple of 8, at most 256");

  read_rotaries(config, c);
  if (gemma3) {
    read_windows(config, c);
    read_donors(config, c);
    c.attention_scale = 1 / std::sqrt(config.at("query_pre_attn_scalar").number(1e-6, 1e6));
    c.embedding_scale = std::sqrt(static_cast<double>(c.hidden));
    if (const auto cap = config.find("final_logit_softcapping")) c.logit_cap = cap->number(1e-6, 1e6);
  }

  const bool attention_bias = config.boolean("attention_bias", false);
  c.qkv_bias = c.family == "qwen2" || attention_bias;
  c.output_bias = c.family != "qwen2" && attention_bias;
  c.mlp_bias = c.family == "llama" && config.boolean("mlp_bias", false);
  c.qk_norm = c.family == "qwen3" || gemma3;
  c.out_norms = c.gains_less_one = c.gelu = gemma3;
  c.tied_head = config.boolean("tie_word_embeddings", gemma3);

  if (const auto bos = config.find("bos_token_id")) {
    const auto ids = read_token_ids(*bos, c.vocab);
    if (!ids.empty()) c.bos = ids.front();
  }
  if (const auto eos = config.find("eos_token_id")) c.eos = read_token_ids(*eos, c.vocab);
  return c;
}

model_config read_config_file(const std::filesystem::path& file) { return parse_config(read_json(file), named(file)); }

model_config read_config(const std::filesystem::path& directory) {
  model_config c = read_config_file(directory / "config.json");
  const auto path = directory / "generation_config.json";
  if (!is_there(path)) return c;
  const json text = read_json(path);
  const auto eos = field(text, named(path) + ": ").find("eos_token_id");
  if (!eos) return c;
  for (const token_id id : read_token_ids(*eos, c.vocab))
    if (std::find(c.eos.begin(), c.eos.end(), id) == c.eos.end()) c.eos.push_back(id);
  return c;
}

std::vector<zoomr::index_t> donors_among(const model_config& c, bool windowed) {
  std::vector<zoomr::index_t> numbers(c.layers), donors;
  for (std::size_t layer = 0; layer < c.donors.size(); ++layer) {
    if (c.has_window(layer) != windowed) continue;
    numbers[layer] = static_cast<zoomr::index_t>(donors.size());
    donors.push_back(numbers[c.donors[layer]]);
  }
  return donors;
}

void expect_layers_alike(const model_config& c, const std::string& who) {
  if (c.family == "gemma3")
    fail(who, ": layers of Gemma 3 differ, and need a cache for each kind, on the host and without tiers");
  if (!c.streaming.retrieval.empty())
    fail(who, ": KV heads that stream need a cache of their own, on the host and without tiers");
}

}  // namespace decode
