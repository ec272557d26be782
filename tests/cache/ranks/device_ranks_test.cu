// SPDX-License-Identifier: Apache-2.0
// Ranks that share a model's heads, each on a device, choose and attend as one device with all heads: bit for bit.
#include <cache/device/device_against_host.hpp>
#include <cache/ranks/ranked_device.hpp>
#include <support/nightly.hpp>
#include <support/sentence_of.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

const ranked_model two_ranks{{2, 4, 2, 8}, {{0, 2, 4}}};
const ranked_model unequal{{2, 6, 3, 8}, {{0, 4, 6}}};
const ranked_model four_ranks{{2, 8, 4, 8}, {{0, 2, 4, 6, 8}}};
const ranked_model of_one_kv_head{{2, 4, 2, 8}, {{0, 1, 2, 3, 4}, true}};

constexpr index_t longer = 110;  // tokens, so that there is more to choose from than is taken

/// The shim works when the host waits.
simt::settings late() { return simt::with_streams(simt::schedule::late); }

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
  const tape says = make_tape(on.whole, looks[seed % 4], text, longer, 30, seed);
  check_plays<Group>(on, policy, limits_for(longer), [&](auto& plays) {
    plays.observe_prompts = seed % 2 == 0;
    plays.open(says);
    play_wildly(plays, policy, seed);
  });
}

/// Three sequences in one step, and prompts beside drafts.
template <index_t Group = 2, class Policy>
void check_batches(const ranked_model& on, const Policy& policy, std::uint64_t seed) {
  CAPTURE(seed);
  zoomr::config limits = limits_for(80, 3);
  limits.max_batched_tokens = 48;
  std::vector<tape> says;
  for (std::uint64_t v = 0; v < 3; ++v) {
    says.push_back(make_tape(on.whole, kind::peaked, v == 2 ? markup::pairs : markup::sentences, 80, 30, seed + v));
  }
  check_plays<Group>(on, policy, limits, [&](auto& plays) {
    for (const tape& one : says) plays.open(one);
    play_together(plays, seed);
  });
}

/// All that some policy does.
template <class Policy>
void check(const Policy& policy, markup text) {
  check_wildly(two_ranks, policy, text, 1);
  ZOOMR_NIGHTLY(check_wildly(four_ranks, policy, text, 2));
  check_batches(four_ranks, policy, 3);
}

}  // namespace

TEST_CASE("votes and masses of all layers are those of all ranks' heads") {
  check(small::zoomr_one_pass, markup::pairs);
  check_wildly(unequal, small::zoomr_one_pass, markup::stray, 4);
  const auto candidates = with(small::zoomr_one_pass, [](auto& p) {
    p.zone.summaries = zoomr::summaries_attended::candidates;  // and those of what is not eligible
  });
  check_wildly(two_ranks, candidates, markup::stray, 3);
  check(small::zoomr_second_pass, markup::pairs);
  check(small::zoomr_mass, markup::stray);
  ZOOMR_NIGHTLY(check(small::weighted_votes, markup::pairs));
  check(small::weighted_mass, markup::stray);
}

TEST_CASE("so are those of one layer, before it is read") {
  check(small::zoomr_focus, markup::pairs);
  check(small::by_layer, markup::pairs);
  check(small::focus_each_token, markup::stray);
}

TEST_CASE("all ranks' voters are heard, also by a rank that has none") {
  check(small::sentence_voters, markup::sentences);
  check(small::zoomr_voters, markup::pairs);
  const ranked_model last_has_none{{1, 6, 3, 8}, {{0, 4, 6}}};  // voters are heads 0, 1 and 3
  check_wildly(last_has_none, small::sentence_voters, markup::sentences, 5);
}

TEST_CASE("what each KV head chooses, or nothing does, asks no other rank") {
  check_wildly(two_ranks, small::full, markup::pairs, 1);
  check_wildly(two_ranks, small::sentence_kv, markup::sentences, 1);
  check_wildly(two_ranks, small::quest, markup::pairs, 1);
  ZOOMR_NIGHTLY(check(small::window, markup::pairs));
  ZOOMR_NIGHTLY(check(small::sentence_box, markup::sentences));
  ZOOMR_NIGHTLY(check(small::snapkv, markup::pairs));
  ZOOMR_NIGHTLY(check(small::h2o, markup::pairs));
  ZOOMR_NIGHTLY(check(small::r_kv, markup::pairs));
}

