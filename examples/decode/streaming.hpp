// SPDX-License-Identifier: Apache-2.0
// Which KV heads keep what is far back, while all others keep the first tokens and the last ones: streaming.json, as
// `zoomr-eval streaming` finds them.
//
//   {"layers": 30, "kv_heads": 3, "retrieval": [[7, 2], [18, 1]], "sinks": 4, "recent": 252}   layer and KV head of
//   those;
//                                                                                 tokens that each of the others keeps
#pragma once

#include <filesystem>  // std::filesystem::path
#include <vector>      // std::vector

#include "config.hpp"

namespace decode {

/// @throws input_error for another model's shape, a KV head that is named twice, is none, or is in a layer with a
///         sliding window; and if none is named, or all are
streaming_heads read_streaming(const std::filesystem::path& file, const model_config& c);

/// In which cache each KV head is.
enum kv_head_group : zoomr::index_t { retrieval_group = 0, streaming_group = 1, window_group = 2 };
/// @return [layers, kv_heads]
std::vector<zoomr::index_t> kv_head_groups(const model_config& c);

}  // namespace decode
