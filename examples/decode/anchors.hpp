// SPDX-License-Identifier: Apache-2.0
// Which layers of a model read the choice of an earlier one: anchors.json, as `zoomr-eval anchors` learns it.
//
//   {"layers": [0, 0, 2], "kv_heads": [[0, 1], [1, 1], [0, 1]]}   of each layer: whose choice it reads, and of which of
//                                                                 the KV heads there each of its own
#pragma once

#include <filesystem>  // std::filesystem::path

#include "config.hpp"

namespace decode {

/// @throws input_error for another model's shape, and for layers and KV heads that cannot be
layer_tables read_anchors(const std::filesystem::path& file, const model_config& c);

/// The tables of the layers that a policy is for, all but those with a sliding window, numbered among these.
/// @throws input_error  one of them reads the choice of a layer that has a window
layer_tables policy_anchors(const model_config& c);

}  // namespace decode
