// SPDX-License-Identifier: Apache-2.0
#include "demo.hpp"

#include <algorithm>  // std::max, std::ranges::find
#include <iostream>   // std::cout

#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/report.hpp"
#include "../../decode/table.hpp"
#include "runs.hpp"

namespace decode::ledger {
namespace {

run_choice choice_of(const options& given, const std::string& name, index_t matched) {
  const index_t budget = of_thoughts(name) || name == "full" ? 0 : matched;
  return {name, budget, given.window, given.settings};
}

/// Checked before any model is loaded: a setting is for those that have it, and some must.
void check_settings(const options& given) {
  std::vector<bool> used(given.settings.size());
  for (const std::string& name : given.policies) {
    const run_choice choice = choice_of(given, name, 0);
    check_policy({name, 0, given.window, {}});
    for (std::size_t s = 0; s < used.size(); ++s) used[s] = takes(choice, given.settings[s]) || used[s];
  }
  for (std::size_t s = 0; s < used.size(); ++s) {
    if (!used[s]) fail("--set ", given.settings[s], ": no chosen policy has such an option; see --list-policies");
  }
}

/// The mean that zoomr_one_pass attends to on the first problem: the budget of those that need one.
index_t matched_budget(subject& on, const options& given) {
  if (given.budget > 0) return given.budget;
  const problem_set one(on.constants, on.words, 0, 1, given.seed);
  const outcome made = run_policy(on, one, choice_of(given, "zoomr_one_pass", 0), true, [](std::size_t) {});
  return static_cast<index_t>(made.attended_mean + 0.5);
}

/// Tokens, text and speed are the model's own; what else they cost is measured on the given text, the same for all
/// policies, which passes several tokens at once.
run_report report_of(const subject& on, const run_choice& choice, const outcome& forced, const outcome& free) {
  run_report run;
  run.policy = choice.policy;
  run.budget = choice.budget;
  run.options = forced.options;
  run.tokens = free.tokens;
  text_stream text(on.words, false);
  for (const token_id id : free.tokens) run.text += text.push(id);
  run.seconds = free.seconds;
  run.steps = free.steps;
  run.attended_mean = forced.attended_mean;
  run.bytes = forced.bytes;
  run.device_peak = forced.device_peak;
  run.passes = free.stats.passes;
  run.stats = forced.stats;
  run.more = {{"checkpoint", on.checkpoint},
              {"problems", forced.each.size()},
              {"fine_accuracy", forced.fine.share()},
              {"coarse_accuracy", forced.coarse.share()},
              {"answer_accuracy", forced.answers.share()},
              {"token_accuracy", forced.trace.share()},
              {"fine_accuracy_free", free.fine.share()},
              {"coarse_accuracy_free", free.coarse.share()},
              {"exact_match", free.exact.share()},
              {"fine_fetches", forced.fine.all},
              {"coarse_fetches", forced.coarse.all}};
  return run;
}

/// "c = a [ @5 ] ;" and what was zoomed into when it had been read.
void print_zooms(const subject& on, const problem& shown, const std::string& name, const outcome& forced) {
  std::cout << "\n"
            << on.checkpoint << ", " << name
            << ": what is zoomed into, in any layer, after each sentence of the first problem\n";
  for (const fetch& f : shown.fetches) {
    if (f.answer) continue;
    std::string zoomed;
    bool found = false;
    for (const zoom_record& z : forced.zooms) {
      if (z.position != f.at) continue;
      for (const index_t id : z.segments) {
        const index_t r = id - forced.first_thought;
        const bool thought = r >= 0 && r < static_cast<index_t>(shown.names.size());
        zoomed += " " + (thought ? on.constants.names[shown.names[static_cast<std::size_t>(r)]] : "(prompt)");
        found = found || r == static_cast<index_t>(f.to.source);
      }
    }
    std::string pointer;
    for (std::size_t p = f.at - 6; p <= f.at; ++p) pointer += shown.tokens[p] + " ";
    pointer.resize(std::max<std::size_t>(pointer.size(), 24), ' ');
    zoomed.resize(std::max<std::size_t>(zoomed.size(), 13), ' ');
    std::cout << "  " << pointer << "->" << zoomed
              << (f.to.last     ? "  (the summary is enough)"
                  : !found      ? "  not the one it needs"
                  : forced.late ? "  the one it needs, one token late"
                                : "  the one it needs")
              << '\n';
  }
}

std::string percent(double share) { return fixed(100 * share, 1); }

void print_accuracy(const std::vector<run_report>& runs) {
  table t({"checkpoint", "policy", "budget", "fine", "coarse", "answers", "tokens", "fine free", "exact", "attended",
           "attended/full", "peak KiB", "tokens/s"});
  double full = 0;
  for (const run_report& run : runs) {
    if (run.policy == "full") full = run.attended_mean;
    t.add({run.more["checkpoint"], run.policy, run.budget > 0 ? std::to_string(run.budget) : "-",
           percent(run.more["fine_accuracy"]), percent(run.more["coarse_accuracy"]),
           percent(run.more["answer_accuracy"]), percent(run.more["token_accuracy"]),
           percent(run.more["fine_accuracy_free"]), percent(run.more["exact_match"]), fixed(run.attended_mean, 1),
           full > 0 ? fixed(run.attended_mean / full, 2) : "-", kib(run.device_peak),
           fixed(run.tokens_per_second(), 0)});
  }
  t.print(std::cout);
}

/// What those names in the table mean that docs/policies.md does not list.
void print_legend(const options& given) {
  const auto ran = [&](const char* name) { return std::ranges::find(given.policies, name) != given.policies.end(); };
  std::cout << "\nfine free: fine look-ups where the model writes the trace itself, free of the given one. exact: such "
               "traces without an error.\n";
  if (given.checkpoints.empty()) std::cout << "plain: trained with full attention. indexed: trained further to zoom.\n";
  if (ran("random_c")) std::cout << "random_c: a control, zoomr_mass with two thoughts chosen at random.\n";
  if (ran("oracle")) std::cout << "oracle: a control, zoomr_mass with the one thought chosen that is needed.\n";
}

}  // namespace

void run(const options& given, observer* page) {
  check_settings(given);
  std::vector<std::string> directories = given.checkpoints;
  const std::string shipped = std::string(ZOOMR_LEDGER_DIRECTORY) + "/checkpoints/";
  if (directories.empty()) directories = {shipped + "plain", shipped + "indexed"};
  named_files files;
  for (const std::string& directory : directories) files.reads_model(directory);
  files.writes("--report", given.report_file);
  if (page != nullptr) page->begin(given, directories.size() * given.policies.size());
  std::vector<run_report> runs;
  std::string shown;  // whose zooms are printed: of those that zoom, the last
  for (const std::string& name : given.policies) {
    if (name.starts_with("zoomr")) shown = name;
  }
  for (const std::string& directory : directories) {
    subject on(directory, given.delimiters);
    const problem_set set(on.constants, on.words, 0, given.problems, given.seed);
    on.expect_room(set);
    const index_t matched = matched_budget(on, given);
    for (const std::string& name : given.policies) {
      const run_choice choice = choice_of(given, name, matched);
      progress bar(on.checkpoint + ", " + name, 2 * set.length());
      const outcome forced = run_policy(on, set, choice, true, [&](std::size_t done) { bar.at(done); });
      const outcome free = run_policy(on, set, choice, false, [&](std::size_t done) { bar.at(set.length() + done); });
      runs.push_back(report_of(on, choice, forced, free));
      if (page != nullptr) page->add(on, set, choice);
      if (!given.json && name == shown) print_zooms(on, set.problems.front(), name, forced);
    }
  }
  if (page != nullptr) page->finish();
  if (given.json) return print_json(std::cout, runs);
  std::cout << "\nLEDGER, " << given.problems
            << " problems. Right in %: fine and coarse look-ups of the trace, answers, all tokens"
            << "\n(teacher-forced, like the costs); fine in a trace that the model writes itself; whole traces without "
               "an error.\n\n";
  print_accuracy(runs);
  print_legend(given);
}

}  // namespace decode::ledger
