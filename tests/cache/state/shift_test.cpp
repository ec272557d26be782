// SPDX-License-Identifier: Apache-2.0
// Model positions that are not positions: gaps where spans were erased, spans that moved, an engine's own. After any
// edits a sequence is the one to which the tokens that are left came at the positions that they have.
#include <cache/support/against_reference.hpp>
#include <cache/support/model_logits.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/tiered_limits.hpp>
#include <support/paged_engine.hpp>
#include <support/state_digest.hpp>
#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <paging/engines.hpp>

#include <numeric>  // std::iota

namespace zoomr_test {
namespace {

using zoomr::position_gap, zoomr::token_range;

constexpr shape model{2, 4, 2, 8};

template <class T>
class engine_player : public cache_holder<paged_engine<T>>, public driver<paged_engine<T>> {
 public:
  template <class Policy>
  engine_player(const shape& of, const Policy& policy, const zoomr::config& limits, const engine_layout& lies)
      : cache_holder<paged_engine<T>>{paged_engine<T>(of, policy, with_voters(policy, limits, of), lies)},
        driver<paged_engine<T>>(this->cache) {}
};

/// A text that is counted as an engine counts by itself, until it is edited.
tape counted(tape says) {
  says.positions.resize(static_cast<std::size_t>(says.size()));
  std::iota(says.positions.begin(), says.positions.end(), 0);
  says.tells = false;
  return says;
}
/// Tokens from one on follow the one before them.
void count_on(tape& says, index_t from) {
  for (index_t t = std::max(from, 1); t < says.size(); ++t) {
    const auto at = static_cast<std::size_t>(t);
    says.positions[at] = says.positions[at - 1] + 1;
  }
}
void move(tape& says, token_range span, index_t distance) {
  for (index_t t = span.first; t < span.last; ++t) says.positions[static_cast<std::size_t>(t)] += distance;
}

/// What tokens from `first` on got.
result_log from(const result_log& log, index_t first) { return {log.lower_bound({first, 0}), log.end()}; }

template <class T, class Placement>
index_t model_position(zoomr::any_kv_cache<T, Placement>& cache, zoomr::sequence seq, index_t t) {
  return cache.model_position(seq, t);
}
template <class T>
index_t model_position(paged_engine<T>& engine, zoomr::sequence seq, index_t t) {
  return engine.cache().model_position(seq, t);
}

/// One edit of the first `tokens` tokens, in a cache and in its text.
template <class Cache>
tape edited(Cache& cache, zoomr::sequence seq, const tape& says, index_t tokens, dice& random) {
  const auto at = [&](index_t t) { return says.positions[static_cast<std::size_t>(t)]; };
  const index_t first = random.between(1, tokens - 2), last = random.between(first + 1, tokens - 1);
  tape made = says;
  switch (random.between(0, 3)) {
    case 0:  // erased, and turned up
      made = says.without({first, last});
      cache.erase(seq, {first, last}, quarter_turn(at(first) - at(last)));
      move(made, {first, tokens - (last - first)}, at(first) - at(last));
      break;
    case 1:  // erased alone, whole pages of any size among them
      cache.erase(seq, {first, last}, position_gap{});
      made = says.without({first, last});
      break;
    case 2: {  // what is behind moves alone, to the front if there is room, or on
      const index_t nearest = at(first - 1) + 1 - at(first), distance = random.between(nearest, nearest + 9);
      cache.shift(seq, {first, tokens}, distance, quarter_turn(distance));
      move(made, {first, tokens}, distance);
      break;
    }
    default: {  // a span in between, as far as there is room
      const index_t distance = random.between(at(first - 1) + 1 - at(first), at(last) - at(last - 1) - 1);
      cache.shift(seq, {first, last}, distance, quarter_turn(distance));
      move(made, {first, last}, distance);
    }
  }
  return made;
}
index_t committed(const tape& says, const tape& made, index_t tokens) { return tokens - (says.size() - made.size()); }

/// Random edits while a text comes, and the text that is left in a cache that is told where its tokens are.
template <class Player, class Digest>
void check_edits(Player& plays, Player& never, std::uint64_t seed, index_t prompt, Digest digest) {
  dice random(seed);
  CAPTURE(seed);
  tape says = counted(make_tape(model, kind::uniform, markup::sentences, 230, prompt, seed));
  plays.open(says);
  index_t tokens = prompt;
  const auto play_to = [&](index_t to) {
    count_on(says, tokens);
    plays.play_plainly(0, to);
    tokens = to;
  };
  play_to(prompt + 20);
  for (index_t edits = 0; edits < 6 && tokens > 30; ++edits) {
    tape made = edited(plays.cache, plays.at(0).seq, says, tokens, random);
    tokens = committed(says, made, tokens);
    says = made;
    REQUIRE(plays.tokens() == tokens);
    for (index_t t = 0; t < tokens; ++t) {
      REQUIRE(model_position(plays.cache, plays.at(0).seq, t) == says.positions[static_cast<std::size_t>(t)]);
    }
    if (random.chance(40)) {
      const index_t back = random.between(1, std::min(9, tokens - says.prompt));
      if (tokens - back > says.prompt) tokens -= back, plays.rollback(0, tokens);
    }
    play_to(std::min(tokens + random.between(1, 25), says.size() - 20));
  }
  count_on(says, tokens);
  tape told = says;
  told.tells = true;
  never.open(told);
  never.play_plainly(0, tokens);
  REQUIRE(digest(plays) == digest(never));
  plays.at(0).log.clear(), never.at(0).log.clear();
  plays.play_plainly(0), never.play_plainly(0);
  REQUIRE(difference(plays.at(0).log, never.at(0).log) == "");
}

TEST_CASE("after any edits a sequence is that of the tokens that are left, at the positions that they have") {
  const auto check = [](const char* name, const auto& policy, auto number, index_t window, bool biased) {
    CAPTURE(std::string(name));
    using policy_type = std::decay_t<decltype(policy)>;
    using T = decltype(number);
    const model_rule alibi("ALiBi", model, 0.0f, 0.0f, false, true);
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      zoomr::config limits = limits_for(260);
      limits.rollback_tokens = 260;  // under a window: pages that an edit could reach are there
      if (biased) limits.logits = alibi.rule();
      limits.logits.window = window;
      const auto digest = [&](auto& plays) {
        const state_digest made = digest_of(plays.cache, plays.at(0).seq);
        return std::vector<std::uint64_t>{made.of[state_digest::segments], made.of[state_digest::details],
                                          made.of[state_digest::summaries]};
      };
      player<policy_type, T> plays(model, policy, limits), never(model, policy, limits);
      check_edits(plays, never, seed, 40, digest);
      if (seed > 3) continue;
      for (const engine_layout& lies : {engine_layout{16, false, false, 0}, {1, true, false, 0}, {5, false, true, 8}}) {
        CAPTURE(lies.name());
        engine_player<T> engine(model, policy, limits, lies), told(model, policy, limits, lies);
        check_edits(engine, told, seed, 40, [](auto&) { return 0; });
      }
    }
  };
  check("full", small::full, 0.0f, 0, false);
  check("full, in 16 bits", small::full, bfloat16{}, 0, false);
  check("full, ALiBi", small::full, 0.0f, 0, true);
  check("full, a window", small::full, 0.0f, 30, false);
  check("full, a window and ALiBi", small::full, 0.0f, 30, true);
  check("quest", small::quest, 0.0f, 0, false);
  check("quest, a window", small::quest, 0.0f, 50, true);
  check("sentence_box", small::sentence_box, float16{}, 0, false);
  check("arkvale", small::arkvale, 0.0f, 0, false);
}

/// What a prompt's tokens got, against attention in double to what their window shows.
void check_prompt(const tape& says, const zoomr::config& limits, comparison& all) {
  player<std::decay_t<decltype(small::full)>> plays(says.numbers.model, small::full, limits);
  plays.open(says);
  plays.play_plainly(0, says.prompt);
  reference::history past = history_of(says);
  past.logits = logits_of(limits.logits);
  past.logits.positions = says.positions;
  for (auto [at, got] : plays.at(0).log) {
    std::vector<index_t> seen(static_cast<std::size_t>(at.first + 1 - past.logits.first_seen(at.first)));
    std::iota(seen.begin(), seen.end(), past.logits.first_seen(at.first));
    got.attended.assign(static_cast<std::size_t>(past.model.layers * past.model.heads), seen);
    for (std::size_t row = 0; row < got.attended.size(); row += 3) {
      check_output(
          got, past, row, at.first, 0, [](index_t) { return 0; }, allowed_of<float>, all);
    }
  }
}

TEST_CASE("positions of an engine's own: windows and a bias by distance go by them") {
  comparison all;
  std::uint64_t seed = 20;
  const auto check = [&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    constexpr shape wide{2, 4, 2, 16};  // for which there are vectors
    for (const model_rule& of : all_model_rules(wide)) {
      tape says = counted(make_tape(wide, kind::uniform, markup::pairs, 150, 57, ++seed));
      says.tells = true;
      dice random(seed);
      for (index_t t = 1, gap = 1; t < says.size(); ++t) {  // gaps, and images whose tokens are at one place
        if (random.chance(10)) gap = random.between(0, 2);
        says.positions[static_cast<std::size_t>(t)] =
            says.positions[static_cast<std::size_t>(t - 1)] + gap + (random.chance(5) ? 12 : 0);
      }
      zoomr::config limits = limits_for(says.size());
      limits.logits = of.rule();
      const bool evicts = decltype(policy.evict)::observes, biased = limits.logits.alibi_slopes.size() > 0;
      if (!evicts) limits.logits.window = seed % 2 == 0 ? 37 : 0;
      if (limits.logits.window > 0) limits.rollback_tokens = says.size();  // as many as a window shows are kept
      CAPTURE(of.name);
      if (evicts && biased) {
        player<std::decay_t<decltype(policy)>> plays(wide, policy, limits);
        plays.open(says);
        CHECK(sentence_of([&] { plays.play_plainly(); }).find("evicts by attention") != std::string::npos);
        continue;
      }
      check_against_reference(policy, says, limits, false, all);
      if (!evicts) check_prompt(says, limits, all);
    }
  };
  check("full", small::full), check("quest", small::quest), check("zoomr_focus", small::zoomr_focus);
  check("by_layer", small::by_layer), check("h2o", small::h2o), check("sentence_kv", small::sentence_kv);
  check_rarely_stopped("positions of an engine's own", all);
}

TEST_CASE("chunks, drafts, rollbacks and dropped steps leave the positions of what is committed") {
  const auto check = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    tape says = counted(make_tape(model, kind::uniform, markup::pairs, 200, 90, 3));
    says.tells = true;
    dice random(9);
    for (std::size_t t = 1; t < 200; ++t) {
      says.positions[t] = says.positions[t - 1] + (random.chance(15) ? random.between(2, 5) : 1);
    }
    says.later_prompts = {{120, 144}};
    zoomr::config limits = limits_for(says.size(), 2);
    limits.logits.window = 45, limits.rollback_tokens = says.size();
    player<std::decay_t<decltype(policy)>> plain(model, policy, limits), plays(model, policy, limits);
    plain.open(says), plays.open(says);
    plain.play_plainly();
    while (!plays.done()) {
      const index_t now = plays.tokens();
      const part next = part_of(says, 0, now, random.between(1, says.in_prompt(now) ? 30 : 6));
      if (random.chance(20)) plays.play({next}, fate::dropped_between_layers);
      plays.play({next});
      if (random.chance(20) && plays.tokens() > 150) plays.rollback(0, plays.tokens() - random.between(1, 5));
      REQUIRE(plays.cache.model_position(plays.at(0).seq, plays.tokens() - 1) ==
              says.positions[static_cast<std::size_t>(plays.tokens() - 1)]);
      if (plays.tokens() < 70 || plays.voices.size() > 1) continue;
      const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
      plays.voices.push_back({plays.cache.load(memory_source(bytes)), &says, plays.at(0).log});
    }
    while (!plays.done(1)) {
      const index_t now = plays.tokens(1);
      plays.play({part_of(says, 1, now, random.between(1, says.in_prompt(now) ? 30 : 6))});
    }
    CHECK(difference(plain.at(0).log, plays.at(0).log) == "");
    CHECK(difference(plain.at(0).log, plays.at(1).log) == "");
  };
  check("full", small::full), check("quest", small::quest);
}

