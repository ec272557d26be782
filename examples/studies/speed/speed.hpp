// SPDX-License-Identifier: Apache-2.0
// The measurement `speed`: tokens per second and memory of a model of some shape, at long contexts, without a
// checkpoint. Weights are random, and so are keys and values of the context; decoding is real.
#pragma once

#include <zoomr/core/executor.hpp>
#include <zoomr/core/types.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

#include <CLI/CLI.hpp>

#include "../../decode/number_option.hpp"

namespace decode::speed {

struct options {
  std::string shape_file;                          // a config.json
  std::vector<zoomr::index_t> contexts = {16384};  // tokens before the first that is timed
  std::vector<std::string> policies = {"full", "zoomr_focus", "sentence_box"};
  std::vector<std::string> settings;
  std::string tiers;
  zoomr::index_t threads = 1;
  zoomr::index_t generated = 64;  // tokens that are timed
  zoomr::index_t rounds = 3;
};

/// Adds the subcommand and its options.
inline CLI::App* add_command(CLI::App& app, options& given) {
  CLI::App* command = app.add_subcommand("speed", "decoding speed and memory of a shape with random weights");
  const auto natural = number_in(1, zoomr::unlimited);
  command->add_option("--shape", given.shape_file, "a config.json")->required();
  command->add_option("--tokens", given.contexts, "contexts before the first timed token")
      ->delimiter(',')
      ->transform(natural)
      ->capture_default_str();
  command
      ->add_option("--policy,--policies", given.policies,
                   "name[@budget][+component.field=value]..., see zoomr-decode --list-policies")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--set", given.settings, "component.field=value, for all policies but full; each must have it");
  command->add_option("--tiers", given.tiers,
                      "as of zoomr-decode: device=64MiB,host=4GiB,file=PATH:16GiB; of all policies but full");
  command->add_option("--threads", given.threads, "that multiply and attend")
      ->transform(number_in(1, zoomr::executor::most_threads))
      ->capture_default_str();
  command->add_option("--generate", given.generated, "tokens that are timed")
      ->transform(natural)
      ->capture_default_str();
  command->add_option("--rounds", given.rounds, "each with all policies in turn; the table has medians")
      ->transform(natural)
      ->capture_default_str();
  return command;
}

/// Measures and prints what it found.
/// @throws input_error
void run(const options& given);

}  // namespace decode::speed
