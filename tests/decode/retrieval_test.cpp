// SPDX-License-Identifier: Apache-2.0
// Retrieval: what is refused, controls, and intervals.
#include <doctest/doctest.h>

#include <zoomr/kv_cache.hpp>

#include <algorithm>  // std::max, std::partial_sort
#include <cmath>      // std::exp
#include <concepts>   // std::same_as
#include <random>     // std::mt19937
#include <set>
#include <string>
#include <type_traits>  // std::remove_cvref_t
#include <vector>

#include "file_option.hpp"
#include "retrieval/controls.hpp"
#include "retrieval/form_outcome.hpp"
#include "retrieval/outcome.hpp"
#include "retrieval_scenes.hpp"

namespace decode::retrieval {
namespace {

std::string complaint_about(const scene_options& asked) {
  return complaint([&] {
    const scene lab(asked);
    lab.make(lab.groups.front(), 0);
  });
}
bool refused(const scene_options& asked, const std::string& part) {
  const std::string why = complaint_about(asked);
  INFO(why);
  return says(why, part);
}

/// One layer of two query heads and one KV head of 8 numbers, with random keys, queries and values.
struct lane {
  static constexpr index_t heads = 2, dims = 8;
  index_t tokens;
  std::vector<float> keys, queries;  // [tokens, dims], [tokens, heads, dims]

  explicit lane(index_t count) : tokens(count) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (index_t i = 0; i < count * dims; ++i) keys.push_back(normal(random));
    for (index_t i = 0; i < count * heads * dims; ++i) queries.push_back(2 * normal(random));
  }

  /// Passes a prompt and then token by token under a policy; what was attended.
  template <class Policy>
  zoomr::attention_trace attended(const Policy& policy, index_t prompt) const {
    zoomr::config limits;
    limits.max_tokens = limits.max_segments = tokens;
    zoomr::any_kv_cache<> cache = zoomr::kv_cache(zoomr::shape{1, heads, 1, dims}, policy, limits);
    const zoomr::sequence seq = cache.open();
    zoomr::attention_trace trace;
    cache.trace(&trace);
    const std::vector<token_id> ids(static_cast<std::size_t>(tokens));
    std::vector<float> out(queries.size());
    for (index_t first = 0; first < tokens;) {
      const index_t count = first == 0 ? prompt : 1;
      auto step = cache.begin(seq, std::span(ids).first(static_cast<std::size_t>(count)), first == 0);
      const zoomr::view<const float, 3> key{&keys[static_cast<std::size_t>(first * dims)], {count, 1, dims}};
      const auto at = static_cast<std::size_t>(first * heads * dims);
      step.append(0, key, key);
      step.attend(0, zoomr::view<const float, 3>{&queries[at], {count, heads, dims}},
                  zoomr::view<float, 3>{&out[at], {count, heads, dims}});
      step.commit();
      first += count;
    }
    return trace;
  }

  /// Of the tokens [begin, end), the `count` with the largest probability that a head gives.
  std::set<index_t> largest(index_t position, index_t begin, index_t end, index_t count) const {
    std::vector<std::pair<double, index_t>> all;
    for (index_t t = begin; t < end; ++t) all.emplace_back(0.0, t);
    for (index_t head = 0; head < heads; ++head) {
      std::vector<double> weights;
      double sum = 0;
      for (index_t t = begin; t < end; ++t) {
        double product = 0;
        for (index_t d = 0; d < dims; ++d) {
          product += double{keys[static_cast<std::size_t>(t * dims + d)]} *
                     double{queries[static_cast<std::size_t>((position * heads + head) * dims + d)]};
        }
        weights.push_back(std::exp(product / std::sqrt(double{dims})));
        sum += weights.back();
      }
      for (std::size_t i = 0; i < all.size(); ++i) all[i].first = std::max(all[i].first, weights[i] / sum);
    }
    std::partial_sort(all.begin(), all.begin() + count, all.end(), std::greater<>());
    std::set<index_t> taken;
    for (index_t i = 0; i < count; ++i) taken.insert(all[static_cast<std::size_t>(i)].second);
    return taken;
  }
};

}  // namespace

