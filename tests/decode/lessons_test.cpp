// SPDX-License-Identifier: Apache-2.0
// Lessons: what they say and need, and that what heads make of them is what a policy finds.
#include <doctest/doctest.h>

#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/aggregate/head_posterior.hpp>
#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/refresh/every_token.hpp>
#include <zoomr/policy/score/key_mass.hpp>
#include <zoomr/policy/segment/sentences.hpp>
#include <zoomr/policy/select/top_p.hpp>

#include <algorithm>  // std::max_element, std::ranges::find
#include <string>
#include <vector>

#include "retrieval/forms.hpp"
#include "retrieval/lessons.hpp"
#include "retrieval/moments.hpp"
#include "retrieval_scenes.hpp"
#include "session.hpp"

namespace decode::retrieval {
namespace {

std::string written(const scene& on, const lesson& list, std::size_t first) {
  return on.words.decode(std::span(list.text).subspan(first));
}

/// Where the posterior of one head, alone and with the weight 1, is largest at each moment: the segment's begin.
std::vector<index_t> chosen_by(scene& on, const lesson& from, std::size_t layer, std::size_t head,
                               const scoring_queries& scoring) {
  std::vector<float> weights(on.config.layers * on.config.heads);
  weights[layer * on.config.heads + head] = 1;
  on.net.set_voters(weights, {}, zoomr::voter_storage::as_cache);
  const auto policy =
      zoomr::compose(zoomr::sentences{}, zoomr::key_mass{},
                     zoomr::head_posterior{.queries = scoring.last, .question = scoring.question ? 128 : 0},
                     zoomr::top_p{.share = 0.9f, .segments = 1}, zoomr::every_token{},
                     zoomr::zones{.sinks = 4, .recent = 64, .turns = 256, .preamble = 128, .question = 128});
  session run(on.net, policy, 1, static_cast<index_t>(from.text.size()), on.classes.usual);
  zoomr::choice_trace choices;
  run.trace(nullptr, &choices);
  std::vector<index_t> begins;
  std::size_t at = 0;
  for (const moment& item : from.moments) {
    for (; at < item.passed; ++at) {
      const auto prompt = std::ranges::find(from.prompts, static_cast<index_t>(at), &zoomr::token_range::first);
      if (prompt == from.prompts.end()) {
        run.advance(std::span(from.text).subspan(at, 1));
        continue;
      }
      const auto size = static_cast<std::size_t>(prompt->size());
      run.turn(0, std::span(from.text).subspan(at, size));
      at += size - 1;
    }
    begins.push_back(run.cache().segments(run.at(0))[choices.back().chosen.front()].begin);
  }
  return begins;
}

}  // namespace

TEST_CASE("a lesson is a problem and its answer, with moments before and within it") {
  scene_options asked = asked_for();
  asked.tasks = {"queries", "values", "needle"}, asked.tokens = {3000};
  const scene on(asked);
  const form_maker asks(asked.directory, on.words, asked.texts);
  for (const std::string name : {"plain", "two", "primed", "later", "nothing"}) {
    CAPTURE(name);
    const form as = form_named(name);
    const form_problem from = asks.make(as, fact_half::learning, 2500, 7);
    const lesson result = lesson_of(on.words, as, from);
    const std::vector<token_id> before = from.tokens();
    CHECK(std::equal(before.begin(), before.end(), result.text.begin()));
    CHECK(result.prompts.size() == (as.later ? 2 : 1));
    CHECK(result.prompts.back().last == static_cast<index_t>(before.size()));
    CHECK(result.moments.front().passed == before.size());
    CHECK(result.moments.back().passed == result.text.size());
    CHECK(result.moments.size() == (from.reply.empty() ? 2 : 4));
    CHECK(result.question.last > result.question.first);
    for (const moment& item : result.moments) CHECK(item.needed == from.evidence);
    const std::string full = ' ' + from.reply + (from.reply.empty() ? "" : " ") + from.answers.front();
    const std::string begun = written(on, result, before.size());
    CHECK(full.starts_with(begun));
    CHECK(begun.size() == full.size() - (from.answers.front().size() + 2) / 2);
  }
  // Of an order that which is next; of none all that are not written, and from the middle of one that one.
  for (const group& kind : on.groups) {
    const problem from = on.make(kind, 1);
    const lesson result = lesson_of(on, from);
    REQUIRE(result.moments.size() == 2 * from.answers.size());
    for (std::size_t i = 0; i < from.answers.size(); ++i) {
      const std::vector<index_t> left(from.evidence.begin() + static_cast<std::ptrdiff_t>(i), from.evidence.end());
      const std::vector<index_t> own = {from.evidence[i]};
      CHECK(result.moments[2 * i].needed == (kind.kind == task::values ? left : own));
      CHECK(result.moments[2 * i + 1].needed == own);
      CHECK(result.moments[2 * i].passed < result.moments[2 * i + 1].passed);
    }
  }
}

TEST_CASE("what heads make of a lesson is what the policy of voters finds") {
  scene_options asked = asked_for();
  asked.tasks = {};
  scene on(asked);
  lesson from;  // two prompts, and what is written behind each
  std::string text;
  for (int i = 0; i < 9; ++i) text += "The prince of the " + coined(i) + " looked at the garden. ";
  from.text = on.words.encode(text);
  from.prompts = {{0, 300}, {310, 370}};
  from.moments = {{300, {}}, {305, {}}, {370, {}}, {372, {}}, {380, {}}};
  REQUIRE(from.text.size() > 380);
  constexpr std::size_t layer = 2, head = 3;
  const scoring_queries scoring{.last = 100};
  const std::vector<index_t> begins = chosen_by(on, from, layer, head, scoring);
  // What is needed is said to be what was chosen, so that its column is known.
  for (std::size_t i = 0; i < begins.size(); ++i) from.moments[i].needed = {begins[i]};
  const std::vector<example> found = record(on, from, {scoring}, [](std::size_t) {}).front();
  REQUIRE(found.size() == from.moments.size());
  for (const example& item : found) {
    REQUIRE(item.needed.size() == 1);
    REQUIRE(item.log_share.size() == on.config.layers * on.config.heads * item.segments);
    const float* const shares = &item.log_share[(layer * on.config.heads + head) * item.segments];
    CHECK(shares[item.needed[0]] == *std::max_element(shares, shares + item.segments));
  }
}

}  // namespace decode::retrieval
