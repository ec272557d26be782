// SPDX-License-Identifier: Apache-2.0
// zoomr-decode ledger: a model that reasons with summaries, under every policy, on problems whose answers are known.
#pragma once

#include <zoomr/core/types.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

#include <CLI/CLI.hpp>

#include "../../decode/number_option.hpp"

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
};

/// Adds the subcommand and its options.
inline CLI::App* add_command(CLI::App& app, options& given) {
  CLI::App* demo = app.add_subcommand("ledger", "the demo: a small model that reasons, under every policy");
  demo->add_option("--model", given.checkpoints, "directories of checkpoints trained for the task")->delimiter(',');
  demo->add_option("--problems", given.problems, "of the task, at the checkpoint's size")
      ->transform(number_in(1, 4096))
      ->capture_default_str();
  demo->add_option("--seed", given.seed, "of the problems")->transform(seed_number())->capture_default_str();
  demo->add_option("--policies,--policy", given.policies, "also the controls random_c and oracle")->delimiter(',');
  demo->add_option("--budget", given.budget,
                   "of window, sentence_kv and quest; default: what zoomr_one_pass attends to")
      ->transform(number_in(1, zoomr::unlimited));
  demo->add_option("--window", given.window, "last tokens that the policies of thoughts attend to")
      ->transform(number_in(1, zoomr::unlimited))
      ->capture_default_str();
  demo->add_option("--set", given.settings, "component.field=value, for all policies that have it");
  demo->add_option("--delimiters", given.delimiters, "tokens that end sentences, and so refresh")
      ->delimiter(' ')
      ->capture_default_str();
  demo->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return demo;
}

/// Runs the demo and prints what it found.
/// @throws input_error
void run(const options& given);

}  // namespace decode::ledger
