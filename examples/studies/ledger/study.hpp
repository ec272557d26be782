// SPDX-License-Identifier: Apache-2.0
// zoomr-eval ledger: policies on many problems, with intervals; resumable, on several threads.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>  // std::uint64_t
#include <string>   // std::string
#include <vector>   // std::vector

namespace decode::ledger {

struct study_options {
  std::vector<std::string> checkpoints;  // directories; empty: all that come with the decoder
  std::vector<std::string> policies = {"full",       "window", "summary_only", "zoomr_one_pass", "zoomr_second_pass",
                                       "zoomr_mass", "oracle"};
  std::vector<std::string> tasks = {"trace"};
  zoomr::index_t problems = 50;
  zoomr::index_t free_problems = -1;  // of these, how many are also written by the model itself; -1: all
  zoomr::index_t registers = 0;       // 0: the checkpoint's own size
  zoomr::index_t lines = 0;
  std::uint64_t seed = 1;
  zoomr::index_t window = 24;
  std::vector<std::string> settings;
  std::vector<std::string> delimiters = {";"};
  zoomr::index_t jobs = 1;
  std::string resume;
  std::string csv;
  bool audit = false;
  bool json = false;
};

/// Runs the study and prints what it found.
/// @throws input_error
void run(const study_options& given);

}  // namespace decode::ledger
