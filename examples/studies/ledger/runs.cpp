// SPDX-License-Identifier: Apache-2.0
#include "runs.hpp"

#include <filesystem>  // std::filesystem::path

#include "../../decode/input_error.hpp"
#include "../../decode/report/observe.hpp"
#include "../../decode/token_classes.hpp"

namespace decode::ledger {
namespace {

template <class Policy>
bool stale(const Policy& policy) {
  return Policy::selects && policy.aggregate.per == zoomr::scope::sequence && !policy.refresh.second_pass;
}

}  // namespace

// quest has no dense layers, which are for models with more than four.
void with_run(const run_choice& choice, needs& needed, zoomr::function_ref<void(const chosen_policy&)> visit) {
  const auto chosen = [&](auto policy) {
    const auto facts = [&](index_t tokens) { return report::facts_of(policy, tokens); };
    const auto open = [&](std::optional<session<>>& run, model& net, index_t sequences, index_t tokens,
                          std::span<const zoomr::token_class> classes, index_t draft,
                          bool audit) { run.emplace(net, policy, sequences, tokens, classes, draft, audit); };
    visit({options_of(policy), stale(policy), facts, open});
  };
  const auto control = [&](auto policy) {
    if (policy.zone.recent > 1) policy.zone.recent = choice.window;
    apply(policy, choice.settings);
    chosen(policy);
  };
  if (choice.policy == "oracle") return control(with_selector(zoomr::presets::zoomr_mass, oracle{&needed}));
  if (choice.policy == "random_c") return control(with_selector(zoomr::presets::zoomr_mass, random_segments{}));
  if (choice.policy == "zoomr_box") return control(zoomr_box);
  if (choice.policy == "zoomr_cover") return control(with_selector(zoomr::presets::zoomr_focus, zoomr::top_p{}));
  if (choice.policy == "summaries_apart") return control(summaries_apart);
  std::vector<std::string> settings = choice.settings;
  if (of_thoughts(choice.policy)) settings.insert(settings.begin(), "zones.recent=" + std::to_string(choice.window));
  if (choice.policy == "quest") settings.insert(settings.begin(), "zones.dense_layers=0");
  with_policy({choice.policy, choice.budget, settings}, chosen);
}

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
  with_run(choice, needed, [&](const chosen_policy& policy) {
    std::optional<session<>> run;
    policy.open(run, on.net, set.size(), static_cast<index_t>(set.length()), on.classes, evaluation::draft(forced),
                choice.audit);
    made = evaluation(*run, set, on.classes, forced, needed).run(passed);
    made.late = policy.late;
    made.options = describe_options(policy.options);
  });
  return made;
}

bool takes(const run_choice& choice, const std::string& setting) {
  needs needed;
  bool does = false;
  with_run(choice, needed, [&](const chosen_policy& policy) { does = set_options(policy.options, {setting}) > 0; });
  return does;
}

void check_policy(const run_choice& choice) {
  needs needed;
  with_run(choice, needed, [&](const chosen_policy& policy) {
    for (const std::string& setting : choice.settings) {
      if (set_options(policy.options, {setting}) == 0)
        fail(choice.policy, ": it has no option ", setting, ", but ", names_of_options(policy.options));
    }
  });
}

}  // namespace decode::ledger
