// SPDX-License-Identifier: Apache-2.0
// Heads that vote, over tiers: their keys are at hand wherever pages lie, in whatever way these come to be.
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/tiered_limits.hpp>
#include <support/voters.hpp>
#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

#include <string>  // std::string

namespace zoomr_test {
namespace {

constexpr shape model{2, 4, 2, 8}, one_layer{1, 4, 2, 8};
constexpr index_t tokens = 170, prompt = 70;

template <class Engine = zoomr::sync_transfers>
using over_tiers = zoomr::tiered<zoomr::lru, Engine>;

/// A life in which pages are written, shared, copied, moved up, saved and loaded.
/// @return  what every sequence attended and got
template <class Player>
std::vector<result_log> live(Player& plays, const tape& says, const tape& other, const tape& rest) {
  plays.open(says);
  while (plays.tokens() < prompt) {
    const index_t end = std::min(plays.tokens() + 19, prompt);
    plays.play({{0, says.between(plays.tokens(), end), end == prompt}});
  }
  plays.play_plainly(0, 87);  // the open page is half full, so that the one that writes first copies it
  const index_t branch = fork(plays, 0, other);
  plays.play_plainly(branch, 110), plays.play_plainly(0, 120);
  plays.rollback(0, 112), plays.play_plainly(0, 125);
  const float frequencies[] = {1.0f, 0.3f, 0.1f, 0.02f};
  const zoomr::token_range span{20, 33};
  plays.cache.erase(plays.at(branch).seq, span, zoomr::key_rotation({frequencies, {4}}, -span.size()));
  plays.at(branch).says = &rest;
  plays.voices.push_back({plays.cache.load(memory_source(saved(plays.cache, plays.at(0).seq))), &says, {}});
  for (index_t voice = 0; voice < 3; ++voice) plays.play_plainly(voice);
  std::vector<result_log> made;
  for (index_t voice = 0; voice < 3; ++voice) made.push_back(plays.at(voice).log);
  return made;
}

template <class T, class Engine, class Policy>
void check_life(const char* name, const Policy& policy, index_t blocks, float unsure = zoomr::infinity) {
  CAPTURE(std::string(name));
  CAPTURE(blocks);
  const tape says = make_tape(model, kind::peaked, markup::sentences, tokens, prompt, 7);
  const tape other = with_other_end(says, 87, prompt, 8), rest = other.without({20, 33});
  zoomr::config limits = limits_for(tokens, 3);
  if constexpr (std::is_same_v<T, int8>) limits.key_scale = limits.value_scale = 0.05f;
  limits.voters_unsure = unsure;
  player<Policy, T> resident(model, policy, limits);
  const auto expected = live(resident, says, other, rest);
  const auto moved = with_placement(policy, over_tiers<Engine>{});
  player<std::remove_const_t<decltype(moved)>, T> tiers(
      model, moved, tiered_limits<T>(model, moved, with_voters(moved, limits, model), blocks));
  const auto found = live(tiers, says, other, rest);
  for (std::size_t voice = 0; voice < 3; ++voice) {
    CAPTURE(voice);
    CHECK(difference(expected[voice], found[voice]) == "");
  }
  const zoomr::statistics counted = tiers.cache.stats(tiers.at(0).seq);
  CHECK((counted.unsure > 10) == (unsure < zoomr::infinity));
  CHECK(counted.unsure < counted.refreshes - 10);
  CHECK(counted.unsure == resident.cache.stats(resident.at(0).seq).unsure);
  CHECK(tiers.cache.tiers().bytes_out > 0);
  CHECK(tiers.cache.tiers().misses > 500);
}

/// Passes one token after the other to a cache of one layer, behind a prompt. Keys of pages p and p + 8 of the prompt
/// point along dimension p; each token asks for another one of these.
template <class Cache, class Look>
void pass_tokens(Cache& cache, index_t asking, Look look) {
  constexpr index_t begins = 256;
  const zoomr::sequence seq = cache.open();
  const std::vector<token_id> ids = text_of(markup::sentences, begins, begins, 5);
  const std::vector<float> values(begins * 2 * 8, 1.0f);
  std::vector<float> out(begins * 4 * 8);
  for (index_t first = 0; first < begins + asking;) {
    const index_t count = first < begins ? begins : 1;
    std::vector<float> keys(begins * 2 * 8, 0.0f), queries(begins * 4 * 8, 0.0f);
    for (index_t t = 0; t < begins && first == 0; ++t) {
      for (index_t head = 0; head < 2; ++head) keys[static_cast<std::size_t>((t * 2 + head) * 8 + t / 16 % 8)] = 1.0f;
    }
    for (index_t head = 0; head < 4; ++head) queries[static_cast<std::size_t>(head * 8 + first * 3 % 8)] = 60.0f;
    auto step = cache.begin(seq, view<const token_id>(ids).slice(0, count), first + count == begins);
    step.append(0, view<const float, 3>(keys.data(), {count, 2, 8}),
                view<const float, 3>(values.data(), {count, 2, 8}));
    const auto before = cache.tiers();
    step.attend(0, view<const float, 3>(queries.data(), {count, 4, 8}), {out.data(), {count, 4, 8}});
    const auto between = cache.tiers();
    step.commit();
    if (first >= begins) look(before, between, cache.tiers());
    first += count;
  }
}

}  // namespace

TEST_CASE("whatever the storage type and the memory, voters find what they find in one memory") {
  check_life<float, zoomr::sync_transfers>("sentence_voters", small::sentence_voters, 6);
  check_life<float, zoomr::sync_transfers>("sentence_voters, unsure", small::sentence_voters, 6, 1.2f);
  check_life<bfloat16, zoomr::async_transfers>("zoomr_voters", small::zoomr_voters, 7);
  check_life<int8, zoomr::sync_transfers>("sentence_voters", small::sentence_voters, 9);
  check_life<scaled_int8, zoomr::sync_transfers>("sentence_voters", small::sentence_voters, 6);
}

TEST_CASE("a choice brings no page, and what it has chosen comes before the next token asks for it") {
  constexpr index_t asking = 60;
  auto policy = with_placement(small::sentence_voters, over_tiers<>{});
  policy.aggregate.queries = 1;
  using policy_type = decltype(policy);
  const zoomr::byte_count block = 2 * 2 * 16 * 8 * 4;
  // What comes to memory while tokens attend, and while they are committed: of 20 pages it holds 15.
  const auto moved = [&](bool ahead) {
    policy.placement.prefetch = ahead;
    zoomr::kv_cache<policy_type> cache(
        one_layer, policy,
        tiered_limits<float>(one_layer, policy, with_voters(policy, limits_for(256 + asking), one_layer), 15));
    zoomr::byte_count attending = 0, committing = 0;
    pass_tokens(cache, asking, [&](const auto& before, const auto& between, const auto& after) {
      attending += between.bytes_in - before.bytes_in;
      committing += after.bytes_in - between.bytes_in;
    });
    return std::pair{attending / block, committing / block};
  };
  const auto [waited, none] = moved(false);
  CHECK(none == 0);  // a choice is made here
  CHECK(waited > asking);
  CHECK(waited <= asking * 5);  // four segments of nine tokens, of which one may lie in two pages
  const auto [late, came] = moved(true);
  CHECK(late == 0);
  CHECK(came > asking / 2);
}

TEST_CASE("keys of voters are counted: by the constructor, and of a sequence by its pages") {
  const auto policy = with_placement(small::sentence_voters, over_tiers<>{});
  using policy_type = std::remove_const_t<decltype(policy)>;
  const auto refusal = [](const auto& refused, const zoomr::config& limits) -> std::string {
    try {
      zoomr::kv_cache cache(model, refused, limits);
      return "";
    } catch (const zoomr::precondition_error& problem) {
      return problem.what();
    }
  };
  zoomr::config limits = tiered_limits<float>(model, policy, with_voters(policy, limits_for(tokens), model), 6);
  const index_t pages = zoomr::pages_for(tokens);
  const zoomr::byte_count page = 3 * 16 * 8 * 4;  // of three KV lanes: voters are heads 0, 1 and 3, 6 of the two layers
  CHECK(zoomr::kv_cache<policy_type>::bytes(model, policy, limits).summaries == pages * page);
  CHECK((zoomr::kv_cache<policy_type, scaled_int8>::bytes(model, policy, limits).summaries) ==
        pages * 3 * 16 * (8 + 4));
  CHECK(zoomr::kv_cache<std::remove_const_t<decltype(small::sentence_voters)>>::bytes(model, small::sentence_voters,
                                                                                      limits)
            .summaries == 0);
  CHECK(refusal(policy, limits) == "");
  limits.tiers.host -= 1;
  CHECK(refusal(policy, limits).find("tiers.host is " + std::to_string(limits.tiers.host)) != std::string::npos);
  CHECK(refusal(with_placement(small::by_keys, over_tiers<>{}), limits).find("scores by the keys of all KV heads") !=
        std::string::npos);

  const tape says = make_tape(model, kind::peaked, markup::sentences, tokens, prompt, 5);
  player<policy_type> plays(model, policy,
                            tiered_limits<float>(model, policy, with_voters(policy, limits_for(tokens), model), 6));
  plays.open(says);
  plays.play_plainly(0, 100);
  CHECK(plays.cache.bytes(plays.at(0).seq).summaries == 7 * page);
}

}  // namespace zoomr_test
