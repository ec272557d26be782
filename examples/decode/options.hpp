// SPDX-License-Identifier: Apache-2.0
// What zoomr-decode is asked for.
#pragma once

#include <zoomr/core/storage_types.hpp>

#include <filesystem>  // std::filesystem::path
#include <optional>    // std::optional
#include <string>      // std::string
#include <vector>      // std::vector

#include "sampler.hpp"
#include "tiers.hpp"
#include "token_classes.hpp"
#include "voters.hpp"

namespace decode {

/// In which --storage keeps keys and values.
using offered_storage = decltype(zoomr::type_list<float>{} + zoomr::block_types{});

/// What the command line says.
struct options {
  std::string directory;
  std::string prompt;
  std::string prompt_file;
  std::vector<std::string> turns;
  bool chat = false;
  std::string chat_file;  // empty: messages are typed
  std::optional<std::string> system;
  std::vector<std::string> policies = {"full"};
  std::vector<index_t> budgets;
  std::vector<std::string> settings;
  std::vector<std::string> delimiters;
  std::string sentence_marks = "anywhere";
  bool line_ends = false;
  std::vector<std::string> thought_marks;  // four, or none
  voter_options voters;
  std::string storage = "float";
  std::string device = "host";
  std::string tiers_text;
  tier_options tiers;
  index_t threads = 0;  // 0: one attends, and as many multiply as OpenBLAS would take
  index_t max_tokens = 256;
  sampler_options sampling;
  std::string logits_file;
  std::string pages_file;
  std::string report_file;
  std::string record_file;
  std::string command;  // all that was said, for a shell
  bool mpi = false;     // each process of mpirun has some heads,
  index_t deal = 0;     // or so many tokens in turn; 0: heads
  bool same_text = false;
  bool audit = false;
  bool json = false;

  /// The last folder of the checkpoint's path.
  std::string model_name() const { return std::filesystem::path(directory + "/.").parent_path().filename().string(); }
  bool on_device() const { return device != "host"; }
  mark_rule marks() const { return sentence_marks == "anywhere" ? mark_rule::anywhere : mark_rule::before_blank; }
  line_rule lines() const { return line_ends ? line_rule::end_segments : line_rule::go_on; }
};

}  // namespace decode
