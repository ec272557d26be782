// SPDX-License-Identifier: Apache-2.0
// zoomr-eval retrieval: does a model find what is needed, under each policy? The prompt is passed once, densely; every
// policy then writes from there.
#pragma once

#include "scene.hpp"

namespace decode::retrieval {

struct options {
  scene_options of;
  std::vector<std::string> policies = {"full", "oracle", "random", "window@512", "sentence_voters"};
  index_t written = 10;  // tokens of an answer
  std::string csv;
};

/// @throws input_error
void run(const options& given);

}  // namespace decode::retrieval
