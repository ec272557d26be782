// SPDX-License-Identifier: Apache-2.0
// Caches whose rows are blocks: they have the bits of caches of floats that are given what is stored, in pages of their
// own, an engine's, or tiers; and sequences that are saved, forked or cut.
#include <cache/support/block_lives.hpp>
#include <core/type_lists.hpp>
#include <support/paged_engine.hpp>
#include <support/state_digest.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::copy, std::max, std::min
#include <cmath>      // std::abs, std::isfinite
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using zoomr::mxfp8, zoomr::q4_0, zoomr::q8_0;

/// Rows are stored as they are.
zoomr::config untransformed(zoomr::config limits) {
  limits.transform_blocks = false;
  return limits;
}

template <class T>
void store(token_id, index_t, index_t, index_t, float* key, float* value, index_t dim) {
  for (float* const row : {key, value}) {
    const std::vector<T> stored = stored_row<T>(row, dim);
    for (index_t d = 0; d < dim; ++d) row[d] = zoomr::number_at(stored.data(), d);
  }
}

/// How far a number of a block may be from what is stored of it, if it is so many scales large.
template <class T>
float largest_error(float number) {
  if constexpr (std::is_same_v<T, mxfp8>) return number >= 448.0f ? 64.0f : std::max(number / 16.0f, 0x1p-10f);
  return std::is_same_v<T, q4_0> && number > 7.0f ? 1.001f : 0.501f;
}

template <class T>
class engine_player : public cache_holder<paged_engine<T>>, public driver<paged_engine<T>> {
 public:
  template <class Policy>
  engine_player(const Policy& policy, const engine_layout& lies)
      : cache_holder<paged_engine<T>>{paged_engine<T>(block_model, policy,
                                                      with_voters(policy, limits_for(tokens), block_model), lies)},
        driver<paged_engine<T>>(this->cache) {}
};

/// Rows of a head after one another, as ggml lays them: pages of one token. Or pages of the others, with gaps.
constexpr engine_layout layouts[] = {
    {1, false, false, 0}, {16, false, false, 0}, {16, true, true, 32}, {3, false, true, 96}, {48, true, false, 0}};