TEST_CASE("ranks that share a KV head choose as one") {
  check_wildly<1>(of_one_kv_head, small::zoomr_one_pass, markup::pairs, 6);
  check_batches<1>(of_one_kv_head, small::zoomr_focus, 7);
}

TEST_CASE("pages of each rank are in its own tiers") {
  const auto policy = with_placement(small::zoomr_focus, zoomr::tiered<>{});
  const tape says = make_tape(two_ranks.whole, kind::peaked, markup::pairs, longer, 30, 1);
  zoomr::config limits = limits_for(longer);
  limits.tiers.device = 1 << 20;
  check_plays(two_ranks, policy, limits, [&](auto& plays) {
    plays.open(says);
    play_wildly(plays, policy, 1);
  });
}

TEST_CASE("a fork goes on alone") {
  const tape says = make_tape(two_ranks.whole, kind::peaked, markup::pairs, longer, 30, 4);
  const tape other = with_other_end(says, 75, says.prompt, 9);
  const auto play = [&](auto& plays) {
    plays.open(says);
    plays.play_plainly(0, 75);
    fork(plays, 0, other);
    plays.play_plainly(1), plays.play_plainly(0);
  };
  check_plays(two_ranks, small::zoomr_one_pass, limits_for(longer, 2), play);
  check_plays(two_ranks, small::sentence_voters, limits_for(longer, 2), play);
}

TEST_CASE("ranks that hear nothing of each other choose something else") {
  const simt::scoped_settings until_then(late());
  const auto differs = [](const auto& policy, markup text) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    const tape says = make_tape(two_ranks.whole, kind::peaked, text, longer, 30, 1);
    const auto logged = [&](bool deaf) {
      stream_ranks ends(2);
      ends.deaf = deaf;
      ranked_device_player<policy_type, 2> ranks(two_ranks, policy, limits_for(longer), ends);
      ranks.open(says);
      ranks.play_plainly();
      return ranks.at(0).log;
    };
    return difference(logged(false), logged(true)) != "";
  };
  CHECK(differs(small::zoomr_one_pass, markup::pairs));
  CHECK(differs(small::zoomr_focus, markup::pairs));
  CHECK(differs(small::sentence_voters, markup::sentences));
  CHECK(!differs(small::quest, markup::pairs));
}

TEST_CASE("a choice is one all-reduce, of numbers for all segments that a sequence may have; others are none") {
  constexpr auto pages = zoomr::fixed_pages{.longest = 8};
  constexpr auto zones = zoomr::zones{.sinks = 2, .recent = 4, .open = zoomr::unlimited};
  const auto votes_of = [&](zoomr::scope per) {
    return zoomr::compose(pages, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::head_votes{.per = per},
                          zoomr::top_k{.segments = 2}, zoomr::every_token{}, zones);
  };
  const auto check = [](const auto& policy, index_t times, std::int64_t words) {
    const simt::scoped_settings until_then(late());
    const tape says = make_tape(four_ranks.whole, kind::peaked, markup::sentences, 80, 60, 3);
    stream_ranks ends(4);
    ranked_device_player<std::remove_cvref_t<decltype(policy)>, 2> ranks(four_ranks, policy, limits_for(80), ends);
    ranks.open(says);
    ranks.play_plainly();
    for (index_t rank = 0; rank < 4; ++rank) {
      CHECK(ends.end(rank).enqueued == times);
      CHECK(ends.end(rank).words == times * words);
    }
  };
  // A prompt of 60 tokens, then 20; 80 segments at most.
  check(small::full, 0, 0);
  check(small::quest, 0, 0);
  check(votes_of(zoomr::scope::sequence), 1 + 20, 80);
  check(votes_of(zoomr::scope::layer), 2 * 20, 80);
  check(votes_of(zoomr::scope::kv_head), 0, 0);
  // 7 voters of 16 heads, two floats in a word
  check(zoomr::compose(pages, zoomr::key_mass{}, zoomr::head_posterior{.queries = 3}, zoomr::top_p{.share = 0.9f},
                       zoomr::every_token{}, zones),
        1 + 20, 7 * 40);
  // where no token of a pass chooses nothing is enqueued
  const auto check_choices = [](const auto& policy) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    const simt::scoped_settings until_then(late());
    const tape says = make_tape(two_ranks.whole, kind::peaked, markup::pairs, longer, 30, 1);
    player<policy_type> host(two_ranks.whole, policy, limits_for(longer));
    stream_ranks ends(2);
    ranked_device_player<policy_type, 2> ranks(two_ranks, policy, limits_for(longer), ends);
    host.open(says), ranks.open(says);
    host.play_plainly(), ranks.play_plainly();
    const std::int64_t choices = host.cache.stats(host.at(0).seq).refreshes;
    CHECK(choices > 4);
    for (index_t rank = 0; rank < 2; ++rank) CHECK(ends.end(rank).enqueued == choices);
  };
  check_choices(small::zoomr_second_pass);
  check_choices(small::zoomr_focus);
}

