// SPDX-License-Identifier: Apache-2.0
// zoomr-decode ledger: a model that reasons with summaries, under every policy, on problems whose answers are known.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstddef>  // std::size_t
#include <cstdint>  // std::uint64_t
#include <string>   // std::string
#include <vector>   // std::vector

namespace decode::ledger {

struct options {
  std::vector<std::string> checkpoints;  // directories; empty: the two that come with the decoder
  std::vector<std::string> policies = {
      "full",        "window", "summary_only", "zoomr_one_pass", "zoomr_second_pass", "zoomr_mass", "zoomr_focus",
      "sentence_kv", "quest",  "random_c",     "oracle"};
  zoomr::index_t problems = 8;
  std::uint64_t seed = 1;
  zoomr::index_t budget =
      0;  // of window, sentence_kv and quest; 0: what zoomr_one_pass attends to on the first problem
  zoomr::index_t window = 24;
  std::vector<std::string> settings;
  std::vector<std::string> delimiters = {";"};
  bool json = false;
  std::string report_file;  // a page with the first problem under each preset; empty: none
  std::string command;      // all that was said, for a shell
};

struct subject;
struct problem_set;
struct run_choice;

/// Is told what the demo runs, for a page.
class observer {
 public:
  virtual ~observer() = default;
  /// Before anything takes long.
  /// @param runs  of all checkpoints
  virtual void begin(const options& given, std::size_t runs) = 0;
  virtual void add(subject& on, const problem_set& set, const run_choice& choice) = 0;
  virtual void finish() = 0;
};

/// Runs the demo and prints what it found.
/// @throws input_error
void run(const options& given, observer* page = nullptr);

}  // namespace decode::ledger
