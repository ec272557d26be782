// SPDX-License-Identifier: Apache-2.0
#include "traces.hpp"

#include <algorithm>  // std::ranges::all_of, std::ranges::any_of, std::ranges::find
#include <iostream>   // std::cout
#include <memory>     // std::make_unique, std::unique_ptr
#include <optional>   // std::optional
#include <utility>    // std::move, std::pair

#include <nlohmann/json.hpp>

#include <zoomr/presets/zoomr_thoughts.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/sampler.hpp"
#include "../../decode/session.hpp"
#include "../../decode/table.hpp"
#include "../../decode/voters.hpp"
#include "../evaluate/forecast.hpp"
#include "../evaluate/loaded_model.hpp"
#include "../perplexity/prefill.hpp"
#include "../retrieval/open_session.hpp"
#include "../retrieval/results.hpp"
#include "script.hpp"
#include "trace_outcome.hpp"
#include "trace_problem.hpp"

namespace decode::traces {
namespace {

using retrieval::contender;

constexpr index_t window = zoomr::presets::thought_zones.recent;

/// A problem, ready to be solved.
struct exam {
  trace_problem asked;
  std::vector<token_id> prompt;
  index_t text_from;    // token where the text begins, behind the problem
  trace_script script;  // as far as the prompt has it

  exam(const loaded_model& on, const options& given, const marks& as, task kind, index_t number)
      : asked(make_problem(kind, given.steps, given.per_thought,
                           given.seed * 1000003 + static_cast<std::uint64_t>(number))),
        prompt(on.words.encode(prompt_of(on.words, kind, asked, as))),
        text_from(static_cast<index_t>(prompt.size())),
        script(on.words, asked, as, {}, given.notes != "none") {
    if (given.notes == "prompt") {
      while (!script.at_questions()) script.push(*script.forced());
      prompt.insert(prompt.end(), script.tokens().begin(), script.tokens().end());
    }
    const std::size_t tokens = static_cast<std::size_t>(text_from) + static_cast<std::size_t>(script.most_tokens());
    if (tokens > on.config.context)
      fail(name_of(kind), ": a text of ", given.steps, " steps may have ", tokens,
           " tokens, which is longer than this model's context of ", on.config.context);
  }
  exam(const exam&) = delete;
};

/// A policy that writes a text.
class trace_writer {
 public:
  trace_writer(loaded_model& on, const contender& policy, const perplexity::prefill& prompt, const exam& paper)
      : on_(on), paper_(paper), script_(paper.script), in_prompt_(script_.tokens().size()) {
    retrieval::opened_session opened =
        open_session(on.net, policy, {retrieval::task::notes, zoomr::presets::thought_zones}, needed_,
                     paper.text_from + script_.most_tokens(), on.classes);
    run_ = std::move(opened.run), one_row_ = opened.one_row;
    run_->with_cache([&](auto& cache) { prompt.replay(cache, run_->at(0)); });
    run_->trace(nullptr, &chosen_);
    script_.push(*script_.forced());
  }
  trace_writer(const trace_writer&) = delete;

  bool done() const { return script_.done(); }
  session<>& run() { return *run_; }
  token_id last() const { return script_.tokens().back(); }
  std::size_t parts() const { return script_.current(); }

  /// Before the last token passes: what the tokens after it need.
  void prepare() {
    needed_.clear(), expected_.clear();
    const index_t position = paper_.text_from + static_cast<index_t>(script_.tokens().size()) - 1;
    std::vector<index_t> values;
    for (const index_t step : script_.reads()) values.push_back(paper_.text_from + script_.value_at(step));
    const std::vector<index_t> holding = retrieval::segments_holding(*run_, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (holding[i] < 0) continue;
      add(holding[i], needed_);
      if (position - values[i] >= window) add(holding[i], expected_);
    }
  }
  /// After it has passed.
  void write() {
    for (const zoomr::choice_record& one : chosen_) {
      const auto taken = [&](index_t id) { return std::ranges::find(one.chosen, id) != one.chosen.end(); };
      if (!one_row_ || expected_.empty()) continue;
      ++result_.choices;
      result_.found += one.unsure || std::ranges::all_of(expected_, taken) ? 1 : 0;
    }
    chosen_.clear();
    while (!script_.done()) {
      const std::optional<token_id> forced = script_.forced();
      const token_id next = forced ? *forced : greedy(run_->logits(0));
      if (forced || !ends(next)) return script_.push(next);
      script_.end_part();
    }
  }

  trace_outcome finish(bool given) {
    judge(paper_.asked, script_, result_);
    if (given) result_.values = result_.values_right = 0;  // not the model's
    const zoomr::statistics stats = run_->stats();
    result_.attended = run_->policy_stats().attended_mean(shape_of(on_.config, on_.layers.size()));
    result_.agreeability = stats.agreeability();
    if (stats.entropy_count > 0) result_.entropy = stats.entropy();
    result_.device_peak = stats.device_peak;
    const zoomr::shape all = shape_of(on_.config, on_.config.layers);
    result_.prompt = static_cast<std::int64_t>(paper_.prompt.size());
    result_.prompt_bytes =
        result_.prompt * all.layers * all.kv_heads * all.head_dim * 2 * static_cast<std::int64_t>(sizeof(float));
    result_.written = static_cast<std::int64_t>(script_.tokens().size() - in_prompt_);
    result_.text = on_.words.decode(script_.tokens(), false);
    return result_;
  }

 private:
  static void add(index_t id, std::vector<index_t>& to) {
    if (std::ranges::find(to, id) == to.end()) to.push_back(id);
  }
  bool ends(token_id id) const {
    return on_.words.special(id) || id == on_.words.eos() ||
           std::ranges::find(on_.config.eos, id) != on_.config.eos.end();
  }

