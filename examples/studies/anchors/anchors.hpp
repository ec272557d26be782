// SPDX-License-Identifier: Apache-2.0
// The measurement `anchors`: which layers of a model can read what an earlier layer has chosen, and how much of their
// attention they lose by it.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>  // std::uint64_t
#include <string>   // std::string
#include <vector>   // std::vector

namespace decode::anchors {

struct options {
  std::string directory;                    // of the checkpoint
  std::vector<std::string> texts;           // files
  zoomr::index_t context = 4096;            // tokens of a passage
  zoomr::index_t passages = 4;              // of each text
  zoomr::index_t budget = 512;              // tokens that a KV head reads
  zoomr::index_t layers = 5;                // that choose
  std::vector<zoomr::index_t> in_any_case;  // layers of the model that do
  zoomr::index_t dense_layers = 0;
  std::uint64_t seed = 1;
  std::string out;  // file to write; empty: none is written
};

/// Measures, says what it found, and writes the tables.
/// @throws input_error
void run(const options& given);

}  // namespace decode::anchors
