// SPDX-License-Identifier: Apache-2.0
#include "heads.hpp"

#include <algorithm>   // std::ranges::any_of
#include <chrono>      // std::chrono::steady_clock
#include <cmath>       // std::ceil, std::isfinite, std::isnan, std::round
#include <functional>  // std::function
#include <iostream>    // std::cerr, std::cout
#include <map>         // std::map
#include <optional>    // std::optional
#include <tuple>       // std::tuple
#include <utility>     // std::move

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/table.hpp"
#include "forms.hpp"
#include "lessons.hpp"
#include "moments.hpp"
#include "trials.hpp"

namespace decode::retrieval {
namespace {

/// Problems of one kind.
struct course {
  std::string name;
  double size = 0;  // of one, for the time that is left
  std::function<lesson(index_t number)> make;
};

std::vector<scoring_queries> queries_of(const heads_options& given) {
  std::vector<scoring_queries> list;
  for (const std::string& item : given.queries) list.push_back(scoring_queries::named(item));
  return list;
}

/// @param kinds  of problems
void expect_enough(const heads_options& given, std::size_t kinds) {
  const std::size_t total = kinds * static_cast<std::size_t>(given.of.problems);
  if (given.of.problems < 2) {
    fail("heads: ask for two problems of each kind at least: each half is judged by the other's weights");
  }
  if (total < 4) fail("heads: ", total, " problems are asked for, but 4 are needed to learn from");
}

void expect_evidence(const std::vector<group>& groups) {
  for (const group& item : groups) {
    if (item.kind == task::words)
      fail("heads: of words no segment says an answer, so that nothing can be learnt of it");
  }
}

/// Problems of one form and length.
struct sized_form {
  form as;
  index_t tokens = 0;
};

std::vector<sized_form> forms_of(const heads_options& given) {
  std::vector<sized_form> list;
  for (const std::string& item : given.forms) {
    const auto [name, own_tokens] = name_and_tokens(item);
    const std::vector<index_t> sizes = own_tokens > 0 ? std::vector<index_t>{own_tokens} : given.of.tokens;
    for (const index_t tokens : sizes) list.push_back({form_named(name), tokens});
  }
  return list;
}

/// @param asks  not needed without forms
std::vector<course> courses_of(const scene& on, const form_maker* asks, const std::vector<sized_form>& forms) {
  std::vector<course> list;
  for (const sized_form& item : forms) {
    const auto make = [&on, asks, &item](index_t number) {
      const std::uint64_t seed = on.given.seed * 1000003 + static_cast<std::uint64_t>(number);
      return lesson_of(on.words, item.as, asks->make(item.as, fact_half::learning, item.tokens, seed));
    };
    list.push_back({item.as.name + " form " + std::to_string(item.tokens), static_cast<double>(item.tokens), make});
  }
  for (const group& item : on.groups) {
    const double size = item.size.notes > 0 ? 90.0 * item.size.notes : item.size.tokens;
    list.push_back({item.name(), size, [&](index_t number) { return lesson_of(on, on.make(item, number)); }});
  }
  return list;
}

/// @throws input_error  it is longer than the model's context
lesson checked_lesson(const scene& on, const course& kind, index_t number) {
  lesson item = kind.make(number);
  if (item.text.size() <= on.config.context) return item;
  fail(kind.name, ": a problem and its answer have ", item.text.size(), " tokens, more than this model's context of ",
       on.config.context);
}

/// What the heads have made of all problems.
class records {
 public:
  using key = std::tuple<std::string, index_t, std::string>;  // course, number, queries

  records(const heads_options& given, scene& on)
      : given_(given), on_(on), queries_(queries_of(given)), lines_(on.resume(on.label(), [&](const field& line) {
          const auto number = static_cast<index_t>(line.at("number").count(0, 1 << 30));
          done_[{line.at("group").text(), number, line.at("queries").text()}] = examples_from(line, heads());
        })) {}

  std::size_t heads() const { return on_.layers.size() * on_.config.heads; }
  const std::vector<scoring_queries>& queries() const { return queries_; }

