// SPDX-License-Identifier: Apache-2.0
// zoomr-eval forms: does a policy find what is asked for, in whatever form people ask? The prompt is passed once,
// densely; every policy then writes from there.
#pragma once

#include "scene.hpp"

namespace decode::retrieval {

struct forms_options {
  scene_options scene;  // without tasks
  std::vector<std::string> forms = {"plain", "no_system",  "long_system", "behind40", "behind100", "before",
                                    "both",  "paraphrase", "two",         "primed",   "later"};
  index_t tokens = 900;  // of a document, about
  std::vector<std::string> policies = {"full", "oracle", "sentence_voters"};
  std::vector<std::string> settings;  // of all policies but full and controls
  std::vector<std::string> voters;    // as of `options`
  index_t written = 24;               // tokens of an answer
  bool name_question = false;         // to policies that pin one, as an engine does
  bool json = false;

  forms_options() { scene.tasks.clear(); }
};

/// @throws input_error
void run(const forms_options& given);

}  // namespace decode::retrieval
