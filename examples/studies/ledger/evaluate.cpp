// SPDX-License-Identifier: Apache-2.0
#include "evaluate.hpp"

#include <algorithm>  // std::clamp, std::max, std::ranges::sort, std::unique
#include <chrono>     // std::chrono::steady_clock
#include <span>       // std::span
#include <utility>    // std::move

#include "../../decode/input_error.hpp"
#include "../../decode/sampler.hpp"

namespace decode::ledger {

problem_set::problem_set(const task& t, const tokenizer& words, index_t first, index_t count, std::uint64_t seed,
                         scenario what) {
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

evaluation::evaluation(session<>& run, const problem_set& set, const std::vector<zoomr::token_class>& classes,
                       bool forced, needs& needed)
    : set_(set),
      layout_(set.problems.front()),
      classes_(classes),
      forced_(forced),
      run_(run),
      next_(set.problems.size()),
      exact_(set.problems.size(), true),
      agreed_(set.problems.size()) {
  out_.each.resize(set.problems.size());
  give_prompts(needed);
}

outcome evaluation::run(const progress_sink& passed) {
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

void evaluation::give_prompts(needs& needed) {
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
index_t evaluation::step(std::size_t p) {
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
void evaluation::read(std::size_t p, index_t t) {
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

void evaluation::add_fetch(std::size_t b, const fetch& f, bool right) {
  scores& of = out_.each[b];
  (f.answer ? of.answers : f.to.last ? of.coarse : of.fine).add(right);
  if (f.answer || f.to.last) return;
  if (run_.cache().selection_rows() == 0) return;
  const zoomr::sequence seq = run_.at(static_cast<index_t>(b));
  bool found = false;
  for (index_t row = 0; row < run_.cache().selection_rows(); ++row) {
    const auto& selected = run_.cache().selected(seq, row);
    const index_t id = out_.first_thought + static_cast<index_t>(f.to.source);
    found = found || (id < selected.levels.size() && selected.level_at(id) == zoomr::level::details);
  }
  of.found.add(found);
  const zoomr::statistics& now = run_.cache().stats(seq);
  if (now.agreeability_count == agreed_[b].agreeability_count) return;
  const double agreed = (now.agreeability_sum - agreed_[b].agreeability_sum) /
                        static_cast<double>(now.agreeability_count - agreed_[b].agreeability_count);
  (right ? of.agreeability_right : of.agreeability_wrong) += agreed;
  ++(right ? of.agreed_right : of.agreed_wrong);
}

void evaluation::note_zooms(std::size_t position) {
  if (run_.cache().selection_rows() == 0) return;
  const token_id passed = out_.tokens[out_.tokens.size() - 2];
  if (!zoomr::has(classes_[static_cast<std::size_t>(passed)], zoomr::token_class::delimiter)) return;
  out_.zooms.push_back({position, {}});
  std::vector<index_t>& segments = out_.zooms.back().segments;
  for (index_t row = 0; row < run_.cache().selection_rows(); ++row) {
    const auto& selected = run_.cache().selected(run_.at(0), row);
    for (index_t id = 0; id < selected.levels.size(); ++id) {
      if (selected.level_at(id) == zoomr::level::details) segments.push_back(id);
    }
  }
  std::ranges::sort(segments);
  segments.erase(std::unique(segments.begin(), segments.end()), segments.end());
}

void evaluation::finish() {
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

}  // namespace decode::ledger
