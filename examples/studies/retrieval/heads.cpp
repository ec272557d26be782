// SPDX-License-Identifier: Apache-2.0
#include "heads.hpp"

#include <algorithm>  // std::max
#include <cmath>      // std::round
#include <iostream>   // std::cout
#include <map>        // std::map

#include <nlohmann/json.hpp>

#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/policy/select/top_k.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/output.hpp"
#include "../../decode/progress.hpp"
#include "../../decode/table.hpp"
#include "../evaluate/line_file.hpp"
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

/// One dense pass, with every head a voter that has no sliding window.
/// @return  nothing if what is needed lies where every policy reads
std::vector<example> observe(scene& on, const group& of, const problem& asked, index_t queries,
                             const std::string& label) {
  const perplexity::prefill prompt(
      on.net, asked.prompt,
      [&, bar = std::make_shared<progress>(label, asked.prompt.size())](std::size_t passed) { bar->at(passed); });
  const auto layers = static_cast<index_t>(on.layers.size()), heads = static_cast<index_t>(on.config.heads);
  const std::vector<float> all(static_cast<std::size_t>(layers * heads), 1.0f);
  recorded made;
  with_segmenter(asked.kind, [&](auto segmenter) {
    const auto policy = zoomr::compose(segmenter, zoomr::key_mass{}, share_recorder{queries, &made},
                                       zoomr::top_k{.segments = 1}, zoomr::zones{.sinks = 4, .recent = 64});
    zoomr::config limits;
    limits.max_tokens = static_cast<index_t>(asked.prompt.size());
    limits.max_batched_tokens = static_cast<index_t>(perplexity::prefill::chunk);
    limits.logits.scale = static_cast<float>(on.config.attention_scale);
    limits.voters = {all.data(), {layers, heads}};
    limits.classes = on.classes, limits.threads = on.net.threads();
    zoomr::any_kv_cache<> cache = zoomr::kv_cache(shape_of(on.config, on.layers.size()), policy, limits);
    prompt.replay(cache, cache.open(), on.layers);
  });
  const index_t needed = needed_next(asked, on.needed_segments(asked), "").front();
  const auto at = std::find(made.segments.begin(), made.segments.end(), needed);
  if (at == made.segments.end()) return {};
  return {{of.name(), static_cast<std::size_t>(at - made.segments.begin()), made.segments.size(), made.log_share}};
}

void expect_one_needed(const scene& on) {
  for (const group& one : on.groups) {
    if (in_order(one.kind)) continue;
    fail("heads: of ", name_of(one.kind), " no single segment is needed next, so that weights cannot be learnt of it");
  }
}

nlohmann::json to_json(const example& of, index_t number) {
  nlohmann::json shares = nlohmann::json::array();  // in hundredths
  for (const float share : of.log_share) shares.push_back(static_cast<int>(std::round(share * 100)));
  return {{"group", of.of}, {"number", number}, {"target", of.target}, {"segments", of.segments}, {"shares", shares}};
}

example example_from(const field& line, std::size_t heads) {
  example made;
  made.of = line.at("group").text();
  made.segments = line.at("segments").count(1, 1 << 20);
  made.target = line.at("target").count(0, made.segments - 1);
  for (const field& share : line.at("shares").elements()) {
    made.log_share.push_back(static_cast<float>(share.number(-8700, 0)) / 100);
  }
  if (made.log_share.size() != heads * made.segments) fail(line.where(), "of a model with another number of heads");
  return made;
}

std::vector<const example*> pointers(const std::vector<example>& all, const std::string& of, int part) {
  std::vector<const example*> made;
  int number = 0;
  for (const example& one : all) {
    if (!of.empty() && one.of != of) continue;
    if (part < 0 || number % 2 == part) made.push_back(&one);
    ++number;
  }
  return made;
}

void write(const std::string& path, const scene& on, const heads_options& given, const std::vector<float>& weights,
           std::size_t examples) {
  nlohmann::ordered_json document = {{"layers", on.config.layers}, {"heads", on.config.heads}};
  document["weights"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    document["weights"].push_back(
        {on.layers[i / on.config.heads], i % on.config.heads, std::round(double{weights[i]} * 1000) / 1000});
  }
  document["learnt"] = {{"tasks", given.of.tasks}, {"tokens", given.of.tokens}, {"problems", examples},
                        {"seed", given.of.seed},   {"queries", given.queries},  {"penalty", given.penalty}};
  if (!given.of.notes.empty()) document["learnt"]["notes"] = given.of.notes;
  output_file file(path);
  file.stream() << document.dump(1) << '\n';
  file.finish();
}

}  // namespace

void run(const heads_options& given) {
  scene on(given.of);
  expect_one_needed(on);
  const std::size_t heads = on.layers.size() * on.config.heads;
  std::map<std::pair<std::string, index_t>, std::vector<example>> done;  // of each problem; empty: it asks nothing
  line_file lines(given.of.resume, [&](const json& line, const std::string& where) {
    const field of(line, where + ": ");
    const auto number = static_cast<index_t>(of.at("number").count(0, 1 << 30));
    std::vector<example>& made = done[{of.at("group").text(), number}];
    if (of.find("shares")) made.push_back(example_from(of, heads));
  });
  std::vector<example> all;
  index_t left_out = 0;
  for (const group& of : on.groups) {
    for (index_t number = 0; number < given.of.problems; ++number) {
      const auto known = done.find({of.name(), number});
      std::vector<example> made;
      if (known != done.end()) {
        made = known->second;
      } else {
        made = observe(on, of, on.make(of, number), given.queries, of.name() + ", problem " + std::to_string(number));
        lines.add(made.empty() ? nlohmann::json{{"group", of.name()}, {"number", number}} : to_json(made[0], number));
      }
      if (made.empty()) ++left_out;
      all.insert(all.end(), made.begin(), made.end());
    }
  }
  if (all.size() < 4) fail("of all problems ", all.size(), " can be learnt from, but 4 are needed");

  // Each half is judged by what was learnt on the other.
  const learning how{.penalty = given.penalty};
  std::vector<float> halves[2];
  for (int half = 0; half < 2; ++half) halves[half] = learn(pointers(all, "", 1 - half), heads, how);
  table figures({"problems not learnt on", "problems", "first %", "in set %", "set"});
  for (const group& of : on.groups) {
    found sum;
    for (int half = 0; half < 2; ++half) {
      std::vector<const example*> others;
      for (const example* one : pointers(all, "", half)) {
        if (one->of == of.name()) others.push_back(one);
      }
      const found made = judge(others, halves[half]);
      sum.taken += made.taken * made.problems;
      sum.problems += made.problems, sum.first += made.first, sum.in_set += made.in_set;
    }
    const double count = std::max(1, sum.problems);
    figures.add({of.name(), std::to_string(sum.problems), fixed(100 * sum.first / count, 1),
                 fixed(100 * sum.in_set / count, 1), fixed(sum.taken / count, 2)});
  }
  figures.print(std::cout);
  if (left_out > 0) std::cout << left_out << " problems were left out: what they ask for lies in a zone\n";

  const std::vector<float> weights = learn(pointers(all, "", -1), heads, how);
  table voters({"layer", "head", "weight"});
  for (std::size_t i = 0; i < heads; ++i) {
    if (weights[i] == 0) continue;
    voters.add(
        {std::to_string(on.layers[i / on.config.heads]), std::to_string(i % on.config.heads), fixed(weights[i], 3)});
  }
  std::cout << '\n';
  voters.print(std::cout);
  if (!given.out.empty()) write(given.out, on, given, weights, all.size());
}

}  // namespace decode::retrieval
