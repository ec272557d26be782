// SPDX-License-Identifier: Apache-2.0
// A later prompt on the device, as on the host: dense chunks, the choice and the eviction at its end.
#include <cache/device/device_against_host.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/small_policies.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

// A conversation in any chunks, drafts and rollbacks, and steps that are dropped.
template <class Policy, class Player>
void live(const Policy& policy, Player& plays, std::uint64_t seed, happened& all) {
  dice random(seed);
  all.longest.clear();
  while (!plays.done()) {
    if (random.chance(4)) roll_back(policy, plays, 0, random, all);
    any_step(plays, random, all);
  }
}

template <class Policy>
void check_conversations(const Policy& policy, std::uint64_t first, const zoomr::logit_rule& rule = {}) {
  happened of_host, of_device;
  for (const std::uint64_t seed : seeds_from(first, 4)) {
    CAPTURE(seed);
    const tape says = conversation(model, seed, seed % 2 == 0 ? kind::peaked : kind::uniform);
    zoomr::config limits = limits_for(says.size());
    limits.logits = rule;
    player<Policy> host(model, policy, limits);
    device_player<Policy> device(model, policy, limits);
    device.cache.fixed = seed % 2 == 0;
    host.open(says), device.open(says);
    live(policy, host, seed, of_host), live(policy, device, seed, of_device);
    CHECK(host.second_passes == device.second_passes);
    compare(host.at(0).log, device.at(0).log);
  }
  CHECK(of_host.rolled_into == of_device.rolled_into);
  CHECK(of_host.rolled_before == of_device.rolled_before);
  CHECK(of_host.refused == of_device.refused);
}

}  // namespace

TEST_CASE("sums of queries begin again, and choices are made at the end") {
  check_conversations(small::zoomr_second_pass, 1);
  check_conversations(small::zoomr_follow, 5);
}
TEST_CASE("each token chooses for itself") { check_conversations(small::quest, 11); }
TEST_CASE("heads that vote hear the last queries of a later prompt") {
  check_conversations(small::sentence_voters, 21);
}
TEST_CASE("the last queries of a later prompt are observed at its end") {
  check_conversations(small::snapkv, 31);
  check_conversations(small::sentence_kv, 41);
  check_conversations(small::r_kv, 51);
}
TEST_CASE("attention adds up in a later prompt") {
  check_conversations(small::h2o, 61);
  check_conversations(small::raas, 71);
}
TEST_CASE("what was evicted has left slots that are no positions: a bias by distance, in a later prompt") {
  static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f};
  zoomr::logit_rule rule;
  rule.alibi_slopes = {slopes, {model.heads}};
  check_conversations(small::snapkv, 81, rule);
}
TEST_CASE("a window moves on through a later prompt") {
  zoomr::logit_rule rule;
  rule.window = 19;
  check_conversations(small::full, 91, rule);
}

TEST_CASE("an item is not passed whole where a draft would end before its last token") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 100, 61, 3);
  device_player<std::decay_t<decltype(small::quest)>> plays(model, small::quest, limits_for(says.size()));
  plays.open(says);
  plays.play_plainly(0, 61);
  part whole = plays.next(0, 6);
  whole.whole = true;
  CHECK(sentence_of([&] { plays.play({whole}); }) ==
        "zoomr: begin: a device cannot pass an item whole where a draft would end before its last token");
  CHECK(plays.tokens() == 61);
  whole.ids.resize(3);  // the last one closes a page
  CHECK(plays.play({whole}) == std::vector<index_t>{3});
}

}  // namespace zoomr_test
