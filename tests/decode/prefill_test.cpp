// SPDX-License-Identifier: Apache-2.0
// A prompt passed once and given to caches: for models with sliding windows too.
#include <doctest/doctest.h>

#include <algorithm>  // std::ranges::count
#include <numeric>    // std::iota
#include <string>
#include <vector>

#include "dense_step.hpp"
#include "perplexity/prefill.hpp"
#include "policies.hpp"
#include "support.hpp"

namespace decode::perplexity {
namespace {

/// Of the last token, by one dense pass in double precision.
std::vector<float> dense_logits(model& net, std::span<const token_id> ids) {
  std::vector<index_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::vector<index_t> last = {positions.back()};
  std::vector<float> logits(net.config().vocab);
  dense_step step(net.config());
  net.forward(step, ids, positions, last, {logits.data(), {1, static_cast<index_t>(logits.size())}});
  return logits;
}

}  // namespace

TEST_CASE("layers with a sliding window attend to what is in it, and have a cache of their own") {
  for (const std::string name : {"gemma3", "gemma3_wide"}) {
    CAPTURE(name);
    model net = load_model(fixture(name));
    const std::size_t vocab = net.config().vocab, window = net.config().window;
    std::vector<token_id> ids;  // several chunks of a prompt
    for (std::size_t i = 0; i < 2 * prefill::chunk + 3 * window; ++i)
      ids.push_back(static_cast<token_id>((i * i * 7 + i / 3) % vocab));
    const auto before = std::span(ids).first(ids.size() - 6);
    const std::vector<zoomr::token_class> classes(vocab);
    for (const char* const policy_name : {"full", "window", "quest"}) {
      CAPTURE(policy_name);
      with_policy({policy_name, policy_name == std::string("full") ? 0 : 64, {}}, [&](const auto& policy) {
        const prefill prompt(net, before, [](std::size_t) {});
        const auto size = static_cast<index_t>(ids.size());
        session given(net, policy, 1, size, classes), passed(net, policy, 1, size, classes);
        given.with_cache([&](auto& cache) { prompt.replay(cache, given.at(0)); });
        passed.prompt(0, before);
        const auto near = [&](std::span<const float> a, std::span<const float> b) {
          for (std::size_t i = 0; i < vocab; ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-3).scale(0.1));
        };
        near(prompt.logits(), passed.logits(0));
        near(prompt.logits(), dense_logits(net, before));
        for (std::size_t t = before.size(); t < ids.size(); ++t) {
          given.advance({&ids[t], 1}), passed.advance({&ids[t], 1});
          near(given.logits(0), passed.logits(0));
        }
        CHECK(given.stats() == passed.stats());
        const auto layers = static_cast<double>(net.config().layers);
        const double with_window = static_cast<double>(std::ranges::count(net.config().windows, true));
        CHECK(given.attended_mean() * layers == doctest::Approx(static_cast<double>(window) * with_window +
                                                                given.policy_attended_mean() * (layers - with_window)));
      });
    }
  }
}

}  // namespace decode::perplexity
