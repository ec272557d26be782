// SPDX-License-Identifier: Apache-2.0
#include "retrieval.hpp"

#include <algorithm>  // std::any_of, std::find
#include <iostream>   // std::cout
#include <memory>     // std::unique_ptr

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/sampler.hpp"
#include "../../decode/session.hpp"
#include "../../decode/table.hpp"
#include "../../decode/voters.hpp"
#include "../perplexity/prefill.hpp"
#include "contender.hpp"
#include "controls.hpp"
#include "outcome.hpp"
#include "results.hpp"

namespace decode::retrieval {
namespace {

/// A problem, and where its answers stand.
struct exam {
  const problem& asked;
  const std::vector<index_t>& needed;  // [answers]
  index_t tokens = 0;                  // of an answer

  std::vector<index_t> next(std::string_view written) const { return needed_next(asked, needed, written); }

  double written_share(std::string_view text) const {
    double found = 0;
    for (const std::string& one : asked.answers) found += text.find(one) != std::string_view::npos ? 1 : 0;
    return found / static_cast<double>(asked.answers.size());
  }
};

/// Counts what the queries of one pass attended to, and forgets it: all of a text would take much memory.
void count_active(zoomr::attention_trace& attended, outcome& to) {
  for (const zoomr::attended_record& one : attended) {
    ++to.queries;
    to.active += static_cast<index_t>(one.positions.size()) < one.position + 1 ? 1 : 0;
  }
  attended.clear();
}

/// Counts the choices of one pass.
void count_hits(zoomr::choice_trace& chosen, const std::vector<index_t>& next, outcome& to) {
  for (const zoomr::choice_record& one : chosen) {
    const auto taken = [&](index_t id) { return std::ranges::find(one.chosen, id) != one.chosen.end(); };
    ++to.asked;
    to.hit += std::ranges::any_of(next, taken) ? 1 : 0;
  }
  chosen.clear();
}

/// A policy that writes an answer, a token at a time.
class writer {
 public:
  writer(scene& on, const contender& policy, const perplexity::prefill& prompt, const exam& paper)
      : on_(on), paper_(paper), next_(paper.next("")), text_{greedy(prompt.logits())} {
    on.net.set_voters(policy.voters, policy.bounds, policy.voter_keys);
    const index_t tokens = static_cast<index_t>(prompt.tokens()) + paper.tokens;
    with_named(policy.choice, paper.asked.kind, next_, [&](const auto& named) {
      one_row_ = named.aggregate.per == zoomr::scope::sequence;
      run_ = std::make_unique<session<>>(on.net, named, 1, tokens, on.classes);
    });
    run_->with_cache([&](auto& cache) { prompt.replay(cache, run_->at(0)); });
    run_->trace(&attended_, &chosen_);
  }
  writer(const writer&) = delete;

  session<>& run() { return *run_; }
  token_id last() const { return text_.back(); }

  /// Before the last token passes.
  void prepare() {
    const std::string written = on_.words.decode(text_);
    if (!goes_on_ && written.find(paper_.asked.answers.front()) != std::string::npos) {
      goes_on_ = true;
      ahead_.assign(paper_.asked.goes_on.rbegin(), paper_.asked.goes_on.rend());
    }
    next_ = paper_.next(written);
  }
  /// After it has passed.
  void write() {
    text_.push_back(ahead_.empty() ? greedy(run_->logits(0)) : ahead_.back());
    if (!ahead_.empty()) ahead_.pop_back();
    count_active(attended_, result_);
    if (one_row_ && !paper_.needed.empty()) count_hits(chosen_, next_, result_);
  }

  outcome finish() {
    result_.text = on_.words.decode(text_);
    result_.answers = paper_.written_share(result_.text);
    result_.attended = run_->policy_attended_mean();
    const zoomr::statistics stats = run_->stats();
    result_.agreeability = stats.agreeability(), result_.device_peak = stats.device_peak;
    if (stats.entropy_count > 0) result_.entropy = stats.entropy();
    result_.prompt = static_cast<std::int64_t>(paper_.asked.prompt.size());
    return result_;
  }

