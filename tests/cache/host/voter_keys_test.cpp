// SPDX-License-Identifier: Apache-2.0
// Keys of heads that vote, rounded to blocks of q8_0 beside the pages: choices are those of a cache whose keys are
// rounded, what is attended has the bits of the pages, and the copy follows whatever writes or moves a key.
#include <cache/support/driving.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>
#include <support/paged_engine.hpp>
#include <support/state_digest.hpp>
#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::equal
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using zoomr::q8_0;

constexpr shape model{2, 4, 2, 64};
constexpr index_t tokens = 150, prompt = 61;

std::vector<q8_0> rounded(const float* key, index_t width) {
  std::vector<q8_0> blocks(static_cast<std::size_t>(zoomr::stored_size<q8_0>(width)));
  for (index_t d = 0; d < width; d += 32) {
    zoomr::store_block(key + d, 1.0f, blocks.data() + zoomr::stored_size<q8_0>(d));
  }
  return blocks;
}
/// What a cache of floats is given in the place of keys: those of a cache of `T`, rounded to blocks.
template <class T>
void round_key(token_id, index_t, index_t, index_t, float* key, float*, index_t width) {
  for (index_t d = 0; d < width; ++d) key[d] = zoomr::to_float(zoomr::from_float<T>(key[d]));
  const std::vector<q8_0> blocks = rounded(key, width);
  for (index_t d = 0; d < width; ++d) key[d] = zoomr::number_at(blocks.data(), d);
}

template <class Policy>
zoomr::config limits_in_blocks(const Policy& policy, index_t sequences = 1) {
  zoomr::config limits = with_voters(policy, limits_for(tokens, sequences), model);
  limits.voter_keys = zoomr::voter_storage::q8_0;
  return limits;
}

/// Chunks of a prompt, drafts, and tokens that are taken back, from the same dice in each cache.
template <class Player>
void play_at_random(Player& plays, const tape& says, std::uint64_t seed) {
  dice random(seed);
  plays.open(says);
  while (!plays.done()) {
    const index_t now = plays.tokens();
    plays.play({part_of(says, 0, now, says.in_prompt(now) ? random.between(1, 40) : 1)});
    if (plays.tokens() <= prompt || !random.chance(15)) continue;
    try {
      plays.rollback(0, std::max(prompt, plays.tokens() - random.between(1, 6)));
    } catch (const zoomr::error& why) {
      REQUIRE(why.code() == zoomr::errc::rollback_depth);
    }
  }
}

/// What was attended, without outputs.
std::vector<std::vector<std::vector<index_t>>> attended(const result_log& log) {
  std::vector<std::vector<std::vector<index_t>>> found;
  for (const auto& [at, result] : log) found.push_back(result.attended);
  return found;
}

/// The copy has each voter's keys as the pages have them now, rounded.
/// @return  rows that were compared
template <class Cache>
index_t check_copy(Cache& cache, zoomr::sequence seq) {
  auto& core = zoomr::inspection::core(cache);
  auto& state = core.states[static_cast<std::size_t>(seq.id)];
  index_t compared = 0;
  for (const auto& lane : core.voters.kv_lanes()) {
    const auto from = core.kv_lane(state, lane.layer, lane.kv_head);
    core.keys.with_kv_lane(core.voters.place_of(lane.layer, lane.kv_head), view<const index_t>(state.pages),
                           [&](const auto& to) {
                             if constexpr (std::is_same_v<typename std::decay_t<decltype(to)>::number, q8_0>) {
                               for (index_t slot = 0; slot < state.slots(); ++slot, ++compared) {
                                 float key[64];
                                 for (index_t d = 0; d < 64; ++d) key[d] = zoomr::to_float(from.key(slot)[d]);
                                 const std::vector<q8_0> blocks = rounded(key, 64);
                                 REQUIRE(std::equal(blocks.begin(), blocks.end(), to.key(slot)));
                               }
                             }
                           });
  }
  return compared;
}

}  // namespace