  loaded_model& on_;
  const exam& paper_;
  trace_script script_;
  std::size_t in_prompt_;          // tokens of the script
  std::vector<index_t> needed_;    // segments
  std::vector<index_t> expected_;  // of them, those whose value is not in the window
  bool one_row_ = false;
  std::unique_ptr<session<>> run_;
  zoomr::choice_trace chosen_;
  trace_outcome result_;
};

class study {
 public:
  explicit study(const options& given)
      : given_(given),
        policies_(
            retrieval::read_contenders(given.policies, given.voters, read_config_with_voters(given.directory, {}))),
        on_(given.directory),
        marks_(marks_of(on_.words, given.marks)),
        done_(given.resume, label(), trace_outcome_from) {
    mark_thoughts(on_.words, given.marks, on_.classes.usual);
    for (const std::string& name : given.tasks) tasks_.push_back(task_named(name));
  }

  void run() {
    std::vector<std::pair<task, index_t>> open;
    for (const task kind : tasks_) {
      for (index_t number = 0; number < given_.problems; ++number) {
        if (!left(kind, number).empty()) open.emplace_back(kind, number);
      }
    }
    const exam first(on_, given_, marks_, tasks_.front(), 0);
    forecast remaining(on_.net, first.prompt, open.size(),
                       std::to_string(open.size()) + " problems, each under " + std::to_string(policies_.size()) +
                           " policies: at most",
                       policies_.size(), static_cast<std::size_t>(first.script.most_tokens()));
    for (const auto& [kind, number] : open) {
      examine(kind, number);
      remaining.finish_problem();
    }
    given_.json ? print_json() : print_table();
  }

 private:
  std::string label() const {
    return last_name(given_.directory) + ", seed " + std::to_string(given_.seed) + ", " +
           std::to_string(given_.per_thought) + " steps a thought" +
           (given_.notes == "none" ? "" : ", notes in the " + given_.notes);
  }
  std::string group(task kind) const { return std::string(name_of(kind)) + ' ' + std::to_string(given_.steps); }

  std::vector<const contender*> left(task kind, index_t number) const {
    std::vector<const contender*> policies;
    for (const contender& policy : policies_) {
      if (done_.find(group(kind), number, policy) == nullptr) policies.push_back(&policy);
    }
    return policies;
  }

  /// All policies on one problem, as far as they are not done. They write in lock step, each its own text: the weights
  /// are read once for all.
  void examine(task kind, index_t number) {
    const exam paper(on_, given_, marks_, kind, number);
    const std::vector<const contender*> policies = left(kind, number);
    const std::string what = group(kind) + ", problem " + std::to_string(number);
    const bool adds_up = std::ranges::any_of(policies, [](const contender* one) { return one->adds_up; });
    std::vector<std::unique_ptr<trace_writer>> writers;
    {
      progress bar(what + ": prompt", paper.prompt.size());
      const perplexity::prefill prompt(
          on_.net, paper.prompt, [&](std::size_t passed) { bar.at(passed); },
          adds_up ? perplexity::prefill::kept_queries::all : perplexity::prefill::kept_queries::last);
      for (const contender* one : policies) writers.push_back(std::make_unique<trace_writer>(on_, *one, prompt, paper));
    }
    progress bar(what, policies.size() * paper.script.pieces().size());
    const auto goes_on = [](trace_writer& one) {
      if (one.done()) return false;
      one.prepare();
      return true;
    };
    do {
      std::size_t parts = 0;
      for (const auto& one : writers) parts += one->parts();
      bar.at(parts);
    } while (retrieval::advance_writers(writers, goes_on));
    for (std::size_t i = 0; i < policies.size(); ++i)
      done_.add(group(kind), number, *policies[i], writers[i]->finish(given_.notes != "none"));
  }

  /// Calls visit(policy, group, tally, what full attention takes beyond the prompt), task by task.
  template <class Visit>
  void each_row(Visit visit) const {
    for (const task kind : tasks_) {
      std::vector<trace_tally> rows(policies_.size());
      double full_beyond = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (index_t number = 0; number < given_.problems; ++number)
          rows[i].add(*done_.find(group(kind), number, policies_[i]));
        if (policies_[i].choice.name == "full") full_beyond = rows[i].beyond();
      }
      for (std::size_t i = 0; i < rows.size(); ++i) visit(policies_[i].spec, group(kind), rows[i], full_beyond);
    }
  }
  void print_json() const {
    nlohmann::ordered_json document = {{"seed", given_.seed}, {"rows", nlohmann::ordered_json::array()}};
    each_row([&](const std::string& policy, const std::string& kind, const trace_tally& sums, double full_beyond) {
      document["rows"].push_back(nlohmann::ordered_json(sums.document(policy, kind, full_beyond)));
    });
    std::cout << document.dump(1) << '\n';
  }
  void print_table() const {
    table figures(trace_tally::titles());
    each_row([&](const std::string& policy, const std::string& kind, const trace_tally& sums, double full_beyond) {
      figures.add(sums.cells(policy, kind, full_beyond));
    });
    figures.print(std::cout);
  }

  const options& given_;
  std::vector<contender> policies_;
  loaded_model on_;
  marks marks_;
  std::vector<task> tasks_;
  retrieval::results<trace_outcome> done_;
};

}  // namespace

void run(const options& given) {
  named_files files;
  files.reads_model(given.directory);
  retrieval::name_voters(files, given.directory, given.voters);
  files.writes("--resume", given.resume);
  for (const std::string& name : given.tasks) task_named(name);  // before the weights, which may take long
  expect_four(given.marks);
  study(given).run();
}

}  // namespace decode::traces
