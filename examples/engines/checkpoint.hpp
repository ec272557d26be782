// SPDX-License-Identifier: Apache-2.0
// What engine_before.cpp and engine_after.cpp read: the words and the weights of a checkpoint of LEDGER, a Qwen3 model.
// Arrays are row-major; shapes stand in brackets. The loader of ../minimal checks more of what files say.
#pragma once

#include <algorithm>    // std::ranges::find
#include <bit>          // std::bit_cast
#include <cstdint>      // std::uint16_t, std::uint32_t, std::uint64_t
#include <cstring>      // std::memcpy
#include <fstream>      // std::ifstream
#include <iterator>     // std::istreambuf_iterator
#include <sstream>      // std::istringstream
#include <stdexcept>    // std::runtime_error
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include <nlohmann/json.hpp>

using floats = std::vector<float>;

struct layer_weights {
  floats attention_norm, mlp_norm;  // [hidden]
  floats q, k, v;                   // [heads or kv_heads * head_dim, hidden]
  floats q_norm, k_norm;            // [head_dim]
  floats o;                         // [hidden, heads * head_dim]
  floats gate, up;                  // [intermediate, hidden]
  floats down;                      // [hidden, intermediate]
};

struct checkpoint {
  int layers, heads, kv_heads, head_dim, hidden, intermediate;
  double rope_theta, norm_epsilon;
  std::vector<layer_weights> weights;  // [layers]
  floats embedding, head;              // [words, hidden]
  floats norm;                         // [hidden]
  std::vector<std::string> words;      // of each token: a token is a word

  int id(const std::string& word) const {
    const auto found = std::ranges::find(words, word);
    if (found == words.end()) throw std::runtime_error("the model does not know the word " + word);
    return static_cast<int>(found - words.begin());
  }
  /// [hidden]
  floats embedding_of(int token) const {
    const auto row = embedding.begin() + token * hidden;
    return floats(row, row + hidden);
  }
  std::vector<int> ids(const std::string& text) const {
    std::vector<int> made;
    std::istringstream stream(text);
    for (std::string word; stream >> word;) made.push_back(id(word));
    if (made.empty()) throw std::runtime_error("there are no words to go on from");
    return made;
  }
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + " cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The tensors of a .safetensors file: 8 bytes that say how long the header is, the header, the data.
struct tensor_file {
  explicit tensor_file(const std::string& path) : bytes(read_file(path)) {
    std::uint64_t length = 0;
    if (bytes.size() < 8) throw std::runtime_error(path + " has no header");
    std::memcpy(&length, bytes.data(), 8);
    header = nlohmann::json::parse(bytes.substr(8, length));
    data = std::string_view(bytes).substr(8 + length);
  }
  tensor_file(const tensor_file&) = delete;

  /// @param size  numbers, bfloat16 in the file
  floats read(const std::string& name, int size) const {
    const std::size_t begin = header.at(name + ".weight").at("data_offsets").at(0);
    const std::string_view stored = data.substr(begin, 2 * static_cast<std::size_t>(size));
    floats made(static_cast<std::size_t>(size));
    if (stored.size() != 2 * made.size()) throw std::runtime_error("the file ends within " + name);
    for (std::size_t i = 0; i < made.size(); ++i) {
      std::uint16_t upper = 0;  // half of a float
      std::memcpy(&upper, &stored[2 * i], 2);
      made[i] = std::bit_cast<float>(std::uint32_t{upper} << 16);
    }
    return made;
  }

  std::string bytes;
  nlohmann::json header;
  std::string_view data;
};

inline checkpoint read_checkpoint(const std::string& directory) {
  checkpoint net{};
  const auto words = nlohmann::json::parse(read_file(directory + "/tokenizer.json")).at("model").at("vocab");
  net.words.resize(words.size());
  for (const auto& [word, id] : words.items()) net.words.at(id) = word;

  const auto config = nlohmann::json::parse(read_file(directory + "/config.json"));
  net.layers = config.at("num_hidden_layers"), net.heads = config.at("num_attention_heads");
  net.kv_heads = config.at("num_key_value_heads"), net.head_dim = config.at("head_dim");
  net.hidden = config.at("hidden_size"), net.intermediate = config.at("intermediate_size");
  net.rope_theta = config.at("rope_theta"), net.norm_epsilon = config.at("rms_norm_eps");

  const tensor_file file(directory + "/model.safetensors");
  const int q_size = net.heads * net.head_dim, kv_size = net.kv_heads * net.head_dim;
  for (int layer = 0; layer < net.layers; ++layer) {
    const auto read = [&](const std::string& name, int size) {
      return file.read("model.layers." + std::to_string(layer) + "." + name, size);
    };
    layer_weights w;
    w.attention_norm = read("input_layernorm", net.hidden);
    w.q = read("self_attn.q_proj", q_size * net.hidden);
    w.k = read("self_attn.k_proj", kv_size * net.hidden);
    w.v = read("self_attn.v_proj", kv_size * net.hidden);
    w.q_norm = read("self_attn.q_norm", net.head_dim);
    w.k_norm = read("self_attn.k_norm", net.head_dim);
    w.o = read("self_attn.o_proj", net.hidden * q_size);
    w.mlp_norm = read("post_attention_layernorm", net.hidden);
    w.gate = read("mlp.gate_proj", net.intermediate * net.hidden);
    w.up = read("mlp.up_proj", net.intermediate * net.hidden);
    w.down = read("mlp.down_proj", net.hidden * net.intermediate);
    net.weights.push_back(w);
  }
  net.embedding = file.read("model.embed_tokens", static_cast<int>(net.words.size()) * net.hidden);
  net.norm = file.read("model.norm", net.hidden);
  net.head = file.read("lm_head", static_cast<int>(net.words.size()) * net.hidden);
  return net;
}
