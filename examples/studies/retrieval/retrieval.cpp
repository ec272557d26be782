// SPDX-License-Identifier: Apache-2.0
#include "retrieval.hpp"

#include <algorithm>  // std::any_of, std::find
#include <iostream>   // std::cout
#include <map>        // std::map
#include <memory>     // std::unique_ptr
#include <tuple>      // std::tuple

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/sampler.hpp"
#include "../../decode/session.hpp"
#include "../../decode/table.hpp"
#include "../evaluate/policy_spec.hpp"
#include "../perplexity/prefill.hpp"
#include "controls.hpp"
#include "outcome.hpp"

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

/// @param next  kept up to date: the segments that are needed by the tokens behind the one that passes
template <class Policy>
outcome answer(scene& on, const Policy& policy, const perplexity::prefill& prompt, const exam& paper,
               std::vector<index_t>& next) {
  const bool one_row = policy.aggregate.per == zoomr::scope::sequence;
  session run(on.net, policy, 1, static_cast<index_t>(prompt.tokens()) + paper.tokens, on.classes);
  next = paper.next("");
  run.with_cache([&](auto& cache) { prompt.replay(cache, run.at(0)); });
  zoomr::attention_trace attended;
  zoomr::choice_trace chosen;
  run.trace(&attended, &chosen);
  outcome result;
  std::vector<token_id> text = {greedy(prompt.logits())};
  std::vector<token_id> ahead;  // what is written for the model, last token first
  bool goes_on = false;
  while (static_cast<index_t>(text.size()) < paper.tokens) {
    const std::string written = on.words.decode(text);
    if (!goes_on && written.find(paper.asked.answers.front()) != std::string::npos) {
      goes_on = true;
      ahead.assign(paper.asked.goes_on.rbegin(), paper.asked.goes_on.rend());
    }
    next = paper.next(written);
    run.advance({&text.back(), 1});
    text.push_back(ahead.empty() ? greedy(run.logits(0)) : ahead.back());
    if (!ahead.empty()) ahead.pop_back();
    count_active(attended, result);
    if (one_row && !paper.needed.empty()) count_hits(chosen, next, result);
  }
  result.text = on.words.decode(text);
  result.answers = paper.written_share(result.text);
  result.attended = run.policy_attended_mean();
  result.agreeability = run.stats().agreeability(), result.device_peak = run.stats().device_peak;
  if (run.stats().entropy_count > 0) result.entropy = run.stats().entropy();
  result.prompt = static_cast<std::int64_t>(paper.asked.prompt.size());
  return result;
}

/// What is done, and what it came to.
class results {
 public:
  explicit results(const scene& on)
      : label_(with_voters(on)), lines_(on.resume(label_, [&](const field& line) {
          done_[{line.at("group").text(), static_cast<index_t>(line.at("number").count(0, 1 << 30)),
                 line.at("policy").text()}] = outcome_from(line);
        })) {}

  const outcome* find(const std::string& kind, index_t number, const std::string& policy) const {
    const auto at = done_.find({kind, number, policy});
    return at == done_.end() ? nullptr : &at->second;
  }
  void add(const std::string& kind, index_t number, const std::string& policy, const outcome& result) {
    json line = to_json(result);
    line["measured"] = label_;
    line["group"] = kind, line["number"] = number, line["policy"] = policy;
    lines_.add(line);
    done_[{kind, number, policy}] = result;
  }

 private:
  static std::string with_voters(const scene& on) {
    index_t count = 0;
    double sum = 0;
    for (const float weight : on.config.voters) count += weight != 0 ? 1 : 0, sum += double{weight};
    const std::string rounded = on.given.voters.keys == "as_cache" ? "" : ", their keys in " + on.given.voters.keys;
    return on.label() +
           (count == 0 ? "" : ", " + std::to_string(count) + " voters of weight " + fixed(sum, 3) + rounded);
  }

  std::string label_;
  std::map<std::tuple<std::string, index_t, std::string>, outcome> done_;
  line_file lines_;
};

struct row {
  std::string policy, kind;
  tally sums;
};

/// All policies on one problem, as far as they are not done.
void examine(scene& on, const options& given, const std::vector<policy_choice>& choices, const group& kind,
             index_t number, results& done) {
  const problem asked = on.make(kind, number);
  const std::vector<index_t> needed = on.needed_segments(asked);
  const exam paper{asked, needed, given.written > 0 ? given.written : answer_tokens(kind.kind)};
  std::unique_ptr<perplexity::prefill> prompt;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (done.find(kind.name(), number, given.policies[i]) != nullptr) continue;
    if (!prompt) {
      progress bar(kind.name() + ", problem " + std::to_string(number), asked.prompt.size());
      prompt = std::make_unique<perplexity::prefill>(on.net, asked.prompt, [&](std::size_t passed) { bar.at(passed); });
    }
    outcome result;
    std::vector<index_t> next;
    with_named(choices[i], kind.kind, next,
               [&](const auto& policy) { result = answer(on, policy, *prompt, paper, next); });
    done.add(kind.name(), number, given.policies[i], result);
  }
}

void write_csv(const std::string& path, const std::vector<row>& rows) {
  output_file file(path);
  file.stream() << tally::csv_titles();
  for (const row& one : rows) file.stream() << one.sums.csv(one.policy, one.kind);
  file.finish();
}

void print_json(const options& given, const std::vector<row>& rows) {
  nlohmann::ordered_json document = {{"seed", given.of.seed}, {"rows", nlohmann::ordered_json::array()}};
  for (const row& one : rows)
    document["rows"].push_back(nlohmann::ordered_json(one.sums.document(one.policy, one.kind)));
  std::cout << document.dump(1) << '\n';
}

void print_table(const std::vector<row>& rows) {
  table figures(tally::titles());
  for (const row& one : rows) figures.add(one.sums.cells(one.policy, one.kind));
  figures.print(std::cout);
}

}  // namespace

void run(const options& given) {
  std::vector<policy_choice> choices;
  for (const std::string& spec : given.policies) {
    choices.push_back(read_policy(spec));
    expect_named(choices.back(), spec);
  }
  scene on(given.of);
  for (const group& kind : on.groups) {
    if (kind.kind == task::words && std::ranges::find(given.policies, "oracle") != given.policies.end())
      fail("words: the whole list is needed, so that there is no oracle; leave it out of --policies");
  }
  results done(on);
  std::vector<row> rows;
  for (const group& kind : on.groups) {
    const std::size_t first = rows.size();
    for (const std::string& policy : given.policies) rows.push_back({policy, kind.name(), {}});
    for (index_t number = 0; number < given.of.problems; ++number) {
      examine(on, given, choices, kind, number, done);
      for (std::size_t i = first; i < rows.size(); ++i)
        rows[i].sums.add(*done.find(kind.name(), number, rows[i].policy));
    }
  }
  if (!given.csv.empty()) write_csv(given.csv, rows);
  given.json ? print_json(given, rows) : print_table(rows);
}

}  // namespace decode::retrieval
