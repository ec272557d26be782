// SPDX-License-Identifier: Apache-2.0
// One policy on some problems of one size, all sequences in lock step: their layout is the same, so position p is
// the same kind of token in each of them.
//
// B = problems, L = tokens of a problem
#pragma once

#include <algorithm>   // std::max, std::ranges::sort, std::unique
#include <chrono>      // std::chrono::steady_clock
#include <functional>  // std::function
#include <string>      // std::string
#include <vector>      // std::vector

#include "../../decode/sampler.hpp"
#include "../../decode/session.hpp"
#include "../../decode/tokenizer.hpp"
#include "controls.hpp"
#include "task.hpp"

namespace decode::ledger {

/// Problems as ids.
struct problem_set {
  std::vector<problem> problems;           // [B]
  std::vector<std::vector<token_id>> ids;  // [B, L]

  /// Problems first ... first + count - 1 of those that `seed` makes.
  problem_set(const task& t, const tokenizer& words, index_t first, index_t count, std::uint64_t seed,
              scenario what = scenario::trace) {
    generator draw(t, seed);
    for (index_t b = 0; b < first; ++b) draw.draw();
    for (index_t b = 0; b < count; ++b) {
      problems.push_back(render(t, draw.draw(), what));
      ids.emplace_back();
      for (const std::string& symbol : problems.back().tokens) {
        const auto id = words.id_of(symbol);
        if (!id) fail("the tokenizer of this checkpoint has no token ", shown(symbol), ", which the task needs");
        ids.back().push_back(*id);
      }
    }
  }
  index_t size() const { return static_cast<index_t>(problems.size()); }
  std::size_t length() const { return ids.front().size(); }
};

struct score {
  int right = 0;
  int all = 0;
  void add(bool was_right) { right += was_right, ++all; }
  void add(const score& other) { right += other.right, all += other.all; }
  double share() const { return all == 0 ? 0.0 : static_cast<double>(right) / all; }
};

/// What was right of one problem, or of several.
struct scores {
  score fine, coarse, answers;  // values fetched
  score exact;                  // whole traces, up to <ans>; or all that the model writes, if the trace is given
  score trace;                  // tokens of them
  score found;                  // fine fetches of which the thought was chosen, in some row of the selection
  double agreeability_right = 0, agreeability_wrong = 0;  // summed over fine fetches that made a choice
  int agreed_right = 0, agreed_wrong = 0;                 // how many

  void add(const scores& other) {
    fine.add(other.fine), coarse.add(other.coarse), answers.add(other.answers);
    exact.add(other.exact), trace.add(other.trace), found.add(other.found);
    agreeability_right += other.agreeability_right, agreeability_wrong += other.agreeability_wrong;
    agreed_right += other.agreed_right, agreed_wrong += other.agreed_wrong;
  }
};

/// What is zoomed into after a sentence end of the first problem, by any row of the selection; ascending.
struct zoom_record {
  std::size_t position = 0;
  std::vector<index_t> segments;
};

/// What a policy makes of the problems; the scores are those of all of them.
struct outcome : scores {
  std::vector<scores> each;  // [B]
  double seconds = 0;
  std::int64_t steps = 0;
  double attended_mean = 0;
  double zooms_mean = 0, refreshes_mean = 0;
  double captured_mean = 0;           // share of attention mass, if audited
  zoomr::byte_count device_peak = 0;  // the largest of all problems
  zoomr::memory_use bytes;            // of the first problem, at its end
  zoomr::statistics stats;            // of the first problem
  std::vector<token_id> tokens;       // of the first problem, after the prompt
  std::vector<zoom_record> zooms;
  index_t first_thought = 0;  // the segment that is the first register's thought
  bool late = false;          // a choice serves the tokens after the one that made it
  std::string options;        // all fields of the policy
};

using progress_sink = std::function<void(std::size_t tokens)>;

/// Runs all problems under one policy; the class is only what the steps of `run` share.
///
/// `forced`: the text is given token by token (teacher-forced), or the model writes it itself; what cannot be known,
/// like a question, is given in any case. `needed` is filled in for the oracle: which segment each position needs.
class evaluation {
 public:
  template <class Policy>
  evaluation(model& net, const Policy& policy, const problem_set& set, const std::vector<zoomr::token_class>& classes,
             bool forced, needs& needed, bool audit)
      : set_(set),
        layout_(set.problems.front()),
        classes_(classes),
        forced_(forced),
        run_(net, policy, set.size(), static_cast<index_t>(set.length()), classes, forced ? most_at_once : 1, audit),
        next_(set.problems.size()),
        exact_(set.problems.size(), true),
        agreed_(set.problems.size()) {
    out_.each.resize(set.problems.size());
    give_prompts(needed);
  }

