// SPDX-License-Identifier: Apache-2.0
// Capacity, undo, mistakes, bytes, and what must hold for any sequence.
#include <cache/support/players.hpp>

#include <doctest/doctest.h>

#include <algorithm>    // std::find_if
#include <string_view>  // std::string_view

namespace zoomr_test {
namespace {

using zoomr::errc;

constexpr shape model{2, 4, 2, 8};

template <class Policy>
using player_of = player<std::decay_t<Policy>>;

tape tape_of(std::uint64_t seed, index_t tokens, index_t prompt) {
  constexpr markup texts[] = {markup::pairs, markup::summaries_alone, markup::stray, markup::sentences};
  return make_tape(model, kind::uniform, texts[seed % 4], tokens, prompt, seed);
}

/// Runs `change` and returns the code of the error that it throws, which must leave everything as it was.
template <class Change>
errc refused(Change change) {
  try {
    change();
  } catch (const zoomr::error& refusal) {
    CHECK(std::string_view(refusal.what()).size() > 40);  // sizes and what to do
    return refusal.code();
  }
  FAIL("nothing was refused");
  return errc{};
}

/// True if `change` breaks a precondition, and its sentence holds `part`.
template <class Change>
bool is_mistake(Change change, std::string_view part) {
  try {
    change();
  } catch (const zoomr::precondition_error& mistake) {
    return std::string_view(mistake.what()).find(part) != std::string_view::npos;
  }
  return false;
}

/// After whatever was refused, the sequence goes on like one that nobody disturbed.
template <class Player>
void check_goes_on(Player& plays, index_t v) {
  const tape& says = *plays.at(v).says;
  Player calm(model, plays.cache.policy(), limits_for(says.size()));
  calm.open(says);
  calm.play_plainly(0, plays.tokens(v));
  plays.play_plainly(v);
  calm.play_plainly();
  REQUIRE(difference(calm.at(0).log, plays.at(v).log) == "");
}

TEST_CASE("a full pool refuses a step and changes nothing") {
  for_each_preset([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const tape one = tape_of(1, 120, 40);
    const tape other = tape_of(2, 120, 100);
    zoomr::config limits = limits_for(120, 2);
    limits.pool_tokens = 160;
    player_of<decltype(policy)> plays(model, policy, limits);
    plays.open(one), plays.open(other);
    plays.play({{0, one.between(0, 40), true}});
    const zoomr::memory_use before = plays.cache.bytes(plays.at(0).seq);
    // 8 pages are free or fewer; the first part alone would fit
    CHECK(refused([&] {
            plays.play({plays.next(0, 1), {1, {other.ids.begin(), other.ids.end()}, false}});
          }) == errc::capacity);
    CHECK(plays.tokens(0) == 40);
    CHECK(plays.tokens(1) == 0);
    CHECK(plays.cache.bytes(plays.at(0).seq) == before);
    plays.cache.close(plays.at(1).seq);
    check_goes_on(plays, 0);
  });
}

TEST_CASE("a closed sequence gives all its pages back, again and again") {
  for_each_preset([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const tape says = tape_of(3, 130, 60);
    zoomr::config limits = limits_for(130);
    limits.pool_tokens = 130;
    player_of<decltype(policy)> plays(model, policy, limits);
    for (index_t count = 0; count < 4; ++count) {
      const index_t v = plays.open(says);
      plays.play_plainly(v);
      CHECK(difference(plays.at(0).log, plays.at(v).log) == "");
      plays.cache.close(plays.at(v).seq);
    }
  });
}

TEST_CASE("a full sequence refuses a step and changes nothing") {
  for_each_preset([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const tape says = tape_of(2, 90, 33);
    player_of<decltype(policy)> plays(model, policy, limits_for(90));
    plays.open(says);
    plays.play_plainly(0, 85);
    CHECK(refused([&] { plays.play({{0, std::vector<token_id>(6, plain_id), false}}); }) == errc::capacity);
    CHECK(plays.tokens() == 85);
    check_goes_on(plays, 0);
    CHECK(refused([&] { plays.play({{0, {plain_id}, false}}); }) == errc::capacity);
  });
}

TEST_CASE("a full table of segments refuses the token that would close one more, and changes nothing") {
  for_each_preset([](const char* name, const auto& policy) {
    if constexpr (!std::same_as<decltype(policy.segment), zoomr::unsegmented>) {
      CAPTURE(std::string(name));
      const tape says = tape_of(1, 150, 41);
      zoomr::config limits = limits_for(150);
      player_of<decltype(policy)> counting(model, policy, limits);
      counting.open(says);
      counting.play_plainly(0, 110);
      limits.max_segments = static_cast<index_t>(counting.cache.segments(counting.at(0).seq).size());
      player_of<decltype(policy)> plays(model, policy, limits);
      plays.open(says);
      CHECK(refused([&] { plays.play_plainly(); }) == errc::capacity);
      const index_t at = plays.tokens();
      CHECK(at >= 110);
      CHECK(plays.cache.segments(plays.at(0).seq).size() == limits.max_segments);
      CHECK(refused([&] { plays.play({plays.next(0, 1)}); }) == errc::capacity);
      CHECK(plays.tokens() == at);
      counting.play_plainly(0, at);
      REQUIRE(difference(counting.at(0).log, plays.at(0).log) == "");
      plays.rollback(0, at - 20);  // room for the segments between, so it can be written once more
      plays.play_plainly(0, at);
      REQUIRE(difference(counting.at(0).log, plays.at(0).log) == "");
    }
  });
}

TEST_CASE("more sequences than config.max_sequences are refused until one is closed") {
  zoomr::kv_cache cache(model, small::full, limits_for(32, 2));
  const zoomr::sequence one = cache.open();
  cache.open();
  CHECK(refused([&] { cache.open(); }) == errc::capacity);
  cache.close(one);
  CHECK(cache.open().id == one.id);
}

TEST_CASE("a rollback deeper than what was kept is refused and changes nothing, also after rollbacks") {
  for_each_preset([](const char* name, const auto& policy) {
    if constexpr (requires { policy.evict.every; }) return;  // below
    constexpr bool sums = std::decay_t<decltype(policy)>::selects && decltype(policy.query)::sums;
    constexpr bool hears = zoomr::share_aggregator<decltype(policy.aggregate)>;
    const bool limited = sums || hears || policy.placement.frees_unreachable;
    CAPTURE(std::string(name));
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      const tape says = tape_of(seed, 200, 40);
      zoomr::config limits = limits_for(200);
      limits.rollback_tokens = 20;
      player_of<decltype(policy)> plays(model, policy, limits);
      plays.open(says);
      plays.play_plainly(0, 150);
      plays.rollback(0, 131);
      if (limited) {
        CHECK(refused([&] { plays.rollback(0, 120); }) == errc::rollback_depth);  // 11 behind, 30 behind its longest
        CHECK(refused([&] { plays.rollback(0, 129); }) == errc::rollback_depth);
        CHECK(plays.tokens() == 131);
        plays.rollback(0, 130);
      } else {
        plays.rollback(0, 120);
      }
      plays.play_plainly(0, 160);
      plays.rollback(0, 140);
      if (limited) CHECK(refused([&] { plays.rollback(0, 139); }) == errc::rollback_depth);
      check_goes_on(plays, 0);
    }
  });
}

TEST_CASE("what the policy has evicted of a prompt cannot be rolled back into, and nothing changes") {
  const tape says = tape_of(1, 180, 90);
  player_of<decltype(small::sentence_kv)> kept(model, small::sentence_kv, limits_for(180));
  kept.open(says);
  kept.play_plainly(0, 95);
  CHECK(refused([&] { kept.rollback(0, 89); }) == errc::rollback_depth);
  kept.rollback(0, 90);
  check_goes_on(kept, 0);
  player_of<decltype(small::window)> evicted(model, small::window, limits_for(180));
  evicted.open(says);
  evicted.play_plainly(0, 95);
  CHECK(refused([&] { evicted.rollback(0, 89); }) == errc::rollback_depth);
  check_goes_on(evicted, 0);
}

/// A policy that evicts tokens while decoding: what is behind the last time is gone, the rest is not.
template <class Policy>
void check_rollback_while_decoding(const Policy& policy, index_t prompt) {
  const index_t every = policy.evict.every;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const tape says = tape_of(seed, 200, prompt);
    player_of<Policy> plays(model, policy, limits_for(200));
    plays.open(says);
    const index_t last = prompt + (150 - prompt) / every * every;
    plays.play_plainly(0, last);
    CHECK(refused([&] { plays.rollback(0, last - 1); }) == errc::rollback_depth);
    CHECK(refused([&] { plays.rollback(0, prompt - 1); }) == errc::rollback_depth);
    plays.play_plainly(0, last + every - 1);
    CHECK(refused([&] { plays.rollback(0, last - 1); }) == errc::rollback_depth);
    CHECK(plays.tokens() == last + every - 1);
    plays.rollback(0, last);
    plays.play_plainly(0, last + every - 1);
    plays.rollback(0, last + 1);
    check_goes_on(plays, 0);
  }
}