TEST_CASE("of lanes that have evicted tokens of their own, keys that are left are turned") {
  const auto check = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const tape says = counted(make_tape(model, kind::uniform, markup::sentences, 200, 70, 6));
    player<std::decay_t<decltype(policy)>> plays(model, policy, limits_for(220));
    plays.open(says);
    plays.play_plainly(0, 150);
    const zoomr::sequence seq = plays.at(0).seq;
    REQUIRE(plays.cache.slots(seq) < 150);
    const auto expect_keys = [&](auto model_position) {
      for (index_t lane = 0; lane < model.kv_lanes(); ++lane) {
        const index_t layer = lane / model.kv_heads, head = lane % model.kv_heads;
        const auto rows = plays.cache.kv_lane(seq, layer, head);
        for (index_t slot = 0; slot < plays.cache.slots(seq); ++slot) {
          const index_t t = plays.cache.slots_of(seq, layer, head).position_of(slot);
          std::vector<float> key(8);
          says.numbers.fill(role::key, says.ids[static_cast<std::size_t>(t)], t, layer, head, 0, key.data());
          quarter_turn(model_position(t))(layer, {key.data(), {8}});
          REQUIRE(std::equal(key.begin(), key.end(), rows.key(slot)));
        }
      }
    };
    expect_keys([](index_t t) { return t; });
    plays.cache.shift(seq, {20, 131}, 0, quarter_turn(0));
    plays.cache.shift(seq, {131, 150}, 7, quarter_turn(7));
    plays.cache.shift(seq, {17, 131}, 3, quarter_turn(3));
    expect_keys([](index_t t) { return t + (t >= 131 ? 7 : t >= 17 ? 3 : 0); });
    plays.play_plainly(0);
    CHECK(plays.cache.model_position(seq, 199) == 206);
  };
  check("snapkv", small::snapkv), check("h2o", small::h2o), check("sentence_kv", small::sentence_kv);
}