TEST_CASE("what cannot be asked for is refused with a sentence") {
  scene_options asked = asked_for();
  asked.tasks = {"riddles"};
  CHECK(refused(asked,
                "there is no task \"riddles\"; known are needle, keys, notes, values, queries, tracking, words, "
                "paraphrase, chain"));
  for (const std::string task : {"notes", "paraphrase", "chain"}) {
    asked = asked_for(), asked.tasks = {task};
    CHECK(refused(asked, task + ": name four tokens that mark them"));
    const index_t most = task == "paraphrase" ? 32 : 512;
    asked = notes_asked_for(task), asked.notes = {most + 1};
    CHECK(refused(asked, task + ": there are places for " + std::to_string(most) + " notes, but " +
                             std::to_string(most + 1) + " are asked for"));
    asked.notes = {2};
    CHECK(refused(asked, "at least 3 notes are needed, but 2 are asked for"));
    asked.notes = {}, asked.tokens = {700};
    CHECK(refused(asked, "700 tokens hold fewer than three of them"));
    asked.tokens = {15000};
    if (task == "paraphrase") CHECK(refused(asked, "15000 tokens hold more notes than there are places"));
  }
  asked = asked_for(), asked.marks = {"<a>", "<b>"};
  CHECK(refused(asked, "four tokens are needed"));
  asked = asked_for(), asked.marks = {"<a>", "<b>", "<c>", "<d>"};
  CHECK(refused(asked, "is no token of this model"));
  for (const std::string task : {"needle", "values", "queries", "tracking"}) {
    asked = asked_for(), asked.tasks = {task}, asked.tokens = {100};
    CHECK(refused(asked, "leaves no room"));
    asked.tokens = {600};
    CHECK(refused(asked, "holds too few sentences"));
  }
  asked = asked_for(), asked.tasks = {"words"}, asked.tokens = {900};
  CHECK(refused(asked, "words: 900 tokens hold common words fewer than 8 times"));
  asked = asked_for(), asked.tasks = {"calls"};
  CHECK(refused(asked, "calls: the texts named .py have 0 functions, but 40 are needed"));
  const fs::path little = files() / "little.py";
  write_file(little, "pass\n");
  asked.texts = {little.string()};
  CHECK(refused(asked, "calls: the texts named .py have 0 functions, but 40 are needed"));
  write_file(little, "def add(left, right):\n    return left + right\n");
  CHECK(refused(asked, "calls: the texts named .py have 1 functions, but 40 are needed"));
  asked.tasks = {"needle"};
  CHECK(refused(asked, "the texts have 0 plain sentences, but 400 are needed"));
  std::string pairs;
  for (int i = 0; i < 40; ++i) pairs += "def " + coined(i) + "(left, right, at):\n    return at\n";
  write_file(little, pairs);  // a name of two letters
  asked.tasks = {"calls"};
  CHECK(refused(asked, "calls: no function of the texts has three to six parameters"));
  write_file(little, pairs + "def apply(left, right, other):\n    return left\n");
  asked.tokens = {300};
  CHECK(refused(asked, "calls: a problem of 300 tokens has no place for apply"));
  asked = asked_for(), asked.tokens = {20000};
  CHECK(refused(asked, "longer than this model's context"));
  asked = asked_for(), asked.texts = {(bytes_checkpoint / "config.json").string()};
  CHECK(refused(asked, "plain sentences"));
}

TEST_CASE("a problem of notes that is longer than the context is refused when it is made") {
  const scratch folder;
  const fs::path small = folder / "small";
  fs::copy(marked_checkpoint(), small);
  json config = read_json(small / "config.json");
  config["max_position_embeddings"] = 4000;
  write_file(small / "config.json", config.dump());
  scene_options asked = notes_asked_for("notes");
  asked.directory = small.string(), asked.notes = {32};
  CHECK(refused(asked, "notes x32: problems of "));
  asked.notes = {3};
  CHECK(complaint_about(asked) == "no complaint");
}

