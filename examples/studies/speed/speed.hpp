// SPDX-License-Identifier: Apache-2.0
// The measurement `speed`: tokens per second and memory of a model of some shape, at long contexts, without a
// checkpoint. Weights are random, and so are keys and values of the context; decoding is real.
#pragma once

#include <zoomr/core/types.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

namespace decode::speed {

struct options {
  std::string shape_file;                          // a config.json
  std::vector<zoomr::index_t> contexts = {16384};  // tokens before the first that is timed
  std::vector<std::string> policies = {"full", "zoomr_focus", "sentence_box"};
  std::vector<std::string> settings;
  std::string tiers;
  zoomr::index_t threads = 1;
  zoomr::index_t generated = 64;  // tokens that are timed
  zoomr::index_t rounds = 3;
};

/// Measures and prints what it found.
/// @throws input_error
void run(const options& given);

}  // namespace decode::speed
