// SPDX-License-Identifier: Apache-2.0
#include "study.hpp"

#include <algorithm>  // std::sort
#include <atomic>     // std::atomic
#include <iostream>   // std::cout
#include <thread>     // std::jthread

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/table.hpp"
#include "../evaluate/policy_spec.hpp"
#include "runs.hpp"
#include "study_units.hpp"

namespace decode::ledger {
namespace {

constexpr index_t together = 20;  // problems of a unit, in one batch

/// What a name of --tasks stands for.
struct task_entry {
  const char* name;
  const char* what;
  scenario given;
  std::size_t answers;   // 0: as the checkpoint says
  bool of_one_register;  // all questions ask for values of the same register
};

constexpr task_entry task_table[] = {
    {"trace", "the program is the prompt, the model writes the trace", scenario::trace, 0, false},
    {"continued", "the last four thoughts are to be written, the trace before them is the prompt", scenario::continued,
     0, false},
    {"single", "the trace and a question are the prompt", scenario::listed, 1, false},
    {"multi_query", "the trace and four questions are the prompt", scenario::listed, 4, false},
    {"multi_value", "the same, all of one register", scenario::listed, 4, true},
    {"permuted", "as trace, but each line shows another line's value", scenario::permuted, 0, false},
    {"turns", "the trace is the prompt; four questions come one by one", scenario::questions, 4, false},
};

const task_entry& task_named(const std::string& name) {
  std::string known;
  for (const task_entry& entry : task_table) {
    if (name == entry.name) return entry;
    (known += known.empty() ? "" : ", ") += entry.name;
  }
  fail("there is no task ", shown(name), "; known are ", known);
}

run_choice choice_of(const study_options& given, const std::string& spec) {
  policy_choice named = read_policy(spec);
  named.settings.insert(named.settings.begin(), given.settings.begin(), given.settings.end());
  return {named.name, named.budget, given.window, std::move(named.settings), given.audit};
}

/// Some problems under one policy.
struct unit {
  std::string key;
  std::size_t checkpoint = 0;  // index into the directories
  const task_entry* what = nullptr;
  std::string policy;
  bool forced = true;
  index_t first = 0, count = 0;  // problems
};

/// A row of the report.
struct study_run {
  std::string checkpoint;
  const task_entry* what = nullptr;
  std::string policy;
  unit_result forced, free;
};

task sized(const study_options& given, const task_entry& what, task constants) {
  if (given.registers > 0) constants.registers = static_cast<std::size_t>(given.registers);
  if (given.lines > 0) constants.lines = static_cast<std::size_t>(given.lines);
  if (given.lines > 0) constants.last_fine = constants.lines - 2;
  if (constants.registers > constants.names.size())
    fail("--registers ", constants.registers, ": this checkpoint has ", constants.names.size(), " names");
  if (what.answers > 0) constants.answers = what.answers, constants.fine_share = 1.0;
  constants.of_one_register = what.of_one_register;
  return constants;
}

/// All units of the study, the same for the same options.
std::vector<unit> plan(const study_options& given, const std::vector<std::string>& directories) {
  std::string common = "seed=" + std::to_string(given.seed) + " size=" + std::to_string(given.registers) + "x" +
                       std::to_string(given.lines) + " window=" + std::to_string(given.window) + " set=";
  for (const std::string& setting : given.settings) common += setting + ",";
  common += given.audit ? " audited delimiters=" : " delimiters=";
  for (const std::string& delimiter : given.delimiters) common += delimiter + ",";
  const index_t free = given.free_problems < 0 ? given.problems : std::min(given.free_problems, given.problems);
  std::vector<unit> all;
  for (std::size_t c = 0; c < directories.size(); ++c) {
    for (const std::string& name : given.tasks) {
      for (const std::string& policy : given.policies) {
        for (const bool forced : {true, false}) {
          const index_t problems = forced ? given.problems : free;
          for (index_t first = 0; first < problems; first += together) {
            const index_t count = std::min(together, problems - first);
            const std::string key = directories[c] + " " + name + " " + policy + (forced ? " forced " : " free ") +
                                    std::to_string(first) + "+" + std::to_string(count) + " " + common;
            all.push_back({key, c, &task_named(name), policy, forced, first, count});
          }
        }
      }
    }
  }
  return all;
}

/// Runs the units that the file does not have yet, on `given.jobs` threads with a model each.
void work(const study_options& given, const std::vector<std::string>& directories, const std::vector<unit>& units,
          unit_file& file) {
  std::vector<const unit*> left;
  for (const unit& u : units) {
    if (!file.has(u.key)) left.push_back(&u);
  }
  std::atomic<std::size_t> next = 0, done = 0;
  std::exception_ptr failed;
  std::mutex failing;
  const auto worker = [&](bool draws) {
    try {
      progress bar("problems under their policies", draws ? left.size() : 0);
      std::vector<std::unique_ptr<subject>> subjects(directories.size());
      for (std::size_t at = next++; at < left.size(); at = next++) {
        const unit& u = *left[at];
        auto& on = subjects[u.checkpoint];
        if (!on) on = std::make_unique<subject>(directories[u.checkpoint], given.delimiters);
        const task constants = sized(given, *u.what, on->constants);
        const problem_set set(constants, on->words, u.first, u.count, given.seed, u.what->given);
        on->expect_room(set);
        file.add(u.key, result_of(run_policy(*on, set, choice_of(given, u.policy), u.forced, [](std::size_t) {})));
        bar.at(++done);
      }
    } catch (...) {
      const std::scoped_lock lock(failing);
      failed = std::current_exception();
      next = left.size();
    }
  };
  {
    std::vector<std::jthread> others;
    for (index_t job = 1; job < given.jobs; ++job) others.emplace_back(worker, false);
    worker(true);
  }
  if (failed) std::rethrow_exception(failed);
}

std::vector<study_run> join(const std::vector<unit>& units, const std::vector<std::string>& directories,
                            const unit_file& file) {
  std::vector<study_run> runs;
  for (const unit& u : units) {
    const std::string checkpoint =
        std::filesystem::path(directories[u.checkpoint] + "/.").parent_path().filename().string();
    if (runs.empty() || runs.back().checkpoint != checkpoint || runs.back().what != u.what ||
        runs.back().policy != u.policy) {
      runs.push_back({checkpoint, u.what, u.policy, {}, {}});
    }
    (u.forced ? runs.back().forced : runs.back().free).add(file.at(u.key));
  }
  return runs;
}

double rounded(double value) { return std::round(value * 1e5) / 1e5; }

nlohmann::ordered_json to_json(const study_run& run) {
  const unit_result& forced = run.forced;
  const auto problems = static_cast<double>(forced.each.size());
  nlohmann::ordered_json out = {{"policy", run.policy},
                                {"checkpoint", run.checkpoint},
                                {"task", run.what->name},
                                {"problems", forced.each.size()},
                                {"problems_free", run.free.each.size()}};
  const auto add = [&](const std::string& name, const unit_result& of, score scores::*part) {
    const estimate found = estimate_of(of.each, part);
    if (found.high == 0) return;  // nothing of the kind was asked
    out[name] = rounded(found.share);
    out[name + "_interval"] = {rounded(found.low), rounded(found.high)};
  };
  add("fine_accuracy", forced, &scores::fine);
  add("coarse_accuracy", forced, &scores::coarse);
  add("answer_accuracy", forced, &scores::answers);
  add("token_accuracy", forced, &scores::trace);
  add("exact_forced", forced, &scores::exact);
  add("fine_accuracy_free", run.free, &scores::fine);
  add("answer_accuracy_free", run.free, &scores::answers);
  add("exact_match", run.free, &scores::exact);
  add("found", forced, &scores::found);
  scores all;
  for (const scores& each : forced.each) all.add(each);
  if (all.agreed_right > 0) out["agreeability_right"] = rounded(all.agreeability_right / all.agreed_right);
  if (all.agreed_wrong > 0) out["agreeability_wrong"] = rounded(all.agreeability_wrong / all.agreed_wrong);
  out["attended_tokens_mean"] = rounded(forced.attended_sum / problems);
  if (forced.captured_sum > 0) out["captured_mass_mean"] = rounded(forced.captured_sum / problems);
  out["resident_bytes_peak"] = forced.device_peak;
  out["bytes"] = {
      {"details", forced.bytes.details}, {"summaries", forced.bytes.summaries}, {"metadata", forced.bytes.metadata}};
  out["zooms_mean"] = rounded(forced.zooms / problems), out["refreshes_mean"] = rounded(forced.refreshes / problems);
  out["tokens_per_second"] = rounded(run.free.seconds > 0 ? static_cast<double>(run.free.steps) / run.free.seconds : 0);
  out["options"] = forced.options;
  return out;
}

void write_csv(const std::string& path, const std::vector<study_run>& runs) {
  output_file file(path);
  std::ostream& out = file.stream();
  const char* const columns[] = {"checkpoint",
                                 "task",
                                 "policy",
                                 "problems",
                                 "fine_accuracy",
                                 "fine_accuracy_free",
                                 "coarse_accuracy",
                                 "answer_accuracy",
                                 "answer_accuracy_free",
                                 "exact_match",
                                 "found",
                                 "attended_tokens_mean",
                                 "resident_bytes_peak",
                                 "zooms_mean",
                                 "agreeability_right",
                                 "agreeability_wrong"};
  for (const char* column : columns) out << (column == columns[0] ? "" : ",") << column;
  out << '\n';
  for (const study_run& run : runs) {
    const auto row = to_json(run);
    for (const char* column : columns) {
      if (column != columns[0]) out << ',';
      if (row.contains(column)) out << row[column];  // text in quotes, as JSON and CSV both have it
    }
    out << '\n';
  }
  file.finish();
}

void print_table(const std::vector<study_run>& runs) {
  table t({"policy", "checkpoint", "task", "fine", "95 %", "fine free", "coarse", "answers", "exact", "found",
           "attended", "peak KiB", "full/peak"});
  double full = 0;
  for (const study_run& run : runs) {
    const unit_result& forced = run.forced;
    const auto percent = [](const unit_result& of, score scores::*part) {
      const estimate found = estimate_of(of.each, part);
      return found.high == 0 ? "-" : fixed(100 * found.share, 1);
    };
    const estimate fine = estimate_of(forced.each, &scores::fine);
    if (run.policy == "full") full = static_cast<double>(forced.device_peak);
    t.add({run.policy, run.checkpoint, run.what->name, percent(forced, &scores::fine),
           fine.high == 0 ? "-" : fixed(100 * fine.low, 1) + " to " + fixed(100 * fine.high, 1),
           percent(run.free, &scores::fine), percent(forced, &scores::coarse), percent(forced, &scores::answers),
           percent(run.free, &scores::exact), percent(forced, &scores::found),
           fixed(forced.attended_sum / static_cast<double>(forced.each.size()), 1), kib(forced.device_peak),
           full > 0 ? fixed(full / static_cast<double>(forced.device_peak), 2) : "-"});
  }
  t.print(std::cout);
}

std::vector<std::string> shipped() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(ZOOMR_LEDGER_DIRECTORY) + "/checkpoints"))
    found.push_back(entry.path().string());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

void run(const study_options& given) {
  for (const std::string& policy : given.policies) check_policy(choice_of(given, policy));
  const std::vector<std::string> directories = given.checkpoints.empty() ? shipped() : given.checkpoints;
  named_files files;
  for (const std::string& directory : directories) files.reads_model(directory);
  files.writes("--resume", given.resume), files.writes("--csv", given.csv);
  const std::vector<unit> units = plan(given, directories);
  unit_file file(given.resume);
  work(given, directories, units, file);
  const std::vector<study_run> runs = join(units, directories, file);
  if (!given.csv.empty()) write_csv(given.csv, runs);
  if (!given.json) return print_table(runs);
  nlohmann::ordered_json document = {{"runs", nlohmann::ordered_json::array()}};
  for (const study_run& run : runs) document["runs"].push_back(to_json(run));
  std::cout << document.dump(1) << '\n';
}

}  // namespace decode::ledger