TEST_CASE("a rollback behind the last time that tokens were evicted is refused, and up to there it is exact") {
  check_rollback_while_decoding(small::h2o, 40);
  check_rollback_while_decoding(small::h2o, 20);  // evicted only later
  check_rollback_while_decoding(small::r_kv, 40);
  check_rollback_while_decoding(small::r_kv, 36);
}

TEST_CASE("before anything is evicted, a policy that adds up attention goes back to what it has not, or to nothing") {
  const tape says = tape_of(2, 120, 30);
  player_of<decltype(small::h2o)> sums(model, small::h2o, limits_for(120));
  sums.open(says);
  sums.play({{0, says.between(0, 12), false}});
  sums.play({{0, says.between(12, 20), false}});
  CHECK(refused([&] { sums.rollback(0, 12); }) == errc::rollback_depth);
  sums.rollback(0, 0);
  sums.play_plainly(0, 36);
  CHECK(refused([&] { sums.rollback(0, 29); }) == errc::rollback_depth);
  sums.rollback(0, 30);
  check_goes_on(sums, 0);
  player_of<decltype(small::r_kv)> looks(model, small::r_kv, limits_for(120));  // keeps 35, and no sums
  looks.open(says);
  looks.play_plainly(0, 34);
  looks.rollback(0, 7);
  looks.play({{0, says.between(7, 30), true}});
  check_goes_on(looks, 0);
}

