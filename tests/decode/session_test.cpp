// SPDX-License-Identifier: Apache-2.0
// Policies on real models: where nothing is left out, their logits are those of full attention.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
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
template <class Policy>
std::vector<std::vector<float>> logits_of(model& net, const Policy& policy, const std::vector<token_id>& ids,
                                          std::size_t prompt, const std::vector<zoomr::token_class>& classes) {
  session run(net, policy, 1, static_cast<index_t>(ids.size()), classes);
  run.prompt(0, std::span(ids).first(prompt));
  std::vector<std::vector<float>> all;
  for (std::size_t p = prompt; p < ids.size(); ++p) {
    all.emplace_back(run.logits(0).begin(), run.logits(0).end());
    run.advance({&ids[p], 1});
  }
  return all;
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

TEST_CASE("a session gives the logits of a pass without any cache") {
  for (const std::string name : {"llama", "qwen2", "qwen3"}) {
    CAPTURE(name);
    const fs::path directory = fixture(name);
    model net = load_model(directory);
    const std::size_t vocab = net.config().vocab;
    const std::vector<token_id> ids = read_json(directory / "expected.json")["tokens"];
    const std::vector<zoomr::token_class> classes(vocab);
    std::vector<index_t> rows(ids.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> dense(ids.size() * vocab);
    dense_step step;
    net.forward(step, ids, rows, rows, {dense.data(), {static_cast<index_t>(ids.size()), static_cast<index_t>(vocab)}});
    std::vector<std::vector<float>> expected;
    for (std::size_t p = 2; p + 1 < ids.size(); ++p) {
      expected.emplace_back(dense.begin() + static_cast<std::ptrdiff_t>(p * vocab),
                            dense.begin() + static_cast<std::ptrdiff_t>((p + 1) * vocab));
    }
    CHECK(distance(logits_of(net, zoomr::presets::full, ids, 3, classes), expected) <= 1e-5);
  }
}

TEST_CASE("a real checkpoint continues as published, under every policy that keeps its context") {
  const char* elsewhere = std::getenv("ZOOMR_STORIES");
  const fs::path directory = elsewhere != nullptr ? elsewhere : DECODE_STORIES;
  if (!fs::exists(directory / "config.json")) {
    MESSAGE("skipped: there is no stories260K at " << directory.string());
    return;
  }
  model net = load_model(directory);
  const tokenizer words(directory, net.config().vocab);
  const auto classes = classify(words, net.config().vocab, {});
  const json expected = read_json(directory / "expected.json");
  const std::vector<token_id> ids = expected["tokens"];
  zoomr::presets::each([&](const auto& preset) {
    CAPTURE(preset.name);
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