TEST_CASE_TEMPLATE("rounded keys of voters: the choices of a cache whose keys are rounded, the bits of its pages", T,
                   float, zoomr::bfloat16, zoomr::float16) {
  index_t differ = 0;  // texts of which other tokens are attended than without rounding
  const auto check = [&](const char* name, const auto& policy) {
    using policy_type = std::decay_t<decltype(policy)>;
    for (std::uint64_t seed = 1; seed <= 9; ++seed) {
      constexpr kind looks[] = {kind::peaked, kind::uniform, kind::with_infinities};
      const tape says =
          make_tape(model, looks[seed % 3], seed % 2 == 0 ? markup::pairs : markup::sentences, tokens, prompt, seed);
      CAPTURE(std::string(name));
      CAPTURE(seed);
      player<policy_type> spoilt(model, policy, limits_for(tokens));
      spoilt.spoil = round_key<T>;
      player<policy_type, T> plain(model, policy, limits_for(tokens));
      player<policy_type, T> blocks(model, policy, limits_in_blocks(policy));
      play_at_random(spoilt, says, seed), play_at_random(plain, says, seed), play_at_random(blocks, says, seed);
      REQUIRE(attended(blocks.at(0).log) == attended(spoilt.at(0).log));
      differ += attended(blocks.at(0).log) == attended(plain.at(0).log) ? 0 : 1;
      for (const auto& [at, result] : blocks.at(0).log) {  // where the same is attended it has the bits of the pages
        const auto& other = plain.at(0).log.at(at);
        if (result.attended == other.attended) REQUIRE((result.out == other.out && result.lse == other.lse));
      }
      CHECK(check_copy(blocks.cache, blocks.at(0).seq) > 0);
    }
  };
  check("sentence_voters", small::sentence_voters);
  check("zoomr_voters", small::zoomr_voters);
  CHECK(differ > 0);
  CHECK(differ < 18);
}

namespace {

/// Pages are written, shared, copied, moved up with turned keys, saved and loaded.
/// @return  what every sequence attended and got
template <class Player>
std::vector<result_log> live(Player& plays, const tape& says, const tape& other, const tape& rest) {
  plays.open(says);
  plays.play_plainly(0, 87);  // the open page is half full, so that the one that writes first copies it
  const index_t branch = fork(plays, 0, other);
  plays.play_plainly(branch, 110), plays.play_plainly(0, 120);
  plays.rollback(0, 112);
  const std::vector<float> frequencies(32, 0.125f);
  plays.cache.erase(plays.at(branch).seq, {20, 33}, zoomr::key_rotation({frequencies.data(), {32}}, -13));
  plays.at(branch).says = &rest;
  plays.voices.push_back({plays.cache.load(memory_source(saved(plays.cache, plays.at(0).seq))), &says, {}});
  for (index_t voice = 0; voice < 3; ++voice) plays.play_plainly(voice);
  std::vector<result_log> logs;
  for (index_t voice = 0; voice < 3; ++voice) logs.push_back(plays.at(voice).log);
  return logs;
}

template <class T, class Policy>
zoomr::config with_arena(const Policy& policy, zoomr::config limits, index_t blocks) {
  const zoomr::detail::layout sizes(model, zoomr::detail::any_policy_of<Policy>(policy), limits, true);
  limits.tiers.device = zoomr::byte_count{1} << 40;
  const zoomr::memory_use all = zoomr::kv_cache<Policy, T>::bytes(model, policy, limits);
  limits.tiers.device = all.total() - all.details + blocks * sizes.blocks.template bytes<T>();
  return limits;
}

}  // namespace

TEST_CASE_TEMPLATE("rounded keys of voters follow their pages, and over tiers have the bits of one memory", T, float,
                   zoomr::bfloat16) {
  const auto policy = small::sentence_voters;
  const tape says = make_tape(model, kind::peaked, markup::sentences, tokens, prompt, 7);
  const tape other = with_other_end(says, 87, prompt, 8), rest = other.without({20, 33});
  player<std::decay_t<decltype(policy)>, T> resident(model, policy, limits_in_blocks(policy, 3));
  const auto expected = live(resident, says, other, rest);
  for (index_t voice = 0; voice < 3; ++voice) {
    CHECK(check_copy(resident.cache, resident.at(voice).seq) >= 3 * resident.tokens(voice));
  }
  const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, zoomr::sync_transfers>{});
  player<std::remove_const_t<decltype(moved)>, T> tiers(model, moved,
                                                        with_arena<T>(moved, limits_in_blocks(policy, 3), 6));
  const auto found = live(tiers, says, other, rest);
  for (std::size_t voice = 0; voice < 3; ++voice) CHECK(difference(expected[voice], found[voice]) == "");
  CHECK(tiers.cache.tiers().misses > 500);
}