TEST_CASE("a policy that adds up attention must see each chunk of the prompt in every layer") {
  const tape says = tape_of(1, 60, 30);
  player_of<decltype(small::h2o)> plays(model, small::h2o, limits_for(60));
  plays.open(says);
  std::vector<float> kv(10 * 2 * 8), q(10 * 4 * 8);
  const std::vector<token_id> chunk = says.between(0, 10);
  {
    auto step = plays.cache.begin(plays.at(0).seq, view<const token_id>(chunk));
    step.append(0, view<float, 3>(kv.data(), {10, 2, 8}), view<float, 3>(kv.data(), {10, 2, 8}));
    step.observe(0, view<float, 3>(q.data(), {10, 4, 8}));
    CHECK(is_mistake([&] { step.commit(10); }, "layer 1 of 2 was not appended"));
    step.append(1, view<float, 3>(kv.data(), {10, 2, 8}), view<float, 3>(kv.data(), {10, 2, 8}));
    CHECK(is_mistake([&] { step.commit(10); }, "layer 1 of 2 was not attended"));
  }
  check_goes_on(plays, 0);
}

TEST_CASE("mistakes are told in a sentence and change nothing") {
  const tape says = tape_of(0, 120, 40);
  zoomr::config limits = limits_for(120);
  limits.max_batched_tokens = 60;
  player_of<decltype(small::sentence_kv)> plays(model, small::sentence_kv, limits);
  plays.open(says);
  auto& cache = plays.cache;
  const zoomr::sequence seq = plays.at(0).seq;
  const std::vector<token_id> none, negative{-1}, one{plain_id}, many(61, plain_id);
  CHECK(is_mistake([&] { cache.begin(seq, none); }, "at least one token"));
  CHECK(is_mistake([&] { cache.begin(seq, negative); }, "cannot be negative"));
  CHECK(is_mistake([&] { cache.begin(seq, many); },
                   "begin: the step has 61 tokens or more, config.max_batched_tokens is 60"));
  CHECK(is_mistake([&] { cache.begin(zoomr::sequence{7}, one); }, "not open"));
  CHECK(is_mistake([&] { cache.tokens(zoomr::sequence{}); }, "not open"));
  CHECK(is_mistake([&] { cache.begin(view<const zoomr::step_item>()); }, "at least one item"));
  CHECK(is_mistake([&] { cache.rollback(seq, 1); }, "0 ... tokens(seq)"));
  CHECK(is_mistake([&] { cache.selected(seq, 4); }, "no such row"));
  const zoomr::step_item twice[] = {{seq, one}, {seq, one}};
  CHECK(is_mistake([&] { cache.begin(view<const zoomr::step_item>(twice, {2})); }, "only once"));
  plays.play({{0, says.between(0, 30), false}});
  plays.play({{0, says.between(30, 40), true}});
  CHECK(is_mistake([&] { cache.begin(seq, view<const token_id>(one), true); }, "already ended"));

  std::vector<float> kv(2 * 8), q(4 * 8), out(4 * 8), lse(4);
  const view<float, 3> k(kv.data(), {1, 2, 8}), queries(q.data(), {1, 4, 8}), result(out.data(), {1, 4, 8});
  const std::vector<token_id> next = says.between(40, 41);
  {
    auto step = cache.begin(seq, view<const token_id>(next));
    CHECK(is_mistake([&] { cache.begin(seq, one); }, "step is in progress"));
    CHECK(is_mistake([&] { cache.rollback(seq, 20); }, "step is in progress"));
    CHECK(is_mistake([&] { cache.close(seq); }, "step is in progress"));
    CHECK(is_mistake([&] { step.append(2, k, k); }, "no layer 2"));
    CHECK(is_mistake([&] { step.append(-1, k, k); }, "no layer -1"));
    CHECK(is_mistake([&] { step.append(0, queries, k); }, "append: keys are [1, 4, 8], wanted [1, 2, 8]"));
    CHECK(is_mistake([&] { step.attend(0, k, result); }, "attend: queries are [1, 2, 8], wanted [1, 4, 8]"));
    CHECK(is_mistake(
        [&] {
          step.attend(0, queries, result, view<float, 2>(lse.data(), {4, 1}));
        },
        "attend: lse is [4, 1], wanted [1, 4]"));
    CHECK(is_mistake([&] { step.observe(0, queries); }, "the cache itself attends"));
    CHECK(is_mistake([&] { step.commit(2); }, "commit: 2 tokens of item 0 are accepted, wanted 0 ... 1"));
    CHECK(is_mistake([&] { step.needs_second_pass(-1); },
                     "needs_second_pass: -1 tokens of item 0 are accepted, wanted 0 ... 1"));
    CHECK(is_mistake([&] { step.commit(view<const index_t>()); }, "one for each of the 1 items"));
    step.commit(0);
    CHECK(is_mistake([&] { step.append(0, k, k); }, "the step is over"));
    CHECK(is_mistake([&] { step.attend(0, queries, result); }, "the step is over"));
    CHECK(is_mistake([&] { step.commit(0); }, "the step is over"));
    CHECK(is_mistake([&] { step.needs_second_pass(0); }, "the step is over"));
  }
  check_goes_on(plays, 0);
}