namespace {

/// One rank of a model, and buffers that stay where they are.
template <class Policy>
struct replaying {
  using cache_type = zoomr::device_cache<Policy, float, 8, 2, zoomr::values_apart<8>, zoomr::several_ranks>;
  static constexpr index_t longest = 30;  // tokens of a step

  head_part part;
  device_array<std::byte> memory;
  device_array<float> keys, values, queries, out;
  zoomr::own_stream queue;
  zoomr::stream_ref on = queue.get();
  cache_type cache;
  zoomr::sequence seq;
  stream_graph graphs[2];

  replaying(const ranked_model& of, index_t rank, const Policy& policy, const zoomr::config& limits)
      : part(of.whole, of.split, rank),
        memory(cache_type::bytes(part.model, policy, limits), std::byte{0xff}),
        keys(2 * longest * part.model.kv_heads * 8, 0.0f),
        values(2 * longest * part.model.kv_heads * 8, 0.0f),
        queries(2 * longest * part.model.heads * 8, 0.0f),
        out(2 * longest * part.model.heads * 8, 0.0f),
        cache(part.model, policy, limits, memory.data(), on, 3),
        seq(cache.open()) {}

  view<float, 3> at(device_array<float>& rows, index_t layer, index_t heads) {
    return {rows.data() + layer * longest * heads * 8, {longest, heads, 8}};
  }
  void fill(const tape& says, index_t position, const std::vector<token_id>& ids, index_t pass) {
    zoomr_test::wait_for(on);
    for (index_t layer = 0; layer < 2; ++layer) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto t = static_cast<index_t>(i);
        const auto put = [&](role what, device_array<float>& to, index_t heads, index_t first) {
          for (index_t head = 0; head < heads; ++head)
            says.numbers.fill(what, ids[i], position + t, layer, first + head, pass, &at(to, layer, heads)(t, head, 0));
        };
        put(role::key, keys, part.model.kv_heads, part.kv_head);
        put(role::value, values, part.model.kv_heads, part.kv_head);
        put(role::query, queries, part.model.heads, part.head);
      }
    }
  }
  template <class Step>
  void enqueue(Step& step, index_t pass) {
    pass == 0 ? step.start(on) : step.restart(on);
    for (index_t layer = 0; layer < 2; ++layer) {
      const view<float, 3> k = at(keys, layer, part.model.kv_heads), v = at(values, layer, part.model.kv_heads);
      step.attend(layer, view<const float, 3>(at(queries, layer, part.model.heads)), view<const float, 3>(k),
                  view<const float, 3>(v), at(out, layer, part.model.heads), {}, on);
    }
  }
};

