// SPDX-License-Identifier: Apache-2.0
#include "voters.hpp"

#include <algorithm>  // std::none_of
#include <utility>    // std::move

#include "anchors.hpp"
#include "input_error.hpp"
#include "json_file.hpp"
#include "streaming.hpp"

#include <nlohmann/json.hpp>

namespace decode {

learnt_voters read_voters(const std::filesystem::path& file, const model_config& c) {
  const json text = read_json(file);
  const field all(text, named(file) + ": ");
  const std::size_t layers = all.at("layers").count(1, 1 << 20);
  const std::size_t heads = all.at("heads").count(1, 1 << 20);
  if (layers != c.layers || heads != c.heads) {
    fail(named(file), ": it is for ", layers, " layers of ", heads, " heads, but the model has ", c.layers, " of ",
         c.heads);
  }
  learnt_voters learnt{std::vector<float>(layers * heads), {}};
  for (const field& one : all.at("weights").elements()) {
    const std::vector<field> numbers = one.elements();
    if (numbers.size() != 3) fail(one.where(), " must be [layer, head, weight]");
    const std::size_t layer = numbers[0].count(0, layers - 1);
    const std::size_t head = numbers[1].count(0, heads - 1);
    float& weight = learnt.weights[layer * heads + head];
    if (weight != 0) fail(one.where(), ": layer ", layer, ", head ", head, " has a weight already");
    weight = static_cast<float>(numbers[2].number(1e-6, 1e6));
  }
  if (const auto bits = all.find("unsure")) learnt.bounds.unsure = static_cast<float>(bits->number(0, 64));
  if (const auto logit = all.find("none")) learnt.bounds.none = static_cast<float>(logit->number(-1e4, 1e4));
  if (const auto slope = all.find("none_slope")) learnt.bounds.none_slope = static_cast<float>(slope->number(0, 100));
  return learnt;
}

std::string voters_file(const std::filesystem::path& directory, const voter_options& given) {
  if (!given.file.empty()) return given.file;
  const auto beside = directory / "voters.json";
  return is_there(beside) ? beside.string() : "";
}

model_config read_config_with_voters(const std::filesystem::path& directory, const voter_options& given) {
  model_config c = read_config(directory);
  if (given.keys == "q8_0") c.voter_keys = zoomr::voter_storage::q8_0;
  if (const std::string file = voters_file(directory, given); !file.empty()) {
    learnt_voters learnt = read_voters(file, c);
    c.voters = std::move(learnt.weights), c.bounds = learnt.bounds;
  }
  if (!given.anchors.empty()) c.anchors = read_anchors(given.anchors, c);
  if (!given.streaming.empty()) c.streaming = read_streaming(given.streaming, c);
  return c;
}

std::vector<float> policy_voters(const model_config& c) {
  if (c.voters.empty()) fail("this policy asks heads that vote: name their weights, --voters FILE");
  std::vector<float> weights;
  const auto& retrieval = c.streaming.retrieval;
  for (std::size_t i = 0; i < c.voters.size(); ++i) {
    const bool streams = !retrieval.empty() && !retrieval[i / (c.heads / c.kv_heads)];
    if (!c.has_window(i / c.heads) && !streams) weights.push_back(c.voters[i]);
  }
  if (!retrieval.empty() && std::none_of(weights.begin(), weights.end(), [](float weight) { return weight > 0; }))
    fail("this policy asks heads that vote, and none of them reads a retrieval head");
  return weights;
}

}  // namespace decode