TEST_CASE("exact reads the tokens with the largest attention of each KV head, and random eviction any") {
  const lane of(200);
  const index_t prompt = 150, budget = 100;
  std::vector<std::set<index_t>> kept;
  decode::detail::with_exact(budget, [&](const auto& policy) {
    REQUIRE(policy.problem() == nullptr);
    const zoomr::attention_trace trace = of.attended(policy, prompt);
    REQUIRE(trace.size() == static_cast<std::size_t>((of.tokens - prompt) * of.heads));
    const index_t sinks = policy.zone.sinks, recent = policy.zone.recent;
    for (const zoomr::attended_record& one : trace) {
      const index_t back = one.position + 1 - recent;
      std::set<index_t> expected = of.largest(one.position, sinks, back, budget - sinks - recent);
      for (index_t t = 0; t < sinks; ++t) expected.insert(t);
      for (index_t t = back; t <= one.position; ++t) expected.insert(t);
      CHECK(std::set<index_t>(one.positions.begin(), one.positions.end()) == expected);
    }
  });
  decode::detail::with_random_eviction(budget, [&](const auto& policy) {
    REQUIRE(policy.problem() == nullptr);
    const zoomr::attention_trace trace = of.attended(policy, prompt);
    for (const zoomr::attended_record& one : trace) {
      const std::set<index_t> seen(one.positions.begin(), one.positions.end());
      CHECK(static_cast<index_t>(seen.size()) == budget + one.position + 1 - prompt);
      for (index_t t = 0; t < policy.zone.sinks; ++t) CHECK(seen.contains(t));
      for (index_t t = prompt - policy.evict.last; t <= one.position; ++t) CHECK(seen.contains(t));
      kept.emplace_back(seen.lower_bound(4), seen.lower_bound(prompt - 64));
    }
  });
  for (const std::set<index_t>& one : kept) CHECK(one == kept.front());  // evicted once
  CHECK(*kept.front().rbegin() - *kept.front().begin() > 50);            // from all of the prompt
  CHECK(kept.front() != of.largest(prompt - 1, 4, prompt - 64, static_cast<index_t>(kept.front().size())));
}

TEST_CASE("controls take budgets where they have one, and no options") {
  const auto why = [](const std::string& name, index_t budget, std::vector<std::string> settings) {
    return complaint([&] { expect_named({name, budget, std::move(settings)}, name + "..."); });
  };
  for (const char* const name : {"oracle", "random", "exact", "random_eviction"}) {
    CHECK(why(name, 0, {}) == "no complaint");
    CHECK(says(why(name, 0, {"zones.sinks=1"}), "has no options"));
  }
  CHECK(says(why("oracle", 10, {}), "oracle has no budget"));
  CHECK(says(why("exact", 2, {}), "must be at least 3"));
  CHECK(why("exact", 3, {}) == "no complaint");
  CHECK(says(why("nothing", 0, {}), "there is no policy"));
  CHECK(why("code_kv", 128, {"code_segments.longest=64"}) == "no complaint");
  CHECK(why("code_voters", 0, {"code_segments.shortest_block=8", "top_p.share=0.7"}) == "no complaint");
  CHECK(says(why("code_voters", 128, {}), "code_voters has no budget"));
  CHECK(says(why("code_kv", 0, {"sentences.longest=64"}), "code_kv has no option"));
  CHECK(says(why("code_kv", 0, {"code_segments.longest=0"}), "must be at least 1"));
}

TEST_CASE("code_kv and code_voters are presets whose segments alone are others") {
  const auto check = [](const char* name, index_t budget, const auto& preset) {
    int visits = 0;
    with_preset_or_code({name, budget, {}}, [&](const auto& policy) {
      ++visits;
      if constexpr (std::same_as<std::remove_cvref_t<decltype(policy)>, decltype(of_code(preset))>)
        CHECK(policy == of_code(preset));
      else
        FAIL("another type");
    });
    CHECK(visits == 1);
  };
  check("code_kv", 0, zoomr::presets::sentence_kv);
  check("code_kv", 256, zoomr::presets::sentence_kv_with(256));
  check("code_voters", 0, zoomr::presets::sentence_voters);
  const scene lab(asked_for());
  using enum zoomr::token_class;
  CHECK(lab.classes.read_by(zoomr::sentences{}) == classify(lab.words, lab.config.vocab, {}));
  const auto line_feed = static_cast<std::size_t>(*lab.words.id_of("\u010a"));
  CHECK(lab.classes.read_by(zoomr::code_segments{})[line_feed] == (delimiter | mark | blank));
  CHECK(lab.classes.read_by(zoomr::sentences{})[line_feed] == plain);
}