/// Outputs of each pass of a text [layers, tokens, heads, 8], step by step; from graphs if there are several ranks.
template <class Policy>
std::vector<std::vector<float>> outputs(const ranked_model& of, const Policy& policy) {
  const simt::scoped_settings until_then(late());
  const tape says = make_tape(of.whole, kind::peaked, markup::pairs, longer, replaying<Policy>::longest, 3);
  stream_ranks ends(of.split.ranks());
  std::vector<std::unique_ptr<replaying<Policy>>> ranks;
  for (index_t rank = 0; rank < of.split.ranks(); ++rank) {
    zoomr::config limits = with_voters(policy, limits_for(longer), of.whole);
    limits.max_draft_tokens = 2;
    limits.ranks = {ends.end(rank), view<const index_t>(of.split.first)};
    ranks.push_back(std::make_unique<replaying<Policy>>(of, rank, policy, limits));
  }
  std::vector<std::vector<float>> made;
  for (index_t position = 0; position < says.size();) {
    const bool prompt = position == 0;
    const index_t last = prompt ? says.prompt : std::min(position + 1 + position % 2, says.size());
    const std::vector<token_id> ids = says.between(position, last);
    std::vector<typename replaying<Policy>::cache_type::step_type> steps;
    for (const auto& rank : ranks) {
      steps.push_back(rank->cache.begin(rank->seq, view<const token_id>(ids), prompt, ranks.size() > 1 && !prompt));
    }
    const index_t taken = steps[0].taken(0);
    for (index_t pass = 0; pass < 2; ++pass) {
      bool again = pass == 0;
      for (auto& step : steps) again = pass == 0 || step.needs_second_pass(taken);
      if (!again) break;
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        replaying<Policy>& rank = *ranks[r];
        const index_t first = pass == 0 ? 0 : taken - 1;
        rank.fill(says, position + first, {ids.begin() + first, ids.begin() + taken}, pass);
      }
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        replaying<Policy>& rank = *ranks[r];
        if (prompt || ranks.size() == 1) {
          rank.enqueue(steps[r], pass);
          continue;
        }
        steps[r].upload(rank.on);
        stream_graph& graph = rank.graphs[pass];
        if (!graph) graph.begin(rank.on), rank.enqueue(steps[r], pass), graph.end(rank.on);
        graph.launch(rank.on);
      }
      std::vector<float>& all = made.emplace_back();
      for (const auto& rank : ranks) zoomr_test::wait_for(rank->on);
      for (index_t layer = 0; layer < 2; ++layer) {
        for (index_t t = 0; t < (pass == 0 ? taken : 1); ++t) {
          for (const auto& rank : ranks) {
            const float* const row = &rank->at(rank->out, layer, rank->part.model.heads)(t, 0, 0);
            all.insert(all.end(), row, row + rank->part.model.heads * 8);
          }
        }
      }
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) steps[r].commit(taken, ranks[r]->on);
    position += taken;
  }
  return made;
}

}  // namespace

TEST_CASE("an all-reduce is part of a graph") {
  const ranked_model alone{two_ranks.whole, {{0, 4}}};
  const auto check = [&](const auto& policy) {
    const auto of_one = outputs(alone, policy);
    CHECK(of_one.size() > 40);
    CHECK(outputs(two_ranks, policy) == of_one);
  };
  check(small::zoomr_second_pass);
  check(small::zoomr_focus);
  check(small::zoomr_voters);
}

TEST_CASE("ranks that cannot choose together on devices are refused with a sentence") {
  stream_ranks ends(2);
  zoomr::thread_ranks of_host(2);
  const auto refused = [&]<class Ranks>(const auto& policy, Ranks, zoomr::rank_group group) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    zoomr::config limits = limits_for(60);
    limits.ranks.group = group;
    return sentence_of([&] {
      zoomr::device_cache<policy_type, float, 8, 2, zoomr::values_apart<8>, Ranks>::bytes({2, 4, 2, 8}, policy, limits);
    });
  };
  const zoomr::several_ranks several;
  const zoomr::one_rank one;
  CHECK(refused(small::zoomr_one_pass, several, ends.end(0)) == "");
  CHECK(refused(small::zoomr_one_pass, one, ends.end(0)) ==
        "zoomr: device_cache: ranks choose together where its last parameter is several_ranks");
  CHECK(refused(small::zoomr_one_pass, several, of_host.end(0)) ==
        "zoomr: config: ranks of a device's caches need a communicator with add_up, like nccl_ranks: this one is for "
        "host caches");
  CHECK(refused(small::arkvale, several, ends.end(0)) ==
        "zoomr: config: on a device ranks add up votes; scores that are pooled over a layer would be gathered, as host "
        "caches do");
  CHECK(refused(small::quest, one, ends.end(0)) == "");
  CHECK(refused(small::quest, one, of_host.end(0)) == "");

  zoomr::config limits = limits_for(60);
  limits.ranks.group = ends.end(0);
  const auto on_host = [&] {
    return sentence_of([&] {
      const zoomr::kv_cache<std::remove_const_t<decltype(small::zoomr_one_pass)>> cache({2, 4, 2, 8},
                                                                                        small::zoomr_one_pass, limits);
    });
  };
  const char* const for_devices =
      "zoomr: config: ranks of host caches need a communicator with all_gather: this one is for devices";
  CHECK(on_host() == for_devices);
  limits = limits_for(60);
  limits.token_ranks = {ends.end(0), 16};
  CHECK(on_host() == for_devices);
  CHECK(sentence_of([&] {
          using full_type = std::remove_const_t<decltype(small::full)>;
          zoomr::device_cache<full_type, float, 8, 2>::bytes({2, 4, 2, 8}, small::full, limits);
        }) == "zoomr: config: token_ranks are for host caches: a device's has all tokens of its sequences");
}

}  // namespace zoomr_test
