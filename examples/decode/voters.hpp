// SPDX-License-Identifier: Apache-2.0
// Which heads of a model vote, and with what weight: voters.json.
//
//   {"layers": 30, "heads": 9, "weights": [[7, 7, 2.44], [18, 7, 0.98]]}   layer, query head, weight; others have none
//
// Beside them may stand when their posterior is unsure, as learnt: "unsure": 1.25 is a bound in bits, "none": -2.5 the
// logit of the class "none of these" among one segment, "none_slope": 1.5 what ln of their number takes off it.
#pragma once

#include <filesystem>  // std::filesystem::path
#include <string>      // std::string
#include <vector>      // std::vector

#include "config.hpp"

namespace decode {

/// What such a file says.
struct learnt_voters {
  std::vector<float> weights;  // [layers, heads]
  voter_bounds bounds;
};

/// @throws input_error for another model's shape, a head that is named twice or is none, weights that are not positive
///         and finite, and bounds that cannot be
learnt_voters read_voters(const std::filesystem::path& file, const model_config& c);

/// What a command line says of the heads that vote, of layers that read another one's choice, and of heads that stream.
struct voter_options {
  std::string file;               // of their weights; empty: voters.json beside the model, if it is there
  std::string keys = "as_cache";  // in what the keys that they read are kept: also q8_0
  std::string anchors;            // file of these layers; empty: each layer chooses
  std::string streaming;          // file of the KV heads that do not stream; empty: all are of one kind
};

/// Of their weights, if there is such a file.
std::string voters_file(const std::filesystem::path& directory, const voter_options& given);

/// The config of a checkpoint, with the tables that are meant, if there are any.
model_config read_config_with_voters(const std::filesystem::path& directory, const voter_options& given);

/// Weights of what a policy is for: layers without a sliding window, and of their KV heads those that do not stream.
/// @return [layers without a window, heads], or [retrieval heads, query heads of each]
/// @throws input_error  no head has a weight, or none of these
std::vector<float> policy_voters(const model_config& c);

}  // namespace decode
