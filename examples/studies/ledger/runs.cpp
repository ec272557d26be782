// SPDX-License-Identifier: Apache-2.0
#include "runs.hpp"

#include <filesystem>  // std::filesystem::path
#include <span>        // std::span

#include "../../decode/input_error.hpp"
#include "../../decode/policies.hpp"
#include "../../decode/recording.hpp"
#include "../../decode/token_classes.hpp"

namespace decode::ledger {
namespace {

/// visit(policy) with the policy of that choice; quest has no dense layers, which are for models with more than four.
template <class Visit>
void with_run(const run_choice& choice, needs& needed, Visit visit) {
  const auto control = [&](auto policy) {
    if (policy.zone.recent > 1) policy.zone.recent = choice.window;
    apply(policy, choice.settings);
    visit(policy);
  };
  if (choice.policy == "oracle") return control(with_selector(zoomr::presets::zoomr_mass, oracle{&needed}));
  if (choice.policy == "random_c") return control(with_selector(zoomr::presets::zoomr_mass, random_segments{}));
  if (choice.policy == "zoomr_box") return control(zoomr_box);
  if (choice.policy == "zoomr_cover") return control(with_selector(zoomr::presets::zoomr_focus, zoomr::top_p{}));
  if (choice.policy == "summaries_apart") return control(summaries_apart);
  std::vector<std::string> settings = choice.settings;
  if (of_thoughts(choice.policy)) settings.insert(settings.begin(), "zones.recent=" + std::to_string(choice.window));
  if (choice.policy == "quest") settings.insert(settings.begin(), "zones.dense_layers=0");
  with_policy({choice.policy, choice.budget, settings}, visit);
}

template <class Policy>
bool stale(const Policy& policy) {
  return Policy::selects && policy.aggregate.per == zoomr::scope::sequence && !policy.refresh.second_pass;
}

}  // namespace

subject::subject(const std::string& directory, const std::vector<std::string>& delimiters)
    : checkpoint(std::filesystem::path(directory + "/.").parent_path().filename().string()),
      net(load_model(directory)),
      words(directory, net.config().vocab),
      constants(read_task(directory)),
      classes(classify(words, net.config().vocab, delimiters)) {}

void subject::expect_room(const problem_set& set) const {
  if (set.length() > net.config().context)
    fail(checkpoint, ": a problem has ", set.length(), " tokens, but the model's context is ", net.config().context);
}

bool of_thoughts(const std::string& policy) {
  return policy.starts_with("zoomr") || policy == "summary_only" || policy == "oracle" || policy == "random_c";
}

outcome run_policy(subject& on, const problem_set& set, const run_choice& choice, bool forced,
                   const progress_sink& passed) {
  needs needed;
  outcome made;
  with_run(choice, needed, [&](const auto& policy) {
    made = evaluate(on.net, policy, set, on.classes, forced, needed, passed, choice.audit);
    made.late = stale(policy);
    made.options = describe(policy);
  });
  return made;
}

void show_policy(subject& on, const problem_set& set, const run_choice& choice, report::page& page) {
  if (choice.policy == "oracle" || choice.policy == "random_c") return;
  needs needed;
  with_run(choice, needed, [&](const auto& policy) {
    const std::span<const token_id> ids = set.ids.front();
    const std::size_t prompt = set.problems.front().prompt_length;
    const auto tokens = static_cast<index_t>(ids.size());
    session run(on.net, policy, 1, tokens, on.classes, 1, choice.audit);
    recording recorded(run, report::facts_of(policy, tokens));
    run.prompt(0, ids.first(prompt));
    recorded.passed(ids.first(prompt));
    for (std::size_t t = prompt; t + 1 < ids.size(); ++t) {  // nothing comes after the last one
      run.advance(ids.subspan(t, 1));
      recorded.passed(ids.subspan(t, 1));
    }
    run_report said;
    said.policy = on.checkpoint + ", " + choice.policy;
    said.budget = choice.budget;
    said.options = describe(policy);
    take_counters(said, run);
    recorded.add_to(page, on.words, said);
  });
}

bool takes(const run_choice& choice, const std::string& setting) {
  needs needed;
  bool does = false;
  with_run(choice, needed, [&](auto policy) { does = apply(policy, {setting}) > 0; });
  return does;
}

void check_policy(const run_choice& choice) {
  needs needed;
  with_run(choice, needed, [&](auto policy) {
    for (const std::string& setting : choice.settings) {
      if (apply(policy, {setting}) == 0)
        fail(choice.policy, ": it has no option ", setting, ", but ", option_names(policy));
    }
  });
}

}  // namespace decode::ledger