TEST_CASE("a token that was passed again must be accepted, and a prompt is accepted whole") {
  const tape says = tape_of(3, 80, 30);
  const auto policy = with(small::zoomr_mass, [](auto& p) { p.refresh.at_most = 1; });
  player_of<decltype(policy)> plays(model, policy, limits_for(80));
  plays.open(says);
  const std::vector<token_id> prompt = says.between(0, 30), next = says.between(30, 31);
  {
    auto step = plays.cache.begin(plays.at(0).seq, view<const token_id>(prompt), true);
    CHECK(is_mistake([&] { step.commit(29); }, "of a prompt all 30 or none can be"));
  }
  plays.play_plainly(0, 30);
  std::vector<float> kv(2 * 8), q(4 * 8), out(4 * 8);
  const view<float, 3> k(kv.data(), {1, 2, 8});
  {
    auto step = plays.cache.begin(plays.at(0).seq, view<const token_id>(next));
    REQUIRE(step.passes() == 2);
    for (index_t layer = 0; layer < 2; ++layer) {
      step.append(layer, k, k);
      step.attend(layer, view<float, 3>(q.data(), {1, 4, 8}), view<float, 3>(out.data(), {1, 4, 8}));
    }
    REQUIRE(step.needs_second_pass(1));
    CHECK(!step.needs_second_pass(1));
    CHECK(is_mistake([&] { step.commit(0); },
                     "`needs_second_pass` was told that 1 tokens of item 0 are accepted, not 0"));
  }
  check_goes_on(plays, 0);
}

