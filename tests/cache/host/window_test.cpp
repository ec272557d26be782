// SPDX-License-Identifier: Apache-2.0
// Layers with a sliding window: in the prompt and after it each query sees the last tokens alone, in whatever steps
// they come, and pages that the window has passed are given back.
#include <cache/support/against_reference.hpp>
#include <cache/support/model_logits.hpp>
#include <cache/support/players.hpp>
#include <cache/support/reciting.hpp>
#include <cache/support/saved_bytes.hpp>
#include <support/paged_engine.hpp>
#include <zoomr/core/threads/thread_pool.hpp>
#include <zoomr/grouped_kv_cache.hpp>

#include <algorithm>  // std::max, std::min
#include <numeric>    // std::iota
#include <string>     // std::string

namespace zoomr_test {
namespace {

using zoomr::token_range;

constexpr shape model{2, 4, 2, 16};

/// Policies under which a window frees pages: they neither choose nor evict.
template <class Test>
void for_each_plain_policy(Test test) {
  test("full", small::full);
  test("window", small::window);
  test("summary_only", small::summary_only);
}

zoomr::config windowed(zoomr::config limits, index_t window) {
  limits.logits.window = window;
  return limits;
}

/// The positions that a query sees through a window, in double.
std::vector<index_t> seen(index_t position, index_t window) {
  std::vector<index_t> made(static_cast<std::size_t>(std::min(position + 1, window)));
  std::iota(made.begin(), made.end(), position + 1 - static_cast<index_t>(made.size()));
  return made;
}

/// Outputs and lse of all logged tokens of the prompt against attention in double to what their window holds.
template <class T = float>
void check_prompt(const result_log& log, const tape& says, const zoomr::config& limits, comparison& all) {
  reference::history past = history_of<T>(says, limits.key_scale.all, limits.value_scale.all);
  past.logits = logits_of(limits.logits);
  for (auto [at, got] : log) {
    if (at.first >= says.prompt) continue;
    const auto rows = static_cast<std::size_t>(past.model.layers * past.model.heads);
    got.attended.assign(rows, seen(at.first, limits.logits.window));
    for (std::size_t row = 0; row < rows; ++row) {
      check_output(
          got, past, row, at.first, 0, [](index_t) { return 0; }, allowed_of<T>, all);
    }
    ++all.queries;
  }
}

/// A prompt in chunks of `chunk`, then drafts of up to `draft`.
template <class Player>
void play_in_parts(Player& plays, index_t chunk, index_t draft, index_t v = 0) {
  const tape& says = *plays.at(v).says;
  while (plays.tokens(v) < says.prompt) {
    const index_t end = std::min(says.prompt, plays.tokens(v) + chunk);
    plays.play({{v, says.between(plays.tokens(v), end), end == says.prompt}});
  }
  while (!plays.done(v)) plays.play({plays.next(v, draft)});
}

template <class T>
void check_windows(float scale) {
  comparison all;
  std::uint64_t seed = 70;
  for (const index_t window : {1, 2, 15, 16, 17, 31, 40, 200}) {
    const tape says = make_tape(model, kind::uniform, markup::pairs, 150, 97, ++seed);
    zoomr::config limits = windowed(limits_for(says.size()), window);
    limits.key_scale = limits.value_scale = scale;
    CAPTURE(window);
    player<std::decay_t<decltype(small::full)>, T> plays(model, small::full, limits);
    plays.open(says), plays.play_plainly();
    check_prompt<T>(plays.at(0).log, says, limits, all);
    check_against_reference<T>(small::full, says, limits, false, all);
    for (const index_t chunk : {1, 7, 16, 33}) {
      player<std::decay_t<decltype(small::full)>, T> cut(model, small::full, limits);
      cut.open(says), play_in_parts(cut, chunk, std::min(chunk, index_t{6}));
      CAPTURE(chunk);
      CHECK(difference(plays.at(0).log, cut.at(0).log) == "");
    }
  }
  check_rarely_stopped("a storage type under windows", all);
}

}  // namespace

TEST_CASE("each query of a prompt and after it sees its window, with the same bits in any steps") {
  check_windows<float>(1.0f);
  check_windows<bfloat16>(1.0f);
  check_windows<float16>(1.0f);
  check_windows<scaled_int8>(1.0f);
  check_windows<float8>(0.01f);
}

TEST_CASE("a prompt of three windows in chunks of every size, and by several threads") {
  const index_t window = 16;
  const tape says = make_tape(model, kind::uniform, markup::pairs, 3 * window + 4, 3 * window, 77);
  const zoomr::config limits = windowed(limits_for(says.size()), window);
  player<std::decay_t<decltype(small::full)>> plays(model, small::full, limits);
  plays.open(says), plays.play_plainly();
  for (index_t chunk = 1; chunk < says.prompt; ++chunk) {
    player<std::decay_t<decltype(small::full)>> cut(model, small::full, limits);
    cut.open(says), play_in_parts(cut, chunk, 1);
    CAPTURE(chunk);
    CHECK(difference(plays.at(0).log, cut.at(0).log) == "");
  }

  constexpr index_t tokens = 300;  // so many that threads share the tokens, too
  dice random(3);
  std::vector<float> rows(std::size_t{tokens * 4 * 16});
  for (float& number : rows) number = 0.01f * static_cast<float>(random.between(-100, 100));
  const auto outputs = [&](const zoomr::executor& threads) {
    zoomr::config made = windowed(limits_for(tokens), 40);
    made.threads = threads;
    zoomr::kv_cache cache(model, small::full, made);
    std::vector<float> out(2 * rows.size());
    auto step = cache.begin(cache.open(), std::vector<token_id>(std::size_t{tokens}, 1), true);
    for (index_t layer = 0; layer < 2; ++layer) {
      const view<const float, 3> kv(rows.data(), {tokens, 2, 16});
      step.append(layer, kv, kv);
      step.attend(layer, view<const float, 3>(rows.data(), {tokens, 4, 16}),
                  view<float, 3>(out.data() + static_cast<std::size_t>(layer) * rows.size(), {tokens, 4, 16}));
    }
    step.commit();
    return bits_of{out};
  };
  zoomr::thread_pool pool(3);
  CHECK(outputs(zoomr::executor(pool, 3, 1)) == outputs({}));
}

TEST_CASE("a window beside a scale, a soft cap, sinks and ALiBi") {
  comparison all;
  for (const model_rule& of : all_model_rules(model)) {
    const tape says = make_tape(model, kind::uniform, markup::pairs, 120, 83, 5);
    zoomr::config limits = limits_for(says.size());
    limits.logits = of.rule();
    limits.logits.window = 21;
    CAPTURE(of.name);
    player<std::decay_t<decltype(small::full)>> plays(model, small::full, limits), cut(model, small::full, limits);
    plays.open(says), plays.play_plainly();
    cut.open(says), play_in_parts(cut, 19, 4);
    check_prompt(plays.at(0).log, says, limits, all);
    CHECK(difference(plays.at(0).log, cut.at(0).log) == "");
    check_against_reference(small::full, says, limits, false, all);
  }
  check_rarely_stopped("rules under a window", all);
}

TEST_CASE("whatever a policy chooses is seen through the window; one that evicts is refused") {
  comparison all;
  index_t refused = 0;
  for_each_policy([&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    using policy_type = std::decay_t<decltype(policy)>;
    zoomr::config limits = limits_for(171);
    if constexpr (decltype(policy.evict)::observes) {
      limits.logits.window = 9;
      CHECK(sentence_of([&] { zoomr::kv_cache(model, policy, limits); }).find("that evict nothing") !=
            std::string::npos);
      ++refused;
    } else {
      for (const index_t window : {23, 60}) {
        const tape says = make_tape(model, kind::uniform, markup::pairs, 171, 57, 40 + static_cast<unsigned>(window));
        limits.logits.window = window;
        CAPTURE(window);
        check_against_reference(policy, says, limits, false, all);
        player<policy_type> plays(model, policy, limits), cut(model, policy, limits);
        plays.open(says), plays.play_plainly();
        cut.open(says), play_in_parts(cut, 10, 5);
        CHECK(difference(plays.at(0).log, cut.at(0).log) == "");
      }
    }
  });
  CHECK(refused == 7);
  check_rarely_stopped("policies under a window", all);
}

TEST_CASE("a token that is not a number is forgotten once the window has passed it") {
  const tape says = make_tape(model, kind::uniform, markup::pairs, 100, 70, 3);
  const index_t window = 19;
  player<std::decay_t<decltype(small::full)>> plays(model, small::full, windowed(limits_for(100), window));
  plays.spoil = [](token_id, index_t position, index_t, index_t, float* key, float* value, index_t dim) {
    if (position == 20) key[0] = zoomr::not_a_number;
    if (position == 37) value[dim - 1] = zoomr::infinity;
  };
  plays.open(says), play_in_parts(plays, 23, 3);
  for (const auto& [at, got] : plays.at(0).log) {
    const bool sees = (at.first >= 20 && at.first < 20 + window) || (at.first >= 37 && at.first < 37 + window);
    bool finite = true;
    for (const float number : got.out.numbers) finite = finite && std::isfinite(number);
    CAPTURE(at.first);
    CHECK(finite == !sees);
  }
}

TEST_CASE("a sequence holds no more than its window, what can be rolled back, and a chunk") {
  for_each_plain_policy([&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const index_t window = 40, chunk = 30;
    const tape one = make_tape(model, kind::uniform, markup::pairs, 600, 407, 8);
    const tape other = make_tape(model, kind::uniform, markup::sentences, 600, 7, 9);
    zoomr::config limits = windowed(limits_for(600, 2), window);
    limits.max_batched_tokens = 2 * chunk;
    using policy_type = std::decay_t<decltype(policy)>;
    player<policy_type> plays(model, policy, limits);  // pool_tokens are those that are needed
    zoomr::config all = limits;
    all.pool_tokens = 1200;
    CHECK(zoomr::kv_cache<policy_type>::bytes(model, policy, limits).details * 3 <
          zoomr::kv_cache<policy_type>::bytes(model, policy, all).details);
    plays.open(one), plays.open(other);
    while (!plays.done(0) || !plays.done(1)) {
      std::vector<part> parts;
      for (const index_t v : {0, 1}) {
        const tape& says = v == 0 ? one : other;
        const index_t now = plays.tokens(v);
        if (plays.done(v)) continue;
        if (now < says.prompt) {
          const index_t end = std::min(says.prompt, now + chunk);
          parts.push_back({v, says.between(now, end), end == says.prompt});
        } else {
          parts.push_back(plays.next(v, 8));
        }
      }
      plays.play(parts);
      const byte_count of_page = std::int64_t{2} * model.kv_lanes() * 16 * model.head_dim * 4;
      for (const index_t v : {0, 1}) {
        CHECK(plays.cache.bytes(plays.at(v).seq).details <= ((window + limits.rollback_tokens) / 16 + 2) * of_page);
      }
    }
    all.max_batched_tokens = 600;
    player<policy_type> whole(model, policy, all);
    whole.open(one), whole.play_plainly();
    CHECK(difference(plays.at(0).log, whole.at(0).log) == "");
  });
}

TEST_CASE("rolling back, in the prompt and into it, as far as the window finds its pages") {
  const index_t window = 20;
  const tape says = make_tape(model, kind::uniform, markup::pairs, 260, 150, 12);
  zoomr::config limits = windowed(limits_for(260), window);
  player<std::decay_t<decltype(small::full)>> plain(model, small::full, limits), plays(model, small::full, limits);
  plain.open(says), plain.play_plainly();
  plays.open(says);
  dice random(5);
  index_t refused = 0, longest = 0, into_prompt = 0;
  while (!plays.done()) {
    if (plays.tokens() < says.prompt) {
      const index_t end = std::min(says.prompt, plays.tokens() + random.between(1, 30));
      plays.play({{0, says.between(plays.tokens(), end), end == says.prompt}});
    } else {
      plays.play({plays.next(0, random.between(1, 8))});
    }
    const bool first_time = plays.tokens() > longest;
    longest = std::max(longest, plays.tokens());
    if (!first_time) continue;
    const index_t to = std::max(0, plays.tokens() - random.between(1, 60));
    const bool kept = to >= longest - limits.rollback_tokens;
    const std::string why = sentence_of([&] { plays.rollback(0, to); });
    if (kept) CHECK(why == "");
    if (why.empty()) {
      into_prompt += longest >= says.prompt && to < says.prompt ? 1 : 0;
    } else {
      CHECK(why.find("cannot roll back") != std::string::npos);
      CHECK(why.find("config.rollback_tokens is 24") != std::string::npos);
      ++refused;
    }
  }
  CHECK(difference(plain.at(0).log, plays.at(0).log) == "");
  CHECK(refused > 3);
  CHECK(into_prompt > 0);
  plays.rollback(0, 0);
  plays.play_plainly();
  CHECK(difference(plain.at(0).log, plays.at(0).log) == "");
}

TEST_CASE("forks, erased spans and saved sequences go on as if nothing had been") {
  for_each_plain_policy([&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const index_t window = 25;
    using policy_type = std::decay_t<decltype(policy)>;
    const tape says = make_tape(model, kind::uniform, markup::pairs, 200, 110, 14);
    const zoomr::config limits = windowed(limits_for(200, 3), window);
    for (const index_t at : {60, 96, 130}) {
      CAPTURE(at);
      const auto play_to = [&](auto& one) {
        while (one.tokens() < at) {
          const index_t end = std::min({one.tokens() + 13, at, one.tokens() < 110 ? 110 : at});
          one.play({{0, says.between(one.tokens(), end), end == says.prompt}});
        }
      };
      player<policy_type> plays(model, policy, limits);
      plays.open(says);
      play_to(plays);
      const index_t copy = fork(plays, 0, says);
      const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
      const zoomr::sequence loaded = plays.cache.load(memory_source(bytes));
      plays.voices.push_back({loaded, &says, plays.at(0).log});
      for (const index_t v : {copy, index_t{0}, index_t{2}}) play_in_parts(plays, 17, 3, v);
      CHECK(difference(plays.at(0).log, plays.at(copy).log) == "");
      CHECK(difference(plays.at(0).log, plays.at(2).log) == "");
      zoomr::kv_cache<policy_type> other(model, policy, windowed(limits, window + 1));
      CHECK(sentence_of([&] { other.load(memory_source(bytes)); }) != "");

      player<policy_type> erased(model, policy, limits), never(model, policy, limits);
      const token_range span{at - 7, at - 3};
      const tape left = says.without(span);
      erased.open(says), never.open(left);
      play_to(erased);
      erased.cache.erase(erased.at(0).seq, span);
      erased.at(0).says = &left, erased.at(0).log.clear();
      play_in_parts(erased, 17, 3), play_in_parts(never, 17, 3);
      result_log& expected = never.at(0).log;
      expected.erase(expected.begin(), expected.lower_bound({at - span.size(), 0}));
      CHECK(difference(expected, erased.at(0).log) == "");
      CHECK(sentence_of([&] {
              erased.cache.erase(erased.at(0).seq, {3, 5});
            }).find("pages were freed") != std::string::npos);
    }
  });
}

TEST_CASE("an engine's pages hold the window's bits, and its kernel is told the same slots") {
  const tape says = make_tape(model, kind::uniform, markup::pairs, 120, 83, 15);
  const zoomr::config limits = windowed(limits_for(120), 22);
  player<std::decay_t<decltype(small::full)>> own(model, small::full, limits);
  own.open(says), own.play_plainly();
  for (const engine_layout lies : {engine_layout{16, true, true, 8}, {1, false, false, 0}, {5, false, true, 0}}) {
    paged_engine<float> engine(model, small::full, limits, lies);
    driver<paged_engine<float>> plays(engine);
    engine.takes_back = true;
    plays.open(says), play_in_parts(plays, 29, 3);
    CHECK(difference(own.at(0).log, plays.at(0).log) == "");
    CHECK(sentence_of([&] { plays.rollback(0, 60); }).find("cannot roll back") != std::string::npos);
  }
  zoomr::kv_cache cache(model, small::full, limits);
  const zoomr::sequence seq = cache.open();
  for (const index_t end : {50, 83, 84, 87, 91}) {
    const index_t first = cache.tokens(seq);
    const std::vector<token_id> ids(static_cast<std::size_t>(end - first), 0);
    const std::vector<float> rows(ids.size() * 4 * 16);
    auto step = cache.begin(seq, view<const token_id>(ids), end == 83);
    for (index_t layer = 0; layer < 2; ++layer) {
      step.append(layer, view<const float, 3>(rows.data(), {step.tokens(), 2, 16}),
                  view<const float, 3>(rows.data(), {step.tokens(), 2, 16}));
      index_t calls = 0;
      step.list_slots(layer, view<const float, 3>(rows.data(), {step.tokens(), 4, 16}),
                      [&](const zoomr::slots_read& of) {
                        const index_t position = first + of.token;
                        REQUIRE(of.slots.size() == 1);
                        CHECK(of.slots[0] == token_range{std::max(0, position - 21), position + 1});
                        ++calls;
                      });
      CHECK(calls == 2 * step.tokens());
    }
    step.commit();
  }
}

TEST_CASE("the audit counts what the window shows as all there is") {
  const tape says = make_tape(model, kind::peaked, markup::sentences, 150, 61, 9);
  zoomr::config limits = windowed(limits_for(150), 18);
  limits.audit = true;
  player<std::decay_t<decltype(small::full)>> full(model, small::full, limits);
  full.open(says), full.play_plainly();
  CHECK(full.cache.stats(full.at(0).seq).captured() == doctest::Approx(1.0).epsilon(1e-6));
}

TEST_CASE("a group of windows beside a group that is passed twice") {
  const shape all{4, 4, 2, 16};
  const std::vector<index_t> group_of{0, 1, 0, 1};
  const tape says = make_tape(all, kind::uniform, markup::pairs, 200, 96, 21);
  const index_t window = 32;
  const auto grouped = [&] {
    std::vector<zoomr::any_kv_cache<>> groups;
    groups.push_back(zoomr::kv_cache{model, small::full, windowed(limits_for(200), window)});
    groups.push_back(zoomr::kv_cache{model, small::zoomr_second_pass, limits_for(200)});
    return zoomr::grouped_kv_cache<>(std::move(groups), view<const index_t>(group_of));
  };
  const std::vector<shape> shapes(4, model);
  zoomr::grouped_kv_cache<> first = grouped(), second = grouped();
  reciter plain(first, shapes), cut(second, shapes);
  plain.open(says), plain.recite_plainly();
  CHECK(plain.second_passes > 5);
  cut.open(says);
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    cut.recite(seed, 20);
    CHECK(difference(plain.at(0).log, cut.at(0).log) == "");
    cut.rollback(0, says.size() - 20);
  }
  reference::history past = history_of(says);
  past.logits.window = window;
  const auto pass_of = [&](index_t t) { return plain.at(0).log.count({t, 1}) > 0 ? 1 : 0; };  // its keys stay
  comparison checked;
  for (auto [at, got] : plain.at(0).log) {
    got.attended.resize(16);
    for (const std::size_t row : {0u, 3u, 8u, 11u}) {  // of the layers that have a window
      got.attended[row] = seen(at.first, window);
      check_output(got, past, row, at.first, at.second, pass_of, allowed_of<float>, checked);
    }
  }
}

}  // namespace zoomr_test