TEST_CASE("forks: what others share is copied before it is turned, and whole pages go from one alone") {
  const tape says = counted(make_tape(model, kind::uniform, markup::sentences, 160, 40, 5));
  player<std::decay_t<decltype(small::quest)>> plays(model, small::quest, limits_for(160, 3));
  plays.open(says);
  plays.play_plainly(0, 100);
  const auto& pool = zoomr::inspection::core(plays.cache).pool;
  const zoomr::sequence seq = plays.at(0).seq;
  const index_t free = pool.free_pages();
  const zoomr::sequence other = plays.cache.fork(seq), third = plays.cache.fork(seq);
  const auto of = [&](zoomr::sequence one) {
    state_digest made = digest_of(plays.cache, one);
    made.of[state_digest::free_pages] = 0;
    return made;
  };
  const state_digest before = of(seq);
  plays.cache.erase(other, {16, 48}, position_gap{});
  CHECK(pool.free_pages() == free);  // no row was written
  CHECK(of(seq).difference(before) == "");
  plays.cache.shift(other, {40, 68}, 5, quarter_turn(5));  // two pages and a part
  CHECK(pool.free_pages() == free - 3);
  CHECK(of(seq).difference(before) == "");
  plays.cache.shift(other, {40, 68}, -5, quarter_turn(-5));  // nobody shares them any more
  CHECK(pool.free_pages() == free - 3);
  plays.cache.erase(third, {16, 48}, position_gap{});
  CHECK(of(third).of[state_digest::details] == of(other).of[state_digest::details]);
  CHECK(of(third).of[state_digest::summaries] == of(other).of[state_digest::summaries]);
  plays.cache.close(other), plays.cache.close(third);
  CHECK(pool.free_pages() == free);
  CHECK(digest_of(plays.cache, seq).difference(before) == "free pages");
}

