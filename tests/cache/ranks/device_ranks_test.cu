// SPDX-License-Identifier: Apache-2.0
// Ranks that share a model's heads, each on a device, choose and attend as one device with all heads: bit for bit.
#include <cache/device/device_against_host.hpp>
#include <cache/ranks/ranked_device.hpp>
#include <support/nightly.hpp>
#include <support/sentence_of.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

const ranked_model two_ranks{{2, 4, 2, 8}, {{0, 2, 4}}};
const ranked_model unequal{{2, 6, 3, 8}, {{0, 4, 6}}};
const ranked_model four_ranks{{2, 8, 4, 8}, {{0, 2, 4, 6, 8}}};
const ranked_model of_one_kv_head{{2, 4, 2, 8}, {{0, 1, 2, 3, 4}, true}};

/// The shim works when the host waits.
simt::settings late() {
  simt::settings made = simt::how;
  made.streams = simt::schedule::late;
  return made;
}

/// The same of one device and of ranks: play(player), then compare(log, log of ranks).
template <index_t Group = 2, class Policy, class Play>
void check_plays(const ranked_model& on, const Policy& policy, const zoomr::config& limits, Play play) {
  const simt::scoped_settings until_then(late());
  player<Policy, float, device_as_host<Policy, float, 8, 2>> one(on.whole, policy, limits);
  play(one);
  stream_ranks ends(on.split.ranks());
  ranked_device_player<Policy, Group> ranks(on, policy, limits, ends);
  play(ranks);
  for (std::size_t v = 0; v < one.voices.size(); ++v) {
    const result_log &log = one.voices[v].log, &of_ranks = ranks.voices[v].log;
    if (Group == 2) REQUIRE(difference(log, of_ranks) == "");
    compare(log, of_ranks);  // of other groups kernels are others
  }
}

template <index_t Group = 2, class Policy>
void check_wildly(const ranked_model& on, const Policy& policy, markup text, std::uint64_t seed) {
  CAPTURE(seed);
  CAPTURE(on.split.ranks());
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties, kind::with_infinities};
  const tape says = make_tape(on.whole, looks[seed % 4], text, tokens, 30, seed);
  check_plays<Group>(on, policy, limits_for(tokens), [&](auto& plays) {
    plays.observe_prompts = seed % 2 == 0;
    plays.open(says);
    play_wildly(plays, policy, seed);
  });
}

}  // namespace

TEST_CASE("votes of all ranks choose") { check_wildly(two_ranks, small::zoomr_one_pass, markup::pairs, 1); }

}  // namespace zoomr_test
