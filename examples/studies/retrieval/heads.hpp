// SPDX-License-Identifier: Apache-2.0
// zoomr-eval heads: which heads of a model look at what is needed, and the weights of those that do (voters.json).
#pragma once

#include "scene.hpp"

namespace decode::retrieval {

struct heads_options {
  scene_options of;
  std::vector<std::string> forms;             // as people ask; see forms.hpp
  std::vector<std::string> queries = {"16"};  // whose queries score, each tried: so many last ones, or "question"
  double penalty = 0.02;                      // the larger, the fewer heads get a weight
  double needless = 0.01;                     // share of the choices that find, above the bound of entropy
  std::string out;                            // file to write; empty: none is written
};

/// Learns, says how good the weights are on problems that they were not learnt on, and writes them.
/// @throws input_error
void run(const heads_options& given);

}  // namespace decode::retrieval