template <class T, class Placement>
std::vector<std::byte> summaries_of(zoomr::any_kv_cache<T, Placement>& cache, zoomr::sequence seq) {
  auto& core = zoomr::inspection::core(cache);
  auto& state = core.states[static_cast<std::size_t>(seq.id)];
  std::vector<std::byte> all;
  for (index_t lane = 0; lane < model.kv_lanes(); ++lane) {
    const std::byte* const first = state.summaries_of(core.sizes, lane);
    all.insert(all.end(), first, first + core.sizes.kv_lane_summary_bytes(state.segment_count()));
  }
  return all;
}

TEST_CASE("an engine's pages: whole ones go from a table, also where other sequences share them") {
  for (const index_t page : {1, 4, 16}) {
    CAPTURE(page);
    const tape says = counted(make_tape(model, kind::uniform, markup::sentences, 150, 45, 7));
    const token_range span{16, 48};
    tape left = says.without(span);
    const auto moved = with_placement(small::quest, zoomr::engine_pages{});
    zoomr::config limits = limits_for(150, 2);
    engine_pool_memory<float> held(model, 400, {page, false, false, 0});
    limits.engine = held.memory;
    zoomr::any_kv_cache<float, zoomr::engine_pages> cache =
        zoomr::kv_cache<std::remove_const_t<decltype(moved)>>(model, moved, limits);
    driver plays(cache);
    plays.open(says);
    std::vector<index_t> pages(static_cast<std::size_t>(held.memory.pages_for(150)));
    for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<index_t>(2 * pages.size() - 2 * i);
    const auto table = [](const std::vector<index_t>& of) { return view<const index_t>(of); };
    plays.tables = {&pages};
    plays.play_plainly(0, 100);
    const zoomr::sequence fork = cache.fork(plays.at(0).seq);
    CHECK(cache.erase(fork, span, position_gap{}) == token_range{16 / page, 48 / page});
    std::vector<index_t> of_fork = pages;
    of_fork.erase(of_fork.begin() + 16 / page, of_fork.begin() + 48 / page);
    cache.block_table(fork, table(of_fork));
    // The fork goes on in pages of its own, the other one as if nothing had been.
    for (auto i = static_cast<std::size_t>(68 / page); i < of_fork.size(); ++i) {
      of_fork[i] = static_cast<index_t>(250 + i);
    }
    plays.play_plainly(0);
    zoomr::engine_pool<float> pool(model, held.memory);
    if (68 % page != 0) {  // copied, as an engine does before it writes there
      for (index_t lane = 0; lane < model.kv_lanes(); ++lane) {
        const auto source = pool.kv_lane(lane / 2, lane % 2, table(pages)),
                   goal = pool.kv_lane(lane / 2, lane % 2, table(of_fork));
        for (index_t slot = 68 / page * page; slot < 68; ++slot) {
          std::copy_n(source.key(slot + 32), 8, goal.key(slot));
          std::copy_n(source.value(slot + 32), 8, goal.value(slot));
        }
      }
    }
    plays.voices.push_back({fork, &left, {}});
    plays.tables = {&pages, &of_fork};
    plays.play_plainly(1);
    left.tells = true;
    player<std::decay_t<decltype(small::quest)>> own(model, small::quest, limits_for(150)),
        never(model, small::quest, limits_for(150));
    own.open(says), never.open(left);
    own.play_plainly(), never.play_plainly();
    CHECK(difference(own.at(0).log, plays.at(0).log) == "");
    CHECK(difference(from(never.at(0).log, 68), plays.at(1).log) == "");
    // Keys that the engine turns itself: summaries follow.
    for (index_t lane = 0; lane < model.kv_lanes(); ++lane) {
      const auto rows = pool.kv_lane(lane / 2, lane % 2, table(pages));
      for (index_t slot = 60; slot < 150; ++slot) quarter_turn(2)(0, {rows.key(slot), {8}});
    }
    cache.shift(plays.at(0).seq, {60, 150}, 2);
    own.cache.shift(own.at(0).seq, {60, 150}, 2, quarter_turn(2));
    CHECK(summaries_of(cache, plays.at(0).seq) == summaries_of(own.cache, own.at(0).seq));
    // Not whole: what is behind moves up, and entries at the end go.
    const auto entries = static_cast<index_t>(pages.size()), freed = (page + 1) / page;
    if (page == 1) continue;
    CHECK(cache.erase(plays.at(0).seq, {3, 4 + page}, position_gap{}) == token_range{entries - freed, entries});
  }
}