TEST_CASE("rounded keys of voters: what they take is counted, on the device they take less than keys") {
  const auto policy = small::sentence_voters;
  using policy_type = std::decay_t<decltype(policy)>;
  const zoomr::config stored = with_voters(policy, limits_for(tokens), model), blocks = limits_in_blocks(policy);
  const zoomr::byte_count lanes = zoomr::detail::voter_table::count_kv_lanes(model, stored.voters);
  const zoomr::byte_count copy = lanes * 160 * 2 * 34;  // 10 pages of two blocks a key
  using bytes_of = zoomr::kv_cache<policy_type>;
  CHECK(bytes_of::bytes(model, policy, blocks).summaries == bytes_of::bytes(model, policy, stored).summaries + copy);
  const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, zoomr::sync_transfers>{});
  using tiers = zoomr::kv_cache<std::remove_const_t<decltype(moved)>>;
  const auto summaries = [&](zoomr::config limits) {
    limits.tiers.device = zoomr::byte_count{1} << 40;
    return tiers::bytes(model, moved, limits).summaries;
  };
  CHECK(summaries(stored) - summaries(blocks) == lanes * 160 * 64 * 4 - copy);

  // Where details are on the host, keys that are scored count as the device's.
  auto on_host = policy;
  on_host.placement.details_on_host = true;
  const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, prompt, 3);
  const auto peak = [&](const zoomr::config& limits) {
    player<policy_type> plays(model, on_host, limits);
    plays.open(says);
    plays.play_plainly();
    return plays.cache.stats(plays.at(0).seq).device_peak;
  };
  const zoomr::byte_count saved = lanes * (tokens * 64 * 4 - 160 * 2 * 34);
  CHECK(std::abs(peak(stored) - peak(blocks) - saved) < saved / 3);  // they do not read the same segments

  // A policy that asks no voters has no copy.
  zoomr::config without = limits_for(tokens);
  const auto plain = zoomr::kv_cache<std::decay_t<decltype(small::quest)>>::bytes(model, small::quest, without);
  without.voter_keys = zoomr::voter_storage::q8_0;
  CHECK(zoomr::kv_cache<std::decay_t<decltype(small::quest)>>::bytes(model, small::quest, without) == plain);
}

TEST_CASE("rounded keys of voters: what cannot have them is refused") {
  const auto policy = small::sentence_voters;
  const auto sentence = [](const shape& of, auto number, const auto& its, zoomr::config limits) {
    limits = with_voters(its, limits, of);
    limits.voter_keys = zoomr::voter_storage::q8_0;
    return sentence_of([&] { zoomr::kv_cache<std::decay_t<decltype(its)>, decltype(number)>(of, its, limits); });
  };
  CHECK(sentence({1, 2, 2, 32}, 0.0f, policy, limits_for(tokens)) == "");
  CHECK(sentence({1, 2, 2, 48}, 0.0f, policy, limits_for(tokens)) ==
        "zoomr: config: voter_keys = q8_0 are blocks of 32 numbers: head_dim must be a multiple of 32");
  const char* const small_numbers = "zoomr: config: voter_keys = q8_0 is for caches whose numbers have 16 bits or more";
  CHECK(sentence(model, zoomr::int8{}, policy, limits_for(tokens)) == small_numbers);
  CHECK(sentence(model, zoomr::q8_0{}, policy, limits_for(tokens)) == small_numbers);
  std::vector<float> rows(1000);
  void* const keys[] = {rows.data()};
  void* const values[] = {rows.data() + 500};
  zoomr::config limits = limits_for(tokens);
  limits.engine =
      zoomr::engine_memory::nhd(view<void* const>(keys, {1}), view<void* const>(values, {1}), 2, 1, {1, 1, 1, 64});
  CHECK(sentence({1, 1, 1, 64}, 0.0f, with_placement(policy, zoomr::engine_pages{}), limits) ==
        "zoomr: config: voter_keys = q8_0 goes by the pages of a pool: not over an engine's pages");
}

}  // namespace zoomr_test