template <class T, class Policy>
void check_bits(const char* name, const Policy& policy, std::uint64_t seed) {
  constexpr kind looks[] = {kind::peaked, kind::uniform, kind::with_infinities};
  const markup text = seed % 2 == 0 ? markup::pairs : markup::sentences;
  const tape says = make_tape(block_model, looks[seed % 3], text, tokens, prompt, seed);
  CAPTURE(std::string(name));
  player<Policy> floats(block_model, policy, limits_for(tokens));
  floats.spoil = store<T>;
  player<Policy, T> stored(block_model, policy, untransformed(limits_for(tokens)));
  engine_player<T> engine(policy, layouts[seed % std::size(layouts)]);
  play_at_random(floats, says, seed), play_at_random(stored, says, seed), play_at_random(engine, says, seed);
  REQUIRE(difference(floats.at(0).log, stored.at(0).log) == "");
  REQUIRE(difference(floats.at(0).log, engine.at(0).log) == "");
  const zoomr::byte_count row = sizeof(T) * zoomr::stored_size<T>(64);
  const zoomr::byte_count slots = stored.cache.bytes(stored.at(0).seq).details / (2 * 2 * 2 * row);
  CHECK(slots % 16 == 0);
  CHECK(floats.cache.bytes(floats.at(0).seq).details == slots * 2 * 2 * 2 * 64 * 4);
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE(
    "in blocks: the bits of a cache of floats that is given what is stored, in an engine's pages too", T, bits) {
  std::uint64_t seed = 0;
  const auto check = [&](const char* name, const auto& policy) {
    for (int twice = 0; twice < 2; ++twice) check_bits<T>(name, policy, ++seed);
  };
  check("full", small::full);
  check("quest", small::quest);
  check("arkvale", small::arkvale);
  check("h2o", small::h2o);
  check("r_kv", small::r_kv);
  check("zoomr_mass", small::zoomr_mass);
  check("sentence_voters", small::sentence_voters);
}
TEST_CASE_TEMPLATE_APPLY(bits, unit::as_tuple<zoomr::block_types>);

TEST_CASE_TEMPLATE_DEFINE("in blocks: over tiers the bits of one memory; what was loaded goes on as what was saved", T,
                          tiers) {
  const auto check = [](const char* name, const auto& policy, index_t blocks) {
    CAPTURE(std::string(name));
    const tape says = make_tape(block_model, kind::peaked, markup::sentences, tokens, prompt, 7);
    const tape other = with_other_end(says, 87, prompt, 8), rest = other.without({20, 33});
    player<std::decay_t<decltype(policy)>, T> resident(block_model, policy,
                                                       with_voters(policy, limits_for(tokens, 3), block_model));
    const auto expected = live(resident, says, other, rest);
    const auto last = [](const result_log& log) { return result_log(log.lower_bound({112, 0}), log.end()); };
    REQUIRE(difference(last(expected[0]), last(expected[2])) == "");
    const auto moved = with_placement(policy, zoomr::tiered<zoomr::lru, zoomr::sync_transfers>{});
    player<std::remove_const_t<decltype(moved)>, T> tiers(
        block_model, moved,
        tiered_limits<T>(block_model, moved, with_voters(policy, limits_for(tokens, 3), block_model), blocks));
    const auto found = live(tiers, says, other, rest);
    for (std::size_t voice = 0; voice < 3; ++voice) CHECK(difference(expected[voice], found[voice]) == "");
    CHECK(tiers.cache.tiers().misses > 500);
  };
  check("quest", small::quest, 7);
  check("sentence_voters", small::sentence_voters, 6);
}
TEST_CASE_TEMPLATE_APPLY(tiers, unit::as_tuple<zoomr::block_types>);

TEST_CASE_TEMPLATE_DEFINE(
    "in blocks: keys behind an erased span are turned and stored again, values and keys before it stay", T, erased) {
  const tape says = make_tape(block_model, kind::uniform, markup::pairs, tokens, prompt, 3);
  player<std::decay_t<decltype(small::full)>> floats(block_model, small::full, limits_for(tokens));
  floats.spoil = store<T>;
  player<std::decay_t<decltype(small::full)>, T> stored(block_model, small::full, untransformed(limits_for(tokens)));
  const std::vector<float> frequencies(32, 0.125f);
  const auto live = [&](auto& plays) {
    plays.open(says);
    plays.play_plainly(0, 100);
    plays.cache.erase(plays.at(0).seq, {20, 33}, zoomr::key_rotation({frequencies.data(), {32}}, -13));
  };
  live(floats), live(stored);
  auto& float_core = zoomr::inspection::core(floats.cache);
  auto& block_core = zoomr::inspection::core(stored.cache);
  index_t turned = 0;  // that are no longer what they were
  for (index_t lane = 0; lane < block_model.kv_lanes(); ++lane) {
    const auto from = float_core.kv_lane(float_core.states[0], lane / 2, lane % 2);
    const auto to = block_core.kv_lane(block_core.states[0], lane / 2, lane % 2);
    for (index_t slot = 0; slot < 87; ++slot) {
      const std::vector<T> key = stored_row<T>(from.key(slot), 64), value = stored_row<T>(from.value(slot), 64);
      REQUIRE(std::equal(key.begin(), key.end(), to.key(slot)));
      REQUIRE(std::equal(value.begin(), value.end(), to.value(slot)));
      for (index_t d = 0; d < 64; ++d) {
        const float scale = std::abs(zoomr::storage_traits<T>::scale(to.key(slot)[zoomr::stored_size<T>(d)]));
        const float off = std::abs(from.key(slot)[d] - zoomr::number_at(to.key(slot), d));
        REQUIRE(off <= largest_error<T>(std::abs(from.key(slot)[d]) / scale) * scale);
        turned += off > 0.0f ? 1 : 0;
        if (slot < 20) REQUIRE(off == 0.0f);
      }
    }
  }
  CHECK(turned > 1000);
}
TEST_CASE_TEMPLATE_APPLY(erased, unit::as_tuple<zoomr::block_types>);

TEST_CASE_TEMPLATE_DEFINE("in blocks: what is not made of whole ones is refused", T, refused) {
  const auto sentence = [](const shape& wide, const zoomr::config& limits, const auto& policy) {
    return sentence_of([&] { zoomr::kv_cache<std::decay_t<decltype(policy)>, T>(wide, policy, limits); });
  };
  const std::string widths =
      "zoomr: config: a row of q8_0, q4_0 or mxfp8 is blocks of 32 numbers: head_dim and value_dim must be multiples "
      "of "
      "32";
  zoomr::config limits = limits_for(tokens);
  CHECK(sentence({1, 2, 2, 48}, limits, small::full) == widths);
  CHECK(sentence({1, 2, 2, 64, 40}, limits, small::full) == widths);
  CHECK(sentence({1, 2, 2, 96, 48, true}, limits, small::full) == widths);
  CHECK(sentence({1, 2, 2, 96, 32}, limits, small::full) == "");
  std::vector<T> rows(1000);
  void* const keys[] = {rows.data()};
  void* const values[] = {rows.data() + 500};
  const auto paged = with_placement(small::full, zoomr::engine_pages{});
  limits.engine =
      zoomr::engine_memory::nhd(view<void* const>(keys, {1}), view<void* const>(values, {1}), 2, 1, {1, 1, 1, 64});
  CHECK(sentence({1, 1, 1, 64}, limits, paged) == "");
  limits.engine.token_stride = 80;
  const std::string strides =
      "zoomr: config: engine's strides must be multiples of 32 numbers, which are a block of q8_0, q4_0 or mxfp8";
  CHECK(sentence({1, 1, 1, 64}, limits, paged) == strides);
  limits.engine.token_stride = 64, limits.engine.of_values = {72, 64, 64};
  CHECK(sentence({1, 1, 1, 64}, limits, paged) == strides);
}
TEST_CASE_TEMPLATE_APPLY(refused, unit::as_tuple<zoomr::block_types>);

TEST_CASE_TEMPLATE_DEFINE("in blocks: a latent's value is its first blocks", T, latents) {
  constexpr shape latent{1, 4, 1, 96, 64, true};
  zoomr::kv_cache<std::decay_t<decltype(small::full)>, T> cache(latent, small::full, untransformed(limits_for(32)));
  const auto seq = cache.open();
  const token_id ids[] = {5, 6, 7};
  auto step = cache.begin(seq, view<const token_id>(ids, {3}));
  std::vector<float> rows(3 * 96), queries(3 * 4 * 96, 0.0f), out(3 * 4 * 64);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i % 61) - 30.0f;
  step.append(0, view<const float, 3>(rows.data(), {3, 1, 96}), view<const float, 3>());
  step.attend(0, view<const float, 3>(queries.data(), {3, 4, 96}), view<float, 3>(out.data(), {3, 4, 64}));
  step.commit();
  const std::vector<T> first = stored_row<T>(rows.data(), 96);
  for (index_t d = 0; d < 64; ++d) CHECK(out[static_cast<std::size_t>(d)] == zoomr::number_at(first.data(), d));
  CHECK(cache.bytes(seq).details == 16 * sizeof(T) * zoomr::stored_size<T>(96));
}
TEST_CASE_TEMPLATE_APPLY(latents, unit::as_tuple<zoomr::block_types>);

}  // namespace zoomr_test
