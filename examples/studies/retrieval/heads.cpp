// SPDX-License-Identifier: Apache-2.0
#include "heads.hpp"

#include <algorithm>  // std::max, std::ranges::find
#include <cmath>      // std::round
#include <iostream>   // std::cout
#include <map>        // std::map
#include <utility>    // std::move

#include <nlohmann/json.hpp>

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/policy/select/top_k.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/table.hpp"
#include "../perplexity/prefill.hpp"
#include "learn.hpp"

namespace decode::retrieval {
namespace {

/// What one choice has found, column by column of the segments that it could take.
struct recorded {
  std::vector<index_t> segments;
  std::vector<float> log_share;  // [heads, segments]
};

/// An aggregator that writes down what it hears, and decides nothing.
struct share_recorder {
  using role = zoomr::role::aggregator;
  static constexpr const char* name = "share_recorder";
  static constexpr zoomr::scope per = zoomr::scope::sequence;
  static constexpr zoomr::votes_t least = 0;
  static constexpr bool counts = true;

  index_t queries = 16;
  recorded* into = nullptr;

  void add_shares(zoomr::view<float, 2> shares, zoomr::view<const float>, zoomr::view<zoomr::votes_t> votes) const {
    *into = {};
    for (index_t id = 0; id < votes.size(); ++id) {
      if (votes[id] != zoomr::not_eligible) into->segments.push_back(id);
    }
    for (index_t head = 0; head < shares.extent(0); ++head) {
      for (const index_t id : into->segments) {
        const float share = shares(head, id);
        into->log_share.push_back(share > -87.0f ? share : -87.0f);  // NaN too: no query knows it
      }
    }
  }
  friend constexpr bool operator==(const share_recorder&, const share_recorder&) = default;
};

/// When something is needed: at the prompt's end, before each further answer, and in the middle of each.
struct moment {
  std::size_t written = 0;  // tokens of the answers before it
  index_t needed = 0;       // segment
};

/// The answers as a model should write them, up to the middle of the last.
struct solution {
  std::vector<token_id> text;
  std::vector<moment> moments;
};

solution solve(const scene& on, const problem& asked) {
  const std::vector<index_t> needed = on.needed_segments(asked);
  solution made;
  std::string written;
  for (const std::string& answer : asked.answers) {
    if (!written.empty()) {
      const std::vector<token_id> between =
          asked.goes_on.empty() ? on.words.encode(",", {.add_special = false}) : asked.goes_on;
      made.text.insert(made.text.end(), between.begin(), between.end());
    }
    const index_t next = needed_next(asked, needed, written).front();
    const std::vector<token_id> tokens = on.words.encode(" " + answer, {.add_special = false});
    const auto middle = tokens.begin() + static_cast<std::ptrdiff_t>(tokens.size() / 2);
    made.moments.push_back({made.text.size(), next});
    made.text.insert(made.text.end(), tokens.begin(), middle);
    if (middle != tokens.begin()) made.moments.push_back({made.text.size(), next});
    if (&answer != &asked.answers.back()) made.text.insert(made.text.end(), middle, tokens.end());
    written += ' ' + answer;
  }
  return made;
}

/// One dense pass, with every head a voter that has no sliding window.
/// @return  nothing if what is needed lies where every policy reads
std::vector<example> observe(scene& on, const group& kind, index_t number, index_t queries) {
  const problem asked = on.make(kind, number);
  const solution answers = solve(on, asked);
  std::vector<token_id> text = asked.prompt;
  text.insert(text.end(), answers.text.begin(), answers.text.end());
  progress bar(kind.name() + ", problem " + std::to_string(number), text.size());
  const perplexity::prefill passed(on.net, text, [&](std::size_t tokens) { bar.at(tokens); });
  const auto layers = static_cast<index_t>(on.layers.size()), heads = static_cast<index_t>(on.config.heads);
  const std::vector<float> all(static_cast<std::size_t>(layers * heads), 1.0f);
  std::vector<example> found;
  for (const moment& now : answers.moments) {
    recorded shares;
    with_segmenter(asked.kind, [&](auto segmenter) {
      const auto policy = zoomr::compose(segmenter, zoomr::key_mass{}, share_recorder{queries, &shares},
                                         zoomr::top_k{.segments = 1}, zoomr::zones{.sinks = 4, .recent = 64});
      zoomr::config limits;
      limits.max_tokens = static_cast<index_t>(text.size());
      limits.max_batched_tokens = static_cast<index_t>(perplexity::prefill::chunk);
      limits.logits.scale = static_cast<float>(on.config.attention_scale);
      limits.voters = {all.data(), {layers, heads}};
      limits.classes = on.classes, limits.threads = on.net.threads();
      zoomr::any_kv_cache<> cache = zoomr::kv_cache(shape_of(on.config, on.layers.size()), policy, limits);
      passed.replay(cache, cache.open(), on.layers, answers.text.size() - now.written);
    });
    const auto at = std::ranges::find(shares.segments, now.needed);
    if (at == shares.segments.end()) continue;
    found.push_back({kind.name(), number, 1, static_cast<std::size_t>(at - shares.segments.begin()),
                     shares.segments.size(), std::move(shares.log_share)});
  }
  return found;
}

void expect_one_needed(const scene& on) {
  for (const group& one : on.groups) {
    if (in_order(one.kind)) continue;
    fail("heads: of ", name_of(one.kind), " no single segment is needed next, so that weights cannot be learnt of it");
  }
}

nlohmann::json to_json(const std::vector<example>& examples) {
  nlohmann::json all = nlohmann::json::array();
  for (const example& one : examples) {
    nlohmann::json shares = nlohmann::json::array();  // in hundredths
    for (const float share : one.log_share) shares.push_back(static_cast<int>(std::round(share * 100)));
    all.push_back({{"target", one.target}, {"segments", one.segments}, {"shares", shares}});
  }
  return all;
}

example example_from(const field& line, std::size_t heads) {
  example one;
  one.segments = line.at("segments").count(1, 1 << 20);
  one.target = line.at("target").count(0, one.segments - 1);
  for (const field& share : line.at("shares").elements()) {
    one.log_share.push_back(static_cast<float>(share.number(-8700, 0)) / 100);
  }
  if (one.log_share.size() != heads * one.segments) fail(line.where(), "of a model with another number of heads");
  return one;
}

/// Of the problems with an even number (0), an odd one (1) or all (-1), and of one group if it is named.
std::vector<const example*> some(const std::vector<example>& all, int half, const std::string& group = "") {
  std::vector<const example*> chosen;
  for (const example& one : all) {
    if ((group.empty() || one.group == group) && (half < 0 || one.number % 2 == half)) chosen.push_back(&one);
  }
  return chosen;
}

/// @param judged  what the table says of problems that were not learnt on
void write(const std::string& path, const scene& on, const heads_options& given, const std::vector<float>& weights,
           index_t problems, const std::vector<found>& judged) {
  nlohmann::ordered_json document = {{"layers", on.config.layers}, {"heads", on.config.heads}};
  document["weights"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    document["weights"].push_back(
        {on.layers[i / on.config.heads], i % on.config.heads, std::round(double{weights[i]} * 1000) / 1000});
  }
  document["learnt"] = {{"tasks", given.of.tasks}, {"tokens", given.of.tokens}, {"problems", problems},
                        {"seed", given.of.seed},   {"queries", given.queries},  {"penalty", given.penalty}};
  if (!given.of.notes.empty()) document["learnt"]["notes"] = given.of.notes;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const auto share = [&](double sum) { return std::round(1000 * sum / judged[i].examples) / 1000; };
    if (judged[i].examples == 0) continue;
    rows.push_back({{"group", on.groups[i].name()},
                    {"problems", std::round(judged[i].examples)},
                    {"first", share(judged[i].first)},
                    {"in_set", share(judged[i].in_set)},
                    {"set", share(judged[i].taken)}});
  }
  document["not_learnt_on"] = rows;
  output_file file(path);
  file.stream() << document.dump(1) << '\n';
  file.finish();
}

}  // namespace

