// SPDX-License-Identifier: Apache-2.0
// A prompt may come in any chunks: what eviction observes at its end is remembered. `drivers_test` says so of all
// presets; here is what is remembered, what it costs, and when it is not known any more.
#include <cache/support/driving.hpp>
#include <cache/support/small_policies.hpp>

#include <doctest/doctest.h>

#include <string_view>  // std::string_view

namespace zoomr_test::prompt_chunks_test {
namespace {

constexpr shape model{2, 4, 2, 8};
constexpr auto keeps_few = with(small::snapkv, [](auto& p) { p.evict.tokens = 20; });
using policy_type = std::remove_const_t<decltype(keeps_few)>;
using player_type = player<policy_type>;

tape tape_of(index_t prompt, std::uint64_t seed = 3) {
  return make_tape(model, kind::peaked, markup::sentences, 90, prompt, seed);
}

void check_equal_to_whole(player_type& plays, const tape& says, const zoomr::config& limits) {
  player_type whole(model, keeps_few, limits);
  whole.open(says);
  whole.play_plainly();
  plays.play_plainly();
  CHECK(difference(whole.at(0).log, plays.at(0).log) == "");
}

TEST_CASE("after any chunks, dropped ones and rollbacks within rollback_tokens, a prompt's end keeps the same tokens") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    dice random(seed);
    const tape says = tape_of(random.between(9, 60), seed);
    zoomr::config limits = limits_for(says.size());
    limits.rollback_tokens = random.one_of(std::array{0, 3, 24});
    limits.max_batched_tokens = random.one_of(std::array{12, 90});
    player_type plays(model, keeps_few, limits);
    plays.open(says);
    plays.observe_prompts = random.chance(50);
    index_t longest = 0;
    while (plays.tokens() < says.prompt) {
      const index_t now = plays.tokens();
      const index_t end = std::min(says.prompt, now + random.between(1, random.chance(50) ? 1 : 12));
      const fate until = random.chance(20) ? fate::dropped_after_pass : fate::committed;
      plays.play({{0, says.between(now, end), end == says.prompt}}, until);
      longest = std::max(longest, plays.tokens());
      if (plays.tokens() == says.prompt || !random.chance(20)) continue;
      plays.rollback(0, std::min(plays.tokens(), std::max(0, longest - random.between(0, limits.rollback_tokens))));
    }
    CAPTURE(seed);
    player_type whole(model, keeps_few, limits_for(says.size()));
    whole.open(says);
    whole.observe_prompts = plays.observe_prompts;
    whole.play_plainly();
    plays.play_plainly();
    REQUIRE(difference(whole.at(0).log, plays.at(0).log) != "the second has more tokens");
    for (index_t t = says.prompt; t < says.size(); ++t) {
      REQUIRE(whole.at(0).log.at({t, 0}) == plays.at(0).log.at({t, 0}));
    }
  }
}

TEST_CASE("several prompts in one step remember their own queries") {
  const tape a = tape_of(40, 5), b = tape_of(31, 6);
  player_type plays(model, keeps_few, limits_for(90, 2));
  plays.open(a), plays.open(b);
  while (plays.tokens(0) < 40) {
    const index_t i = plays.tokens(0), k = plays.tokens(1);
    const index_t more = i % 3 + 1;
    const index_t end = std::min(40, i + more);
    std::vector<part> parts{{0, a.between(i, end), end == 40}};
    if (k < 31) parts.insert(parts.begin(), {1, b.between(k, k + 1), k + 1 == 31});
    plays.play(parts);
  }
  while (plays.tokens(1) < 31) {
    const index_t k = plays.tokens(1);
    plays.play({{1, b.between(k, k + 1), k + 1 == 31}});
  }
  plays.play_plainly(0), plays.play_plainly(1);
  for (const index_t v : {0, 1}) {
    player_type whole(model, keeps_few, limits_for(90));
    whole.open(v == 0 ? a : b);
    whole.play_plainly();
    CHECK(difference(whole.at(0).log, plays.at(v).log) == "");
  }
}

TEST_CASE("what was not seen, or rolled back too deep, is asked for in a sentence, and can be brought again") {
  const tape says = tape_of(30);
  zoomr::config limits = limits_for(90);
  limits.rollback_tokens = 2;
  player_type plays(model, keeps_few, limits);
  plays.open(says);
  plays.play({{0, says.between(0, 20), false}});
  {  // five tokens whose queries nobody sees
    const std::vector<token_id> ids = says.between(20, 25);
    const std::vector<float> keys(5 * 2 * 8);
    auto step = plays.cache.begin(plays.at(0).seq, ids);
    for (index_t layer = 0; layer < 2; ++layer) {
      step.append(layer, view<const float, 3>(keys.data(), {5, 2, 8}), view<const float, 3>(keys.data(), {5, 2, 8}));
    }
    step.commit();
  }
  const std::vector<token_id> last = says.between(25, 30);
  const auto refusal = [&] {
    try {
      plays.cache.begin(plays.at(0).seq, view<const token_id>(last), true);
    } catch (const zoomr::precondition_error& refused) {
      return std::string(refused.what());
    }
    return std::string();
  };
  CHECK(
      refusal() ==
      "zoomr: begin: at the end of the prompt eviction observes the queries from token 22 on, but those before token "
      "25 are not known any more: attend or observe each chunk that holds some, or roll back to token 22 and pass the "
      "rest again");
  plays.rollback(0, 20);  // 8 are observed, 2 more may be rolled back: of the 20, the last 10 are known
  plays.play({{0, says.between(20, 25), false}});
  plays.play({{0, says.between(25, 27), false}});
  plays.rollback(0, 25);
  CHECK(refusal() == "");
  plays.play({{0, says.between(25, 29), false}});
  plays.rollback(0, 18);  // of 29, the last 10 were known: from 19 on
  plays.play({{0, says.between(18, 25), false}});
  CHECK(refusal() == "");
  check_equal_to_whole(plays, says, limits);
}

TEST_CASE("remembered queries are counted, and only where eviction may observe some") {
  zoomr::config limits = limits_for(90);
  limits.rollback_tokens = 5;
  const auto metadata = [&](const auto& policy, index_t undo) {
    limits.rollback_tokens = undo;
    return zoomr::kv_cache<std::remove_cvref_t<decltype(policy)>>::bytes(model, policy, limits).metadata;
  };
  const zoomr::byte_count record = 2 * 4 * 8 * sizeof(float);
  constexpr auto keeps_all = with(keeps_few, [](auto& p) { p.evict.tokens = zoomr::unlimited; });
  constexpr auto pinned = with(keeps_few, [](auto& p) { p.zone.prompt = true; });
  CHECK(metadata(keeps_few, 5) - metadata(keeps_few, 0) == 5 * record);
  CHECK(metadata(keeps_all, 5) == metadata(keeps_all, 0));
  CHECK(metadata(pinned, 5) - metadata(pinned, 0) == 5 * record);  // of later prompts
}

}  // namespace
}  // namespace zoomr_test::prompt_chunks_test
