// SPDX-License-Identifier: Apache-2.0
// A later prompt on the device, as on the host: dense chunks, the choice and the eviction at its end.
#include <cache/device/device_against_host.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/small_policies.hpp>
#include <support/nightly.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

// A conversation in any chunks, drafts and rollbacks, and steps that are dropped.
template <class Policy, class Player>
void live(const Policy& policy, Player& plays, std::uint64_t seed, happened& all, bool takes_back = false) {
  dice random(seed);
  all.longest.clear();
  while (!plays.done()) {
    if (random.chance(4)) roll_back(policy, plays, 0, random, all);
    any_step_with_pins(policy, plays, random, all, takes_back);
  }
}

template <class Policy>
void check_life(const Policy& policy, const tape& says, const zoomr::config& limits, std::uint64_t seed,
                happened& of_host, happened& of_device, bool takes_back = false) {
  player<Policy> host(model, policy, limits);
  device_player<Policy> device(model, policy, limits);
  device.cache.fixed = seed % 2 == 0;
  host.open(says), device.open(says);
  live(policy, host, seed, of_host, takes_back), live(policy, device, seed, of_device, takes_back);
  CHECK(host.second_passes == device.second_passes);
  compare(host.at(0).log, device.at(0).log);
}

template <class Policy>
void check_conversations(const Policy& policy, std::uint64_t first, const zoomr::logit_rule& rule = {},
                         bool spans = false) {
  happened of_host, of_device;
  for (const std::uint64_t seed : seeds_from(first, 4)) {
    CAPTURE(seed);
    tape says = conversation(model, seed, seed % 2 == 0 ? kind::peaked : kind::uniform);
    if (frees_pages(policy)) says.later_prompts.clear();
    if (spans) says = with_spans(says, seed);
    zoomr::config limits = limits_for(says.size());
    limits.logits = rule;
    check_life(spans ? pinning(policy, seed, says) : policy, says, limits, seed, of_host, of_device);
  }
  CHECK(of_host.rolled_into == of_device.rolled_into);
  CHECK(of_host.rolled_before == of_device.rolled_before);
  CHECK(of_host.refused == of_device.refused);
  CHECK(of_host.pinned == of_device.pinned);
  if (spans) CHECK(of_device.questions > 0);
}

// The same of items that are passed whole, also where the wrong ones of their tokens are taken back.
// @return  how often they were
template <class Policy>
index_t check_whole(const Policy& policy, std::uint64_t first, const zoomr::logit_rule& rule = {}) {
  happened of_host, of_device;
  for (const std::uint64_t seed : seeds_from(first, 2)) {
    CAPTURE(seed);
    const tape text = conversation(model, seed, seed % 2 == 0 ? kind::peaked : kind::uniform);
    const tape says = with_whole_items(policy, text, seed);
    REQUIRE(says.whole_items.size() > 1);
    zoomr::config limits = limits_for(says.size() + 3);
    limits.max_draft_tokens = 23;
    limits.logits = rule;
    check_life(policy, says, limits, seed, of_host, of_device, takes_back_alike<Policy>);
  }
  CHECK(of_host.taken_back == of_device.taken_back);
  return of_host.taken_back;
}

}  // namespace