TEST_CASE("what cannot work is refused at construction") {
  const auto refuses = [](const auto& policy, const zoomr::config& limits, std::string_view part) {
    return is_mistake([&] { zoomr::kv_cache cache(model, policy, limits); }, part);
  };
  const zoomr::config good = limits_for(64);
  zoomr::config bad = good;
  bad.max_tokens = 0;
  CHECK(refuses(small::full, bad, "at least 1"));
  bad = good, bad.rollback_tokens = -1;
  CHECK(refuses(small::full, bad, "negative"));
  bad = good, bad.min_sparse_context = 10;
  CHECK(refuses(small::window, bad, "frees what is unreachable"));
  CHECK(refuses(with(small::sentence_kv, [](auto& p) { p.aggregate.per = zoomr::scope::layer; }), good, "per KV head"));
  CHECK(
      refuses(with(small::quest, [](auto& p) { p.aggregate.per = zoomr::scope::sequence; }), good, "cannot be pooled"));
  CHECK(
      refuses(with(small::by_mass, [](auto& p) { p.aggregate.per = zoomr::scope::sequence; }), good, "are not pooled"));
  CHECK(refuses(with(small::sentence_kv, [](auto& p) { p.select.tokens = 9; }), good, "sinks + window"));
  CHECK(refuses(with(small::summary_only, [](auto& p) { p.zone.dense_layers = 1; }), good, "dense layers"));
  CHECK(is_mistake([&] { zoomr::kv_cache cache(shape{2, 4, 3, 8}, small::full, good); }, "multiple of kv_heads"));
  CHECK(is_mistake([&] { zoomr::kv_cache cache(shape{2, 4, 2, 12}, small::full, good); }, "head_dim"));
}

TEST_CASE("bytes(config) bounds what is in use at any time, and details are whole pages") {
  for_each_preset([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    using cache_type = zoomr::kv_cache<std::decay_t<decltype(policy)>>;
    const tape says = tape_of(2, 300, 75);
    zoomr::config limits = with_voters(policy, limits_for(300), model);
    limits.max_segments = 150;
    const zoomr::memory_use capacity = cache_type::bytes(model, policy, limits);
    player_of<decltype(policy)> plays(model, policy, limits);
    plays.open(says);
    constexpr zoomr::byte_count page = 2 * 2 * 2 * 16 * 8 * sizeof(float);  // K and V, layers, KV heads, tokens, dims
    dice random(1);
    zoomr::byte_count most_details = 0;
    while (!plays.done()) {
      plays.play_plainly(0, plays.tokens() + 1);
      const index_t least = std::max(says.prompt, least_rollback(policy, says.prompt, plays.tokens()));
      if (random.chance(5)) plays.rollback(0, std::max(least, plays.tokens() - random.between(1, 5)));
      const zoomr::memory_use used = plays.cache.bytes(plays.at(0).seq);
      REQUIRE(used.details <= capacity.details);
      REQUIRE(used.summaries <= capacity.summaries);
      REQUIRE(used.metadata <= capacity.metadata);
      REQUIRE(used.total() <= capacity.total());
      REQUIRE(used.details % page == 0);
      const index_t slots = slots_held(policy, says.prompt, plays.tokens());
      const zoomr::byte_count all = (slots + 15) / 16 * page;
      if (policy.placement.frees_unreachable)
        REQUIRE(used.details <= all);
      else
        REQUIRE(used.details == all);
      most_details = std::max(most_details, used.details);
    }
    if constexpr (std::same_as<decltype(policy.segment), zoomr::unsegmented>) {
      if (policy.placement.frees_unreachable) {
        CHECK(plays.cache.bytes(plays.at(0).seq).details <= 5 * page);  // sinks, 19 + undo 24 tokens, ragged ends
      }
    } else if (policy.placement.frees_unreachable) {
      CHECK(plays.cache.bytes(plays.at(0).seq).details < 19 * page);
    }
    CHECK(plays.cache.stats(plays.at(0).seq).device_peak > 0);
  });
}

