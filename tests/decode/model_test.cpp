// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config.hpp"
#include "dense_step.hpp"
#include "model.hpp"
#include "sampler.hpp"
#include "support.hpp"
#include "tokenizer.hpp"
#include "weights.hpp"

namespace decode {
namespace {

struct checkpoint {
  model net;
  std::vector<token_id> tokens;
  std::vector<zoomr::index_t> positions;
  std::vector<std::vector<float>> logits;  // [tokens][vocab] by an independent pass, see make_fixtures.py
};

checkpoint load(const std::string& name) {
  const auto config = read_config(fixture(name));
  const json expected = read_json(fixture(name) / "expected.json");
  return {model(config, read_weights(fixture(name), config)), expected["tokens"], expected["positions"],
          expected["logits"]};
}

// Passes tokens [first, last) and checks their logits within 1e-4 of the row's largest.
void check_pass(checkpoint& c, dense_step& step, std::size_t first, std::size_t last) {
  const auto count = static_cast<zoomr::index_t>(last - first);
  const std::size_t vocab = c.net.config().vocab;
  std::vector<zoomr::index_t> rows(last - first);
  std::iota(rows.begin(), rows.end(), 0);
  std::vector<float> logits(rows.size() * vocab);
  c.net.forward(step, {c.tokens.data() + first, {count}}, {c.positions.data() + first, {count}}, rows,
                {logits.data(), {count, static_cast<zoomr::index_t>(vocab)}});
  for (std::size_t t = first; t < last; ++t) {
    const auto& expected = c.logits[t];
    REQUIRE(expected.size() == vocab);
    float largest = 0, worst = 0;
    for (std::size_t id = 0; id < vocab; ++id) {
      largest = std::max(largest, std::abs(expected[id]));
      worst = std::max(worst, std::abs(expected[id] - logits[(t - first) * vocab + id]));
    }
    CAPTURE(t);
    CHECK(worst <= 1e-4f * largest);
  }
}

}  // namespace

TEST_CASE("logits equal those of an independent implementation, whatever the chunks") {
  for (const std::string name : {"llama", "qwen2", "qwen3", "gemma3", "gemma3_wide", "gemma3_shared"})
    for (const std::size_t chunk : {1u, 5u, 24u}) {
      CAPTURE(name);
      CAPTURE(chunk);
      checkpoint c = load(name);
      dense_step step(c.net.config());
      for (std::size_t first = 0; first < c.tokens.size(); first += chunk)
        check_pass(c, step, first, std::min(first + chunk, c.tokens.size()));
    }
}

TEST_CASE("only the rows asked for get logits, in the order asked for") {
  checkpoint c = load("qwen2");
  const auto vocab = static_cast<zoomr::index_t>(c.net.config().vocab);
  const std::vector<zoomr::index_t> rows = {7, 2};
  std::vector<float> logits(2 * c.net.config().vocab);
  dense_step step;
  c.net.forward(step, c.tokens, c.positions, rows, {logits.data(), {2, vocab}});
  CHECK(logits[3] == doctest::Approx(c.logits[7][3]).epsilon(1e-4));
  CHECK(logits[3 + c.net.config().vocab] == doctest::Approx(c.logits[2][3]).epsilon(1e-4));
  dense_step quiet;
  c.net.forward(quiet, c.tokens, c.positions, {nullptr, {0}}, {nullptr, {0, vocab}});
}

TEST_CASE("linear scaling stretches all wavelengths alike") {
  model_config c = read_config(fixture("qwen2"));
  const auto plain = rope_frequencies(c.rope, c.head_dim);
  c.rope.method = rotary::kind::linear, c.rope.factor = 4;
  const auto stretched = rope_frequencies(c.rope, c.head_dim);
  for (std::size_t d = 0; d < plain.size(); ++d) CHECK(stretched[d] == doctest::Approx(plain[d] / 4));
}

TEST_CASE("a pass that does not fit the model is refused") {
  checkpoint c = load("qwen2");
  dense_step step;
  std::vector<float> logits(64);
  const auto pass = [&](std::vector<token_id> tokens, std::vector<zoomr::index_t> positions,
                        std::vector<zoomr::index_t> rows) {
    c.net.forward(step, tokens, positions, rows, {logits.data(), {1, 64}});
  };
  CHECK_THROWS_AS(pass({64}, {0}, {0}), std::invalid_argument);
  CHECK_THROWS_AS(pass({-1}, {0}, {0}), std::invalid_argument);
  CHECK_THROWS_AS(pass({1}, {-1}, {0}), std::invalid_argument);
  CHECK_THROWS_AS(pass({1}, {0}, {1}), std::invalid_argument);
  CHECK_THROWS_AS(pass({1}, {0, 1}, {0}), std::invalid_argument);
  CHECK_THROWS_AS(pass({1}, {0}, {}), std::invalid_argument);
  CHECK_NOTHROW(pass({1}, {0}, {0}));
}

TEST_CASE("a trained model writes the story that is published for it") {
  const char* set = std::getenv("ZOOMR_STORIES");
  const fs::path folder = set ? fs::path(set) : fs::path(DECODE_STORIES);
  if (!fs::exists(folder / "config.json")) {
    MESSAGE("skipped: no checkpoint at " << folder.string() << " (set ZOOMR_STORIES)");
    return;
  }
  const json expected = read_json(folder / "expected.json");
  const std::vector<token_id> story = expected["tokens"];
  const auto config = read_config(folder);
  const tokenizer words(folder, config.vocab);
  model net(config, read_weights(folder, config));

  std::vector<token_id> tokens = words.encode("");
  REQUIRE(tokens == std::vector<token_id>{story[0]});
  dense_step step;
  std::vector<float> logits(config.vocab);
  while (tokens.size() < story.size()) {
    const auto position = static_cast<zoomr::index_t>(tokens.size()) - 1;
    const zoomr::index_t row = 0;
    net.forward(step, {&tokens.back(), {1}}, {&position, {1}}, {&row, {1}},
                {logits.data(), {1, static_cast<zoomr::index_t>(config.vocab)}});
    tokens.push_back(greedy(logits));
  }
  CHECK(tokens == story);
  CHECK(words.decode(tokens) == expected["text"].get<std::string>());
  CHECK(words.encode(expected["text"].get<std::string>()) == story);
}

}  // namespace decode
