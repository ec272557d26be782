// SPDX-License-Identifier: Apache-2.0
#include "demo.hpp"

#include <iostream>  // std::cout

#include "../policies.hpp"
#include "../progress.hpp"
#include "../report.hpp"
#include "../token_classes.hpp"
#include "evaluate.hpp"

namespace decode::ledger {
namespace {

/// A checkpoint and the problems that it is given.
struct bench {
  std::string checkpoint;
  model net;
  tokenizer words;
  task constants;
  std::vector<zoomr::token_class> classes;  // [V]
  problem_set set;

  bench(const std::string& directory, const options& given)
      : checkpoint(std::filesystem::path(directory + "/.").parent_path().filename().string()),
        net(load_model(directory)),
        words(directory, net.config().vocab),
        constants(read_task(directory)),
        classes(classify(words, net.config().vocab, given.delimiters)),
        set(constants, words, given.problems, given.seed) {
    if (set.length() > net.config().context)
      fail(directory, ": a problem has ", set.length(), " tokens, but the model's context is ", net.config().context);
  }
};

/// visit(policy, budget) with the policy of that name, fit for this task: what is farther than `window` tokens
/// must be zoomed into, and quest has no dense layers, which are for models with more than four.
template <class Visit>
void with_run(const options& given, const std::string& name, index matched, needs& needed, Visit visit) {
  std::vector<std::string> settings = given.settings;
  const bool of_thoughts = name == "summary_only" || name.starts_with("zoomr");
  if (of_thoughts) settings.insert(settings.begin(), "zones.recent=" + std::to_string(given.window));
  if (name == "quest") settings.insert(settings.begin(), "zones.dense_layers=0");
  const auto control = [&](auto selector) {
    auto policy = with_selector(zoomr::policies::zoomr_mass, selector);
    policy.zone.recent = given.window;
    apply(policy, given.settings);
    visit(policy, 0);
  };
  if (name == "oracle") return control(oracle{&needed});
  if (name == "random_c") return control(random_segments{});
  const index budget = of_thoughts || name == "full" ? 0 : matched;
  with_policy({name, budget, settings}, [&](const auto& policy) { visit(policy, budget); });
}

/// The mean that zoomr attends to on the first problem: the budget of those that need one.
index matched_budget(bench& on, const options& given) {
  if (given.budget > 0) return given.budget;
  options first = given;
  first.problems = 1;
  const problem_set one(on.constants, on.words, 1, given.seed);
  needs needed;
  double mean = 0;
  with_run(first, "zoomr", 0, needed, [&](const auto& policy, index) {
    mean = evaluate(on.net, policy, one, on.classes, true, needed, [](std::size_t) {}).attended_mean;
  });
  return static_cast<index>(mean + 0.5);
}

/// Tokens and text are the model's own; what they cost is measured on the given text, the same for all policies.
run_report report_of(const bench& on, const std::string& name, index budget, const outcome& forced,
                     const outcome& free) {
  run_report run;
  run.policy = name;
  run.budget = budget;
  run.tokens = free.tokens;
  text_stream text(on.words, false);
  for (const token_id id : free.tokens) run.text += text.push(id);
  run.seconds = forced.seconds;
  run.steps = forced.steps;
  run.attended_mean = forced.attended_mean;
  run.bytes = forced.bytes;
  run.device_peak = forced.device_peak;
  run.passes = forced.stats.passes;
  run.stats = forced.stats;
  run.more = {{"checkpoint", on.checkpoint},
              {"problems", on.set.size()},
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
void print_zooms(const bench& on, const std::string& name, const outcome& forced, bool late) {
  const problem& shown = on.set.problems.front();
  std::cout << "\n"
            << on.checkpoint << ", " << name << ": what is zoomed into after each sentence of the first problem\n";
  for (const fetch& f : shown.fetches) {
    if (f.answer) continue;
    std::string zoomed;
    bool found = false;
    for (const zoom_record& z : forced.zooms) {
      if (z.position != f.at) continue;
      for (const index id : z.segments) {
        const index r = id - forced.prompt_segments;
        const bool thought = r >= 0 && r < static_cast<index>(shown.names.size());
        zoomed += " " + (thought ? on.constants.names[shown.names[static_cast<std::size_t>(r)]] : "(prompt)");
        found = found || r == static_cast<index>(f.to.source);
      }
    }
    std::string pointer;
    for (std::size_t p = f.at - 6; p <= f.at; ++p) pointer += shown.tokens[p] + " ";
    pointer.resize(std::max<std::size_t>(pointer.size(), 24), ' ');
    zoomed.resize(std::max<std::size_t>(zoomed.size(), 9), ' ');
    std::cout << "  " << pointer << "->" << zoomed
              << (f.to.last ? "  (the summary is enough)"
                  : !found  ? "  not the one it needs"
                  : late    ? "  the one it needs, one token late"
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

}  // namespace

CLI::App* add_command(CLI::App& app, options& given) {
  CLI::App* demo = app.add_subcommand("ledger", "the demo: a small model that reasons, under every policy");
  demo->add_option("--model", given.checkpoints, "directories of checkpoints trained for the task")->delimiter(',');
  demo->add_option("--problems", given.problems, "of the task, at the checkpoint's size")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  demo->add_option("--seed", given.seed, "of the problems")->capture_default_str();
  demo->add_option("--policies,--policy", given.policies, "also the controls random_c and oracle")->delimiter(',');
  demo->add_option("--budget", given.budget, "of window, sentence_kv and quest; default: what zoomr attends to")
      ->check(CLI::Range(1, zoomr::unlimited));
  demo->add_option("--window", given.window, "last tokens that the policies of thoughts attend to")
      ->check(CLI::Range(1, zoomr::unlimited))
      ->capture_default_str();
  demo->add_option("--set", given.settings, "component.field=value, for all policies that have it");
  demo->add_option("--delimiters", given.delimiters, "tokens that end sentences, and so refresh")
      ->delimiter(' ')
      ->capture_default_str();
  demo->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return demo;
}

void run(const options& given) {
  std::vector<std::string> directories = given.checkpoints;
  const std::string shipped = std::string(ZOOMR_LEDGER_DIRECTORY) + "/checkpoints/";
  if (directories.empty()) directories = {shipped + "plain", shipped + "indexed"};
  std::vector<run_report> runs;
  for (const std::string& directory : directories) {
    bench on(directory, given);
    const index matched = matched_budget(on, given);
    for (const std::string& name : given.policies) {
      needs needed;
      with_run(given, name, matched, needed, [&](const auto& policy, index budget) {
        progress bar(on.checkpoint + ", " + name, 2 * on.set.length());
        const auto forced =
            evaluate(on.net, policy, on.set, on.classes, true, needed, [&](std::size_t done) { bar.at(done); });
        const auto free = evaluate(on.net, policy, on.set, on.classes, false, needed,
                                   [&](std::size_t done) { bar.at(on.set.length() + done); });
        runs.push_back(report_of(on, name, budget, forced, free));
        runs.back().options = describe(policy);
        if (!given.json && name.starts_with("zoomr")) print_zooms(on, name, forced, !policy.refresh.ask_again);
      });
    }
  }
  if (given.json) return print_json(std::cout, runs);
  std::cout << "\nLEDGER, " << given.problems
            << " problems. Right in %: fine and coarse look-ups of the trace, answers, all tokens"
            << "\n(teacher-forced, like the costs); fine in a trace that the model writes itself; whole traces without "
               "an error.\n\n";
  print_accuracy(runs);
}

}  // namespace decode::ledger
