// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <filesystem>  // std::filesystem::temp_directory_path

#include <CLI/CLI.hpp>

#include "../decode/command_text.hpp"
#include "../decode/file_option.hpp"
#include "../decode/input_error.hpp"
#include "../decode/number_option.hpp"

namespace replay {
namespace {

using decode::fail;

/// "64MiB" becomes "67108864".
CLI::Validator size_text() {
  const auto read = [](std::string& text) {
    const auto bytes = decode::size_in_bytes(text);
    if (!bytes) return decode::shown(text) + " is not a size like 64MiB, of at least 1 byte and less than 2^63";
    text = std::to_string(*bytes);
    return std::string();
  };
  return CLI::Validator(read, "SIZE");
}

}  // namespace

std::optional<int> read_command_line(int argc, const char* const* argv, options& given) {
  CLI::App app(
      "Replays a recorded trace of a model under KV-cache policies, and says how far each is from full "
      "attention.");
  app.add_option("trace", given.files, "its files, in the order of their tokens")
      ->required()
      ->check(decode::file_name());
  app.add_option("--policy,--policies", given.policies,
                 "NAME[@BUDGET][+component.field=value]...; see zoomr-decode --list-policies; default: full")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--budget", given.budgets, "one run for each, of the policies that name none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(decode::number_in(1, zoomr::unlimited));
  app.add_option("--memory", given.memory, "that caches may take together; what has no room is in a file")
      ->transform(size_text());
  app.add_option(
         "--device-bytes", given.device,
         "of each cache are its memory, as a device would have them, to which details move from a file; default: all")
      ->transform(size_text());
  app.add_option("--scratch", given.scratch, "a folder for that file, which has no name; default: that of the system")
      ->check(decode::file_name());
  app.add_option("--voters", given.voters_file, "weights of the heads that vote, for policies that ask them")
      ->check(decode::file_name());
  app.add_option("--at-once", given.at_once,
                 "policies that play at a time; default: all, which reads the trace once; with --resume 1")
      ->transform(decode::number_in(1, 1 << 16));
  app.add_option("--json", given.json_file, "a file for all figures, of each query head too")
      ->check(decode::file_name());
  app.add_option("--csv", given.csv_file, "a file for the same as a table")->check(decode::file_name());
  app.add_option("--report", given.report_file, "one page, HTML: what each token would have read of the text")
      ->check(decode::file_name());
  app.add_flag("--advise", given.advise,
               "say which policies no other beats in error and cost, and how to make them; without --policy "
               "all that can work on the trace are tried, at four budgets");
  app.add_option("--resume", given.resume_file, "a file of policies that have finished, which are not played again")
      ->check(decode::file_name());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app.exit(wrong);
    fail(wrong.what());
  }
  given.command = decode::as_typed(argc, argv);
  if (!given.report_file.empty() && !given.resume_file.empty())
    fail("--report, --resume: a policy that is not played again has nothing to show");
  if (given.policies.empty() && !given.advise) given.policies = {"full"};
  if (given.at_once == 0 && given.policies.empty()) given.at_once = 8;
  if (given.scratch.empty()) given.scratch = std::filesystem::temp_directory_path().string();
  if (given.at_once == 0 && !given.resume_file.empty()) given.at_once = 1;
  return std::nullopt;
}

}  // namespace replay