  outcome run(const progress_sink& passed) {
    const auto begin = std::chrono::steady_clock::now();
    while (fetch_ < layout_.fetches.size() && layout_.fetches[fetch_].at + 1 < layout_.prompt_length) ++fetch_;
    std::size_t p = layout_.prompt_length - 1;  // the logits of p are there
    read(p, 0);
    while (p + 2 < set_.length()) {
      const index_t taken = step(p);
      for (index_t t = 0; t < taken; ++t) read(++p, t);
      passed(p + 1);
      note_zooms(p);
    }
    out_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    finish();
    return std::move(out_);
  }

 private:
  void give_prompts(needs& needed) {
    needed.assign(set_.problems.size(), std::vector<index_t>(set_.length(), -1));
    for (std::size_t b = 0; b < set_.problems.size(); ++b) {
      const auto s = static_cast<index_t>(b);
      run_.prompt(s, std::span(set_.ids[b]).first(layout_.prompt_length));
      out_.first_thought = 0;
      for (const zoomr::segment& of : run_.cache().segments(run_.at(s)))
        out_.first_thought += of.begin < static_cast<index_t>(layout_.program_length);
      for (const fetch& f : set_.problems[b].fetches)
        needed[b][f.at] = out_.first_thought + static_cast<index_t>(f.to.source);
    }
  }

  // Passes the tokens after p: one, or if they are given all up to the next fetch, which is a step of its own.
  index_t step(std::size_t p) {
    std::size_t count = 1;
    if (forced_) {
      const std::size_t stop = fetch_ < layout_.fetches.size() ? layout_.fetches[fetch_].at : set_.length() - 1;
      count = std::clamp<std::size_t>(stop - 1 - p, 1, most_at_once);
    }
    if (count == 1) {
      run_.advance(next_);
      return 1;
    }
    std::vector<std::span<const token_id>> texts;
    for (const auto& ids : set_.ids) texts.push_back(std::span(ids).subspan(p + 1, count));
    return run_.follow(texts);
  }

  // Compares what each sequence says after token p, token t of the last step, with the text, and decides what it is
  // given next.
  void read(std::size_t p, index_t t) {
    const bool fetched = fetch_ < layout_.fetches.size() && layout_.fetches[fetch_].at == p;
    const bool of_trace = p + 1 < layout_.trace_end || layout_.prompt_length > layout_.trace_end;
    for (std::size_t b = 0; b < next_.size(); ++b) {
      const token_id predicted = greedy(run_.logits(static_cast<index_t>(b), t));
      const token_id truth = set_.ids[b][p + 1];
      const bool right = predicted == truth;
      next_[b] = forced_ || !layout_.scored[p + 1] ? truth : predicted;
      if (of_trace && layout_.scored[p + 1]) {
        exact_[b] = exact_[b] && right;
        out_.each[b].trace.add(right);
      }
      if (fetched) add_fetch(b, set_.problems[b].fetches[fetch_], right);
      agreed_[b] = run_.cache().stats(run_.at(static_cast<index_t>(b)));
    }
    fetch_ += fetched;
    out_.tokens.push_back(next_.front());
  }

