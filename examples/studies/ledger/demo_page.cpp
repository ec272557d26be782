// SPDX-License-Identifier: Apache-2.0
#include "demo_page.hpp"

#include <chrono>  // std::chrono::steady_clock
#include <span>    // std::span

#include "../../decode/recording.hpp"
#include "runs.hpp"

namespace decode::ledger {

void demo_page::begin(const options& given, std::size_t runs) {
  file_.emplace(given.report_file);
  page_.emplace("zoomr: LEDGER", given.command, runs);
}

void demo_page::add(subject& on, const problem_set& set, const run_choice& choice) {
  if (choice.policy == "oracle" || choice.policy == "random_c") return;
  needs needed;
  with_run(choice, needed, [&](const chosen_policy& policy) {
    const std::span<const token_id> ids = set.ids.front();
    const std::size_t prompt = set.problems.front().prompt_length;
    const auto tokens = static_cast<index_t>(ids.size());
    std::optional<session<>> run;
    policy.open(run, on.net, 1, tokens, on.classes, 1, choice.audit);
    recording recorded(*run, policy.facts(tokens));
    run->prompt(0, ids.first(prompt));
    recorded.passed(ids.first(prompt));
    std::chrono::duration<double> taken{};                   // without what the recording takes
    for (std::size_t t = prompt; t + 1 < ids.size(); ++t) {  // nothing comes after the last one
      const auto begin = std::chrono::steady_clock::now();
      run->advance(ids.subspan(t, 1));
      taken += std::chrono::steady_clock::now() - begin;
      recorded.passed(ids.subspan(t, 1));
    }
    run_report said;
    said.policy = on.checkpoint + ", " + choice.policy;
    said.budget = choice.budget;
    said.options = describe_options(policy.options);
    take_counters(said, *run);
    said.seconds = taken.count();
    recorded.add_to(*page_, on.words, said);
  });
}

void demo_page::finish() {
  page_->write(file_->stream());
  file_->finish();
}

}  // namespace decode::ledger
