// SPDX-License-Identifier: Apache-2.0
// Keys of heads that vote, rounded to blocks of q8_0 beside the pages: choices are those of a cache whose keys are
// rounded, what is attended has the bits of the pages, and the copy follows whatever writes or moves a key.
#include <cache/support/block_lives.hpp>
#include <support/state_digest.hpp>
#include <zoomr/policy/placement/engine_pages.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::equal
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using zoomr::q8_0;

/// What a cache of floats is given in the place of keys: those of a cache of `T`, rounded to blocks.
template <class T>
void round_key(token_id, index_t, index_t, index_t, float* key, float*, index_t width) {
  for (index_t d = 0; d < width; ++d) key[d] = zoomr::to_float(zoomr::from_float<T>(key[d]));
  const std::vector<q8_0> blocks = stored_row<q8_0>(key, width);
  for (index_t d = 0; d < width; ++d) key[d] = zoomr::number_at(blocks.data(), d);
}

template <class Policy>
zoomr::config limits_in_blocks(const Policy& policy, index_t sequences = 1) {
  zoomr::config limits = with_voters(policy, limits_for(tokens, sequences), block_model);
  limits.voter_keys = zoomr::voter_storage::q8_0;
  return limits;
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
    const auto to = core.keys.rounded(core.voters.place_of(lane.layer, lane.kv_head), view<const index_t>(state.pages));
    for (index_t slot = 0; slot < state.slots(); ++slot, ++compared) {
      float key[64];
      for (index_t d = 0; d < 64; ++d) key[d] = zoomr::to_float(from.key(slot)[d]);
      const std::vector<q8_0> blocks = stored_row<q8_0>(key, 64);
      REQUIRE(std::equal(blocks.begin(), blocks.end(), to.key(slot)));
    }
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
      const tape says = make_tape(block_model, looks[seed % 3], seed % 2 == 0 ? markup::pairs : markup::sentences,
                                  tokens, prompt, seed);
      CAPTURE(std::string(name));
      CAPTURE(seed);
      player<policy_type> spoilt(block_model, policy, limits_for(tokens));
      spoilt.spoil = round_key<T>;
      player<policy_type, T> plain(block_model, policy, limits_for(tokens));
      player<policy_type, T> blocks(block_model, policy, limits_in_blocks(policy));
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

TEST_CASE_TEMPLATE("rounded keys of voters follow their pages, and over tiers have the bits of one memory", T, float,
                   zoomr::bfloat16) {
  const auto policy = small::sentence_voters;
  const tape says = make_tape(block_model, kind::peaked, markup::sentences, tokens, prompt, 7);
  const tape other = with_other_end(says, 87, prompt, 8), rest = other.without({20, 33});
  player<std::decay_t<decltype(policy)>, T> resident(block_model, policy, limits_in_blocks(policy, 3));
  const auto expected = live(resident, says, other, rest);
  for (index_t voice = 0; voice < 3; ++voice) {
    CHECK(check_copy(resident.cache, resident.at(voice).seq) >= 3 * resident.tokens(voice));
  }
  const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, zoomr::sync_transfers>{});
  player<std::remove_const_t<decltype(moved)>, T> tiers(
      block_model, moved, tiered_limits<T>(block_model, moved, limits_in_blocks(policy, 3), 6));
  const auto found = live(tiers, says, other, rest);
  for (std::size_t voice = 0; voice < 3; ++voice) CHECK(difference(expected[voice], found[voice]) == "");
  CHECK(tiers.cache.tiers().misses > 500);
}

TEST_CASE("rounded keys of voters: what they take is counted, over tiers they take less than keys") {
  const auto policy = small::sentence_voters;
  using policy_type = std::decay_t<decltype(policy)>;
  const zoomr::config stored = with_voters(policy, limits_for(tokens), block_model), blocks = limits_in_blocks(policy);
  const zoomr::byte_count lanes = zoomr::detail::voter_table::count_kv_lanes(block_model, stored.voters);
  const zoomr::byte_count copy = lanes * 160 * 2 * 34;  // 10 pages of two blocks a key
  using bytes_of = zoomr::kv_cache<policy_type>;
  CHECK(bytes_of::bytes(block_model, policy, blocks).summaries ==
        bytes_of::bytes(block_model, policy, stored).summaries + copy);
  const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, zoomr::sync_transfers>{});
  using tiers = zoomr::kv_cache<std::remove_const_t<decltype(moved)>>;
  const auto summaries = [&](zoomr::config limits) {
    limits.tiers = {.host = zoomr::byte_count{1} << 40, .file = zoomr::byte_count{1} << 40, .path = "/tmp"};
    return tiers::bytes(block_model, moved, limits).summaries;
  };
  CHECK(summaries(stored) - summaries(blocks) == lanes * 160 * 64 * 4 - copy);

  // Where details are on the host, keys that are scored count as the device's.
  auto on_host = policy;
  on_host.placement.details_on_host = true;
  const tape says = make_tape(block_model, kind::uniform, markup::sentences, tokens, prompt, 3);
  const auto peak = [&](const zoomr::config& limits) {
    player<policy_type> plays(block_model, on_host, limits);
    plays.open(says);
    plays.play_plainly();
    return plays.cache.stats(plays.at(0).seq).device_peak;
  };
  const zoomr::byte_count saved = lanes * (tokens * 64 * 4 - 160 * 2 * 34);
  CHECK(std::abs(peak(stored) - peak(blocks) - saved) < saved / 3);  // they do not read the same segments

  // A policy that asks no voters has no copy.
  zoomr::config without = limits_for(tokens);
  const auto plain = zoomr::kv_cache<std::decay_t<decltype(small::quest)>>::bytes(block_model, small::quest, without);
  without.voter_keys = zoomr::voter_storage::q8_0;
  CHECK(zoomr::kv_cache<std::decay_t<decltype(small::quest)>>::bytes(block_model, small::quest, without) == plain);
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
  CHECK(sentence(block_model, zoomr::int8{}, policy, limits_for(tokens)) == small_numbers);
  CHECK(sentence(block_model, zoomr::q8_0{}, policy, limits_for(tokens)) == small_numbers);
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
