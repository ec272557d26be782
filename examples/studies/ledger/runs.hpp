// SPDX-License-Identifier: Apache-2.0
// A checkpoint at work on the task: what the demo and the study have in common.
#pragma once

#include <zoomr/core/function_ref.hpp>

#include <optional>  // std::optional
#include <span>      // std::span
#include <string>    // std::string
#include <vector>    // std::vector

#include "../../decode/model.hpp"
#include "../../decode/policies.hpp"
#include "../../decode/report/recorder.hpp"
#include "evaluate.hpp"

namespace decode::ledger {

/// A checkpoint trained for the task.
struct subject {
  std::string checkpoint;  // the directory's name
  model net;
  tokenizer words;
  task constants;
  std::vector<zoomr::token_class> classes;  // [V]

  subject(const std::string& directory, const std::vector<std::string>& delimiters);

  /// @throws input_error if the problems are longer than the model's context
  void expect_room(const problem_set& set) const;
};

/// One policy as it is run: a preset or a control, and what is changed of it.
struct run_choice {
  std::string policy;   // a preset, or a control: oracle, random_c, zoomr_box, zoomr_cover,
                        // summaries_apart
  index_t budget = 0;   // 0: the preset's own
  index_t window = 24;  // of the policies of thoughts: what is farther back must be zoomed into
  std::vector<std::string> settings;
  bool audit = false;  // measure the attention mass that is captured: slow
};

/// True for the policies whose segments are thoughts, which have a window rather than a budget.
bool of_thoughts(const std::string& policy);

/// The policy of a choice, of whatever type it is.
struct chosen_policy {
  policy_options options;  // of a copy, which may be changed
  bool late = false;       // a choice serves the tokens after the one that made it
  zoomr::function_ref<report::policy_facts(index_t tokens)> facts;
  /// Arguments as of a session.
  zoomr::function_ref<void(std::optional<session<>>& run, model& net, index_t sequences, index_t tokens,
                           std::span<const zoomr::token_class> classes, index_t draft, bool audit)>
      open;
};

/// visit(policy) with the policy of that choice.
/// @param needed  of the oracle
/// @throws input_error if there is no such policy, or if its options cannot work together
void with_run(const run_choice& choice, needs& needed, zoomr::function_ref<void(const chosen_policy&)> visit);

/// Runs `choice` on the problems.
/// @throws input_error if there is no such policy, or if its options cannot work together
outcome run_policy(subject& on, const problem_set& set, const run_choice& choice, bool forced,
                   const progress_sink& passed);

/// Whether a setting names a field of the policy.
/// @throws input_error as `run_policy`
bool takes(const run_choice& choice, const std::string& setting);

/// Checks a choice, before any model is loaded.
/// @throws input_error as `run_policy`, and if a setting names no field of the policy
void check_policy(const run_choice& choice);

}  // namespace decode::ledger