  /// Passes what is not done yet.
  void complete(const std::vector<course>& courses) {
    std::size_t problems = 0, known = 0;
    double left = 0;
    each(courses, [&](const course& kind, index_t number) {
      ++problems;
      if (missing(kind, number).empty()) {
        ++known;
      } else {
        left += kind.size;
      }
    });
    std::cerr << problems << " problems, " << known << " of them passed before\n";
    std::size_t at = 0;
    bool first = true;
    each(courses, [&](const course& kind, index_t number) {
      ++at;
      const std::vector<scoring_queries> queries = missing(kind, number);
      if (queries.empty()) return;
      const auto began = std::chrono::steady_clock::now();
      pass(kind, number, queries, " (" + std::to_string(at) + " of " + std::to_string(problems) + ")");
      left -= kind.size;
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      if (first && left > 0) {
        const double seconds = took.count() * left / kind.size;
        std::cerr << "the first took " << fixed(took.count(), 1) << " s, the others take about "
                  << (seconds < 90 ? fixed(seconds, 0) + " s" : fixed(seconds / 60, 0) + " minutes") << std::endl;
      }
      first = false;
    });
  }

  /// Of all problems. Those of one problem weigh 1 together.
  std::vector<example> examples(const std::vector<course>& courses, const scoring_queries& queries) const {
    std::vector<example> list;
    each(courses, [&](const course& kind, index_t number) {
      const std::vector<example>& known = done_.at({kind.name, number, queries.name()});
      for (example item : known) {
        item.group = kind.name, item.number = number, item.weight = 1.0 / static_cast<double>(known.size());
        list.push_back(std::move(item));
      }
    });
    return list;
  }

 private:
  template <class Visit>
  void each(const std::vector<course>& courses, Visit visit) const {
    for (const course& kind : courses) {
      for (index_t number = 0; number < given_.of.problems; ++number) visit(kind, number);
    }
  }
  std::vector<scoring_queries> missing(const course& kind, index_t number) const {
    std::vector<scoring_queries> list;
    for (const scoring_queries& item : queries_) {
      if (!done_.contains({kind.name, number, item.name()})) list.push_back(item);
    }
    return list;
  }
  void pass(const course& kind, index_t number, const std::vector<scoring_queries>& queries, const std::string& place) {
    const lesson from = checked_lesson(on_, kind, number);
    progress bar(kind.name + ", problem " + std::to_string(number) + place, from.text.size());
    auto found = record(on_, from, queries, [&](std::size_t tokens) { bar.at(tokens); });
    for (std::size_t i = 0; i < queries.size(); ++i) {
      lines_.add({{"measured", on_.label()},
                  {"group", kind.name},
                  {"number", number},
                  {"queries", queries[i].name()},
                  {"examples", to_json(found[i])}});
      done_[{kind.name, number, queries[i].name()}] = std::move(found[i]);
    }
  }

