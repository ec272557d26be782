// SPDX-License-Identifier: Apache-2.0
// Ranks that share a model's heads choose, attend and fail as one.
#include <cache/ranks/ranked_cache.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <zoomr/core/ranks/thread_ranks.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::copy, std::max
#include <chrono>     // std::chrono
#include <cstdlib>    // std::getenv, std::strtoull
#include <string>     // std::string
#include <utility>    // std::swap
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using namespace std::chrono_literals;

const std::vector<ranked_model> whole_kv_heads = {
    {{2, 4, 2, 8}, {{0, 2, 4}}}, {{2, 6, 3, 8}, {{0, 4, 6}}}, {{2, 8, 4, 8}, {{0, 2, 4, 6, 8}}}};
const std::vector<ranked_model> split_kv_heads = {{{2, 4, 1, 8}, {{0, 2, 4}, true}},
                                                  {{2, 9, 3, 8}, {{0, 3, 6, 8, 9}, true}}};

/// Of each policy, at least.
const std::uint64_t lives = std::max<std::uint64_t>(
    6, std::getenv("ZOOMR_SEEDS") != nullptr ? std::strtoull(std::getenv("ZOOMR_SEEDS"), nullptr, 10) : 0);

/// A KV head that several ranks have would choose, or evict, by some of its query heads.
template <class Policy>
constexpr bool needs_whole_kv_heads(const Policy& policy) {
  return decltype(policy.evict)::observes || (Policy::selects && policy.aggregate.per >= zoomr::scope::kv_head);
}

zoomr::config limits_of(const tape& says, index_t sequences = 1) {
  zoomr::config limits = limits_for(says.size() + 3, sequences);
  limits.max_draft_tokens = 23;
  return limits;
}

void save_and_load(ranked_player& plays, index_t v) {
  std::vector<memory_sink> saved(plays.cache.caches.size());
  zoomr::sequence& seq = plays.at(v).seq;
  std::vector<zoomr::sequence> loaded(saved.size());
  plays.cache.workers.run([&](index_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    plays.cache.at(rank).save(seq, saved[r]);
    plays.cache.at(rank).close(seq);
    memory_source from(saved[r].bytes);
    loaded[r] = plays.cache.at(rank).load(from);
  });
  seq = loaded.front();
}

template <class Policy>
void check_lives(const ranked_model& on, const Policy& policy, const tape& says, std::uint64_t seed, happened& all,
                 view<const index_t> anchors = {}) {
  zoomr::config limits = limits_of(says);
  limits.anchors.layers = anchors;
  limits.donors = view<const index_t>(says.numbers.donors);
  player<Policy> plainly(on.whole, policy, limits);
  plainly.open(says);
  plainly.play_plainly();
  zoomr::thread_ranks ends(on.split.ranks());
  limits = limits_of(says, 3);
  limits.anchors.layers = anchors;
  limits.donors = view<const index_t>(says.numbers.donors);
  ranked_player plays(on, policy, limits, all_of(ends));
  plays.open(says);
  live(
      policy, plays, seed, all, [&](index_t v) { save_and_load(plays, v); },
      [&](dice& random) { any_step(plays, random, all, takes_back_alike<Policy>); });
  for (voice& each : plays.voices) REQUIRE(difference(plainly.at(0).log, each.log) == "");
}

}  // namespace

TEST_CASE("ranks attend and choose as one cache, bit for bit, whatever befalls their sequences") {
  for_each_policy([](const char* name, const auto& policy) {
    if (frees_pages(policy)) return;
    happened all;
    const auto check = [&](const std::vector<ranked_model>& models, std::uint64_t seeds) {
      for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        CAPTURE(std::string(name));
        CAPTURE(seed);
        const ranked_model& on = models[seed % models.size()];
        tape says = conversation(on.whole, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
        if (seed % 2 == 1) says = with_whole_items(policy, says, seed);
        check_lives(on, policy, says, seed, all);
      }
    };
    check(whole_kv_heads, lives);
    if (!needs_whole_kv_heads(policy)) check(split_kv_heads, lives * 2 / 3);
    CAPTURE(std::string(name));
    CHECK(all.forked > 0);
  });
}

