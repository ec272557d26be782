// SPDX-License-Identifier: Apache-2.0
// A sequence's results do not depend on which others share its steps.
#include <cache/support/players.hpp>

#include <doctest/doctest.h>

namespace zoomr_test::batch_test {
namespace {

constexpr shape model{2, 4, 2, 8};
constexpr index_t sequences = 5;

TEST_CASE("sequences of any lengths and phases give the same bits alone and in random ragged batches") {
  for_each_policy([](const char* name, const auto& policy) {
    using player_type = player<std::decay_t<decltype(policy)>>;
    index_t most_parts = 0;
    index_t mixed_phases = 0;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      dice random(seed);
      std::vector<tape> tapes;
      for (index_t s = 0; s < sequences; ++s) {
        const index_t prompt = random.between(1, 70);
        constexpr markup texts[] = {markup::pairs, markup::summaries_alone, markup::stray, markup::sentences};
        tapes.push_back(make_tape(model, s % 2 == 0 ? kind::uniform : kind::peaked, texts[s % 4],
                                  prompt + random.between(1, 120), prompt, seed * 100 + static_cast<std::uint64_t>(s)));
      }
      player_type together(model, policy, limits_for(200, sequences));
      for (const tape& says : tapes) together.open(says);
      for (bool left = true; left;) {
        left = false;
        std::vector<part> parts;
        index_t in_prompt = 0;
        for (index_t s = 0; s < sequences; ++s) {
          if (together.done(s)) continue;
          left = true;
          if (random.chance(35)) continue;
          const tape& says = tapes[static_cast<std::size_t>(s)];
          const index_t at = together.tokens(s);
          if (at < says.prompt) {
            const index_t end = random.chance(40) ? says.prompt : random.between(at + 1, says.prompt);
            parts.insert(parts.begin() + random.between(0, static_cast<index_t>(parts.size())),
                         {s, says.between(at, end), end == says.prompt});
            ++in_prompt;
          } else {
            part draft = together.next(s, random.between(1, 4));
            if (random.chance(30)) draft.ids.back() = random.between(1, 30);
            parts.insert(parts.begin() + random.between(0, static_cast<index_t>(parts.size())), draft);
          }
        }
        if (parts.empty()) continue;
        most_parts = std::max(most_parts, static_cast<index_t>(parts.size()));
        mixed_phases += in_prompt > 0 && in_prompt < static_cast<index_t>(parts.size()) ? 1 : 0;
        if (random.chance(15))
          together.play(parts, random.one_of(std::array{fate::dropped_after_pass, fate::dropped_after_first_pass}));
        together.play(parts);
      }
      for (index_t s = 0; s < sequences; ++s) {
        player_type alone(model, policy, limits_for(200));
        alone.open(tapes[static_cast<std::size_t>(s)]);
        alone.play_plainly();
        CAPTURE(std::string(name));
        CAPTURE(seed);
        CAPTURE(s);
        REQUIRE(difference(alone.at(0).log, together.at(s).log) == "");
      }
    }
    CHECK(most_parts == sequences);
    CHECK(mixed_phases > 0);
  });
}

}  // namespace
}  // namespace zoomr_test::batch_test