TEST_CASE("over tiers a page that does not come changes nothing, and in the end keys are turned") {
  const auto moved = with_placement(small::quest, zoomr::tiered<zoomr::lru, unit::scripted_transfers>{});
  using policy_type = std::remove_const_t<decltype(moved)>;
  const tape says = counted(make_tape(model, kind::uniform, markup::sentences, 160, 37, 8));
  tape left = says;
  zoomr::config limits = limits_for(160, 2);
  limits.pool_tokens = 320;
  limits = tiered_limits(model, moved, limits, 6);
  unit::script() = {};
  player<policy_type> plays(model, moved, limits);
  plays.cache.trace(nullptr);
  plays.open(says);
  plays.play_plainly(0, 110);
  const state_digest before = digest_of(plays.cache, plays.at(0).seq);
  index_t failures = 0;
  for (bool failed = true; failed;) {
    unit::script().fails = unit::script().made + failures;
    failed = false;
    try {
      plays.cache.shift(plays.at(0).seq, {45, 110}, 6, quarter_turn(6));
    } catch (const zoomr::error& why) {
      REQUIRE(why.code() == zoomr::errc::storage);
      failed = true;
      ++failures;
    }
    unit::script().fails = -1;
    if (failed) REQUIRE(digest_of(plays.cache, plays.at(0).seq).difference(before) == "");
  }
  CHECK(failures > 0);
  plays.at(0).log.clear();
  move(left, {45, 110}, 6), count_on(left, 110);
  plays.play_plainly(0);
  left.tells = true;
  player<std::decay_t<decltype(small::quest)>> never(model, small::quest, limits_for(160));
  never.cache.trace(nullptr);
  never.open(left);
  never.play_plainly();
  CHECK(difference(plays.at(0).log, from(never.at(0).log, 110)) == "");
}

