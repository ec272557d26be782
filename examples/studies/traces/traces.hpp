// SPDX-License-Identifier: Apache-2.0
// zoomr-eval traces: ZoomR's loop on a model that writes its own summaries. Each policy writes a text of its own, from
// one prompt, and is asked for what stands in the middle of it.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>  // std::uint64_t
#include <string>   // std::string
#include <vector>   // std::vector

namespace decode::traces {

using zoomr::index_t;

struct options {
  std::string directory;                                   // of the checkpoint
  std::vector<std::string> tasks = {"program", "ledger"};  // see trace_problem.hpp
  std::vector<std::string> marks;                          // four tokens
  index_t steps = 12;                                      // of a problem
  index_t per_thought = 3;                                 // steps
  std::string notes = "none";                              // true steps, written for the model: prompt, text
  index_t problems = 12;                                   // of each task
  std::uint64_t seed = 1;
  std::vector<std::string> policies = {
      "full",         "oracle",          "random",     "zoomr_one_pass", "zoomr_second_pass", "zoomr_focus",
      "summary_only", "sentence_kv@512", "snapkv@512", "h2o@512",        "window@512"};
  std::vector<std::string> voters;  // files of weights: FILE, or NAME=FILE of policies with +voters=NAME
  std::string resume;               // file of what is done
  bool json = false;
};

/// @throws input_error
void run(const options& given);

}  // namespace decode::traces
