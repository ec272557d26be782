// SPDX-License-Identifier: Apache-2.0
#include "retrieval.hpp"

#include <algorithm>  // std::any_of, std::find
#include <iostream>   // std::cout
#include <memory>     // std::make_unique, std::unique_ptr
#include <span>       // std::span

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
#include "open_session.hpp"
#include "outcome.hpp"
#include "results.hpp"

namespace decode::retrieval {
namespace {

/// A question, and where its answers stand.
struct exam {
  const problem& asked;
  std::vector<index_t> needed;  // [answers]  among the segments of the task, or of the policy
  index_t tokens = 0;           // of an answer, at most

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

/// A policy that writes answers, a token at a time.
class writer {
 public:
  /// @param papers  the first is asked by the prompt
  writer(scene& on, const contender& policy, const perplexity::prefill& prompt, std::span<const exam> papers)
      : on_(on), papers_(papers.begin(), papers.end()), next_(paper().next("")), text_{greedy(prompt.logits())} {
    auto tokens = static_cast<index_t>(prompt.tokens());
    for (const exam& one : papers) {
      tokens += one.tokens + (&one == &papers.front() ? 0 : static_cast<index_t>(one.asked.prompt.size()));
    }
    const task kind = paper().asked.kind;
    opened_session opened = open_session(on.net, policy, {kind, control_zones(kind)}, next_, tokens, on.classes);
    run_ = std::move(opened.run), one_row_ = opened.one_row;
    run_->with_cache([&](auto& cache) { prompt.replay(cache, run_->at(0)); });
    if (kind == task::calls) {  // by the segments of the policy, which need not be those of the task
      papers_.front().needed = segments_holding(*run_, paper().asked.evidence);
      next_ = paper().next("");
    }
    run_->trace(&attended_, &chosen_);
  }
  writer(const writer&) = delete;

  session<>& run() { return *run_; }
  token_id last() const { return text_.back(); }
  /// Where more is asked, an answer ends with the token that the next question's message begins with.
  bool has_ended() const { return papers_.size() > 1 && last() == papers_[1].asked.prompt.front(); }

  /// Before the last token passes.
  void prepare() {
    const std::string written = on_.words.decode(text_);
    if (!goes_on_ && written.find(paper().asked.answers.front()) != std::string::npos) {
      goes_on_ = true;
      ahead_.assign(paper().asked.goes_on.rbegin(), paper().asked.goes_on.rend());
    }
    next_ = paper().next(written);
  }
  /// After it has passed.
  void write() {
    text_.push_back(ahead_.empty() ? greedy(run_->logits(0)) : ahead_.back());
    if (!ahead_.empty()) ahead_.pop_back();
    count_active(attended_, result_);
    if (one_row_ && !paper().needed.empty()) count_hits(chosen_, next_, result_);
  }

  /// Of the answer that is written.
  outcome finish() {
    result_.text = on_.words.decode(text_);
    result_.answers = paper().written_share(result_.text);
    const zoomr::statistics stats = added_since(run_->policy_stats(), before_);
    result_.attended = stats.attended_mean(shape_of(on_.config, on_.layers.size()));
    result_.agreeability = stats.agreeability(), result_.device_peak = run_->stats().device_peak;
    if (stats.entropy_count > 0) result_.entropy = stats.entropy();
    result_.prompt = static_cast<std::int64_t>(papers_.front().asked.prompt.size());
    if (const std::vector<index_t>& at = paper().asked.evidence; at.size() == 1)
      result_.place = static_cast<double>(at.front()) / static_cast<double>(result_.prompt);
    return result_;
  }

  /// Asks the next question behind the answer.
  void turn() {
    std::vector<token_id> ids;
    if (!has_ended()) ids.push_back(last());  // it has not passed
    const std::vector<token_id>& question = papers_[++turn_].asked.prompt;
    ids.insert(ids.end(), question.begin(), question.end());
    next_ = paper().next("");  // the question's end chooses
    const zoomr::statistics asked = run_->policy_stats();
    run_->turn(0, ids);
    before_ = run_->policy_stats();
    // What the question chose counts, as at the end of the first prompt; what it attended to does not.
    before_.entropy_sum = asked.entropy_sum, before_.entropy_count = asked.entropy_count;
    before_.agreeability_sum = asked.agreeability_sum, before_.agreeability_count = asked.agreeability_count;
    text_ = {greedy(run_->logits(0))}, ahead_.clear(), goes_on_ = false;
    result_ = {};
    attended_.clear();
    if (one_row_ && !paper().needed.empty()) count_hits(chosen_, next_, result_);
  }