TEST_CASE("heads that vote read turned keys, and groups of layers are shifted together") {
  const tape says = counted(make_tape(model, kind::uniform, markup::sentences, 200, 60, 4));
  for (const bool tiers : {false, true}) {
    CAPTURE(tiers);
    const auto check = [&](const auto& policy, const zoomr::config& limits) {
      for (const index_t at : {120, 141, 162}) {
        CAPTURE(at);
        player<std::decay_t<decltype(policy)>> plays(model, policy, limits), never(model, policy, limits);
        tape gaps = says, left = says;
        move(gaps, {90, 200}, 9), move(left, {90, 200}, 9);
        gaps.tells = left.tells = true;
        plays.open(gaps);
        plays.play_plainly(0, at);
        plays.cache.shift(plays.at(0).seq, {30, 90}, 6, quarter_turn(6));
        plays.at(0).log.clear();
        plays.play_plainly(0);
        move(left, {30, 90}, 6);
        never.open(left);
        never.play_plainly();
        // The first of them reads what was chosen before. Then what remembered queries have found is found again.
        CHECK(difference(from(plays.at(0).log, at + 1), from(never.at(0).log, at + 1)) == "");
      }
    };
    if (tiers) {
      const auto moved = with_placement(small::sentence_voters, zoomr::tiered<>{});
      zoomr::config limits = limits_for(200, 1);
      limits.pool_tokens = 400;
      check(moved, tiered_limits(model, moved, with_voters(moved, limits, model), 12));
    } else {
      check(small::sentence_voters, limits_for(200));
    }
  }

  std::vector<zoomr::any_kv_cache<>> groups;
  groups.push_back(zoomr::kv_cache({1, 4, 2, 8}, small::full, limits_for(200)));
  groups.push_back(zoomr::kv_cache({2, 4, 2, 8}, small::quest, limits_for(200)));
  const std::vector<index_t> group_of{1, 0, 1};
  zoomr::grouped_kv_cache<> cache(std::move(groups), view<const index_t>(group_of));
  const zoomr::sequence seq = cache.open();
  const std::vector<float> ones(static_cast<std::size_t>(40 * 4 * 8), 1.0f);
  {
    auto step = cache.begin(seq, std::vector<token_id>(40, 1), true);
    for (index_t layer = 0; layer < 3; ++layer) {
      const view<const float, 3> rows(ones.data(), {40, 2, 8});
      step.append(layer, rows, rows);
      step.observe(layer, view<const float, 3>(ones.data(), {40, 4, 8}));
    }
    step.commit();
  }
  cache.shift(seq, {20, 40}, 4, [](index_t layer, view<float> key) { key[0] += static_cast<float>(layer); });
  CHECK(sentence_of([&] {
          cache.shift(seq, {10, 40}, -2);
        }).find("group 0: shift: the span would have") != std::string::npos);
  for (index_t layer = 0; layer < 3; ++layer) {
    const auto place = cache.place(layer);
    const auto lane = cache.group(place.group).kv_lane(cache.in_group(seq, place.group), place.layer, 1);
    CHECK(lane.key(19)[0] == 1.0f);
    CHECK(lane.key(20)[0] == 1.0f + static_cast<float>(layer));
    CHECK(cache.group(place.group).model_position(cache.in_group(seq, place.group), 40) == 44);
  }
}

