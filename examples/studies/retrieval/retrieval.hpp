// SPDX-License-Identifier: Apache-2.0
// zoomr-eval retrieval: does a model find what is needed, under each policy? The prompt is passed once, densely; every
// policy then writes from there.
#pragma once

#include "scene.hpp"

namespace decode::retrieval {

struct options {
  scene_options of;
  std::vector<std::string> policies = {"full", "oracle", "random", "window@512", "sentence_voters"};
  std::vector<std::string> voters;  // files of weights: FILE, or NAME=FILE of policies with +voters=NAME
  index_t written = 0;              // tokens of an answer; 0: as many as the task needs
  std::string csv;
  bool json = false;
};

/// @throws input_error
void run(const options& given);

}  // namespace decode::retrieval