 private:
  scene& on_;
  const exam& paper_;
  std::vector<index_t> next_;  // the segments that are needed by the tokens after the one that passes
  bool one_row_ = false;
  std::unique_ptr<session<>> run_;
  zoomr::attention_trace attended_;
  zoomr::choice_trace chosen_;
  outcome result_;
  std::vector<token_id> text_;
  std::vector<token_id> ahead_;  // what is written for the model, last token first
  bool goes_on_ = false;
};

struct row {
  std::string kind;
  const contender* policy = nullptr;
  tally sums;
};

/// All policies on one problem, as far as they are not done. They write together: the weights are read once for all.
void examine(scene& on, const options& given, const std::vector<contender>& policies, const group& kind, index_t number,
             results<outcome>& done) {
  std::vector<const contender*> left;
  for (const contender& one : policies) {
    if (done.find(kind.name(), number, one) == nullptr) left.push_back(&one);
  }
  if (left.empty()) return;
  const problem asked = on.make(kind, number);
  const std::vector<index_t> needed = on.needed_segments(asked);
  const exam paper{asked, needed, given.written > 0 ? given.written : answer_tokens(kind.kind)};
  std::vector<std::unique_ptr<writer>> writers;
  {
    progress bar(kind.name() + ", problem " + std::to_string(number), asked.prompt.size());
    const perplexity::prefill prompt(on.net, asked.prompt, [&](std::size_t passed) { bar.at(passed); });
    for (const contender* one : left) writers.push_back(std::make_unique<writer>(on, *one, prompt, paper));
  }
  std::vector<session<>*> runs;
  for (const auto& one : writers) runs.push_back(&one->run());
  for (index_t t = 1; t < paper.tokens; ++t) {
    std::vector<token_id> passed;
    for (const auto& one : writers) one->prepare(), passed.push_back(one->last());
    session<>::advance_each(runs, passed);
    for (const auto& one : writers) one->write();
  }
  for (std::size_t i = 0; i < left.size(); ++i) done.add(kind.name(), number, *left[i], writers[i]->finish());
}

void write_csv(const std::string& path, const std::vector<row>& rows) {
  output_file file(path);
  file.stream() << tally::csv_titles();
  for (const row& one : rows) file.stream() << one.sums.csv(one.policy->spec, one.kind);
  file.finish();
}

void print_json(const options& given, const std::vector<row>& rows) {
  nlohmann::ordered_json document = {{"seed", given.of.seed}, {"rows", nlohmann::ordered_json::array()}};
  for (const row& one : rows)
    document["rows"].push_back(nlohmann::ordered_json(one.sums.document(one.policy->spec, one.kind)));
  std::cout << document.dump(1) << '\n';
}

void print_table(const std::vector<row>& rows) {
  table figures(tally::titles());
  for (const row& one : rows) figures.add(one.sums.cells(one.policy->spec, one.kind));
  figures.print(std::cout);
}

}  // namespace

void run(const options& given) {
  named_files files;
  files.reads_model(given.of.directory);
  files.reads("--text", given.of.texts);
  name_voters(files, given.of.directory, given.voters);
  files.writes("--resume", given.of.resume), files.writes("--csv", given.csv);
  const std::vector<contender> policies =  // before the weights, which may take long
      read_contenders(given.policies, given.voters, read_config_with_voters(given.of.directory, {}));
  scene on(given.of);
  for (const group& kind : on.groups) {
    if (kind.kind == task::words && std::ranges::find(given.policies, "oracle") != given.policies.end())
      fail("words: the whole list is needed, so that there is no oracle; leave it out of --policies");
  }
  results<outcome> done(on, on.label(), outcome_from);
  std::vector<row> rows;
  for (const group& kind : on.groups) {
    const std::size_t first = rows.size();
    for (const contender& policy : policies) rows.push_back({kind.name(), &policy, {}});
    for (index_t number = 0; number < given.of.problems; ++number) {
      examine(on, given, policies, kind, number, done);
      for (std::size_t i = first; i < rows.size(); ++i)
        rows[i].sums.add(*done.find(kind.name(), number, *rows[i].policy));
    }
  }
  if (!given.csv.empty()) write_csv(given.csv, rows);
  given.json ? print_json(given, rows) : print_table(rows);
}

}  // namespace decode::retrieval
