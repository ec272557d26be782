// SPDX-License-Identifier: Apache-2.0
// One policy on some problems of one size, all sequences in lock step: their layout is the same, so position p is
// the same kind of token in each of them.
//
// B = problems, L = tokens of a problem
#pragma once

#include <cstddef>     // std::size_t
#include <cstdint>     // std::int64_t, std::uint64_t
#include <functional>  // std::function
#include <string>      // std::string
#include <vector>      // std::vector

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
              scenario what = scenario::trace);
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
  /// @param run  of as many sequences as there are problems, for drafts of `draft(forced)` tokens
  evaluation(session<>& run, const problem_set& set, const std::vector<zoomr::token_class>& classes, bool forced,
             needs& needed);

  outcome run(const progress_sink& passed);

  /// Tokens that pass at once.
  static index_t draft(bool forced) { return forced ? most_at_once : 1; }

 private:
  void give_prompts(needs& needed);
  index_t step(std::size_t p);
  void read(std::size_t p, index_t t);
  void add_fetch(std::size_t b, const fetch& f, bool right);
  void note_zooms(std::size_t position);
  void finish();

  static constexpr index_t most_at_once = 32;

  const problem_set& set_;
  const problem& layout_;
  const std::vector<zoomr::token_class>& classes_;
  bool forced_;
  session<>& run_;
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
  session run(net, policy, set.size(), static_cast<index_t>(set.length()), classes, evaluation::draft(forced), audit);
  return evaluation(run, set, classes, forced, needed).run(passed);
}

}  // namespace decode::ledger