void run(const heads_options& given) {
  named_files files;
  files.reads_model(given.of.directory);
  files.reads("--text", given.of.texts);
  files.writes("--resume", given.of.resume), files.writes("--out", given.out);
  scene on(given.of);
  expect_one_needed(on);
  const std::size_t heads = on.layers.size() * on.config.heads;
  std::map<std::pair<std::string, index_t>, std::vector<example>> done;  // of each problem; empty: it asks nothing
  const std::string label = on.label() + ", queries " + std::to_string(given.queries);
  line_file lines = on.resume(label, [&](const field& line) {
    const auto number = static_cast<index_t>(line.at("number").count(0, 1 << 30));
    std::vector<example>& known = done[{line.at("group").text(), number}];
    for (const field& one : line.at("examples").elements()) known.push_back(example_from(one, heads));
  });
  std::vector<example> all;
  index_t problems = 0, left_out = 0;
  for (const group& kind : on.groups) {
    for (index_t number = 0; number < given.of.problems; ++number) {
      const auto known = done.find({kind.name(), number});
      std::vector<example> examples;
      if (known != done.end()) {
        examples = known->second;
      } else {
        examples = observe(on, kind, number, given.queries);
        lines.add({{"measured", label}, {"group", kind.name()}, {"number", number}, {"examples", to_json(examples)}});
      }
      examples.empty() ? ++left_out : ++problems;
      for (example& one : examples) {
        one.group = kind.name(), one.number = number, one.weight = 1.0 / static_cast<double>(examples.size());
        all.push_back(std::move(one));
      }
    }
  }
  if (problems < 4) fail("of all problems ", problems, " can be learnt from, but 4 are needed");

  // Each half is judged by what was learnt on the other.
  const learning how{.penalty = given.penalty};
  std::vector<float> halves[2];
  for (int half = 0; half < 2; ++half) {
    const std::vector<const example*> others = some(all, 1 - half);
    if (others.empty()) fail("ask for two problems of each task and size: each half is judged by the other's weights");
    halves[half] = learn(others, heads, how);
  }
  std::vector<found> judged;
  table figures({"problems not learnt on", "problems", "first %", "in set %", "set"});
  for (const group& kind : on.groups) {
    found sum;
    for (int half = 0; half < 2; ++half) {
      const found part = judge(some(all, half, kind.name()), halves[half]);
      sum.examples += part.examples, sum.first += part.first, sum.in_set += part.in_set, sum.taken += part.taken;
    }
    judged.push_back(sum);
    const double count = std::max(sum.examples, 1e-9);
    figures.add({kind.name(), fixed(sum.examples, 0), fixed(100 * sum.first / count, 1),
                 fixed(100 * sum.in_set / count, 1), fixed(sum.taken / count, 2)});
  }
  figures.print(std::cout);
  if (left_out > 0) std::cout << left_out << " problems were left out: what they ask for lies in a zone\n";

  const std::vector<float> weights = learn(some(all, -1), heads, how);
  table voters({"layer", "head", "weight"});
  for (std::size_t i = 0; i < heads; ++i) {
    if (weights[i] == 0) continue;
    voters.add(
        {std::to_string(on.layers[i / on.config.heads]), std::to_string(i % on.config.heads), fixed(weights[i], 3)});
  }
  std::cout << '\n';
  voters.print(std::cout);
  if (!given.out.empty()) write(given.out, on, given, weights, problems, judged);
}

}  // namespace decode::retrieval
