// SPDX-License-Identifier: Apache-2.0
// zoomr-replay: what policies would have made of a recorded trace, compared with full attention. Bad input ends with
// exit code 2 and one sentence.
#include <algorithm>  // std::min
#include <iostream>   // std::cout
#include <memory>     // std::make_unique

#include "../decode/input_error.hpp"
#include "../decode/named_files.hpp"
#include "../decode/output.hpp"
#include "advice.hpp"
#include "command_line.hpp"
#include "replay.hpp"
#include "replay_page.hpp"
#include "resumed.hpp"
#include "tables.hpp"
#include "time_left.hpp"
#include "voters.hpp"

namespace replay {
namespace {

/// What decides results beside trace and policy.
std::string limits_in_words(const options& given) {
  return "memory=" + std::to_string(given.memory) + " device=" + std::to_string(given.device) +
         " at_once=" + std::to_string(given.at_once) + " voters=" + given.voters_file;
}

/// Those that a file does not have already, some at a time.
/// @param page  that records them, or nullptr
std::vector<replay_result> play_all(trace& from, const std::vector<named_policy>& policies, const options& given,
                                    const settings& shared, replay_page* page) {
  resumed finished(given.resume_file, from, limits_in_words(given));
  std::vector<named_policy> left;
  for (const named_policy& one : policies)
    if (finished.find(one.text) == nullptr) left.push_back(one);
  const std::size_t most = given.at_once > 0 ? static_cast<std::size_t>(given.at_once) : left.size();
  time_left bar;
  for (std::size_t first = 0; first < left.size(); first += most) {
    const std::vector<named_policy> some(
        left.begin() + static_cast<std::ptrdiff_t>(first),
        left.begin() + static_cast<std::ptrdiff_t>(std::min(first + most, left.size())));
    if (some.size() < left.size())
      bar.part("policies " + std::to_string(first + 1) + " to " + std::to_string(first + some.size()) + " of " +
               std::to_string(left.size()));
    watcher seen{[&](double share) {
                   const double before = static_cast<double>(first), here = static_cast<double>(some.size());
                   bar.at((before + share * here) / static_cast<double>(left.size()));
                 },
                 {}};
    if (page != nullptr) seen.recorder = [&](std::size_t, const report::policy_facts& of) { return page->add(of); };
    for (const replay_result& result : play(from, some, given.memory, shared, seen)) finished.add(result);
  }
  std::vector<replay_result> results;
  for (const named_policy& one : policies) results.push_back(*finished.find(one.text));
  return results;
}

int run(int argc, char** argv) {
  options given;
  if (const auto status = read_command_line(argc, argv, given)) return *status;
  decode::named_files files;
  files.reads("the trace", given.files);
  files.reads("--voters", given.voters_file);
  files.writes("--json", given.json_file), files.writes("--csv", given.csv_file);
  files.writes("--report", given.report_file), files.writes("--resume", given.resume_file);
  trace from(given.files);
  if (from.facts().prompt == from.facts().tokens)
    decode::fail("the trace has no token after its prompt of ", from.facts().prompt, ": there is nothing to compare");
  if (from.classes_from_text())
    decode::tell("note: the trace has no token_classes; sentences end where its text has . ! ? or an empty line");
  settings shared;
  shared.limits.device = given.device;
  shared.limits.scratch = given.scratch;
  if (!given.voters_file.empty()) shared.voters = read_voters(given.voters_file, from.facts());
  // Before anything takes long: these files can be written.
  const auto file = [](const std::string& path) {
    return path.empty() ? nullptr : std::make_unique<decode::output_file>(path);
  };
  const auto json = file(given.json_file), csv = file(given.csv_file), page_file = file(given.report_file);
  const std::vector<named_policy> policies = named_policies(
      given.policies.empty() ? policies_to_try(from, !shared.voters.weights.empty()) : given.policies, given.budgets);
  if (const std::string why = not_tried(from, !shared.voters.weights.empty()); given.policies.empty() && !why.empty())
    decode::tell("note: " + why);
  replay_page page;
  const std::vector<replay_result> results = play_all(from, policies, given, shared, page_file ? &page : nullptr);
  if (json) print_json(json->stream(), from.facts(), given.files, results), json->finish();
  if (csv) print_csv(csv->stream(), from.facts(), results), csv->finish();
  if (page_file) page.write(page_file->stream(), from, given.command, results), page_file->finish();
  print_table(std::cout, from.facts(), results);
  if (given.advise) print_advice(std::cout, policies, results);
  return 0;
}

}  // namespace
}  // namespace replay

int main(int argc, char** argv) {
  return decode::run_program("zoomr-replay", [&] { return replay::run(argc, argv); });
}
