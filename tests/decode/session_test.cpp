// SPDX-License-Identifier: Apache-2.0
// Policies on real models: where nothing is left out, their logits are those of full attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dense_step.hpp"
#include "ledger/evaluate.hpp"
#include "policies.hpp"
#include "sampler.hpp"
#include "support.hpp"
#include "token_classes.hpp"

namespace decode {
namespace {

const fs::path trained = fs::path(DECODE_LEDGER) / "checkpoints" / "plain";

/// Logits [tokens][vocab] after the prompt, the text being given.
/// @param chunk  tokens of the prompt that pass together; 0: the session's own
template <class Policy>
std::vector<std::vector<float>> logits_of(model& net, const Policy& policy, const std::vector<token_id>& ids,
                                          std::size_t prompt, const std::vector<zoomr::token_class>& classes,
                                          index_t chunk = 0) {
  session run(net, policy, 1, static_cast<index_t>(ids.size()), classes, 1, false, {}, 0, {}, chunk);
  run.prompt(0, std::span(ids).first(prompt));
  std::vector<std::vector<float>> all;
  for (std::size_t p = prompt; p < ids.size(); ++p) {
    all.emplace_back(run.logits(0).begin(), run.logits(0).end());
    run.advance({&ids[p], 1});
  }
  return all;
}

/// Logits [tokens][vocab] of a pass without any cache.
std::vector<std::vector<float>> dense_logits(model& net, const std::vector<token_id>& ids) {
  const std::size_t vocab = net.config().vocab;
  std::vector<index_t> rows(ids.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> dense(ids.size() * vocab);
  dense_step step(net.config());
  net.forward(step, ids, rows, rows, {dense.data(), {static_cast<index_t>(ids.size()), static_cast<index_t>(vocab)}});
  std::vector<std::vector<float>> all;
  for (std::size_t p = 0; p < ids.size(); ++p) {
    all.emplace_back(dense.begin() + static_cast<std::ptrdiff_t>(p * vocab),
                     dense.begin() + static_cast<std::ptrdiff_t>((p + 1) * vocab));
  }
  return all;
}

/// Those that a session gives after a prompt: of its last token, and of all after it but the last.
std::vector<std::vector<float>> after(std::vector<std::vector<float>> all, std::size_t prompt) {
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt) - 1, all.end() - 1};
}

/// The largest difference, relative to the largest logit of its row.
double distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  double worst = a.size() == b.size() ? 0 : 1;
  for (std::size_t t = 0; t < a.size() && t < b.size(); ++t) {
    double largest = 0, difference = 0;
    for (std::size_t id = 0; id < a[t].size(); ++id) {
      largest = std::max<double>(largest, std::abs(b[t][id]));
      difference = std::max<double>(difference, std::abs(double{a[t][id]} - b[t][id]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

}  // namespace

TEST_CASE("with every limit beyond the context each policy gives full attention's logits, choosing all segments") {
  using namespace zoomr;
  model net = load_model(trained);
  const tokenizer words(trained, net.config().vocab);
  const auto classes = classify(words, net.config().vocab, {";"});
  const ledger::task constants = ledger::read_task(trained);
  const ledger::problem_set set(constants, words, 0, 1, 5);
  const std::vector<token_id> ids(set.ids[0].begin(), set.ids[0].begin() + 400);
  const std::size_t prompt = set.problems[0].prompt_length;
  const auto full = logits_of(net, presets::full, ids, prompt, classes);
  const auto near_full = [&](const auto& policy) {
    return distance(logits_of(net, policy, ids, prompt, classes), full) <= 1e-5;
  };
  // the windows stay small, so that all else must be chosen, at each token and for that token
  constexpr zones narrow{.sinks = 2, .recent = 3, .open = unlimited};
  constexpr every_token now{.second_pass = true};
  CHECK(near_full(
      compose(thoughts{}, key_mean{}, head_votes{.k = unlimited}, top_k{.segments = unlimited}, now, narrow)));
  CHECK(near_full(compose(thoughts{}, key_mean{}, head_mass{}, top_k{.segments = unlimited}, now, narrow)));
  CHECK(near_full(
      compose(sentences{}, key_mean{}, running_mean{}, fill_budget{.tokens = unlimited}, every_token{}, narrow)));
  auto pages = presets::quest;
  pages.select.segments = unlimited;
  pages.zone.dense_layers = 0;
  CHECK(near_full(pages));
  auto sentence_kv = presets::sentence_kv_with(100000, 3.0f);
  CHECK(near_full(sentence_kv));
  auto published = presets::sentence_kv_with(100000, 3.0f, {.everything_until = 1});
  CHECK(near_full(published));
  auto window = presets::window;
  window.zone.recent = unlimited;
  CHECK(near_full(window));
  auto zoomr = presets::zoomr_one_pass;
  zoomr.zone.recent = unlimited;
  CHECK(near_full(zoomr));
  // and a limit that is felt is felt in the logits
  auto short_window = presets::window;
  short_window.zone.recent = 40;
  CHECK(!near_full(short_window));
}

TEST_CASE("sessions that advance together give the bits that each gives alone") {
  for (const fs::path& directory : {trained, fixture("gemma3")}) {  // one cache; one for each group
    model net = load_model(directory);
    const std::size_t vocab = net.config().vocab;
    std::vector<token_id> ids;
    for (std::size_t i = 0; i < 90; ++i) ids.push_back(static_cast<token_id>((i * 7 + i / 5) % vocab));
    std::vector<zoomr::token_class> classes(vocab);
    for (std::size_t id = 0; id < vocab; id += 5) classes[id] = zoomr::token_class::delimiter;
    constexpr auto sentences =  // of some tokens two passes
        zoomr::compose(zoomr::sentences{}, zoomr::key_mean{}, zoomr::head_mass{}, zoomr::top_k{.segments = 2},
                       zoomr::every_token{.second_pass = true}, zoomr::zones{.sinks = 2, .recent = 8});
    auto window = zoomr::presets::window;
    window.zone.recent = 16;
    constexpr std::size_t prompt = 60;
    const auto in = [&](const auto& policy, std::size_t tokens) {
      auto run = std::make_unique<session<>>(net, policy, 1, 90, classes);
      run->prompt(0, std::span(ids).first(tokens));
      return run;
    };
    const auto with_all = [&](auto visit) {
      for (std::size_t less = 0; less < 33; less += 3) {  // not at the same position, and more than pass at once
        visit(zoomr::presets::full, prompt - less), visit(sentences, prompt - 13 - less), visit(window, prompt - less);
      }
    };
    std::vector<std::unique_ptr<session<>>> together, alone;
    with_all([&](const auto& policy, std::size_t tokens) {
      together.push_back(in(policy, tokens)), alone.push_back(in(policy, tokens));
    });
    std::vector<session<>*> runs;
    for (const auto& one : together) runs.push_back(one.get());
    REQUIRE(runs.size() > tokens_alike);
    for (std::size_t t = 0; t < 20; ++t) {
      std::vector<token_id> next;
      for (std::size_t i = 0; i < runs.size(); ++i) next.push_back(ids[(t * (i + 1) + i) % ids.size()]);
      session<>::advance_each(runs, next);
      for (std::size_t i = 0; i < next.size(); ++i) {
        alone[i]->advance({&next[i], 1});
        CHECK(std::ranges::equal(together[i]->logits(0), alone[i]->logits(0)));
      }
    }
    for (std::size_t i = 0; i < runs.size(); ++i) {
      CHECK(together[i]->stats().passes == alone[i]->stats().passes);
      CHECK(together[i]->stats().tokens == 20);
    }
    CHECK(together[1]->stats().passes > 20);
    session<>::advance_each({}, {});  // nothing to do
  }
}

TEST_CASE("a session gives the logits of a pass without any cache") {
  for (const std::string name : {"llama", "qwen2", "qwen3"}) {
    CAPTURE(name);
    const fs::path directory = fixture(name);
    model net = load_model(directory);
    const std::vector<token_id> ids = read_json(directory / "expected.json")["tokens"];
    const std::vector<zoomr::token_class> classes(net.config().vocab);
    CHECK(distance(logits_of(net, zoomr::presets::full, ids, 3, classes), after(dense_logits(net, ids), 3)) <= 1e-5);
  }
}

TEST_CASE("layers with a sliding window are a group beside those of the policy, and costs are of all layers") {
  model_config config = read_config(fixture("gemma3"));
  config.window = 64;  // longer than the text
  config.voters.assign(config.layers * config.heads, 0.5f);
  model net(config, read_weights(fixture("gemma3"), config));
  const std::vector<token_id> ids = read_json(fixture("gemma3") / "expected.json")["tokens"];
  const std::vector<zoomr::token_class> classes(config.vocab);
  const auto expected = after(dense_logits(net, ids), 20);
  zoomr::presets::each([&](const auto& preset) {
    CAPTURE(preset.name);
    with_policy({preset.name, 512, {}}, [&](const auto& policy) {
      CHECK(distance(logits_of(net, policy, ids, 20, classes, 7), expected) <= 1e-5);
    });
  });
  auto last_three = zoomr::presets::window;  // of the layer without a window, one of seven
  last_three.zone = {.sinks = 0, .recent = 3};
  CHECK(distance(logits_of(net, last_three, ids, 20, classes), expected) > 1e-2);

  session run(net, last_three, 1, 32, classes);
  run.prompt(0, std::span(ids).first(20));
  run.advance({&ids[20], 1}), run.advance({&ids[21], 1});
  CHECK(run.attended_mean() == doctest::Approx((6 * (21 + 22) / 2.0 + 3) / 7));
  CHECK(run.bytes().details >= 6 * 22 * 2 * 24 * 4);  // keys and values of 24 float32
  CHECK(complaint([&] { run.cache(); }) ==
        "one cache for all layers: layers of Gemma 3 differ, and need a cache for each kind, on the host and without "
        "tiers");
  const auto moved = with_placement(zoomr::presets::full, zoomr::tiered<>{});
  CHECK(says(complaint([&] { session(net, moved, 1, 32, classes, 1, false, {.host = 1 << 20}); }), "tiers: layers"));
}

TEST_CASE("layers that share keys have none: in each group bytes are those of the layers that store") {
  model net = load_model(fixture("gemma3_shared"));
  const std::vector<token_id> ids = read_json(fixture("gemma3_shared") / "expected.json")["tokens"];
  const std::vector<zoomr::token_class> classes(net.config().vocab);
  session run(net, zoomr::presets::full, 1, 32, classes);
  run.prompt(0, std::span(ids).first(30));
  run.advance({&ids[0], 1});
  const zoomr::byte_count page = 2 * 16 * 2 * 16 * 4;  // keys and values of 16 tokens, 2 KV heads, 16 float32
  // Full layers 1 and 3 have two pages. Layers 0, 2 and 4 with their windows of 8 have what these reach.
  CHECK(run.bytes().details == (2 * 2 + 3 * 1) * page);
  const auto expected = after(dense_logits(net, ids), 20);
  zoomr::presets::each([&](const auto& preset) {
    if constexpr (zoomr::share_aggregator<decltype(preset.policy.aggregate)>) return;  // of voters nothing is known
    CAPTURE(preset.name);
    with_policy({preset.name, 512, {}}, [&](const auto& policy) {
      CHECK(distance(logits_of(net, policy, ids, 20, classes, 7), expected) <= 1e-5);
    });
  });
}

TEST_CASE("a session gives the logits of a model with sliding windows, whatever the chunks of its prompt") {
  for (const std::string name : {"gemma3", "gemma3_wide", "gemma3_shared"}) {
    model net = load_model(fixture(name));
    const json file = read_json(fixture(name) / "expected.json");
    const std::vector<token_id> ids = file["tokens"];
    const std::vector<std::vector<float>> expected = file["logits"];
    const std::vector<zoomr::token_class> classes(net.config().vocab);
    const std::size_t prompt = 3 * net.config().window;
    CAPTURE(name);
    for (const index_t chunk : {1, 3, 8, 11, 24}) {
      CAPTURE(chunk);
      CHECK(distance(logits_of(net, zoomr::presets::full, ids, prompt, classes, chunk), after(expected, prompt)) <=
            1e-4);
    }
    session run(net, zoomr::presets::full, 1, static_cast<index_t>(ids.size()), classes, 4);  // tokens that are known
    run.prompt(0, std::span(ids).first(prompt));
    const std::span<const token_id> next = std::span(ids).subspan(prompt, 4);
    REQUIRE(run.follow({&next, 1}) == 4);
    for (index_t t = 0; t < 4; ++t) {
      CAPTURE(t);
      const std::vector<float> row(run.logits(0, t).begin(), run.logits(0, t).end());
      CHECK(distance({row}, {expected[prompt + static_cast<std::size_t>(t)]}) <= 1e-4);
    }
  }
}

TEST_CASE("a real checkpoint continues as published, under every policy that keeps its context") {
  const char* elsewhere = std::getenv("ZOOMR_STORIES");
  const fs::path directory = elsewhere != nullptr ? elsewhere : DECODE_STORIES;
  if (!fs::exists(directory / "config.json")) {
    MESSAGE("skipped: there is no stories260K at " << directory.string());
    return;
  }
  model_config config = read_config(directory);
  config.voters.assign(config.layers * config.heads, 0.5f);
  model net(config, read_weights(directory, config));
  const tokenizer words(directory, net.config().vocab);
  const auto classes = classify(words, net.config().vocab, {});
  const json expected = read_json(directory / "expected.json");
  const std::vector<token_id> ids = expected["tokens"];
  zoomr::presets::each([&](const auto& preset) {
    CAPTURE(preset.name);
    // Voters choose a few segments for the tokens behind them, whatever the budget.
    if constexpr (zoomr::share_aggregator<decltype(preset.policy.aggregate)>) return;
    with_policy({preset.name, 512, {}}, [&](const auto& policy) {
      session run(net, policy, 1, static_cast<index_t>(ids.size()), classes);
      run.prompt(0, std::span(ids).first(1));
      std::vector<token_id> made = {ids.front()};
      while (made.size() < ids.size()) {
        made.push_back(greedy(run.logits(0)));
        run.advance({&made.back(), 1});
      }
      CHECK(made == ids);
    });
  });
}

}  // namespace decode