  const heads_options& given_;
  scene& on_;
  std::vector<scoring_queries> queries_;
  std::map<key, std::vector<example>> done_;
  line_file lines_;
};

/// A way to learn, and what it has learnt from.
struct candidate {
  scoring_queries queries;
  std::vector<example> examples;
  trial way;
  double bound = no_class;  // bits
};

void expect_something_needed(const std::vector<example>& list) {
  for (int half = 0; half < 2; ++half) {
    const auto needs = [](const example* item) { return !item->needed.empty(); };
    if (std::ranges::any_of(some(list, half), needs)) continue;
    fail("heads: in the problems with ", half == 0 ? "an even" : "an odd",
         " number nothing is needed that could be chosen, so that nothing can be learnt");
  }
}

std::string percent(double share) { return std::isnan(share) ? "-" : fixed(100 * share, 1); }
std::string area(double share) { return std::isnan(share) ? "-" : fixed(share, 2); }

std::vector<std::string> cells(const std::vector<judged_choice>& choices, double bound) {
  const found sum = summary(choices, bound);
  const auto of_needed = [&](const std::string& text) { return sum.examples > 0 ? text : "-"; };
  return {of_needed(percent(sum.first)),     of_needed(percent(sum.in_set)),
          of_needed(fixed(sum.taken, 2)),    fixed(sum.bits, 2),
          area(area_of_unsureness(choices)), percent(sum.gated)};
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& others) {
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

const std::vector<std::string> figures = {"first %", "in set %", "set", "bits", "AUC", "gated %"};

/// All ways to learn, judged: that with the fewest bits.
candidate choose_way(const records& from, const std::vector<course>& courses, const scene& on,
                     const heads_options& given) {
  candidate best;
  table tried(joined({"queries", "several needed", "first layer"}, figures));
  for (const scoring_queries& queries : from.queries()) {
    std::vector<example> examples = from.examples(courses, queries);
    expect_something_needed(examples);
    const std::size_t first_layer = on.layers.front() == 0 ? on.config.heads : 0;
    std::vector<trial> ways = try_ways(examples, from.heads(), first_layer, {.penalty = given.penalty});
    for (const trial& item : ways) {
      tried.add(joined({queries.name(), item.how.goal == objective::each ? "each" : "any",
                        first_layer == 0        ? "-"
                        : item.how.left_out > 0 ? "no"
                                                : "yes"},
                       cells(item.choices, bound_by_needless(item.choices, given.needless))));
    }
    if (best.examples.empty() || ways.front().bits() < best.way.bits()) {
      best.queries = queries, best.examples = std::move(examples), best.way = std::move(ways.front());
    }
  }
  best.bound = bound_by_needless(best.way.choices, given.needless);
  tried.print(std::cout);
  return best;
}

std::vector<judged_choice> choices_of(const candidate& chosen, const std::string& course_name) {
  std::vector<judged_choice> some;
  for (std::size_t i = 0; i < chosen.examples.size(); ++i) {
    if (chosen.examples[i].group == course_name) some.push_back(chosen.way.choices[i]);
  }
  return some;
}

void print_courses(const candidate& chosen, const std::vector<course>& courses) {
  table rows(joined({"problems not learnt on", "problems"}, figures));
  const auto add = [&](const std::string& name, const std::vector<judged_choice>& choices) {
    const found sum = summary(choices, chosen.bound);
    rows.add(joined({name, fixed(sum.examples + sum.nothing, 0)}, cells(choices, chosen.bound)));
  };
  for (const course& item : courses) add(item.name, choices_of(chosen, item.name));
  add("all", chosen.way.choices);
  rows.print(std::cout);
}

/// What a gate catches by what it may cost.
void print_bounds(const candidate& chosen) {
  table rows({"needless, at most %", "bound, bits", "misses gated %", "all gated %"});
  for (const double share : {0.01, 0.02, 0.05, 0.1, 0.2}) {
    const double bound = bound_by_needless(chosen.way.choices, share);
    const found sum = summary(chosen.way.choices, bound);
    rows.add({percent(share), std::isfinite(bound) ? fixed(bound, 2) : "-", percent(sum.caught), percent(sum.gated)});
  }
  rows.print(std::cout);
}

void print_best_heads(const candidate& chosen) {
  best_heads sum;
  double weight = 0;
  for (int half = 0; half < 2; ++half) {
    const best_heads part = judge_heads(some(chosen.examples, half), chosen.way.halves[1 - half]);
    double needed = 0;
    for (const example* const item : some(chosen.examples, half)) needed += item->needed.empty() ? 0 : item->weight;
    sum.of_all += needed * part.of_all, sum.of_voters += needed * part.of_voters;
    sum.by_chance += needed * part.by_chance, weight += needed;
  }
  std::cout << "What is needed is first for " << percent(summary(chosen.way.choices, chosen.bound).first)
            << " % by these weights; by the best head of each moment for " << percent(sum.of_voters / weight)
            << " % among those with a weight, for " << percent(sum.of_all / weight)
            << " % among all, of which one names any other segment for " << percent(sum.by_chance / weight) << " %.\n";
}

double rounded(double value, double parts) { return std::round(value * parts) / parts; }

nlohmann::ordered_json judged_rows(const candidate& chosen, const std::vector<course>& courses) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const course& item : courses) {
    const std::vector<judged_choice> choices = choices_of(chosen, item.name);
    const found sum = summary(choices, chosen.bound);
    if (choices.empty()) continue;
    nlohmann::ordered_json row = {{"group", item.name}, {"problems", std::round(sum.examples + sum.nothing)}};
    if (sum.examples > 0) {
      row["first"] = rounded(sum.first, 1000), row["in_set"] = rounded(sum.in_set, 1000);
      row["set"] = rounded(sum.taken, 1000);
    }
    row["bits"] = rounded(sum.bits, 1000), row["gated"] = rounded(sum.gated, 1000);
    rows.push_back(row);
  }
  return rows;
}

void write(const heads_options& given, const scene& on, const std::vector<course>& courses, const candidate& chosen,
           const voter_weights& weights) {
  nlohmann::ordered_json document = {{"layers", on.config.layers}, {"heads", on.config.heads}};
  document["weights"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < weights.heads.size(); ++i) {
    if (weights.heads[i] == 0) continue;
    document["weights"].push_back(
        {on.layers[i / on.config.heads], i % on.config.heads, rounded(double{weights.heads[i]}, 1000)});
  }
  if (weights.none.one > no_class) document["none"] = rounded(weights.none.one, 1000);
  if (weights.none.slope > 0) document["none_slope"] = rounded(weights.none.slope, 1000);
  if (std::isfinite(chosen.bound)) document["unsure"] = rounded(chosen.bound, 100);
  document["learnt"] = {
      {"tasks", given.of.tasks},   {"forms", given.forms},
      {"tokens", given.of.tokens}, {"problems", given.of.problems * static_cast<index_t>(courses.size())},
      {"seed", given.of.seed},     {"queries", chosen.queries.name()},
      {"penalty", given.penalty},  {"needless", given.needless}};
  if (!given.of.notes.empty()) document["learnt"]["notes"] = given.of.notes;
  document["not_learnt_on"] = judged_rows(chosen, courses);
  output_file file(given.out);
  file.stream() << document.dump(1) << '\n';
  file.finish();
}

void print_weights(const scene& on, const candidate& chosen, const voter_weights& weights) {
  table voters({"layer", "head", "weight"});
  for (std::size_t i = 0; i < weights.heads.size(); ++i) {
    if (weights.heads[i] == 0) continue;
    voters.add({std::to_string(on.layers[i / on.config.heads]), std::to_string(i % on.config.heads),
                fixed(weights.heads[i], 3)});
  }
  voters.print(std::cout);
  if (weights.none.one > no_class) {
    std::cout << "none of these: logit " << fixed(weights.none.one, 3) << ", less " << fixed(weights.none.slope, 3)
              << " times ln of the segments\n";
  }
  if (std::isfinite(chosen.bound)) std::cout << "unsure: above " << fixed(chosen.bound, 2) << " bits\n";
  if (chosen.queries.question) {
    std::cout << "The question's queries score: head_posterior.question=" << scoring_queries::most_of_question
              << ", and an engine names it\n";
  } else if (chosen.queries.last != scoring_queries{}.last) {
    std::cout << "The last " << chosen.queries.last
              << " queries score: --set head_posterior.queries=" << chosen.queries.last << '\n';
  }
}

}  // namespace

