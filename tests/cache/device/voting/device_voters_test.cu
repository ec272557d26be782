// SPDX-License-Identifier: Apache-2.0
// Heads that vote on the device: the same choices as the host's, whatever becomes of a sequence. Forks, moves, groups,
// graphs, an engine's pages and long indexes are in the tests of these.
#include <cache/device/device_against_host.hpp>
#include <cache/support/model_logits.hpp>
#include <cache/support/small_policies.hpp>
#include <support/nightly.hpp>
#include <support/stride.hpp>
#include <zoomr/device_transfer.cuh>

#include <doctest/doctest.h>

#include <algorithm>  // std::ranges::count

namespace zoomr_test {
namespace {

/// Voters that are asked at every few tokens alone, so that there are drafts.
inline constexpr auto seldom =
    zoomr::compose(zoomr::sentences{.longest = 9}, zoomr::key_mass{}, zoomr::head_posterior{.queries = 4},
                   zoomr::top_p{.share = 0.9f, .segments = 3, .tokens = 30, .neighbours = 1},
                   zoomr::boundaries{.at_most = 5}, zoomr::zones{.sinks = 2, .recent = 6});

using sentences_type = std::remove_const_t<decltype(small::sentence_voters)>;

template <class Policy>
auto hearing(const Policy& policy, index_t queries) {
  return with(policy, [&](auto& p) { p.aggregate.queries = queries; });
}

/// Keys and queries of a text of another storage type, in another shape.
/// @tparam Number  of what an engine brings
template <class T, index_t HeadDim, index_t Group, class Number = float, class Policy>
void check_stored(const Policy& policy, kind look, std::uint64_t seed, float key_scale = 1.0f, double rounding = 0.0) {
  CAPTURE(seed);
  constexpr shape other{2, 2 * Group, 2, HeadDim};
  const tape says = make_tape(other, look, markup::sentences, tokens, 30, seed);
  zoomr::config limits = limits_for(tokens);
  limits.key_scale.all = key_scale;
  limits.value_scale.all = sizeof(T) == 1 ? 1.0f / 64 : 1.0f;
  player<Policy, T> host(other, policy, limits);
  player<Policy, T, device_as_host<Policy, T, HeadDim, Group, Number>> device(other, policy, limits);
  host.open(says), device.open(says);
  play_wildly(host, policy, seed);
  play_wildly(device, policy, seed);
  compare(host.at(0).log, device.at(0).log, HeadDim, rounding);
}

/// Plays the same on both: play(player).
template <class Policy, class Play>
void check_plays(const Policy& policy, const zoomr::config& limits, Play play) {
  player<Policy> host(model, policy, limits);
  device_player<Policy> device(model, policy, limits);
  play(host), play(device);
  compare(host.at(0).log, device.at(0).log);
}

}  // namespace

TEST_CASE("zoomr_voters and sentence_voters: chunks, dropped steps and rollbacks, as for a graph too") {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties, kind::with_infinities};
  constexpr markup texts[] = {markup::pairs, markup::stray, markup::sentences, markup::summaries_alone};
  for (const std::uint64_t seed : seeds_from(1, 4)) {
    if (stride() == 1 || seed == 3) check(small::zoomr_voters, looks[seed % 4], texts[seed % 4], seed, seed == 3);
    if (stride() == 1 || seed == 1)
      check(small::sentence_voters, looks[seed % 4], texts[(seed + 1) % 4], seed, seed % 2 == 1);
  }
}

TEST_CASE("heads with weights are asked by summaries: as on the host, in batches and for a graph too") {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties, kind::with_infinities};
  for (const std::uint64_t seed : seeds_from(1, 4)) {
    check(small::weighted_votes, looks[seed % 4], markup::pairs, seed, seed == 3);
    check(small::weighted_mass, looks[seed % 4], markup::stray, seed, seed == 2);
  }
  check_together(small::weighted_votes, 1);
  const auto at_boundaries =
      zoomr::compose(zoomr::sentences{.longest = 9}, zoomr::key_box{}, zoomr::box_bound{}, zoomr::running_mean{},
                     zoomr::weighted(zoomr::head_mass{}), zoomr::top_p{.segments = 3}, zoomr::boundaries{.at_most = 5},
                     zoomr::zones{.recent = 6});
  for (const std::uint64_t seed : {1u, 2u}) check(at_boundaries, looks[seed], markup::sentences, seed);
}

