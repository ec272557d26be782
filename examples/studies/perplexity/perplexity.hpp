// SPDX-License-Identifier: Apache-2.0
// The measurement `perplexity`: how well a model foretells long text when a policy decides what it attends to.
// Protocol of PG-19: long text, perplexity per byte and per word, the full cache as reference.
#pragma once

#include <zoomr/core/types.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

#include <CLI/CLI.hpp>

#include "../../decode/number_option.hpp"

namespace decode::perplexity {

struct options {
  std::string directory;                          // of the checkpoint
  std::vector<std::string> texts;                 // files
  std::vector<zoomr::index_t> contexts = {4096};  // tokens of a passage
  zoomr::index_t scored = 1024;                   // its last tokens: foretold under the policy, one by one
  zoomr::index_t passages = 8;                    // of each text
  std::vector<std::string> policies = {"full", "window@1024", "sentence_kv@1024", "sentence_box@1024", "quest@1024"};
  std::vector<std::string> settings;
  std::vector<std::string> delimiters;
  std::uint64_t seed = 1;
  std::string resume_file;
  std::string csv_file;
  bool json = false;
};

/// Adds the subcommand and its options.
inline CLI::App* add_command(CLI::App& app, options& given) {
  CLI::App* command = app.add_subcommand("perplexity", "perplexity of long text against attended tokens");
  const auto natural = number_in(1, zoomr::unlimited);
  command->add_option("--model", given.directory, "directory of a checkpoint")->required();
  command->add_option("--text", given.texts, "files of long text, which the model has not seen")
      ->required()
      ->delimiter(',');
  command->add_option("--contexts", given.contexts, "tokens of a passage, <bos> included")
      ->delimiter(',')
      ->transform(natural)
      ->capture_default_str();
  command
      ->add_option("--bytes,--tokens", given.scored,
                   "scored tokens at the end of a passage; before them a dense prompt")
      ->transform(natural)
      ->capture_default_str();
  command->add_option("--passages", given.passages, "of each text")->transform(natural)->capture_default_str();
  command
      ->add_option("--policies,--policy", given.policies,
                   "name[@budget][+component.field=value]..., see zoomr-decode --list-policies")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--set", given.settings, "component.field=value, for all policies but full; each must have it");
  command->add_option("--delimiters", given.delimiters, "tokens that end sentences; default: . ! ? and empty lines")
      ->delimiter(' ');
  command->add_option("--seed", given.seed, "of the places of the passages")
      ->transform(seed_number())
      ->capture_default_str();
  command->add_option("--resume", given.resume_file,
                      "file of rows: those in it are not measured again, new ones added");
  command->add_option("--csv", given.csv_file, "also writes the table to a file");
  command->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return command;
}

/// Measures and prints what it found.
/// @throws input_error
void run(const options& given);

}  // namespace decode::perplexity