TEST_CASE("layers that read another one's choice do so on all ranks") {
  const std::vector<index_t> first_chooses{0, 0};
  happened all;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const ranked_model& on = seed % 2 == 0 ? whole_kv_heads[seed % 3] : split_kv_heads[seed % 4 / 2];
    check_lives(on, small::by_layer, conversation(on.whole, seed), seed, all, view<const index_t>(first_chooses));
  }
  CHECK(all.forked > 0);
}

TEST_CASE("layers that share keys do so on all ranks") {
  happened all;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const ranked_model& on = seed % 2 == 0 ? whole_kv_heads[seed % 3] : split_kv_heads[seed % 4 / 2];
    tape says = conversation(on.whole, seed);
    says.numbers.donors = {0, 0};
    check_lives(on, small::by_layer, says, seed, all);
    check_lives(on, small::zoomr_second_pass, says, seed, all);
  }
  CHECK(all.forked > 0);
}

namespace {

/// Two ranks of a model of four heads, driven by hand.
struct two_ranks {
  using cache_type = zoomr::any_kv_cache<float>;
  static constexpr shape whole{2, 4, 2, 8};

  tape says = make_tape(whole, kind::peaked, markup::sentences, 150, 60, 3);
  zoomr::thread_ranks ends{2, 300ms};
  frail_end frail[2] = {{ends.end(0)}, {ends.end(1)}};
  rank_workers workers{2};
  std::vector<cache_type> caches;
  std::vector<zoomr::sequence> seqs;

  template <class Policy, class Other>
  two_ranks(const Policy& policy, const Other& other) {
    add(policy), add(other);
  }
  template <class Policy>
  void add(const Policy& policy) {
    const auto rank = caches.size();
    zoomr::config limits = with_voters(policy, limits_of(says), whole);
    limits.ranks.group = frail[rank];
    caches.push_back(zoomr::kv_cache<Policy, float>(shape{2, 2, 1, 8}, policy, limits));
    seqs.push_back(caches.back().open());
  }

  cache_type& at(index_t rank) { return caches[static_cast<std::size_t>(rank)]; }
  zoomr::sequence seq(index_t rank) { return seqs[static_cast<std::size_t>(rank)]; }
  index_t tokens(index_t rank) { return at(rank).tokens(seq(rank)); }
  /// A rank's step over its next tokens.
  void pass(index_t rank, index_t count) {
    const index_t now = tokens(rank), first = rank * 2;
    const part next = part_of(says, 0, now, count);
    auto step = at(rank).begin(seq(rank), view<const token_id>(next.ids), next.prompt_ends);
    const index_t tokens = step.tokens();
    std::vector<float> q(static_cast<std::size_t>(tokens) * 16), k(q.size() / 2), v(k.size()), out(q.size());
    for (int pass = 0; pass < 2; ++pass) {
      for (index_t layer = 0; layer < 2; ++layer) {
        const index_t from = pass == 0 ? 0 : step.taken(0) - 1, last = pass == 0 ? tokens : 1;
        for (index_t t = 0; t < last; ++t) {
          const auto place = static_cast<std::size_t>(t);
          const index_t at_token = now + from + t;
          const token_id id = says.ids[static_cast<std::size_t>(at_token)];
          for (index_t head = 0; head < 2; ++head)
            says.numbers.fill(role::query, id, at_token, layer, first + head, pass,
                              &q[place * 16 + 8 * static_cast<std::size_t>(head)]);
          says.numbers.fill(role::key, id, at_token, layer, rank, pass, &k[place * 8]);
          says.numbers.fill(role::value, id, at_token, layer, rank, pass, &v[place * 8]);
        }
        step.append(layer, view<const float, 3>(k.data(), {last, 1, 8}), view<const float, 3>(v.data(), {last, 1, 8}));
        step.attend(layer, view<const float, 3>(q.data(), {last, 2, 8}), view<float, 3>(out.data(), {last, 2, 8}));
      }
      if (pass == 1 || !step.needs_second_pass(step.taken(0))) break;
    }
    step.commit(step.taken(0));
  }
  /// What both say of a step that they pass together.
  std::vector<std::string> say(index_t count = 1) {
    workers.run_all([&](index_t rank) { pass(rank, count); });
    std::vector<std::string> said;
    for (const std::exception_ptr& failure : workers.failures) {
      said.push_back(sentence_of([&] {
        if (failure) std::rethrow_exception(failure);
      }));
    }
    return said;
  }
  /// Passes the prompt, and tokens up to the end of a sentence, where the next one makes a choice for all layers.
  void play_until(index_t tokens_before) {
    while (tokens(0) < tokens_before) {
      const std::vector<std::string> said = say(tokens(0) < says.prompt ? says.prompt : 1);
      REQUIRE(said == std::vector<std::string>{"", ""});
    }
  }
};

}  // namespace

