// SPDX-License-Identifier: Apache-2.0
// Beams that are forks have the tokens and the probabilities of beams that share nothing: for each of these a cache is
// made anew, and all of its tokens are passed again, in every step.
#include <doctest/doctest.h>

#include <zoomr/presets/table.hpp>

#include <functional>
#include <string>
#include <vector>

#define main beam_search_main  // a test program has one of its own
#include "beam_search.cpp"
#undef main

#include "support.hpp"

namespace {

using namespace zoomr_test;
using text = std::vector<token_id>;

/// What a cache that knows nothing else says of the token after a text: [vocab].
std::vector<float> logits_after(decode::model& net, zoomr::any_kv_cache<> cache, const text& of, std::size_t prompt) {
  const zoomr::sequence seq = cache.open();
  const auto vocab = static_cast<index_t>(net.config().vocab);
  std::vector<float> logits;
  while (cache.tokens(seq) < std::ssize(of)) {
    const std::size_t held = cache.tokens(seq), end = cache.in_prompt(seq) ? prompt : of.size();
    const auto ids = std::span(of).subspan(held, std::min<std::size_t>(end - held, 16));
    auto step = cache.begin(seq, ids, held + ids.size() == prompt);
    const index_t taken = step.taken(0);
    do {
      const index_t count = step.tokens(), row = count - 1;
      std::vector<index_t> positions;
      for (index_t t = 0; t < count; ++t) positions.push_back(step.position(0) + t);
      logits.resize(vocab);
      net.forward(step, ids.subspan(taken - count, count), positions, {&row, {1}}, {logits.data(), {1, vocab}});
    } while (step.needs_second_pass(taken));
    step.commit();
  }
  return logits;
}

struct plain_beam {
  text written;
  double score = 0;
};

/// Logarithms of probabilities.
std::vector<double> logarithms(const std::vector<float>& logits) {
  double largest = logits[0], sum = 0;
  for (const float logit : logits) largest = std::max<double>(largest, logit);
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<double> made;
  for (const float logit : logits) made.push_back(logit - largest - std::log(sum));
  return made;
}

/// One more token for beams that share nothing: of equal scores the one of the earlier beam, then of the lower token.
/// @param logits  logits(text): of the token after it
template <class Logits>
std::vector<plain_beam> advance_plain(const std::vector<plain_beam>& beams, std::size_t width, Logits logits) {
  std::vector<plain_beam> all;
  for (const plain_beam& each : beams) {
    token_id id = 0;
    for (const double logarithm : logarithms(logits(each.written))) {
      all.push_back({each.written, each.score + logarithm});
      all.back().written.push_back(id++);
    }
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &plain_beam::score);
  all.resize(width);
  return all;
}

TEST_CASE("beams that are forks are those of beams that share nothing, under any preset") {
  checkpoint with("indexed");
  constexpr std::size_t width = 3, length = 8;
  const text prompt = with.problem(5, 5, decode::ledger::scenario::continued);
  int policies = 0, forks = 0, ends = 0;
  double full_attended = 0;
  zoomr::presets::each([&](const auto& preset) {
    CAPTURE(std::string(preset.name));
    const zoomr::config limits{.max_sequences = width, .max_tokens = 512, .classes = with.classes};
    constexpr bool evicts = requires { preset.policy.evict.every; };
    constexpr std::size_t written = evicts ? 252 : 193;  // soon 256 are there, or a statement is, which ends a sentence
    zoomr::any_kv_cache<> cache = open_small(preset, with.net, limits);
    std::vector<beam> beams = {{cache.open(), prompt}};
    while (cache.tokens(beams[0].seq) + 1 < std::ssize(prompt)) pass(with.net, cache, beams);
    while (beams[0].text.size() < prompt.size() + written) beams = advance(with.net, cache, beams, 1);
    std::vector<plain_beam> expected = {{beams[0].text, beams[0].score}};
    for (std::size_t t = 0; t < length; ++t) {
      std::vector<int> children(beams.size());
      const std::vector<beam> before = beams;
      beams = advance(with.net, cache, beams, width);
      expected = advance_plain(expected, width, [&](const text& of) {
        return logits_after(with.net, open_small(preset, with.net, limits), of, prompt.size());
      });
      REQUIRE(beams.size() == width);
      for (std::size_t b = 0; b < width; ++b) {
        CHECK(beams[b].text == expected[b].written);
        CHECK(beams[b].score == expected[b].score);
        const text parent(beams[b].text.begin(), beams[b].text.end() - 1);
        ++children[std::ranges::find(before, parent, &beam::text) - before.begin()];
      }
      for (const int count : children) forks += std::max(0, count - 1), ends += count == 0;
    }
    const double attended = cache.stats(beams[0].seq).attended_mean(cache.model());
    if (policies++ == 0) full_attended = attended;
    const bool in_turns = preset.policy.zone.turns >= static_cast<index_t>(written + length);
    CHECK((policies == 1 || in_turns) == (attended > 0.95 * full_attended));  // `full` is the first
  });
  CHECK(policies > 15);
  CHECK(forks > 3 * policies);
  CHECK(ends > policies);
  MESSAGE(forks, " forks, ", ends, " ends");
}

}  // namespace