TEST_CASE("an evicting policy whose summaries outlive the window keeps the summary that is being written") {
  const auto policy = with(small::summary_only, [](auto& p) {
    p.zone.open = 3, p.zone.recent = 2, p.zone.prompt = false, p.zone.sinks = 0;
    p.segment.longest = 200;
  });
  zoomr::config limits = limits_for(300);
  limits.rollback_tokens = 0;
  tape says = tape_of(3, 300, 5);
  std::fill(says.ids.begin(), says.ids.end(), plain_id);
  for (const index_t at : {20, 130}) {
    says.ids[static_cast<std::size_t>(at)] = summary_id;
    says.ids[static_cast<std::size_t>(at + 70)] = summary_end_id;
  }
  player_of<decltype(policy)> plays(model, policy, limits);
  plays.open(says);
  plays.play_plainly();
  const auto& at_end = plays.at(0).log.at({299, 0}).attended[0];
  CHECK(at_end.size() == 71 + 71 + 3);
  const reference::history past = history_of(says);
  for (const auto& [at, got] : plays.at(0).log) {
    if (at.first < says.prompt) continue;
    const auto right = reference::attend(
        got.attended[0], past.query(at.first, 0, 0, 0), 8, [&](index_t t) { return past.key(t, 0, 0, 0); },
        [&](index_t t) { return past.value(t, 0, 0, 0); });
    REQUIRE(tolerance::within(got.lse.numbers[0], right.lse, 1e-5));
  }
  CHECK(plays.cache.bytes(plays.at(0).seq).details < 19 * 4096);
}

TEST_CASE("device_peak counts the tokens of one step, whatever was dropped before") {
  const tape says = tape_of(0, 100, 30);
  player_of<decltype(small::sentence_kv)> calm(model, small::sentence_kv, limits_for(100));
  player_of<decltype(small::sentence_kv)> dropping(model, small::sentence_kv, limits_for(100));
  calm.open(says), dropping.open(says);
  calm.play_plainly();
  dropping.play_plainly(0, says.prompt);
  while (!dropping.done()) {
    dropping.play({dropping.next(0, 1)}, fate::dropped_after_pass);
    dropping.play({dropping.next(0, 1)});
  }
  CHECK(dropping.cache.stats(dropping.at(0).seq).device_peak == calm.cache.stats(calm.at(0).seq).device_peak);
}

// ln of the sum of exp(logit) of one query over all tokens up to its own, each with the keys of its last pass.
double log_sum_of_all(const reference::history& all, const result_log& log, std::pair<index_t, index_t> at,
                      index_t row) {
  const index_t head = row % model.heads;
  const index_t kv_lane = row / model.heads * model.kv_heads + head / model.group();
  const auto row_of = [&](const std::vector<float>& rows, index_t position, index_t of, index_t count) {
    return rows.data() + (position * count + of) * model.head_dim;
  };
  const float* query = row_of(all.queries[at.second], at.first, row, model.layers * model.heads);
  double sum = 0;
  for (index_t position = 0; position <= at.first; ++position) {
    const index_t pass = position == at.first ? at.second : static_cast<index_t>(log.count({position, 1}));
    const float* key = row_of(all.keys[pass], position, kv_lane, model.layers * model.kv_heads);
    double logit = 0;
    for (index_t d = 0; d < model.head_dim; ++d) logit += double{query[d]} * double{key[d]};
    sum += std::exp(logit / std::sqrt(static_cast<double>(model.head_dim)));
  }
  return std::log(sum);
}