TEST_CASE("a rank that is gone, damaged or elsewhere is named by the others, and nothing is committed") {
  const auto check = [](auto fault, const char* said_by_other, const char* said_by_itself) {
    two_ranks both(small::sentence_voters, small::sentence_voters);
    both.play_until(80);
    both.frail[1].fault = fault;
    const std::vector<std::string> said = both.say();
    CAPTURE(said[0]);
    CAPTURE(said[1]);
    CHECK(contains(said[0], said_by_other));
    CHECK(contains(said[1], said_by_itself));
    CHECK(both.tokens(0) == 80);
    const auto kept = both.at(0).segments(both.seq(0)).size();
    CHECK(both.at(0).stats(both.seq(0)).tokens == 20);
    CHECK(kept > 0);
  };
  check(frail_end::mute, "ranks: rank 1 has not answered in time", "ranks: rank 0 has not answered");
  check(frail_end::damaged, "ranks: rank 1 has sent a message that came damaged",
        "rank 1 has sent a message that came damaged");
  check(frail_end::short_of_one, "ranks: rank 1 has not answered in time, or has sent a message of another length",
        "rank 0");

  two_ranks elsewhere(small::sentence_voters, small::sentence_voters);
  elsewhere.play_until(80);
  elsewhere.workers.run([&](index_t rank) {
    if (rank == 1) elsewhere.at(1).rollback(elsewhere.seq(1), 70);
  });
  const std::vector<std::string> said = elsewhere.say();
  CHECK(contains(said[0], "ranks: rank 1 is at another step"));
  CHECK(contains(said[1], "ranks: rank 0 is at another step"));
  CHECK(elsewhere.tokens(0) == 80);
  CHECK(elsewhere.tokens(1) == 70);
}