TEST_CASE("drafts end where a choice is due, and rejected tokens are not heard") {
  for (const std::uint64_t seed : seeds_from(1, 3)) {
    check(seldom, kind::peaked, markup::sentences, seed, seed == 2, 0, {}, seed == 3 ? 20 : short_draft);
  }
}

TEST_CASE("queries that a rollback needs are not those whose places rejected tokens take") {
  const auto policy = hearing(seldom, 8);
  zoomr::config limits = limits_for(tokens);
  limits.rollback_tokens = 3;
  const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 30, 4);
  const auto play = [&](auto& plays) {
    plays.open(says);
    plays.play_plainly(0, 30);
    for (index_t turn = 1; plays.tokens() + 6 < tokens; ++turn) {
      part draft = plays.next(0, 6);
      for (std::size_t i = 1; i < draft.ids.size(); ++i) draft.ids[i] = 29;  // what the text does not say
      plays.play({draft});
      if (turn % 5 == 0) plays.rollback(0, plays.tokens() - 3);
    }
  };
  check_plays(policy, limits, play);
}

TEST_CASE("any number of queries is heard, more than a warp has lanes too") {
  for (const index_t queries : {1, 40}) {
    CAPTURE(queries);
    check(hearing(small::sentence_voters, queries), kind::peaked, markup::sentences, 5);
    if (stride() > 1 && queries > 1) continue;
    check(hearing(small::zoomr_voters, queries), kind::uniform, markup::pairs, 6, true);
  }
}

TEST_CASE("logits of voters are those of the model") {
  for (const model_rule& one : some_of(some_of(all_model_rules(model)))) {
    CAPTURE(one.name);
    check(small::sentence_voters, kind::with_infinities, markup::sentences, 4, false, 0, one.rule());
  }
  zoomr::logit_rule rule;
  rule.window = 33;  // what a segment has left shrinks in front
  check(hearing(small::zoomr_voters, 16), kind::peaked, markup::pairs, 8, false, 0, rule);
}

TEST_CASE("sequences of a batch choose side by side") {
  for (const std::uint64_t seed : {1u, 2u}) {
    check_together(small::zoomr_voters, seed, 1);
    check_together(seldom, seed);
  }
}

TEST_CASE("keys of any storage type, and widths that no warp divides") {
  using zoomr::bfloat16, zoomr::float16, zoomr::float8, zoomr::int8;
  // of these keys and queries 16 bits hold everything
  const double halved = tolerance::rounded_weights(7, tokens) + tolerance::rounded(7);
  check_stored<bfloat16, 64, 4, bfloat16>(small::zoomr_voters, kind::ties, 3, 1.0f, halved);
  ZOOMR_NIGHTLY(check_stored<float16, 96, 2, float16>(small::sentence_voters, kind::ties, 4, 1.0f, halved));
  ZOOMR_NIGHTLY(check_stored<int8, 128, 1>(small::zoomr_voters, kind::peaked, 5, 1.0f / 32));
  ZOOMR_NIGHTLY(check_stored<float8, 48, 2>(small::sentence_voters, kind::uniform, 6, 1.0f / 64));
  ZOOMR_NIGHTLY(check_stored<float, 40, 8>(small::sentence_voters, kind::with_infinities, 7));
}

TEST_CASE("a prompt that a rollback opens again is heard as on the host") {
  const tape says = make_tape(model, kind::peaked, markup::sentences, tokens, 50, 3);
  tape shorter = says;
  shorter.prompt = 40;
  const auto policy = hearing(small::sentence_voters, 30);
  const auto play = [&](auto& plays) {
    plays.open(says);
    plays.play_plainly(0, 60);
    plays.rollback(0, 37);
    plays.at(0).says = &shorter;
    plays.play_plainly();
  };
  check_plays(policy, limits_for(tokens), play);
}

