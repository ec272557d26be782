// SPDX-License-Identifier: Apache-2.0
// A prompt passed once and given to caches: for models with sliding windows too.
#include <doctest/doctest.h>

#include <algorithm>  // std::ranges::count, std::ranges::equal
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
        const auto windows = static_cast<std::size_t>(std::ranges::count(net.config().windows, true));
        const auto with_window = static_cast<double>(windows);
        const double mean = given.policy_stats().attended_mean(shape_of(net.config(), net.config().layers - windows));
        CHECK(given.attended_mean() * layers ==
              doctest::Approx(static_cast<double>(window) * with_window + mean * (layers - with_window)));
      });
    }
  }
}

TEST_CASE("a prompt that begins as another one takes its first chunks from it, with all bits") {
  model net = load_model(fixture("gemma3"));
  const std::size_t vocab = net.config().vocab, chunk = prefill::chunk;
  const std::vector<zoomr::token_class> classes(vocab);
  std::vector<token_id> ids;
  for (std::size_t i = 0; i < 3 * chunk + 40; ++i) ids.push_back(static_cast<token_id>((i * i * 5 + i / 7) % vocab));
  const auto changed_at = [&](std::size_t at, std::size_t size) {
    std::vector<token_id> other(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(size));
    if (at < size) other[at] = static_cast<token_id>((other[at] + 1) % static_cast<token_id>(vocab));
    return other;
  };
  for (const prefill::kept_queries kept : {prefill::kept_queries::last, prefill::kept_queries::all}) {
    const prefill known(
        net, ids, [](std::size_t) {}, kept);
    const auto expect_alike = [&](const std::vector<token_id>& other, std::size_t copied) {
      CAPTURE(other.size());
      CHECK(known.tokens_alike_with(other) == copied);
      std::size_t passed = 0;
      const prefill alone(
          net, other, [](std::size_t) {}, kept);
      const prefill from(
          net, other, [&](std::size_t tokens) { passed = passed == 0 ? tokens : passed; }, kept, &known);
      CHECK(passed > copied);
      CHECK(passed <= copied + chunk);
      CHECK(std::ranges::equal(alone.logits(), from.logits()));
      with_policy({"snapkv", 64, {}}, [&](const auto& policy) {
        const auto size = static_cast<index_t>(other.size()) + 4;
        session a(net, policy, 1, size, classes), b(net, policy, 1, size, classes);
        a.with_cache([&](auto& cache) { alone.replay(cache, a.at(0)); });
        b.with_cache([&](auto& cache) { from.replay(cache, b.at(0)); });
        for (token_id next = 1; next < 4; ++next) {
          a.advance({&next, 1}), b.advance({&next, 1});
          CHECK(std::ranges::equal(a.logits(0), b.logits(0)));
        }
      });
    };
    expect_alike(changed_at(3 * chunk + 39, 3 * chunk + 40), 2 * chunk + (chunk + 40 - chunk / 2));  // its last token
    expect_alike(changed_at(2 * chunk, 3 * chunk), 2 * chunk);       // of another length
    expect_alike(changed_at(2 * chunk - 1, 3 * chunk + 40), chunk);  // in its second chunk
    expect_alike(changed_at(0, 3 * chunk + 40), 0);
    expect_alike(changed_at(9999, chunk), 0);      // one chunk, its last one
    expect_alike(changed_at(9999, chunk + 2), 0);  // cut elsewhere
  }
}

}  // namespace decode::perplexity
