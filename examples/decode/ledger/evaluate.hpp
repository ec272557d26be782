// SPDX-License-Identifier: Apache-2.0
// One policy on some problems of one size, all sequences in lock step: their layout is the same, so position p is
// the same kind of token in each of them.
//
// B = problems, L = tokens of a problem
#pragma once

#include <chrono>  // std::chrono::steady_clock
#include <string>  // std::string
#include <vector>  // std::vector

#include "../sampler.hpp"
#include "../session.hpp"
#include "../tokenizer.hpp"
#include "controls.hpp"
#include "task.hpp"

namespace decode::ledger {

/// Problems as ids.
struct problem_set {
  std::vector<problem> problems;           // [B]
  std::vector<std::vector<token_id>> ids;  // [B, L]

  problem_set(const task& t, const tokenizer& words, index count, std::uint64_t seed) {
    generator draw(t, seed);
    for (index b = 0; b < count; ++b) {
      problems.push_back(render(t, draw.draw()));
      ids.emplace_back();
      for (const std::string& symbol : problems.back().tokens) {
        const auto id = words.id_of(symbol);
        if (!id) fail("the tokenizer of this checkpoint has no token ", shown(symbol), ", which the task needs");
        ids.back().push_back(*id);
      }
    }
  }
  index size() const { return static_cast<index>(problems.size()); }
  std::size_t length() const { return ids.front().size(); }
};

struct score {
  int right = 0;
  int all = 0;
  void add(bool was_right) { right += was_right, ++all; }
  double share() const { return all == 0 ? 0.0 : static_cast<double>(right) / all; }
};

/// The selection in force after a sentence end of the first problem.
struct zoom_record {
  std::size_t position = 0;
  std::vector<index> segments;
};

/// What a policy makes of the problems.
struct outcome {
  score fine, coarse, answers;  // values fetched
  score exact;                  // whole traces, up to <ans>
  score trace;                  // tokens of the traces
  double seconds = 0;
  std::int64_t steps = 0;
  double attended_mean = 0;
  zoomr::byte_count device_peak = 0;  // the largest of all problems
  zoomr::memory_use bytes;            // of the first problem, at its end
  zoomr::statistics stats;            // of the first problem
  std::vector<token_id> tokens;       // of the first problem, after the prompt
  std::vector<zoom_record> zooms;
  index prompt_segments = 0;
};

/// Runs all problems under `policy`.
/// @param forced  the trace is given token by token (teacher-forced), or the model writes it itself; what an answer
///                asks for is given in any case
/// @param needed  filled in for the oracle: which segment each position needs
template <class Policy, class Passed>
outcome evaluate(model& net, const Policy& policy, const problem_set& set,
                 const std::vector<zoomr::token_class>& classes, bool forced, needs& needed, Passed passed) {
  const index count = set.size();
  const std::size_t length = set.length();
  const problem& layout = set.problems.front();
  session<Policy> run(net, policy, count, static_cast<index>(length), classes);
  outcome out;
  needed.assign(static_cast<std::size_t>(count), std::vector<index>(length, -1));
  for (index b = 0; b < count; ++b) {
    const auto at = static_cast<std::size_t>(b);
    run.prompt(b, std::span(set.ids[at]).first(layout.prompt_length));
    out.prompt_segments = run.cache().segments(run.at(b)).size();
    for (const fetch& f : set.problems[at].fetches) {
      needed[at][f.at] = out.prompt_segments + static_cast<index>(f.to.source);
    }
  }
  std::vector<token_id> next(static_cast<std::size_t>(count));
  std::vector<bool> exact(static_cast<std::size_t>(count), true);
  std::size_t fetches = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t p = layout.prompt_length - 1; p + 1 < length; ++p) {  // logits of p are there, p + 1 is to come
    const bool fetched = fetches < layout.fetches.size() && layout.fetches[fetches].at == p;
    for (std::size_t b = 0; b < next.size(); ++b) {
      const token_id predicted = greedy(run.logits(static_cast<index>(b)));
      const token_id truth = set.ids[b][p + 1];
      next[b] = forced || !layout.scored[p + 1] ? truth : predicted;
      if (p + 1 < layout.trace_end) {
        exact[b] = exact[b] && predicted == truth;
        out.trace.add(predicted == truth);
      }
      if (!fetched) continue;
      const fetch& f = set.problems[b].fetches[fetches];
      (f.answer ? out.answers : f.to.last ? out.coarse : out.fine).add(predicted == truth);
    }
    fetches += fetched;
    out.tokens.push_back(next.front());
    if (p + 2 == length) break;
    run.advance(next);
    passed(p + 2);
    if constexpr (Policy::selects) {
      const auto& selected = run.cache().selected(run.at(0), 0);
      if (zoomr::has(classes[static_cast<std::size_t>(next.front())], zoomr::token_class::delimiter)) {
        out.zooms.push_back({p + 1, {}});
        for (index id = 0; id < selected.levels.size(); ++id) {
          if (selected.of(id) == zoomr::level::details) out.zooms.back().segments.push_back(id);
        }
      }
    }
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (const bool whole : exact) out.exact.add(whole);
  for (index b = 0; b < count; ++b) {
    const zoomr::statistics& stats = run.cache().stats(run.at(b));
    out.steps += stats.tokens;
    out.attended_mean += stats.attended_mean(run.cache().model()) / count;
    out.device_peak = std::max(out.device_peak, stats.device_peak);
  }
  out.stats = run.cache().stats(run.at(0));
  out.bytes = run.cache().bytes(run.at(0));
  return out;
}

}  // namespace decode::ledger