TEST_CASE("a rollback that would miss queries of voters is refused, in the same words as on the host") {
  const auto policy = hearing(small::sentence_voters, 8);
  zoomr::config limits = limits_for(tokens);
  limits.rollback_tokens = 2;
  tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 48, 6);
  says.later_prompts = {{58, 70}};
  tape gone = with_other_end(says, 60, 48, 7);
  gone.later_prompts = {{58, tokens}};
  std::vector<std::string> refused[2];
  const auto play = [&](auto& plays, std::vector<std::string>& sentences) {
    plays.open(says);
    for (index_t now = 0; now < 44; now += 11) plays.play({part_of(says, 0, now, 11)});
    for (const index_t to : {9, 30, 40}) sentences.push_back(sentence_of([&] { plays.rollback(0, to); }));
    plays.rollback(0, 42);
    plays.play_plainly(0, 58);
    plays.at(0).says = &gone;
    plays.play({part_of(gone, 0, 58, 9)});
    for (const index_t to : {59, 62}) sentences.push_back(sentence_of([&] { plays.rollback(0, to); }));
    plays.at(0).says = &says;
    plays.rollback(0, 65), plays.rollback(0, 0);
    plays.play_plainly();
  };
  player<std::remove_const_t<decltype(policy)>> host(model, policy, limits);
  device_player<std::remove_const_t<decltype(policy)>> device(model, policy, limits);
  play(host, refused[0]), play(device, refused[1]);
  compare(host.at(0).log, device.at(0).log);
  CHECK(refused[0] == refused[1]);
  REQUIRE(refused[1].size() == 5);
  for (const std::string& sentence : refused[1]) CHECK(sentence.find("heads vote by the queries") != sentence.npos);
}

TEST_CASE("of a prompt's chunk that was neither attended nor observed nothing is heard") {
  const auto policy = hearing(small::sentence_voters, 30);
  zoomr::config limits = limits_for(tokens);
  limits.rollback_tokens = 40;
  for (const std::uint64_t seed : {3u, 4u, 5u}) {
    CAPTURE(seed);
    const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 44, seed);
    const auto play = [&](auto& plays) {
      plays.open(says);
      plays.play_plainly(0, 60);
      plays.rollback(0, 20);  // queries of what comes now are there, of a text that went
      plays.at(0).log.clear();
      const std::vector<token_id> ids = says.between(20, 41);
      const zoomr::step_item item{plays.at(0).seq, view<const token_id>(ids), false};
      auto step = plays.cache.begin(view<const zoomr::step_item>(&item, {1}));
      std::vector<float> numbers;
      for (std::size_t i = 0; i < ids.size() * 2 * 8; ++i) numbers.push_back(static_cast<float>(i * 37 % 19) / 9 - 1);
      const view<const float, 3> rows(numbers.data(), {static_cast<index_t>(ids.size()), 2, 8});
      for (index_t layer = 0; layer < model.layers; ++layer) step.append(layer, rows, rows);
      const auto all = static_cast<index_t>(ids.size());
      step.commit(view<const index_t>(&all, {1}));
      plays.play_plainly();
    };
    check_plays(policy, limits, play);
  }
}

TEST_CASE("a span is erased on the host, and the rest goes on on the device, where another sequence was before") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 40, 5);
  const tape rest = says.without({44, 50});
  const auto policy = hearing(small::sentence_voters, 16);
  player<std::remove_const_t<decltype(policy)>> host(model, policy, limits_for(tokens, 2));
  device_player<std::remove_const_t<decltype(policy)>> device(model, policy, limits_for(tokens));
  host.open(says), device.open(says);
  host.play_plainly(0, 60), device.play_plainly(0, 60);
  const zoomr::sequence moved = zoomr::to_host(device.cache.cache(), device.at(0).seq, host.cache, zoomr::stream_ref{});
  host.cache.erase(host.at(0).seq, {44, 50}), host.cache.erase(moved, {44, 50});
  device.cache.close(device.at(0).seq);
  device.at(0).seq = zoomr::to_device(host.cache, moved, device.cache.cache(), zoomr::stream_ref{});
  for (auto* voice : {&host.at(0), &device.at(0)}) voice->says = &rest, voice->log.clear();
  host.play_plainly(), device.play_plainly();
  compare(host.at(0).log, device.at(0).log);

  std::vector<float> others = voter_weights(model);
  others[0] += 0.5f;
  zoomr::config limits = limits_for(tokens);
  limits.voters = {others.data(), {model.layers, model.heads}};
  zoomr::kv_cache other(model, policy, limits);
  CHECK(sentence_of([&] { zoomr::to_host(device.cache.cache(), device.at(0).seq, other, zoomr::stream_ref{}); }) ==
        "zoomr: a sequence moves only between caches of the same config.voters");
}

