// SPDX-License-Identifier: Apache-2.0
// A small random sequence, its attention in double precision, and its files: what tests of replays compare with.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "replay.hpp"
#include "support.hpp"

namespace replay {

using decode::scratch;

constexpr zoomr::shape model{3, 4, 2, 16, 8};
constexpr index_t tokens = 300, prompt = 120;
constexpr float scale = 0.3f, soft_cap = 20.0f;

inline std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// A sequence in memory, as a test knows it.
struct sequence_data {
  std::vector<std::vector<float>> q, k, v;  // [layers] of [tokens, heads, width]
  std::vector<zoomr::token_class> classes;

  sequence_data() {
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal;
    const auto numbers = [&](index_t heads, index_t width) {
      std::vector<float> out(at(tokens * heads * width));
      for (float& number : out) number = normal(random);
      return out;
    };
    for (index_t layer = 0; layer < model.layers; ++layer) {
      q.push_back(numbers(model.heads, model.head_dim));
      k.push_back(numbers(model.kv_heads, model.head_dim));
      v.push_back(numbers(model.kv_heads, model.value_width()));
    }
    using enum zoomr::token_class;
    for (index_t t = 0; t < tokens; ++t) {  // thoughts of 24 tokens with a summary of 4, of 6-token sentences
      const index_t in = t % 24;
      classes.push_back(in == 0       ? thought_begin
                        : in == 18    ? thought_end
                        : in == 19    ? summary_begin
                        : in == 23    ? summary_end
                        : in % 6 == 5 ? delimiter
                                      : plain);
    }
  }
  const float* query(index_t layer, index_t t, index_t head) const {
    return &q[at(layer)][at((t * model.heads + head) * model.head_dim)];
  }
  const float* key(index_t layer, index_t t, index_t head) const {
    return &k[at(layer)][at((t * model.kv_heads + head / model.group()) * model.head_dim)];
  }
  const float* value(index_t layer, index_t t, index_t head) const {
    return &v[at(layer)][at((t * model.kv_heads + head / model.group()) * model.value_width())];
  }
  double logit(index_t layer, index_t t, index_t head, index_t key_at) const {
    double sum = 0;
    for (index_t d = 0; d < model.head_dim; ++d) sum += double{query(layer, t, head)[d]} * key(layer, key_at, head)[d];
    return soft_cap * std::tanh(scale * sum / soft_cap);
  }
};

inline const sequence_data& data() {
  static const sequence_data one;
  return one;
}

/// Attention of one query to some positions.
struct naive_answer {
  std::vector<double> out;
  double lse = 0;
};
inline naive_answer attend(index_t layer, index_t t, index_t head, const std::vector<index_t>& positions) {
  naive_answer answer{std::vector<double>(at(model.value_width())), 0};
  double weights = 0;
  for (const index_t position : positions) {
    const double weight = std::exp(data().logit(layer, t, head, position));
    weights += weight;
    for (std::size_t d = 0; d < answer.out.size(); ++d)
      answer.out[d] += weight * data().value(layer, position, head)[d];
  }
  for (double& number : answer.out) number /= weights;
  answer.lse = std::log(weights);
  return answer;
}
inline std::vector<index_t> all_before(index_t t) {
  std::vector<index_t> positions;
  for (index_t i = 0; i <= t; ++i) positions.push_back(i);
  return positions;
}
inline std::set<index_t> best_keys(index_t layer, index_t t, index_t head) {
  std::vector<index_t> positions = all_before(t);
  std::vector<double> logits;
  for (const index_t i : positions) logits.push_back(data().logit(layer, t, head, i));
  std::stable_sort(positions.begin(), positions.end(),
                   [&](index_t a, index_t b) { return logits[at(a)] > logits[at(b)]; });
  positions.resize(std::min(positions.size(), at(top_keys)));
  return {positions.begin(), positions.end()};
}

/// Full attention of a query, made once.
struct naive_query {
  naive_answer answer;
  std::set<index_t> best;
};
inline const naive_query& exact_query(index_t layer, index_t t, index_t head) {
  static std::map<index_t, naive_query> made;
  const auto [found, fresh] = made.try_emplace((layer * tokens + t) * model.heads + head);
  if (fresh) found->second = {attend(layer, t, head, all_before(t)), best_keys(layer, t, head)};
  return found->second;
}

/// A safetensors file of tokens [first, last).
inline void write_trace(const decode::fs::path& path, token_range some, const std::string& dtype = "F32") {
  nlohmann::ordered_json header = {{"__metadata__",
                                    {{"zoomr_trace", "1"},
                                     {"layers", std::to_string(model.layers)},
                                     {"heads", std::to_string(model.heads)},
                                     {"kv_heads", std::to_string(model.kv_heads)},
                                     {"head_dim", std::to_string(model.head_dim)},
                                     {"value_dim", std::to_string(model.value_width())},
                                     {"scale", "0.3"},
                                     {"softcap", "20"},
                                     {"first", std::to_string(some.first)},
                                     {"prompt", std::to_string(prompt)}}}};
  std::string bytes;
  const auto add = [&](const std::string& name, const std::string& type, const std::vector<index_t>& shape,
                       const std::string& numbers) {
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {bytes.size(), bytes.size() + numbers.size()}}};
    bytes += numbers;
  };
  const auto stored = [&](const std::vector<float>& numbers, index_t row) {
    std::string out;
    for (std::size_t i = at(some.first * row); i < at(some.last * row); ++i) {
      const auto append = [&](auto number) { out.append(reinterpret_cast<const char*>(&number), sizeof number); };
      if (dtype == "F32") append(numbers[i]);
      if (dtype == "F16") append(zoomr::from_float<zoomr::float16>(numbers[i]));
      if (dtype == "BF16") append(zoomr::from_float<zoomr::bfloat16>(numbers[i]));
    }
    return out;
  };
  for (index_t layer = 0; layer < model.layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer);
    const index_t width = model.value_width(), dim = model.head_dim, count = some.size();
    add(name + ".q", dtype, {count, model.heads, dim}, stored(data().q[at(layer)], model.heads * dim));
    add(name + ".k", dtype, {count, model.kv_heads, dim}, stored(data().k[at(layer)], model.kv_heads * dim));
    add(name + ".v", dtype, {count, model.kv_heads, width}, stored(data().v[at(layer)], model.kv_heads * width));
  }
  std::string classes;
  for (index_t t = some.first; t < some.last; ++t) classes += static_cast<char>(data().classes[at(t)]);
  add("token_classes", "U8", {some.size()}, classes);
  const std::string text = header.dump();
  std::string length;
  for (int byte = 0; byte < 8; ++byte) length += static_cast<char>(text.size() >> (8 * byte) & 0xff);
  decode::write_file(path, length + text + bytes);
}

/// The sequence in three files.
inline std::vector<std::string> written(const scratch& folder) {
  std::vector<std::string> files;
  for (const token_range some : {token_range{0, 90}, token_range{90, 170}, token_range{170, tokens}}) {
    files.push_back((folder / std::to_string(some.first)).string());
    write_trace(files.back(), some);
  }
  return files;
}

}  // namespace replay
