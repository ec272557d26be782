// SPDX-License-Identifier: Apache-2.0
// The measurement `streaming`: which KV heads look far back, and which can do with the first tokens and the last ones.
// Source: DuoAttention, arXiv:2410.10819. Differs: its gates are trained; here attention is measured on prose without
// labels.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>  // std::uint64_t
#include <span>     // std::span
#include <string>   // std::string
#include <vector>   // std::vector

#include "../perplexity/prefill.hpp"

namespace decode::streaming {

using zoomr::index_t;

struct options {
  std::string directory;           // of the checkpoint
  std::vector<std::string> texts;  // files
  index_t context = 4096;          // tokens of a passage
  index_t passages = 4;            // of each text
  bool repeated = false;           // the second half of a passage is its first half once more
  index_t sinks = 4, recent = 252;
  index_t heads = 0;   // KV heads that do not stream
  std::string voters;  // file of weights of heads: the KV heads that they read are among these; empty: none need be
  std::uint64_t seed = 1;
  std::string out;  // file to write; empty: none is written
};

/// The first tokens and the last ones.
struct near_tokens {
  index_t sinks = 4, recent = 252;
};

/// What share of its attention each KV head pays to other tokens than these: the mean over some queries, of the query
/// head that pays most.
/// @param layers  [L]  of the model
/// @param tokens  the last so many; every `stride`th of them
/// @return        [L, kv_heads]
/// @pre   the prompt keeps the queries of its last tokens
std::vector<double> far_shares(const perplexity::prefill& prompt, std::span<const index_t> layers, near_tokens near,
                               index_t tokens, index_t stride);

/// The places of the largest shares, ascending.
/// @param must  [shares]  places that are among them in any case, of which there are no more than `count`
std::vector<index_t> largest(std::span<const double> shares, index_t count, const std::vector<bool>& must);

/// Measures, says what it found, and writes the file.
/// @throws input_error
void run(const options& given);

}  // namespace decode::streaming
