// SPDX-License-Identifier: Apache-2.0
// Weights of heads that vote, of the layers that a trace has.
#pragma once

#include <string>  // std::string
#include <vector>  // std::vector

#include <nlohmann/json.hpp>

#include "../decode/voters.hpp"
#include "trace.hpp"

namespace replay {

/// @param file  voters.json of the model, of all its layers
/// @return      weights of the layers that were recorded
inline decode::learnt_voters read_voters(const std::string& file, const trace_facts& facts) {
  decode::model_config model;
  model.heads = static_cast<std::size_t>(facts.model.heads);
  model.layers = static_cast<std::size_t>(facts.model.layers);
  if (!facts.layers.empty()) {
    const decode::json text = decode::read_json(file);
    model.layers =
        decode::field(text, file + ": ").at("layers").count(static_cast<std::size_t>(facts.layers.back()) + 1, 1 << 20);
  }
  decode::learnt_voters all = decode::read_voters(file, model);
  if (facts.layers.empty()) return all;
  std::vector<float> recorded;
  for (const index_t layer : facts.layers) {
    const auto row = all.weights.begin() + static_cast<std::ptrdiff_t>(layer) * facts.model.heads;
    recorded.insert(recorded.end(), row, row + facts.model.heads);
  }
  return {recorded, all.bounds};
}

}  // namespace replay