TEST_CASE("an audit finds the share of full attention's mass that each query's tokens have") {
  for_each_preset([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    if (decltype(policy.evict)::observes || policy.placement.frees_unreachable)
      return;  // full attention's tokens are not all held
    const tape says = tape_of(4, 140, 50);
    zoomr::config limits = limits_for(140);
    limits.audit = true;
    player_of<decltype(policy)> plays(model, policy, limits);
    plays.open(says), plays.play_plainly();
    const reference::history all = history_of(says);
    const result_log& log = plays.at(0).log;
    double captured = 0;
    std::int64_t count = 0;
    for (const auto& [at, result] : log) {
      if (at.first < says.prompt) continue;
      for (index_t row = 0; row < model.layers * model.heads; ++row, ++count) {
        captured +=
            std::exp(double{result.lse.numbers[static_cast<std::size_t>(row)]} - log_sum_of_all(all, log, at, row));
      }
    }
    const zoomr::statistics& stats = plays.cache.stats(plays.at(0).seq);
    REQUIRE(count > 0);
    CHECK(stats.captured_count == count);
    CHECK(stats.captured() == doctest::Approx(captured / static_cast<double>(count)).epsilon(1e-5));
    CHECK(stats.captured() <= 1.0 + 1e-5);
    player_of<decltype(policy)> without(model, policy, limits_for(140));
    without.open(says), without.play_plainly();
    CHECK(without.cache.stats(without.at(0).seq).captured_count == 0);
  });
}

TEST_CASE("segments partition the stream up to the open one") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const tape says = tape_of(seed, 200, static_cast<index_t>(1 + seed * 5));
    player_of<decltype(small::zoomr_one_pass)> plays(
        model, with(small::zoomr_one_pass, [&](auto& p) { p.segment.longest = static_cast<index_t>(1 + seed % 40); }),
        limits_for(200));
    plays.open(says);
    plays.play_plainly();
    index_t end = 0;
    index_t closed_at = 0;
    CAPTURE(seed);
    for (const zoomr::segment& s : plays.cache.segments(plays.at(0).seq)) {
      REQUIRE(s.begin == end);
      REQUIRE(s.begin < s.end);
      REQUIRE((s.begin <= s.split && s.split <= s.end));
      REQUIRE((s.begin <= s.cue_begin && s.cue_begin < s.cue_end && s.cue_end <= s.end));
      REQUIRE(s.end - s.begin <= 1 + static_cast<index_t>(seed % 40));
      REQUIRE((s.closed_at >= s.end - 1 && s.closed_at <= s.end && s.closed_at >= closed_at));
      end = s.end;
      closed_at = s.closed_at;
    }
    CHECK(200 - end <= 1 + static_cast<index_t>(seed % 40));
  }
}

TEST_CASE("choices are traced best first: the first runner-up is what a larger choice takes too") {
  const tape says = make_tape(model, kind::uniform, markup::pairs, 140, 40, 77);
  const auto traced = [&](const auto& policy, index_t row_count) {
    zoomr::choice_trace trace;
    player_of<decltype(policy)> plays(model, policy, limits_for(says.size()));
    plays.cache.trace_choices(&trace);
    plays.open(says);
    plays.play_plainly();
    REQUIRE(plays.cache.selection_rows() == row_count);
    for (index_t row = 0; row < row_count; ++row) {
      const auto last = std::find_if(trace.rbegin(), trace.rend(), [&](const auto& made) { return made.row == row; });
      if (last == trace.rend()) continue;  // of a layer that attends everything
      const zoomr::selection_row& in_force = plays.cache.selected(plays.at(0).seq, row);
      index_t taken = 0;
      for (const zoomr::level at : in_force.levels) taken += at == zoomr::level::details ? 1 : 0;
      CHECK(taken == static_cast<index_t>(last->chosen.size()));
      for (const index_t id : last->chosen) CHECK(in_force.level_at(id) == zoomr::level::details);
    }
    return trace;
  };
  const auto check = [&](const auto& policy, index_t rows) {
    auto larger = policy;
    ++larger.select.segments;
    const zoomr::choice_trace few = traced(policy, rows);
    const zoomr::choice_trace more = traced(larger, rows);
    REQUIRE(few.size() == more.size());
    std::size_t with_others = 0;
    for (std::size_t i = 0; i < few.size(); ++i) {
      zoomr::choice_record expected = few[i];
      REQUIRE(expected.votes.size() == expected.chosen.size() + expected.runners_up.size());
      REQUIRE(std::is_sorted(expected.votes.rbegin(), expected.votes.rend()));
      if (!expected.runners_up.empty()) {
        ++with_others;
        expected.chosen.push_back(expected.runners_up.front());
        expected.runners_up.erase(expected.runners_up.begin());
      }
      REQUIRE(more[i] == expected);
    }
    CHECK(with_others > 10);
  };
  check(small::quest, model.kv_lanes());
  check(small::by_layer, model.layers);
  check(small::arkvale, model.layers);
}