  void add_fetch(std::size_t b, const fetch& f, bool right) {
    scores& of = out_.each[b];
    (f.answer ? of.answers : f.to.last ? of.coarse : of.fine).add(right);
    if (f.answer || f.to.last) return;
    if (run_.cache().selection_rows() == 0) return;
    const zoomr::sequence seq = run_.at(static_cast<index_t>(b));
    bool found = false;
    for (index_t row = 0; row < run_.cache().selection_rows(); ++row) {
      const auto& selected = run_.cache().selected(seq, row);
      const index_t id = out_.first_thought + static_cast<index_t>(f.to.source);
      found = found || (id < selected.levels.size() && selected.of(id) == zoomr::level::details);
    }
    of.found.add(found);
    const zoomr::statistics& now = run_.cache().stats(seq);
    if (now.agreeability_count == agreed_[b].agreeability_count) return;
    const double agreed = (now.agreeability_sum - agreed_[b].agreeability_sum) /
                          static_cast<double>(now.agreeability_count - agreed_[b].agreeability_count);
    (right ? of.agreeability_right : of.agreeability_wrong) += agreed;
    ++(right ? of.agreed_right : of.agreed_wrong);
  }

  void note_zooms(std::size_t position) {
    if (run_.cache().selection_rows() == 0) return;
    const token_id passed = out_.tokens[out_.tokens.size() - 2];
    if (!zoomr::has(classes_[static_cast<std::size_t>(passed)], zoomr::token_class::delimiter)) return;
    out_.zooms.push_back({position, {}});
    std::vector<index_t>& segments = out_.zooms.back().segments;
    for (index_t row = 0; row < run_.cache().selection_rows(); ++row) {
      const auto& selected = run_.cache().selected(run_.at(0), row);
      for (index_t id = 0; id < selected.levels.size(); ++id) {
        if (selected.of(id) == zoomr::level::details) segments.push_back(id);
      }
    }
    std::ranges::sort(segments);
    segments.erase(std::unique(segments.begin(), segments.end()), segments.end());
  }

  void finish() {
    for (std::size_t b = 0; b < next_.size(); ++b) {
      out_.each[b].exact.add(exact_[b]);
      out_.add(out_.each[b]);
      const zoomr::statistics& stats = run_.cache().stats(run_.at(static_cast<index_t>(b)));
      out_.steps += stats.tokens;
      out_.attended_mean += stats.attended_mean(run_.cache().model()) / static_cast<double>(next_.size());
      out_.zooms_mean += static_cast<double>(stats.zooms) / static_cast<double>(next_.size());
      out_.refreshes_mean += static_cast<double>(stats.refreshes) / static_cast<double>(next_.size());
      out_.captured_mean += stats.captured() / static_cast<double>(next_.size());
      out_.device_peak = std::max(out_.device_peak, stats.device_peak);
    }
    out_.stats = run_.cache().stats(run_.at(0));
    out_.bytes = run_.cache().bytes(run_.at(0));
  }

  static constexpr index_t most_at_once = 32;

  const problem_set& set_;
  const problem& layout_;
  const std::vector<zoomr::token_class>& classes_;
  bool forced_;
  session<zoomr::placement> run_;
  std::vector<token_id> next_;             // [B]
  std::vector<bool> exact_;                // [B]
  std::vector<zoomr::statistics> agreed_;  // [B]  before the token that is being read
  std::size_t fetch_ = 0;
  outcome out_;
};

template <class Policy>
outcome evaluate(model& net, const Policy& policy, const problem_set& set,
                 const std::vector<zoomr::token_class>& classes, bool forced, needs& needed,
                 const progress_sink& passed, bool audit = false) {
  return evaluation(net, policy, set, classes, forced, needed, audit).run(passed);
}

}  // namespace decode::ledger
