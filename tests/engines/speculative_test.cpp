// SPDX-License-Identifier: Apache-2.0
// Speculative decoding writes what greedy decoding writes, under every preset. Here the latter is a loop of its own,
// which passes one token at a time.
#include <doctest/doctest.h>

#include <zoomr/presets/table.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#define main speculative_main  // a test program has one of its own
#include "speculative.cpp"
#undef main

#include "support.hpp"

namespace {

using namespace zoomr_test;

/// Continues a text until there are `most` tokens: its prompt is passed at once, all else token by token.
token_ids greedy(decoder& by, token_ids text, std::size_t prompt, index_t most) {
  const auto vocab = static_cast<index_t>(by.net.config().vocab);
  std::vector<float> logits(by.net.config().vocab);
  while (std::ssize(text) < most) {
    while (by.cache.tokens(by.seq) < std::ssize(text)) {
      const bool first = by.cache.tokens(by.seq) == 0;
      const auto ids = std::span(text).subspan(by.cache.tokens(by.seq), first ? prompt : 1);
      auto step = by.cache.begin(by.seq, ids, first);
      do {
        std::vector<index_t> positions;
        for (index_t t = 0; t < step.tokens(); ++t) positions.push_back(step.position(0) + t);
        const index_t last = step.tokens() - 1;
        by.net.forward(step, ids.last(step.tokens()), positions, {&last, {1}}, {logits.data(), {1, vocab}});
      } while (step.needs_second_pass(step.taken(0)));
      step.commit();
    }
    text.push_back(decode::greedy(logits));
  }
  return text;
}

TEST_CASE("drafts change no token, under any preset, and a step brings more than one") {
  checkpoint small("indexed"), large("indexed-m");
  REQUIRE(small.words_are_those_of(large));
  constexpr index_t written = 260, guessed = 5;
  index_t policies = 0, cut = 0, wrong = 0, together = 0;
  double full_attended = 0;
  // The program alone is the prompt; and a longer one, of which some policies evict.
  const token_ids prompts[] = {large.problem(1, 12, decode::ledger::scenario::trace),
                               large.problem(2, 6, decode::ledger::scenario::continued)};
  zoomr::presets::each([&](const auto& preset) {
    CAPTURE(std::string(preset.name));
    constexpr bool evicts = requires { preset.policy.evict.every; };  // while decoding: no rollback behind it
    double attended = 0;
    std::int64_t zooms = 0;
    bool chooses = false;
    for (const token_ids& prompt : prompts) {
      const index_t most = static_cast<index_t>(prompt.size()) + written;
      const zoomr::config limits{.max_tokens = most + guessed + 1,
                                 .max_draft_tokens = guessed + 1,
                                 .rollback_tokens = guessed,
                                 .classes = large.classes};
      const auto shape = decode::shape_of(small.net);
      decoder alone{large.net, open_small(preset, large.net, limits)};
      decoder model{large.net, open_small(preset, large.net, limits)};
      decoder drafter{small.net, evicts ? open_cache("full", shape, limits) : open_small(preset, small.net, limits)};
      const token_ids expected = greedy(alone, prompt, prompt.size(), most);
      const outcome made = speculate(model, drafter, prompt, guessed, -1, most);
      CHECK(made.text == expected);
      const bool single = preset.policy.refresh.each_token() && preset.policy.selects &&
                          preset.policy.aggregate.per == zoomr::scope::sequence;
      CHECK((single || made.steps < 0.9 * written));  // tokens of a step: more than one, in the mean
      attended += alone.cache.stats(alone.seq).attended_mean(alone.cache.model());
      zooms += model.cache.stats(model.seq).zooms;
      chooses = model.cache.selection_rows() > 0;
      cut += made.cut, wrong += made.wrong, together += written - made.steps;
    }
    if (policies++ == 0) full_attended = attended;
    CHECK((policies == 1) == (attended > 0.95 * full_attended));  // `full` is the first
    CHECK((zooms > 0) == chooses);
  });
  CHECK(policies > 15);
  CHECK(cut > policies);
  CHECK(wrong > policies);
  MESSAGE("tokens that needed no step: ", together, "; drafts cut: ", cut, ", wrong: ", wrong);
}

TEST_CASE("what a draft model guesses after a rollback is what one guesses that never went back") {
  checkpoint small("indexed"), large("indexed-m");
  const token_ids prompt = large.problem(4, 4, decode::ledger::scenario::trace);
  const auto most = static_cast<index_t>(prompt.size()) + 150;
  constexpr index_t guessed = 4;
  for (const char* name : {"zoomr_second_pass", "sentence_kv", "summary_only"}) {
    CAPTURE(std::string(name));
    const auto open = [&](checkpoint& of, const char* under) {
      return decoder{of.net, open_cache(under, decode::shape_of(of.net),
                                        {.max_tokens = most + guessed + 1,
                                         .max_draft_tokens = guessed + 1,
                                         .rollback_tokens = guessed,
                                         .classes = of.classes})};
    };
    decoder model = open(large, "full"), drafter = open(small, name);  // `full` cuts no draft
    const outcome made = speculate(model, drafter, prompt, guessed, -1, most);
    index_t steps = 0, wrong = 0;
    for (std::size_t certain = prompt.size() + 1; std::ssize(made.text) > static_cast<index_t>(certain); ++steps) {
      decoder fresh = open(small, name);
      const token_ids known(made.text.begin(), made.text.begin() + certain);
      const token_ids draft = greedy(fresh, known, prompt.size(), static_cast<index_t>(certain) + guessed);
      const auto same = std::ranges::mismatch(draft, made.text).in1 - draft.begin();
      wrong += same < std::ssize(draft) && same < std::ssize(made.text);
      certain = same + 1;
    }
    CHECK(made.steps == steps);
    CHECK(std::abs(made.wrong - wrong) <= 1);  // of the last draft some may lie behind the end
    CHECK(wrong > 10);
  }
}

TEST_CASE("what `plain` writes is what the loop here writes, up to the end") {
  checkpoint large("indexed-m");
  const token_ids prompt = large.problem(3, 3, decode::ledger::scenario::trace);
  const token_id end = large.words.id_of("</thought>").value();
  const auto open = [&] {
    return decoder{large.net, open_cache("zoomr_second_pass", decode::shape_of(large.net),
                                         {.max_tokens = 512, .classes = large.classes})};
  };
  decoder one = open(), other = open();
  const token_ids text = plain(one, prompt, end, 512);
  CHECK(text.back() == end);
  CHECK(text == greedy(other, prompt, prompt.size(), static_cast<index_t>(text.size())));
}

}  // namespace