TEST_CASE("attended positions ascend, are unique, hold the token itself, and never exceed the budget") {
  for_each_preset([](const char* name, const auto& policy) {
    for (std::uint64_t seed = 0; seed < 6; ++seed) {
      const tape says = tape_of(seed, 210, 64);
      player_of<decltype(policy)> plays(model, policy, limits_for(210));
      plays.open(says);
      plays.play_plainly();
      CAPTURE(std::string(name));
      std::size_t most = 0;
      for (const auto& [at, got] : plays.at(0).log) {
        for (const auto& positions : got.attended) {
          REQUIRE(std::adjacent_find(positions.begin(), positions.end(), std::greater_equal<>()) == positions.end());
          REQUIRE((positions.front() >= 0 && positions.back() == at.first));
          most = std::max(most, positions.size());
        }
      }
      if (std::string(name) == "sentence_kv") CHECK(most == 40);  // never more, and the cut fills it
    }
  });
}

TEST_CASE("embeddings have no id of the tokenizer: they are as plain tokens, under every policy") {
  const tape says = tape_of(7, 90, 40);
  for_each_preset([&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    zoomr::kv_cache cache(model, policy, with_voters(policy, limits_for(90, 2), model));
    const zoomr::sequence seqs[] = {cache.open(), cache.open()};
    for (index_t t = 0; t < says.size(); ++t) {
      const token_id id = says.ids[static_cast<std::size_t>(t)];
      const token_id ids[] = {id, class_of(id) == zoomr::token_class::plain ? zoomr::no_class : id};
      std::vector<zoomr::step_item> items;
      for (const int i : {0, 1}) items.push_back({seqs[i], view<const token_id>(&ids[i], {1}), t + 1 == says.prompt});
      auto step = cache.begin(view<const zoomr::step_item>(items));
      const auto pass = [&] {
        for (index_t layer = 0; layer < model.layers; ++layer) {
          const auto rows = [&](role which, index_t heads) {  // the same of both
            std::vector<float> numbers(static_cast<std::size_t>(2 * heads * model.head_dim));
            for (index_t row = 0; row < 2 * heads; ++row) {
              says.numbers.fill(which, id, t, layer, row % heads, 0, numbers.data() + row * model.head_dim);
            }
            return numbers;
          };
          const auto k = rows(role::key, model.kv_heads), v = rows(role::value, model.kv_heads);
          const auto q = rows(role::query, model.heads);
          const zoomr::extents<3> key_shape{{2, model.kv_heads, model.head_dim}};
          const zoomr::extents<3> query_shape{{2, model.heads, model.head_dim}};
          std::vector<float> out(q.size());
          step.append(layer, view<const float, 3>(k.data(), key_shape), view<const float, 3>(v.data(), key_shape));
          step.attend(layer, view<const float, 3>(q.data(), query_shape), view<float, 3>(out.data(), query_shape));
          const auto half = out.begin() + static_cast<std::ptrdiff_t>(out.size() / 2);
          REQUIRE(std::equal(out.begin(), half, half));
        }
      };
      pass();
      const std::vector<index_t> accepted{1, 1};
      if (step.needs_second_pass(view<const index_t>(accepted))) pass();
      step.commit(view<const index_t>(accepted));
    }
    const auto segments = cache.segments(seqs[0]), others = cache.segments(seqs[1]);
    CHECK(std::equal(segments.begin(), segments.end(), others.begin(), others.end()));
  });
}

}  // namespace
}  // namespace zoomr_test