TEST_CASE("an unsure choice is one of everything, as on the host: in wild lives, forks, and on the way between both") {
  const auto& policy = small::sentence_voters;
  zoomr::config limits = limits_for(tokens, 2);
  std::int64_t unsure = 0, choices = 0;
  for (const std::uint64_t seed : some_of(std::vector<std::uint64_t>{1, 2, 3, 4})) {
    CAPTURE(seed);
    const kind look = seed % 2 == 0 ? kind::peaked : kind::ties;
    limits.voters_unsure = look == kind::peaked ? 0.6f : 2.8f, limits.voters_none = -6.0f;
    if (seed > 2) limits.voters_none = -4.0f, limits.voters_none_slope = 0.9f;
    const tape says = make_tape(model, look, markup::sentences, tokens, 30, seed);
    player<sentences_type> host(model, policy, limits);
    device_player<sentences_type> device(model, policy, limits);
    device.cache.fixed = seed == 3;
    host.open(says), device.open(says);
    play_wildly(host, policy, seed), play_wildly(device, policy, seed);
    compare(host.at(0).log, device.at(0).log);
    const zoomr::statistics counted = host.cache.stats(host.at(0).seq);
    unsure += counted.unsure, choices += counted.refreshes;
  }
  CHECK(unsure * 5 > choices);
  CHECK(unsure * 5 < choices * 4);

  const tape says = make_tape(model, kind::peaked, markup::sentences, tokens, 40, 5);
  limits.voters_unsure = 0.6f;
  player<sentences_type> host(model, policy, limits);
  device_player<sentences_type> device(model, policy, limits);
  host.open(says), device.open(says);
  host.play_plainly(0, 60), device.play_plainly(0, 60);
  const index_t forked = fork(device, 0, says), forked_there = fork(host, 0, says);
  device.play_plainly(forked), host.play_plainly(forked_there);
  compare(host.at(forked_there).log, device.at(forked).log);
  device.cache.close(device.at(forked).seq), host.cache.close(host.at(forked_there).seq);
  const zoomr::sequence moved = zoomr::to_host(device.cache.cache(), device.at(0).seq, host.cache, zoomr::stream_ref{});
  device.cache.close(device.at(0).seq);
  device.at(0).seq = zoomr::to_device(host.cache, moved, device.cache.cache(), zoomr::stream_ref{});
  for (auto* rolled : {&host.at(0), &device.at(0)}) rolled->log.clear();
  host.rollback(0, 50), device.rollback(0, 50);
  host.play_plainly(), device.play_plainly();
  compare(host.at(0).log, device.at(0).log);

  limits.voters_unsure = 1.5f;
  zoomr::kv_cache other(model, policy, with_voters(policy, limits, model));
  CHECK(sentence_of([&] { zoomr::to_host(device.cache.cache(), device.at(0).seq, other, zoomr::stream_ref{}); }) ==
        "zoomr: a sequence moves only between caches of the same config.voters_unsure, voters_none and its slope");
}

TEST_CASE("a fork that comes where another text was has nothing of what its voters found") {
  const auto policy = hearing(small::sentence_voters, 16);
  const tape first = make_tape(model, kind::uniform, markup::sentences, tokens, 40, 6);
  const tape second = make_tape(model, kind::uniform, markup::sentences, tokens, 40, 7);
  player<std::remove_const_t<decltype(policy)>> host(model, policy, limits_for(tokens, 2));
  device_player<std::remove_const_t<decltype(policy)>> device(model, policy, limits_for(tokens, 2));
  const auto play = [&](auto& plays) {
    plays.open(first), plays.open(second);
    plays.play_plainly(0, 60), plays.play_plainly(1, 60);
    plays.cache.close(plays.at(0).seq);
    const index_t forked = fork(plays, 1, second);
    plays.play_plainly(forked);
  };
  play(host), play(device);
  REQUIRE(device.at(2).seq.id == 0);
  compare(host.at(2).log, device.at(2).log);
}

TEST_CASE("segments of more keys than a warp keeps logits of") {
  const auto pages = with(small::sentence_voters, [](auto& p) { p.segment.longest = 301; });
  constexpr index_t all = 1000, prompt = 990;
  const tape says = make_tape(model, kind::peaked, markup::no_delimiter, all, prompt, 3);
  player<std::remove_const_t<decltype(pages)>> host(model, pages, limits_for(all));
  device_player<std::remove_const_t<decltype(pages)>> device(model, pages, limits_for(all));
  host.open(says), device.open(says);
  host.play_plainly(), device.play_plainly();
  REQUIRE(host.cache.segments(host.at(0).seq)[0].split > 256);
  compare(host.at(0).log, device.at(0).log);
}

#if defined(ZOOMR_SIMT)

namespace {

/// A cache of sentence_voters whose steps are enqueued on a stream of its own, of noise.
struct voting_cache {
  using type = zoomr::device_cache<sentences_type, float, 8, 2>;
  zoomr::config limits = with_voters(small::sentence_voters, limits_for(tokens, 2), model);
  device_array<std::byte> memory{type::bytes(model, small::sentence_voters, limits), std::byte{0xff}};
  device_array<float> numbers{std::int64_t{64} * 4 * 8, 0.0f}, out{std::int64_t{64} * 4 * 8, 0.0f};
  zoomr::own_stream own;
  zoomr::stream_ref on = own.get();
  type cache{model, small::sentence_voters, limits, memory.data(), on};
  zoomr::sequence first = cache.open(), second = cache.open();

