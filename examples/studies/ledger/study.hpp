// SPDX-License-Identifier: Apache-2.0
// zoomr-eval ledger: policies on many problems, with intervals; resumable, on several threads.
#pragma once

#include <zoomr/core/types.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

#include <CLI/CLI.hpp>

#include "../../decode/number_option.hpp"

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

/// Adds the subcommand and its options.
inline CLI::App* add_command(CLI::App& app, study_options& given) {
  CLI::App* study = app.add_subcommand("ledger", "policies on the LEDGER task, with 95 % intervals");
  study->add_option("--model", given.checkpoints, "directories of checkpoints trained for the task")->delimiter(',');
  study
      ->add_option(
          "--policies,--policy", given.policies,
          "name[@budget][+component.field=value]..., also the controls random_c, oracle, zoomr_box, zoomr_cover, "
          "zoomr_drift and summaries_apart")
      ->delimiter(',');
  study
      ->add_option("--tasks,--task", given.tasks, "trace, continued, single, multi_query, multi_value, turns, permuted")
      ->delimiter(',');
  study->add_option("--problems", given.problems, "for each policy and task")
      ->transform(number_in(1, 1 << 20))
      ->capture_default_str();
  study->add_option("--free-problems", given.free_problems, "of these, how many the model also writes itself; -1: all")
      ->transform(number_in(-1, 1 << 20))
      ->capture_default_str();
  study->add_option("--registers", given.registers, "of a problem; default: the checkpoint's size")
      ->transform(number_in(3, 128));
  study->add_option("--lines", given.lines, "of a register; default: the checkpoint's size")
      ->transform(number_in(6, 64));
  study->add_option("--seed", given.seed, "of the problems")->transform(seed_number())->capture_default_str();
  study->add_option("--window", given.window, "last tokens that the policies of thoughts attend to")
      ->transform(number_in(1, zoomr::unlimited))
      ->capture_default_str();
  study->add_option("--set", given.settings, "component.field=value, for all policies; each must have it");
  study->add_option("--delimiters", given.delimiters, "tokens that end sentences, and so refresh, separated by spaces")
      ->delimiter(' ')
      ->capture_default_str();
  study->add_option("--jobs", given.jobs, "threads")->transform(number_in(1, 256))->capture_default_str();
  study->add_option("--resume", given.resume, "file of finished parts: what it holds is not run again");
  study->add_option("--csv", given.csv, "file for a table of the runs");
  study->add_flag("--audit", given.audit, "measure what share of the attention mass is captured: slow");
  study->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return study;
}

/// Runs the study and prints what it found.
/// @throws input_error
void run(const study_options& given);

}  // namespace decode::ledger
