// SPDX-License-Identifier: Apache-2.0
// The measurement `perplexity`: how well a model foretells long text when a policy decides what it attends to.
// Protocol of PG-19: long text, perplexity per byte and per word, the full cache as reference.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>  // std::uint64_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "../../decode/voters.hpp"

namespace decode::perplexity {

struct options {
  std::string directory;                          // of the checkpoint
  std::vector<std::string> texts;                 // files
  std::vector<zoomr::index_t> contexts = {4096};  // tokens of a passage
  zoomr::index_t scored = 1024;                   // its last tokens: foretold under the policy, one by one
  zoomr::index_t passages = 8;                    // of each text
  std::vector<std::string> policies = {"full", "window@1024", "sentence_kv@1024", "sentence_box@1024", "quest@1024"};
  std::vector<std::string> settings;
  std::vector<std::string> delimiters;
  std::uint64_t seed = 1;
  voter_options voters;
  std::string resume_file;
  std::string csv_file;
  bool json = false;
};

/// Measures and prints what it found.
/// @throws input_error
void run(const options& given);

}  // namespace decode::perplexity