TEST_CASE("intervals are Wilson's, and a file of results holds what was written to it") {
  const auto between = [](double right, double problems, double low, double high) {
    const interval found = wilson(right / problems, problems);
    CHECK(found.low == doctest::Approx(low).epsilon(0.005));
    CHECK(found.high == doctest::Approx(high).epsilon(0.005));
  };
  between(4, 16, 0.102, 0.495);
  between(0, 16, 0.0, 0.194);
  between(16, 16, 0.806, 1.0);
  between(9, 11, 0.523, 0.949);
  CHECK(wilson(0, 3).low == 0);  // to the last bit
  CHECK(wilson(1, 3).high == 1);
  outcome result{.answers = 0.75,
                 .asked = 9,
                 .hit = 6,
                 .queries = 90,
                 .active = 30,
                 .attended = 12.5,
                 .agreeability = 0.5,
                 .entropy = 1.5,
                 .device_peak = 4096,
                 .prompt = 700,
                 .place = 0.25,
                 .text = "so"};
  const json line = to_json(result);
  const outcome again = outcome_from(field(line, "here: "));
  CHECK(to_json(again) == line);
  tally sums;
  sums.add(again);
  result.answers = 1, sums.add(result);
  CHECK(sums.right() == 0.5);
  CHECK(sums.answers() == 0.875);
  CHECK(sums.found() == doctest::Approx(2.0 / 3));
  CHECK(sums.active() == doctest::Approx(1.0 / 3));
  result.entropy = 0.5, sums.add(result);
  result.entropy.reset(), sums.add(result);  // of another policy, or from before it was noted
  CHECK(outcome_from(field(to_json(result), "here: ")).entropy == std::nullopt);
  CHECK(sums.entropy() == doctest::Approx(3.5 / 3));
  CHECK(sums.document("p", "g").at("entropy_bits") == doctest::Approx(3.5 / 3));
  CHECK(tally{}.document("p", "g").count("entropy_bits") == 0);
  CHECK(sums.cells("p", "g").size() == tally::titles().size());
  CHECK(tally{}.cells("p", "g")[9] == "-");
}

TEST_CASE("the area under the curve is the share of pairs in their order, ties by half") {
  std::mt19937 random(11);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> misses, hits;
    for (int i = 0; i < 9; ++i) misses.push_back(static_cast<double>(random() % 5));  // many ties
    for (int i = 0; i < 1 + trial; ++i) hits.push_back(static_cast<double>(random() % 4));
    double pairs = 0;
    for (const double miss : misses) {
      for (const double hit : hits) pairs += miss > hit ? 1 : miss == hit ? 0.5 : 0;
    }
    CHECK(area_under_curve(misses, hits) == doctest::Approx(pairs / static_cast<double>(misses.size() * hits.size())));
  }
  CHECK(area_under_curve({}, {1}) == std::nullopt);
  CHECK(area_under_curve({1}, {}) == std::nullopt);
}

TEST_CASE("outcomes of forms: a file holds what was written to it, and rows have what was counted") {
  form_outcome result{.right = true,
                      .found = true,
                      .entropy = 0.25,
                      .attended = 100,
                      .gated = {},
                      .device_peak = 2048,
                      .prompt = 900,
                      .text = "Pimpernel"};
  const form_outcome again = form_outcome_from(field(to_json(result), "here: "));
  CHECK(to_json(again) == to_json(result));
  CHECK(again.gated == std::nullopt);
  form_tally sums;
  sums.add(again);
  result.right = false, result.found = false, result.entropy = 1.75, result.gated = 0.5, sums.add(result);
  CHECK(to_json(form_outcome_from(field(to_json(result), "here: "))) == to_json(result));
  result.found.reset(), result.entropy.reset(), result.gated.reset(), sums.add(result);  // of a policy without votes
  const json row = sums.document("p", "plain"), entropies = sums.entropy_document("p");
  CHECK(row.at("right") == doctest::Approx(1.0 / 3));
  CHECK(row.at("found_first") == 0.5);
  CHECK(row.at("entropy_bits_first") == 1.0);
  CHECK(row.at("gated") == 0.5);
  CHECK(entropies.at("area_under_curve") == 1.0);
  CHECK(entropies.at("missed") == 1);
  CHECK(sums.cells("p", "plain").size() == form_tally::titles().size());
  CHECK(sums.entropy_cells("p").size() == form_tally::entropy_titles().size());
  CHECK(form_tally{}.cells("p", "plain")[7] == "-");
  CHECK(!form_tally{}.has_entropy());
}

TEST_CASE("files are listed with commas between them, also behind names; a name may have commas itself") {
  const scratch folder;
  const auto file = [&](const std::string& name) { return (folder.path() / name).string(); };
  for (const char* name : {"a.json", "b.json", "c,d.json"}) write_file(file(name), "{}");
  using names = std::vector<std::string>;
  CHECK(listed_files({file("a.json") + ",notes=" + file("b.json")}) ==
        names{file("a.json"), "notes=" + file("b.json")});
  CHECK(listed_files({"x=" + file("a.json") + ",y=" + file("b.json")}) ==
        names{"x=" + file("a.json"), "y=" + file("b.json")});
  CHECK(listed_files({file("c,d.json"), "x=" + file("c,d.json")}) == names{file("c,d.json"), "x=" + file("c,d.json")});
  CHECK(listed_files({file("a.json") + "," + file("none")}) == names{file("a.json") + "," + file("none")});
}

}  // namespace decode::retrieval