  voting_cache() {
    dice random(1);
    std::vector<float> noise(std::size_t{64} * 4 * 8);
    for (float& number : noise) number = static_cast<float>(random.between(-1000, 1000)) / 400.0f;
    numbers.write(noise);
  }
  void enqueue(type::step_type& step) {
    const index_t count = step.tokens();
    const auto rows = [&](index_t heads, index_t from) {
      return view<const float, 3>(numbers.data() + from * 8, {count, heads, 8});
    };
    step.start(on);
    for (index_t layer = 0; layer < model.layers; ++layer) {
      const index_t from = (cache.tokens(first) + 3 * layer) % 20;
      step.append(layer, rows(2, from), rows(2, from + 1), on);
      step.attend(layer, rows(4, from + 2), view<float, 3>(out.data(), {count, 4, 8}), {}, on);
    }
  }
  /// Pieces of work that nothing on the stream waits for.
  std::size_t pending() const {
    wait_for(on);
    std::size_t count = 0;
    for (const auto& queue : simt::streams.queues) count += queue->pending.size();
    return count;
  }
};

}  // namespace

// The shim does what is pending as late as it may: what nobody waits for stays pending.
TEST_CASE("voters choose beside what follows the last layer, until commit or join") {
  const simt::scoped_settings until_then(simt::with_streams(simt::schedule::late));
  voting_cache of;
  const std::vector<token_id> prompt{1, delimiter_id, 2, 3, delimiter_id}, next{4};
  const auto begin = [&](const std::vector<token_id>& ids, bool ends) {
    auto step = of.cache.begin(of.first, view<const token_id>(ids), ends);
    of.enqueue(step);
    return step;
  };
  begin(prompt, true).commit(5, of.on);
  CHECK(of.pending() == 0);
  for (const bool joins : {false, true}) {
    auto step = begin(next, false);
    CHECK(of.pending() > 0);
    if (joins) {
      step.join(of.on);
      CHECK(of.pending() == 0);
    }
    step.commit(1, of.on);
    CHECK(of.pending() == 0);
  }
  CHECK((begin(next, false), of.pending()) > 0);  // dropped behind this line
  CHECK(of.pending() == 0);
}

TEST_CASE("a choice that goes on beside comes before that of the commit, which uses the same memory") {
  std::vector<zoomr::level> chosen[3];
  for (const simt::schedule when : {simt::schedule::early, simt::schedule::late, simt::schedule::random}) {
    const simt::scoped_settings until_then(simt::with_streams(when));
    voting_cache of;
    const auto step_of = [&](view<const zoomr::step_item> items, const std::vector<index_t>& accepted) {
      auto step = of.cache.begin(items);
      of.enqueue(step);
      step.commit(view<const index_t>(accepted), of.on);
    };
    std::vector<token_id> sentences;
    for (index_t t = 0; t < 40; ++t) sentences.push_back(t % 4 == 3 ? delimiter_id : t + 1);
    // Of the second sequence no segment has anything left outside of its zones.
    const std::vector<token_id> one{7}, delimiters(16, delimiter_id);
    const zoomr::step_item begins{of.first, view<const token_id>(sentences), true};
    step_of(view<const zoomr::step_item>(&begins, {1}), {40});
    const zoomr::step_item both[] = {{of.first, view<const token_id>(one)},
                                     {of.second, view<const token_id>(delimiters), true}};
    step_of(view<const zoomr::step_item>(both, {2}), {1, 16});
    wait_for(of.on);
    const auto arrays = of.cache.arrays();
    const std::int64_t count = std::int64_t{arrays.sizes.places} * arrays.sizes.place_rows * arrays.sizes.segments;
    std::vector<zoomr::level>& levels = chosen[static_cast<int>(when)];
    levels.resize(static_cast<std::size_t>(count));
    copy_from_device(levels.data(), arrays.levels, levels.size() * sizeof(zoomr::level), of.on);
    wait_for(of.on);
  }
  CHECK(std::ranges::count(chosen[0], zoomr::level::details) > 0);
  CHECK(chosen[1] == chosen[0]);
  CHECK(chosen[2] == chosen[0]);
}

#endif

}  // namespace zoomr_test
