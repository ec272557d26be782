// SPDX-License-Identifier: Apache-2.0
// Ranks that divide the tokens of each sequence choose as one cache, and attend what it attends.
#include <cache/ranks/ranked_cache.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <zoomr/policy/placement/engine_pages.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

#include <algorithm>    // std::max
#include <array>        // std::array
#include <chrono>       // std::chrono
#include <cstdlib>      // std::getenv, std::strtoull
#include <exception>    // std::rethrow_exception
#include <string>       // std::string
#include <type_traits>  // std::decay_t, std::remove_const_t
#include <utility>      // std::exchange
#include <vector>       // std::vector

namespace zoomr_test {
namespace {

using namespace std::chrono_literals;

constexpr shape model{2, 4, 2, 8};
constexpr auto voters = zoomr::compose(
    zoomr::fixed_pages{.longest = 8}, zoomr::key_mass{}, zoomr::head_posterior{.queries = 3},
    zoomr::top_p{.share = 0.9f}, zoomr::every_token{}, zoomr::zones{.sinks = 0, .recent = 1, .open = zoomr::unlimited});
const std::vector<head_split> deals = {dealt(2, 16), dealt(3, 16), dealt(4, 16), dealt(2, 48), dealt(3, 32)};

/// Of each policy, at least.
const std::uint64_t lives = std::max<std::uint64_t>(
    3, std::getenv("ZOOMR_SEEDS") != nullptr ? std::strtoull(std::getenv("ZOOMR_SEEDS"), nullptr, 10) : 0);

template <class Policy>
constexpr bool needs_all_tokens(const Policy&) {
  if constexpr (requires(Policy p) { p.aggregate.queries; }) return decltype(Policy::evict)::observes;
  return decltype(Policy::evict)::observes || reads_keys<Policy>;
}

zoomr::config limits_of(const tape& says, index_t window, index_t sequences = 1) {
  zoomr::config limits = limits_for(says.size() + 3, sequences);
  limits.max_draft_tokens = 23;
  limits.logits.window = window;
  return limits;
}

/// What a rank keeps of a sequence is its own, or not yet settled, or ends a segment of its own.
/// @param scores_keys  segments are scored where they begin
void check_pages(ranked_player& plays, index_t deal, bool scores_keys) {
  const index_t ranks = static_cast<index_t>(plays.cache.caches.size()), depth = limits_for(1).rollback_tokens;
  for (voice& each : plays.voices) {
    for (index_t rank = 0; rank < ranks; ++rank) {
      auto& cache = plays.cache.at(rank);
      const auto lane = cache.kv_lane(each.seq, 1, 0);
      const index_t tokens = cache.tokens(each.seq);
      index_t held = 0;
      bool holds_own = true;
      for (index_t slot = 0; slot < tokens; slot += 16) {
        const bool own = slot / deal % ranks == rank;
        if (own && slot >= cache.passed_slots(each.seq)) holds_own = holds_own && lane.holds(slot);
        bool ends_own = false;
        for (const zoomr::segment& s : cache.segments(each.seq))
          ends_own = ends_own || (s.begin / deal % ranks == rank && s.begin < slot + 16 && s.end > slot);
        if (scores_keys && ends_own) holds_own = holds_own && lane.holds(slot);
        held += !own && !(scores_keys && ends_own) && lane.holds(slot) ? 16 : 0;
      }
      REQUIRE(holds_own);
      REQUIRE(held <= depth + 40 + 32);  // the longest segment, and pages that are cut
    }
  }
}

template <class Policy>
void check_lives(const head_split& split, const Policy& policy, const tape& says, index_t window, std::uint64_t seed,
                 happened& all) {
  player<Policy> alone(model, policy, limits_of(says, window));
  alone.open(says);
  alone.play_plainly();
  zoomr::thread_ranks plain_ends(split.ranks()), ends(split.ranks());
  ranked_player plainly({model, split}, policy, limits_of(says, window), all_of(plain_ends));
  plainly.open(says);
  plainly.play_plainly();
  const log_comparison close = compared(alone.at(0).log, plainly.at(0).log, tolerance_of(8, says.size()));
  CAPTURE(close.place.first);
  REQUIRE(close.difference == "");
  ranked_player plays({model, split}, policy, limits_of(says, window, 3), all_of(ends));
  plays.open(says);
  live(
      policy, plays, seed, all, [](index_t) {},
      [&](dice& random) {
        any_step(plays, random, all, takes_back_alike<Policy>);
        if (!frees_pages(policy)) check_pages(plays, split.deal, reads_keys<Policy>);
      });
  for (voice& each : plays.voices) REQUIRE(difference(plainly.at(0).log, each.log) == "");
}

}  // namespace

TEST_CASE("ranks choose as one cache and attend the same tokens, whatever befalls their sequences") {
  std::size_t policies = 0;  // so that each has other deals
  for_each_policy([&](const char* name, const auto& policy) {
    using policy_type = std::decay_t<decltype(policy)>;
    if (needs_all_tokens(policy)) return;
    ++policies;
    happened all;
    for (std::uint64_t seed = 1; seed <= lives; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      tape says = conversation(model, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
      if (frees_pages(policy)) says.later_prompts.clear();
      if (seed % 2 == 1) says = with_whole_items(policy, says, seed);
      const index_t window = !policy_type::selects && seed % 3 == 1 ? 50 : 0;
      check_lives(deals[(seed + policies) % deals.size()], policy, says, window, seed, all);
    }
    CAPTURE(std::string(name));
    CHECK(all.forked > 0);
  });
}

TEST_CASE("of a long sequence each rank has its part, and where a prompt ends changes no bit") {
  constexpr shape small_model{1, 2, 1, 8};
  constexpr index_t tokens = 2560, prompt = 2400, earlier = 2250;
  for (const index_t window : {0, 1700}) {
    for (const head_split& split : {dealt(2, 256), dealt(3, 64)}) {
      const tape says = make_tape(small_model, kind::uniform, markup::sentences, tokens, prompt, 5);
      tape other = says;
      other.prompt = earlier;
      zoomr::config limits = limits_of(says, window);
      limits.max_batched_tokens = 333;
      limits.pool_tokens = 0;
      zoomr::thread_ranks ends(split.ranks()), other_ends(split.ranks());
      ranked_player plays({small_model, split}, small::full, limits, all_of(ends));
      ranked_player decodes({small_model, split}, small::full, limits, all_of(other_ends));
      player<std::remove_const_t<decltype(small::full)>> alone(small_model, small::full, limits);
      const auto play = [](auto& to_play, const tape& text) {
        to_play.open(text);
        while (!to_play.done())
          to_play.play({part_of(text, 0, to_play.tokens(), to_play.tokens() < text.prompt ? 333 : 8)});
      };
      play(plays, says), play(decodes, other), play(alone, says);
      for (index_t t = earlier; t < tokens; ++t) {
        const token_result &a = plays.at(0).log.at({t, 0}), &b = decodes.at(0).log.at({t, 0});
        REQUIRE(a.out == b.out);
        REQUIRE(a.lse == b.lse);
      }
      const log_comparison close = compared(alone.at(0).log, plays.at(0).log, tolerance_of(8, tokens));
      REQUIRE(close.difference == "");
      const zoomr::byte_count page = 16 * 2 * 8 * 4, all = alone.cache.bytes(alone.at(0).seq).details;
      for (index_t rank = 0; rank < split.ranks(); ++rank) {
        // the pages that a rollback and the next token may write, those that a window cuts, and a deal more than others
        const zoomr::byte_count most = all / split.ranks() + page * (24 / 16 + 4 + split.deal / 16);
        CHECK(plays.cache.at(rank).bytes(plays.at(0).seq).details <= most);
        if (window == 0)
          CHECK(plays.cache.at(rank).capacity().details <=
                alone.cache.capacity().details / split.ranks() + page * (24 / 16 + 8 + split.deal / 16 + 333 / 16));
      }
    }
  }
}

TEST_CASE("messages and bytes of dealt tokens are those that are worked out by hand") {
  const auto check = [](const auto& policy, std::int64_t messages, zoomr::byte_count bytes) {
    const tape says = make_tape(model, kind::peaked, markup::sentences, 80, 60, 3);
    zoomr::thread_ranks ends(2);
    ranked_player plays({model, dealt(2, 16)}, policy, limits_of(says, 0), all_of(ends));
    plays.open(says);
    plays.play_plainly(0, 60), plays.play_plainly();
    for (index_t rank = 0; rank < 2; ++rank) {
      CHECK(plays.cache.at(rank).ranks().messages == messages);
      CHECK(plays.cache.at(rank).ranks().bytes == bytes);
    }
  };
  // A prompt of 60 tokens, then 20 tokens, in two layers; a state is 2 + 8 numbers, of 4 heads.
  constexpr std::int64_t states = 2 * (1 + 20), state_bytes = states * 32 + 2 * 80 * 4 * (2 + 8) * 4;
  check(small::full, states, state_bytes);
  check(small::quest, states, state_bytes);
  // Four voters. All have met before the prompt's end is committed. Pages of 8 tokens; the first two are of rank 0,
  // the next two of rank 1. The largest number of scores that a rank sends is that of three queries and 4 of 7 pages;
  // for 4 tokens, 4 of 7. The eighth page comes with token 63: so for token 64 there are 4 of 8 pages, and one more by
  // the query before; for 7 tokens 4 of 8. The ninth comes with token 71: 5 and one more, and 5 for 7 tokens.
  constexpr std::int64_t scores = 4 * (3 * 4 + 4 * 4 + (4 + 1) + 7 * 4 + (5 + 1) + 7 * 5);
  check(voters, states + 2 + 20, state_bytes + (2 + 20) * 32 + scores * 4);
}

TEST_CASE("where a rank does not get an answer the step never happened, and may be passed again") {
  const auto check = [](const auto& policy, index_t messages) {
    const tape says = make_tape(model, kind::peaked, markup::sentences, 110, 60, 3);
    zoomr::thread_ranks sound_ends(2), ends(2, 300ms);
    ranked_player sound({model, dealt(2, 16)}, policy, limits_of(says, 0), all_of(sound_ends));
    sound.open(says);
    sound.play_plainly();
    frail_end frail[2] = {{ends.end(0)}, {ends.end(1)}};
    ranked_player plays({model, dealt(2, 16)}, policy, limits_of(says, 0),
                        {zoomr::rank_group(frail[0]), zoomr::rank_group(frail[1])});
    plays.open(says);
    plays.play_plainly(0, 60);
    int failed = 0, refused = 0;
    dice random(7);
    bool in_choice = false;
    while (!plays.done()) {
      const index_t before = plays.tokens();
      const bool was_in_choice = std::exchange(in_choice, false);
      const auto fault = was_in_choice
                             ? frail_end::sound
                             : random.one_of(std::array{frail_end::damaged, frail_end::deaf, frail_end::sound});
      frail[1].fault = fault;
      frail[1].before = random.between(0, messages - 1);
      in_choice = fault != frail_end::sound && frail[1].before == 2;
      const std::string said = sentence_of([&] { plays.play({part_of(says, 0, before, 1)}); });
      frail[1].fault = frail_end::sound;
      if (said.empty()) {
        CHECK(fault == frail_end::sound);
        continue;
      }
      CAPTURE(said);
      CHECK(contains(said, "ranks: rank "));
      CHECK(plays.cache.at(1).tokens(plays.at(0).seq) == before);
      plays.rollback(0, before);        // a rank that has committed it
      if (fault == frail_end::sound) {  // ranks knew other scores: they forget them, and know the same
        CHECK(was_in_choice);
        ++refused;
      } else {
        failed += contains(said, fault == frail_end::damaged ? "rank 1 has sent a message that came damaged"
                                                             : "rank 0 has not answered in time")
                      ? 1
                      : 0;
      }
    }
    CHECK((refused > 0) == (messages > 2));
    CHECK(failed > 10);
    CHECK(difference(sound.at(0).log, plays.at(0).log) == "");
  };
  check(small::full, 2);
  check(voters, 3);
}

TEST_CASE("a rank that is gone, passes something else or has another config is named") {
  const tape says = make_tape(model, kind::peaked, markup::sentences, 110, 60, 3);
  const auto said_by = [&](auto change, auto fault) {
    zoomr::thread_ranks ends(2, 300ms);
    frail_end frail[2] = {{ends.end(0)}, {ends.end(1)}};
    std::vector<zoomr::any_kv_cache<float>> caches;
    for (frail_end& end : frail) {
      zoomr::config limits = limits_of(says, 0);
      limits.token_ranks = {end, 16};
      if (end.rank() == 1) change(limits);
      caches.push_back(zoomr::kv_cache<std::remove_const_t<decltype(small::full)>, float>(model, small::full, limits));
    }
    frail[1].fault = fault;
    rank_workers workers(2);
    workers.run_all([&](index_t rank) {
      auto& cache = caches[static_cast<std::size_t>(rank)];
      const zoomr::sequence seq = cache.open();
      const part next = part_of(says, 0, 0, rank == 1 && fault == frail_end::deaf ? 19 : 20);
      auto step = cache.begin(seq, view<const token_id>(next.ids));
      const std::vector<float> zeros(20 * 32, 0.0f);
      std::vector<float> out(20 * 32);
      const index_t tokens = step.tokens();
      step.append(0, view<const float, 3>(zeros.data(), {tokens, 2, 8}),
                  view<const float, 3>(zeros.data(), {tokens, 2, 8}));
      step.attend(0, view<const float, 3>(zeros.data(), {tokens, 4, 8}), view<float, 3>(out.data(), {tokens, 4, 8}));
    });
    return sentence_of([&] {
      if (workers.failures[0]) std::rethrow_exception(workers.failures[0]);
    });
  };
  const auto same = [](zoomr::config&) {};
  CHECK(said_by(same, frail_end::sound).empty());
  CHECK(contains(said_by(same, frail_end::mute), "ranks: rank 1 has not answered in time"));
  CHECK(contains(said_by(same, frail_end::deaf), "ranks: rank 1 has not answered in time, or has sent a message of"));
  const auto other_deal = [](zoomr::config& limits) { limits.token_ranks.deal = 32; };
  CHECK(contains(said_by(other_deal, frail_end::sound), "ranks: rank 1 has another policy, config or shape"));
  const auto other_depth = [](zoomr::config& limits) { limits.rollback_tokens = 9; };
  CHECK(contains(said_by(other_depth, frail_end::sound), "ranks: rank 1 has another policy, config or shape"));
}

TEST_CASE("tokens that cannot be dealt out are refused with a sentence, and so are calls that need all of them") {
  zoomr::thread_ranks ends(2);
  const auto refused = [&](const auto& policy, auto change) {
    zoomr::config limits = with_voters(policy, limits_for(100), model);
    limits.token_ranks = {ends.end(0), 16};
    change(limits);
    using policy_type = std::decay_t<decltype(policy)>;
    return sentence_of([&] { const zoomr::kv_cache<policy_type, float> cache(model, policy, limits); });
  };
  const auto nothing = [](zoomr::config&) {};
  const auto deal = [](index_t slots) { return [slots](zoomr::config& limits) { limits.token_ranks.deal = slots; }; };
  CHECK(refused(small::full, nothing).empty());
  CHECK(contains(refused(small::full, deal(24)), "token_ranks.deal must be a multiple of 16"));
  CHECK(contains(refused(small::full, deal(0)), "token_ranks.deal must be a multiple of 16"));
  CHECK(contains(refused(small::snapkv, nothing), "token_ranks are for policies that evict nothing"));
  CHECK(contains(refused(small::by_keys, nothing), "this one scores keys by each token's own query"));
  const auto audit = [](zoomr::config& limits) { limits.audit = true; };
  CHECK(contains(refused(small::full, audit), "config: audit reads all keys"));
  const auto heads_too = [&](zoomr::config& limits) { limits.ranks.group = ends.end(0); };
  CHECK(contains(refused(small::full, heads_too), "ranks divide heads, token_ranks tokens: not both"));
  constexpr auto tiered = zoomr::compose(small::full.zone, zoomr::tiered<>{});
  const auto some_memory = [](zoomr::config& limits) { limits.tiers.host = 1 << 20; };
  CHECK(contains(refused(tiered, some_memory), "config: ranks over tiers"));
  constexpr auto in_engine = zoomr::compose(small::full.zone, zoomr::engine_pages{});
  CHECK(contains(refused(in_engine, nothing), "not over an engine's pages"));

  zoomr::config limits = limits_for(100);
  limits.token_ranks = {ends.end(0), 16};
  zoomr::kv_cache<std::remove_const_t<decltype(small::full)>, float> cache(model, small::full, limits);
  CHECK_FALSE(cache.holds_all());
  const zoomr::sequence seq = cache.open();
  const std::vector<token_id> ids(40, 1);
  auto step = cache.begin(seq, view<const token_id>(ids), true);
  const std::vector<float> zeros(40 * 32, 0.0f);
  for (index_t layer = 0; layer < 2; ++layer) {
    step.append(layer, view<const float, 3>(zeros.data(), {40, 2, 8}), view<const float, 3>(zeros.data(), {40, 2, 8}));
    step.observe(layer, view<const float, 3>(zeros.data(), {40, 4, 8}));  // needs no other rank
  }
  step.commit();
  memory_sink to;
  memory_source from(to.bytes);
  CHECK(contains(sentence_of([&] { cache.save(seq, to); }), "save: config.token_ranks divide the tokens"));
  CHECK(contains(sentence_of([&] { cache.save_bytes(seq); }), "save_bytes: config.token_ranks divide the tokens"));
  CHECK(contains(sentence_of([&] { cache.load(from); }), "load: config.token_ranks divide the tokens"));
  CHECK(contains(sentence_of([&] { cache.erase(seq, {3, 7}); }), "erase: config.token_ranks divide the tokens"));
  CHECK(contains(sentence_of([&] { cache.shift(seq, {38, 40}, 1); }), "shift: config.token_ranks divide the tokens"));
  CHECK(cache.tokens(seq) == 40);
  cache.erase(seq, {39, 40});  // a rollback
  CHECK(cache.tokens(seq) == 39);
  CHECK(cache.ranks().messages == 0);
}

TEST_CASE("a rollback goes as far as no page is missed, or to nothing") {
  zoomr::thread_ranks ends(2);
  zoomr::config limits = limits_for(100);  // 24 tokens can be rolled back
  limits.token_ranks = {ends.end(0), 16};
  zoomr::kv_cache<std::remove_const_t<decltype(small::full)>, float> cache(model, small::full, limits);
  const zoomr::sequence seq = cache.open();
  const auto pass = [&](index_t tokens, bool prompt_ends) {
    const std::vector<token_id> ids(static_cast<std::size_t>(tokens), 1);
    const std::vector<float> zeros(100 * 32, 0.0f);
    auto step = cache.begin(seq, view<const token_id>(ids), prompt_ends);
    for (index_t layer = 0; layer < 2; ++layer) {
      step.append(layer, view<const float, 3>(zeros.data(), {tokens, 2, 8}),
                  view<const float, 3>(zeros.data(), {tokens, 2, 8}));
      step.observe(layer, view<const float, 3>(zeros.data(), {tokens, 4, 8}));  // needs no other rank
    }
    step.commit();
  };
  for (const bool prompt_ends : {false, true}) {
    pass(40, false), pass(60, prompt_ends);
    // of 7 pages the second and the fourth; the sixth may be written again
    const auto lane = cache.kv_lane(seq, 0, 0);
    for (index_t page = 0; page < 7; ++page) CHECK(lane.holds(page * 16) == (page != 1 && page != 3));
    CHECK(cache.bytes(seq).details == 5 * 16 * 2 * 2 * 2 * 8 * 4);
    CHECK(contains(sentence_of([&] { cache.rollback(seq, 63); }), "config.rollback_tokens is 24"));
    CHECK(cache.tokens(seq) == 100);
    cache.rollback(seq, 64);
    CHECK(cache.tokens(seq) == 64);
    cache.rollback(seq, 0);
    CHECK(cache.bytes(seq).details == 0);
  }
}

TEST_CASE("an engine's kernel is told which slots of a rank's own each query reads") {
  zoomr::thread_ranks ends(2);
  std::vector<index_t> counts(50);
  for (index_t rank = 0; rank < 2; ++rank) {
    zoomr::config limits = limits_for(100);
    limits.token_ranks = {ends.end(rank), 16};
    zoomr::kv_cache<std::remove_const_t<decltype(small::full)>, float> cache(model, small::full, limits);
    const zoomr::sequence seq = cache.open();
    const std::vector<float> zeros(48 * 32, 0.0f);
    for (const index_t tokens : {48, 1}) {
      const std::vector<token_id> ids(static_cast<std::size_t>(tokens), 1);
      auto step = cache.begin(seq, view<const token_id>(ids), tokens == 48);
      for (index_t layer = 0; layer < 2; ++layer) {
        step.append(layer, view<const float, 3>(zeros.data(), {tokens, 2, 8}),
                    view<const float, 3>(zeros.data(), {tokens, 2, 8}));
        const view<const float, 3> queries(zeros.data(), {tokens, 4, 8});
        step.list_slots(layer, queries, [&](const zoomr::slots_read& read) {
          if (layer > 0 || read.kv_head > 0 || read.token + 1 < tokens) return;
          for (const zoomr::token_range& r : read.slots) {
            for (index_t slot = r.first; slot < r.last; ++slot) {
              REQUIRE(slot / 16 % 2 == rank);
              ++counts[static_cast<std::size_t>(slot)];
            }
          }
        });
      }
      step.commit();
    }
  }
  for (index_t slot = 0; slot < 48; ++slot) CHECK(counts[static_cast<std::size_t>(slot)] == 2);
  CHECK(counts[48] == 1);
}

}  // namespace zoomr_test