TEST_CASE("sums of queries begin again, and choices are made at the end") {
  check_conversations(small::zoomr_second_pass, 1);
  ZOOMR_NIGHTLY(check_conversations(small::focus_each_token, 5));
}
TEST_CASE("each token chooses for itself") { check_conversations(small::quest, 11); }
TEST_CASE("heads that vote hear the last queries of a later prompt") {
  check_conversations(small::sentence_voters, 21);
}
TEST_CASE("the last queries of a later prompt are observed at its end") {
  check_conversations(small::snapkv, 31);
  ZOOMR_NIGHTLY(check_conversations(small::sentence_kv, 41));
  ZOOMR_NIGHTLY(check_conversations(small::r_kv, 51));
}
TEST_CASE("attention adds up in a later prompt") {
  check_conversations(small::h2o, 61);
  ZOOMR_NIGHTLY(check_conversations(small::pinned_prompt, 71));
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
TEST_CASE("spans that are pinned, preambles, and questions until the next one") {
  const auto check_spans = [](const auto& policy, std::uint64_t first) {
    check_conversations(policy, first, {}, true);
  };
  check_spans(small::zoomr_second_pass, 191);
  check_spans(small::quest, 195);
  check_spans(small::sentence_voters, 201);
  check_spans(small::window, 205);
  ZOOMR_NIGHTLY(check_spans(small::full, 211));
  ZOOMR_NIGHTLY(check_spans(small::by_layer, 215));
}

TEST_CASE("an item that is passed whole: its commit makes the choice that is due, from sums of queries or without") {
  const index_t taken_back = check_whole(small::zoomr_second_pass, 101) + check_whole(small::focus_each_token, 105);
  CHECK(taken_back > 0);
}
TEST_CASE("an item that is passed whole: each row of its choice is made") {
  check_whole(small::by_layer, 111);
  check_whole(small::by_kv_head, 115);
  check_whole(with(small::by_kv_head, [](auto& p) { p.aggregate.per = zoomr::scope::sequence; }), 121);
}
TEST_CASE("an item that is passed whole: each token chooses for itself, among the segments of before") {
  check_whole(small::quest, 131);
}
TEST_CASE("an item that is passed whole: heads that vote hear its last queries") {
  check_whole(small::sentence_voters, 141);
}
TEST_CASE("an item that is passed whole: tokens are evicted at its end, and what is left is chosen from") {
  check_whole(small::sentence_kv, 151);
  ZOOMR_NIGHTLY(check_whole(small::pinned_prompt, 155));
  ZOOMR_NIGHTLY(check_whole(small::evicting, 161));
}
TEST_CASE("an item that is passed whole: pages that are freed after it, and a window that moves on in it") {
  check_whole(small::window, 171);
  zoomr::logit_rule rule;
  rule.window = 19;
  check_whole(small::by_layer, 181, rule);
}

TEST_CASE("what a step would take is said beforehand, and refused as a step is; nothing is waited for") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 150, 61, 3);
  device_player<std::decay_t<decltype(small::by_layer)>> plays(model, small::by_layer, limits_for(says.size()));
  plays.open(says);
  plays.play_plainly(0, 70);
  const std::vector<token_id> ids = says.between(70, 90);
  zoomr::step_item item{plays.at(0).seq, view<const token_id>(ids)};
  std::vector<index_t> taken(1, -1);
  const auto plan = [&] { plays.cache.plan(view<const zoomr::step_item>(&item, {1}), view<index_t>(taken)); };
  plan();
  CHECK(taken[0] > 0);
  CHECK(taken[0] < 8);
  CHECK(plays.tokens() == 70);
  CHECK(plays.play({plays.next(0, 20)}) == taken);
  item.prompt_begins = true;
  plan();
  CHECK(taken[0] == 20);
  item.positions = view<const index_t>(taken);
  CHECK(sentence_of(plan) == "zoomr: begin: on a device model positions are positions");
  item.positions = {}, item.prompt_begins = false, item.whole = true;
  CHECK(sentence_of(plan) ==
        "zoomr: begin: an item that is passed whole has 20 tokens, config.max_draft_tokens is 8: raise it, or begin a "
        "later prompt");
  CHECK(sentence_of([&] { plays.cache.plan(view<const zoomr::step_item>(&item, {1}), view<index_t>()); }) ==
        "zoomr: plan: taken is [0], wanted [1]");
  item.ids = item.ids.slice(0, 1);
  const auto step = plays.cache.begin(view<const zoomr::step_item>(&item, {1}));
  CHECK(sentence_of(plan) == "zoomr: a step is in progress: commit or drop it first");
}

}  // namespace zoomr_test
