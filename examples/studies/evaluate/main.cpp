// SPDX-License-Identifier: Apache-2.0
// zoomr-eval: what policies keep, measured. Bad input ends with exit code 2 and one sentence.
#include <CLI/CLI.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/output.hpp"
#include "commands.hpp"

namespace decode {
namespace {

int run(int argc, char** argv) {
  CLI::App app("Measures what KV-cache policies keep, on models trained for it, and how fast they are.");
  ledger::study_options study;
  CLI::App* ledger_command = add_command(app, study);
  perplexity::options text;
  CLI::App* perplexity_command = add_command(app, text);
  speed::options rate;
  CLI::App* speed_command = add_command(app, rate);
  app.require_subcommand(1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app.exit(wrong);
    fail(wrong.what());
  }
  if (ledger_command->parsed()) ledger::run(study);
  if (perplexity_command->parsed()) perplexity::run(text);
  if (speed_command->parsed()) speed::run(rate);
  return 0;
}

}  // namespace
}  // namespace decode

int main(int argc, char** argv) {
  return decode::run_program("zoomr-eval", [&] { return decode::run(argc, argv); });
}
