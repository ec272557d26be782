// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "sampler.hpp"
#include "support.hpp"

namespace decode {

TEST_CASE("greedy takes the largest, and the lower id of equals") {
  CHECK(greedy(std::vector<float>{1, 3, 3, 2}) == 1);
  CHECK(greedy(std::vector<float>{-5}) == 0);
  CHECK(greedy(std::vector<float>{-std::numeric_limits<float>::infinity(), -9}) == 1);
  sampler pick;
  CHECK(pick(std::vector<float>{0, 0, 7}) == 2);
}

TEST_CASE("the same seed draws the same tokens with every standard library") {
  sampler pick({.temperature = 1, .top_p = 0.9, .seed = 42});
  const std::vector<float> logits = {0.5f, 1.0f, 0.0f, 2.0f, -1.0f, 1.5f};
  std::vector<token_id> drawn;
  for (int n = 0; n < 16; ++n) drawn.push_back(pick(logits));
  CHECK(drawn == std::vector<token_id>{1, 5, 1, 3, 0, 3, 5, 3, 3, 3, 3, 5, 5, 5, 1, 0});
}

TEST_CASE("tokens are drawn as often as their probabilities say") {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  const auto shares = [&](sampler_options options) {
    sampler pick(options);
    std::map<token_id, double> share;
    for (int n = 0; n < 20000; ++n) share[pick(logits)] += 1.0 / 20000;
    return share;
  };
  auto all = shares({.temperature = 1});
  CHECK(all[0] == doctest::Approx(0.5).epsilon(0.05));
  CHECK(all[3] == doctest::Approx(0.05).epsilon(0.2));
  auto likely = shares({.temperature = 1, .top_p = 0.75});  // 0.5 + 0.3 reach it
  CHECK(likely.size() == 2);
  CHECK(likely[0] == doctest::Approx(0.625).epsilon(0.05));
  auto cold = shares({.temperature = 0.5});  // squares: 0.25, 0.09, …
  CHECK(cold[0] == doctest::Approx(0.25 / 0.365).epsilon(0.05));
  CHECK(shares({.temperature = 1, .top_p = 1e-9}).size() == 1);
}

TEST_CASE("what cannot be sampled is refused") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(says(complaint([] { sampler({.temperature = -1}); }), "the temperature is -1"));
  CHECK(says(complaint([] { sampler({.temperature = NAN}); }), "the temperature is"));
  CHECK(says(complaint([] { sampler({.temperature = 1, .top_p = 0}); }), "top-p is 0"));
  CHECK(says(complaint([] { sampler({.top_p = 1.5}); }), "top-p is 1.5"));
  CHECK(says(complaint([] { greedy(std::vector<float>{1, NAN}); }), "not finite"));
  CHECK(says(complaint([&] { greedy(std::vector<float>{1, infinity}); }), "not finite"));
}

}  // namespace decode