TEST_CASE("what is refused says why, and changes nothing") {
  const tape says = counted(make_tape(model, kind::uniform, markup::sentences, 200, 60, 4));
  zoomr::config limits = limits_for(200, 2);
  limits.logits.window = 20, limits.rollback_tokens = 0;
  player<std::decay_t<decltype(small::full)>> plays(model, small::full, limits);
  plays.open(says);
  plays.play_plainly(0, 147);
  const zoomr::sequence seq = plays.at(0).seq;
  REQUIRE(plays.cache.passed_slots(seq) == 128);
  const auto begin = [&](std::vector<index_t> positions) {
    const token_id id = 1;
    const zoomr::step_item item{seq, view<const token_id>(&id, {1}), false, {}, false, view<const index_t>(positions)};
    return sentence_of([&] { static_cast<void>(plays.cache.begin(view<const zoomr::step_item>(&item, {1}))); });
  };
  CHECK(begin({147, 148}) == "zoomr: begin: an item has 1 ids and 2 positions");
  CHECK(begin({145}) == "zoomr: begin: a token has the model position 145, wanted 146 to 1073741823");
  CHECK(begin({1 << 30}) == "zoomr: begin: a token has the model position 1073741824, wanted 146 to 1073741823");
  CHECK(begin({146}) ==
        "zoomr: begin: at the model position 146 the window shows pages that it had passed: with a window positions "
        "ascend from step to step");
  CHECK(begin({200}) == "");  // a step that is dropped
  CHECK(plays.cache.model_position(seq, 147) == 147);
  plays.play_plainly(0, 150);
  const auto refusal = [&](token_range span, index_t distance) {
    const state_digest before = digest_of(plays.cache, seq);
    const std::string why = sentence_of([&] { plays.cache.shift(seq, span, distance, quarter_turn(distance)); });
    CHECK(digest_of(plays.cache, seq).difference(before) == "");
    return why;
  };
  CHECK(refusal({5, 4}, 1) == "zoomr: shift: the span must lie in 0 ... tokens(seq)");
  CHECK(refusal({5, 151}, 1) == "zoomr: shift: the span must lie in 0 ... tokens(seq)");
  CHECK(refusal({130, 140}, 2) ==
        "zoomr: shift: the span would have the model positions 132 to 141, between its neighbours are 129 to 140");
  CHECK(refusal({130, 140}, -2) ==
        "zoomr: shift: the span would have the model positions 128 to 137, between its neighbours are 129 to 140");
  CHECK(refusal({130, 150}, 1 << 30).find("between its neighbours are 129 to 1073741823") != std::string::npos);
  CHECK(sentence_of([&] {
          plays.cache.shift(seq, {130, 150}, 3, quarter_turn(4));
        }) == "zoomr: shift: keys are turned by 4 positions, their tokens move by 3");
  plays.cache.shift(seq, {150, 150}, 3, quarter_turn(3));
  CHECK(plays.cache.model_position(seq, 150) == 150);

  plays.cache.shift(seq, {146, 150}, 30, quarter_turn(30));
  CHECK(sentence_of([&] {
          plays.cache.erase(seq, {145, 147}, quarter_turn(-2));  // a gap was in it
        }) == "zoomr: erase: keys are turned by -2 positions, their tokens move by -32");
  plays.play_plainly(0, 152);
  REQUIRE(plays.cache.passed_slots(seq) == 144);
  CHECK(refusal({146, 152}, -30) ==
        "zoomr: shift: the tokens from 146 to 152 cannot move: of those before 144 pages were freed, and the window "
        "would move back there");
  CHECK(refusal({100, 152}, -2).find("model positions 98 to 179") != std::string::npos);
  plays.cache.shift(seq, {100, 152}, 4, quarter_turn(4));  // what was freed moves along
  plays.cache.erase(seq, {147, 149}, position_gap{});
  CHECK(sentence_of([&] {
          plays.cache.erase(seq, {145, 147});
        }).find("the window would move back there") != std::string::npos);
  CHECK(plays.cache.model_position(seq, 147) == 183);

  tape other = counted(make_tape(model, kind::uniform, markup::sentences, 80, 40, 4));
  player<std::decay_t<decltype(small::full)>> source(model, small::full, limits_for(80)),
      goal(model, small::full, limits_for(80));
  source.open(other);
  source.play_plainly(0, 60);
  source.cache.erase(source.at(0).seq, {20, 23}, position_gap{});
  const saved_bytes bytes = saved(source.cache, source.at(0).seq);
  const auto loads = [&](std::size_t number, index_t value) {
    saved_bytes changed = bytes;
    put_at(changed, part_of(bytes, "moved").begin + 4 * number, value);
    reseal(changed);
    return sentence_of([&] { goal.cache.close(goal.cache.load(memory_source(changed))); });
  };
  source.rollback(0, 41);
  CHECK(source.cache.model_position(source.at(0).seq, 41) == 44);
  source.rollback(0, 21);
  CHECK(source.cache.model_position(source.at(0).seq, 21) == 24);
  source.rollback(0, 20);  // the gap was behind
  CHECK(source.cache.model_position(source.at(0).seq, 20) == 20);
  CHECK(loads(0, 1) == "");
  CHECK(loads(1, 40) == "");
  for (const auto& [number, value] : {std::pair<std::size_t, index_t>{1, 57}, {1, -1}, {2, 0}, {2, -2}, {2, 1 << 30}}) {
    CAPTURE(number);
    CAPTURE(value);
    CHECK(loads(number, value) == "zoomr: load: the file is damaged: section text: model positions cannot be so");
  }
}
}  // namespace
}  // namespace zoomr_test