TEST_CASE("messages and bytes are those that are worked out by hand") {
  constexpr auto pages = zoomr::fixed_pages{.longest = 8};
  constexpr auto zones = zoomr::zones{.sinks = 2, .recent = 4, .open = zoomr::unlimited};
  constexpr auto votes = zoomr::compose(pages, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::head_votes{},
                                        zoomr::top_k{.segments = 2}, zoomr::every_token{}, zones);
  constexpr auto scores =
      zoomr::compose(pages, zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::pooled_score{.per = zoomr::scope::layer},
                     zoomr::top_k{.segments = 2}, zoomr::every_token{}, zones);
  constexpr auto voters = zoomr::compose(pages, zoomr::key_mass{}, zoomr::head_posterior{.queries = 3},
                                         zoomr::top_p{.share = 0.9f}, zoomr::every_token{}, zones);
  const auto check = [](const auto& policy, const ranked_model& on, std::int64_t messages, zoomr::byte_count bytes) {
    const tape says = make_tape(on.whole, kind::peaked, markup::sentences, 80, 60, 3);
    zoomr::thread_ranks ends(on.split.ranks());
    ranked_player plays(on, policy, limits_of(says), all_of(ends));
    plays.open(says);
    plays.play_plainly(0, 60), plays.play_plainly();
    CHECK(plays.tokens() == 80);
    const index_t others = on.split.ranks() - 1;
    for (index_t rank = 0; rank <= others; ++rank) {
      CHECK(plays.cache.at(rank).ranks().messages == others * messages);
      CHECK(plays.cache.at(rank).ranks().bytes == others * bytes);
    }
  };
  // A prompt of 60 tokens in one step, then 20 tokens. At its end 7 pages are there, before each of the tokens 7 (of
  // four tokens), 8 (of eight), 9 (of eight). All have met before the prompt's end is committed: 32 bytes.
  const ranked_model &two = whole_kv_heads[0], &four = whole_kv_heads[2];
  for (const ranked_model& on : {two, four}) {
    check(small::full, on, 0, 0);
    check(small::quest, on, 0, 0);
    check(small::sentence_kv, on, 0, 0);
    // a number of 8 bytes for each page
    check(votes, on, 2 + 20, 32 + (32 + 7 * 8) + 4 * (32 + 7 * 8) + 8 * (32 + 8 * 8) + 8 * (32 + 9 * 8));
    // two layers; two heads, whose scores of two pages are in 8 bytes
    check(scores, on, 2 * 20, 2 * (12 * (32 + 2 * 4 * 8) + 8 * (32 + 2 * 5 * 8)));
  }
  // the same of voters: 2 and 2 of both layers, or 3, 1, 1 and 2
  check(voters, two, 2 + 20, 32 + 13 * (32 + 2 * 4 * 8) + 8 * (32 + 2 * 5 * 8));
  check(voters, four, 2 + 20, 32 + 13 * (32 + 3 * 4 * 8) + 8 * (32 + 3 * 5 * 8));
}

TEST_CASE("ranks with other policies or configs refuse each other before the end of the first prompt is committed") {
  constexpr auto other = with(small::sentence_voters, [](auto& p) { p.select.segments = 2; });
  two_ranks both(small::sentence_voters, other);
  const std::vector<std::string> said = both.say(60);
  CHECK(contains(said[0], "ranks: rank 1 has another policy, config or shape"));
  CHECK(contains(said[1], "ranks: rank 0 has another policy, config or shape"));
  CHECK(both.tokens(0) == 0);
}

namespace {

/// One of two ranks that hears its own words from the other, up to a call that nobody answers.
struct echo_end {
  int calls = 0, unanswered = -1;

  static index_t rank() { return 0; }
  static index_t ranks() { return 2; }
  index_t all_gather(view<const std::int64_t> sent, view<std::int64_t, 2> received) {
    if (++calls == unanswered) return 1;
    for (index_t rank = 0; rank < 2; ++rank) std::copy(sent.begin(), sent.end(), received[rank].begin());
    return -1;
  }
};

constexpr shape half_model{2, 2, 1, 8};

zoomr::config echoing(echo_end& end, const tape& says, index_t sequences) {
  zoomr::config limits = limits_of(says, sequences);
  limits.ranks.group = end;
  return limits;
}

}  // namespace