void run(const heads_options& given) {
  named_files files;
  files.reads_model(given.of.directory);
  files.reads("--text", given.of.texts);
  files.writes("--resume", given.of.resume), files.writes("--out", given.out);
  queries_of(given);
  const std::vector<sized_form> forms = forms_of(given);
  const std::vector<group> groups = groups_of(given.of);  // before the weights, which may take long
  expect_evidence(groups);
  expect_enough(given, groups.size() + forms.size());
  scene on(given.of);
  std::optional<form_maker> asks;
  if (!forms.empty()) asks.emplace(given.of.directory, on.words, given.of.texts, given.of.marks);
  const std::vector<course> courses = courses_of(on, asks ? &*asks : nullptr, forms);
  for (const course& item : courses) checked_lesson(on, item, 0);  // what cannot be made is said before anything passes
  records recorded(given, on);
  recorded.complete(courses);

  const candidate best = choose_way(recorded, courses, on, given);
  std::cout << '\n';
  print_courses(best, courses);
  std::cout << '\n';
  print_bounds(best);
  std::cout << '\n';
  print_best_heads(best);
  std::cout << '\n';
  const voter_weights weights = learn(some(best.examples), recorded.heads(), best.way.how);
  print_weights(on, best, weights);
  if (!given.out.empty()) write(given, on, courses, best, weights);
}

}  // namespace decode::retrieval