 private:
  const exam& paper() const { return papers_[turn_]; }

  scene& on_;
  std::vector<exam> papers_;
  std::size_t turn_ = 0;       // of the papers
  std::vector<index_t> next_;  // the segments that are needed by the tokens after the one that passes
  bool one_row_ = false;
  std::unique_ptr<session<>> run_;
  zoomr::attention_trace attended_;
  zoomr::choice_trace chosen_;
  zoomr::statistics before_;  // the answer
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

/// "keys 1000", "keys 1000, question 2"
std::string name_of(const group& kind, std::size_t question) {
  return kind.name() + (question == 0 ? "" : ", question " + std::to_string(question + 1));
}

/// All problems, and what the last prompt passed: the next one may begin as it does.
class examination {
 public:
  examination(scene& on, const options& given, const std::vector<contender>& policies)
      : on_(on),
        given_(given),
        policies_(policies),
        kept_(std::ranges::any_of(policies, &contender::adds_up) ? perplexity::prefill::kept_queries::all
                                                                 : perplexity::prefill::kept_queries::last),
        done_(on, on.label(), outcome_from) {}

  const outcome& find(const group& kind, std::size_t question, index_t number, const contender& policy) const {
    return *done_.find(name_of(kind, question), number, policy);
  }

  /// All policies on one problem, as far as they are not done. They write together: the weights are read once for all.
  void examine(const group& kind, index_t number) {
    const std::vector<const contender*> left = left_of(kind, number);
    if (left.empty()) return;
    const problem asked = on_.make(kind, number);
    const std::vector<exam> papers = papers_of(kind, asked);
    std::vector<std::unique_ptr<writer>> writers;
    {
      progress bar(kind.name() + ", problem " + std::to_string(number), asked.prompt.size());
      prompt_ = std::make_unique<perplexity::prefill>(
          on_.net, asked.prompt, [&](std::size_t passed) { bar.at(passed); }, kept_, prompt_.get());
      for (const contender* one : left) writers.push_back(std::make_unique<writer>(on_, *one, *prompt_, papers));
    }
    for (std::size_t question = 0; question < papers.size(); ++question) {
      if (question > 0) {
        for (const auto& one : writers) one->turn();
      }
      write_answers(writers, papers[question].tokens);
      for (std::size_t i = 0; i < left.size(); ++i) {
        const std::string name = name_of(kind, question);
        if (done_.find(name, number, *left[i]) == nullptr) done_.add(name, number, *left[i], writers[i]->finish());
      }
    }
  }

 private:
  std::vector<const contender*> left_of(const group& kind, index_t number) const {
    std::vector<const contender*> left;
    for (const contender& one : policies_) {
      bool done = true;
      for (std::size_t question = 0; question < static_cast<std::size_t>(on_.given.questions); ++question)
        done = done && done_.find(name_of(kind, question), number, one) != nullptr;
      if (!done) left.push_back(&one);
    }
    return left;
  }

  std::vector<exam> papers_of(const group& kind, const problem& asked) const {
    const index_t tokens = given_.written > 0 ? given_.written : answer_tokens(kind.kind);
    std::vector<exam> papers = {{asked, on_.needed_segments(asked.prompt, asked), tokens}};
    for (const problem& one : asked.later) papers.push_back({one, on_.needed_segments(asked.prompt, one), tokens});
    return papers;
  }

  static void write_answers(const std::vector<std::unique_ptr<writer>>& writers, index_t tokens) {
    const auto goes_on = [](writer& one) {
      if (one.has_ended()) return false;
      one.prepare();
      return true;
    };
    for (index_t t = 1; t < tokens && advance_writers(writers, goes_on); ++t) {
    }
  }

  scene& on_;
  const options& given_;
  const std::vector<contender>& policies_;
  perplexity::prefill::kept_queries kept_;  // that some policy must see
  results<outcome> done_;
  std::unique_ptr<perplexity::prefill> prompt_;
};

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
  examination all(on, given, policies);
  std::vector<row> rows;
  for (const group& kind : on.groups) {
    for (index_t number = 0; number < given.of.problems; ++number) all.examine(kind, number);
    for (std::size_t question = 0; question < static_cast<std::size_t>(given.of.questions); ++question) {
      for (const contender& policy : policies) {
        rows.push_back({name_of(kind, question), &policy, {}});
        for (index_t number = 0; number < given.of.problems; ++number)
          rows.back().sums.add(all.find(kind, question, number, policy));
      }
    }
  }
  if (!given.csv.empty()) write_csv(given.csv, rows);
  given.json ? print_json(given, rows) : print_table(rows);
}

}  // namespace decode::retrieval