TEST_CASE("of a batch nothing is committed where the choice of a later item fails") {
  using policy_type = std::remove_const_t<decltype(small::zoomr_one_pass)>;
  const tape says = make_tape(half_model, kind::peaked, markup::pairs, 150, 60, 3);
  echo_end sound, end;
  player<policy_type> plainly(half_model, small::zoomr_one_pass, echoing(sound, says, 1));
  player<policy_type> plays(half_model, small::zoomr_one_pass, echoing(end, says, 2));
  plainly.open(says), plays.open(says), plays.open(says);
  plainly.play_plainly();
  int failed = 0;
  while (!plays.done()) {
    const index_t now = plays.tokens();
    const auto step = [&] { plays.play({part_of(says, 0, now, 60), part_of(says, 1, now, 60)}); };
    const auto one_token = [&] { plays.play({part_of(says, 0, now, 1), part_of(says, 1, now, 1)}); };
    end.unanswered = end.calls + 2;
    const std::string sentence = sentence_of([&] { now < says.prompt ? step() : one_token(); });
    end.unanswered = -1;
    if (sentence.empty()) continue;
    ++failed;
    const bool at_prompt_end = now < says.prompt;  // its choices follow the commit
    CHECK((sentence.find("ranks: rank 1") != std::string::npos));
    CHECK((sentence.find("the step is committed") != std::string::npos) == at_prompt_end);
    CHECK(plays.tokens(0) == (at_prompt_end ? says.prompt : now));
    CHECK(plays.tokens(1) == plays.tokens(0));
    if (at_prompt_end) {
      plays.rollback(0, 0), plays.rollback(1, 0);
      step();
    } else {
      one_token();
    }
  }
  CHECK(failed > 3);
  for (voice& each : plays.voices) CHECK(difference(plainly.at(0).log, each.log) == "");
}

TEST_CASE("where others go in the middle of a commit everything is read until the next choice, and the step says so") {
  using policy_type = std::remove_const_t<decltype(small::zoomr_mass)>;
  const tape says = make_tape(half_model, kind::peaked, markup::pairs, 150, 60, 3);
  echo_end end{.unanswered = 2};  // it has met before the commit
  player<policy_type> plays(half_model, small::zoomr_mass, echoing(end, says, 1));
  plays.open(says);
  const std::string sentence = sentence_of([&] { plays.play_plainly(0, 60); });
  CHECK(contains(sentence, "the step is committed, and what follows reads everything until the next choice: ranks: "));
  CHECK(plays.tokens() == 60);
  plays.play({part_of(says, 0, 60, 1)});  // no choice is due
  const token_result& first = plays.at(0).log.at({60, 0});
  REQUIRE(first.attended.size() == 4);
  for (const std::vector<index_t>& positions : first.attended) CHECK(positions.size() == 61);
}

TEST_CASE("ranks that cannot be are refused with a sentence") {
  const auto refused = [](const auto& policy, const shape& model, auto change) {
    zoomr::thread_ranks ends(2);
    zoomr::config limits = with_voters(policy, limits_for(100), shape{2, 4, 2, 8});
    limits.ranks.group = ends.end(0);
    change(limits);
    using policy_type = std::decay_t<decltype(policy)>;
    return sentence_of([&] { const zoomr::kv_cache<policy_type, float> cache(model, policy, limits); });
  };
  const shape half{2, 2, 1, 8};
  const std::vector<index_t> two_firsts = {0, 4}, descending = {0, 0, 4}, others = {0, 3, 4};
  const auto nothing = [](zoomr::config&) {};
  const auto first = [](const std::vector<index_t>& table) {
    return [&table](zoomr::config& limits) { limits.ranks.first = view<const index_t>(table); };
  };
  CHECK(refused(small::zoomr_one_pass, half, nothing).empty());
  CHECK(contains(refused(small::zoomr_one_pass, half, first(two_firsts)),
                 "ranks.first has one number more than there are ranks"));
  CHECK(contains(refused(small::zoomr_one_pass, half, first(descending)), "each rank has some heads"));
  CHECK(contains(refused(small::zoomr_one_pass, half, first(others)),
                 "another number of heads for this rank than the shape"));
  const auto one_kv_head = [](zoomr::config& limits) { limits.ranks.kv_heads = 1; };
  CHECK(refused(small::zoomr_one_pass, half, one_kv_head).empty());
  CHECK(contains(refused(small::quest, half, one_kv_head), "some KV head's query heads are on several ranks"));
  CHECK(contains(refused(small::snapkv, half, one_kv_head), "give each rank whole KV heads"));
  CHECK(contains(refused(small::sentence_voters, half,
                         [](zoomr::config& limits) {
                           limits.voters = {limits.voters.data(), {2, 2}};
                         }),
                 "config: voters are"));
}

}  // namespace zoomr_test
