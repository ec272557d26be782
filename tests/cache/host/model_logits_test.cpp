// SPDX-License-Identifier: Apache-2.0
// Caches of models with a scale of their own, soft caps, sinks and ALiBi, against the naive reference; and that cutting
// a text into steps changes no bit of theirs.
#include <cache/support/against_reference.hpp>
#include <cache/support/model_logits.hpp>
#include <cache/support/players.hpp>

#include <algorithm>    // std::max
#include <string_view>  // std::string_view

namespace zoomr_test {
namespace {

using zoomr::view;

TEST_CASE("every preset under every rule attends the positions of the naive reference, and gives its outputs") {
  for_each_policy([](const char* name, const auto& policy) {
    comparison all;
    std::uint64_t seed = 300;
    for (const index_t head_dim : {8, 48}) {
      const shape model{2, 4, 2, head_dim};
      constexpr kind looks[] = {kind::uniform, kind::peaked, kind::with_infinities};
      constexpr markup texts[] = {markup::pairs, markup::sentences, markup::stray};
      for (int i = 0; i < 3; ++i) {
        // peaked logits reach 50: what a cap makes equal in float is a close call
        for (const model_rule& of : all_model_rules(model, looks[i] == kind::peaked ? 15.0f : 0.8f)) {
          const tape says = make_tape(model, looks[i], texts[(i + head_dim / 8) % 3], 171, 57, ++seed);
          zoomr::config limits = limits_for(says.size());
          limits.logits = of.rule();
          CAPTURE(std::string(name));
          CAPTURE(of.name);
          CAPTURE(seed);
          check_against_reference(policy, says, limits, false, all);
        }
      }
    }
    check_rarely_stopped(name, all);
  });
}

TEST_CASE("groups of one, four and eight query heads, in every storage type") {
  const auto check = [](auto number, float key_scale, float value_scale) {
    using T = decltype(number);
    comparison all;
    std::uint64_t seed = 900;
    for (const index_t group : {1, 4, 8}) {
      const shape model{1, 2 * group, 2, 32};
      for (const model_rule& of : all_model_rules(model)) {
        const tape says = make_tape(model, kind::uniform, markup::sentences, 131, 41, ++seed);
        zoomr::config limits = limits_for(says.size());
        limits.logits = of.rule(), limits.key_scale = key_scale, limits.value_scale = value_scale;
        CAPTURE(of.name);
        CAPTURE(group);
        check_against_reference<T>(small::full, says, limits, false, all);
        check_against_reference<T>(small::sentence_kv, says, limits, false, all);
        check_against_reference<T>(small::h2o, says, limits, false, all);
      }
    }
    check_rarely_stopped("a storage type", all);
  };
  check(float{}, 1.0f, 1.0f);
  check(bfloat16{}, 0.5f, 2.0f);
  check(float16{}, 1.0f, 1.0f);
  check(float8{}, 0.01f, 0.01f);
  check(zoomr::int8{}, 0.01f, 0.01f);
  check(scaled_int8{}, 1.0f, 1.0f);
}

TEST_CASE("chunks of a prompt and drafts have the bits of single tokens under every rule") {
  const auto check = [](const char* name, const auto& policy, const shape& model) {
    for (const model_rule& of : all_model_rules(model)) {
      const tape says = make_tape(model, kind::uniform, markup::pairs, 220, 83, 7);
      zoomr::config limits = limits_for(says.size());
      limits.logits = of.rule();
      using policy_type = std::decay_t<decltype(policy)>;
      player<policy_type> plain(model, policy, limits), cut(model, policy, limits), single(model, policy, limits);
      plain.open(says), cut.open(says), single.open(says);
      plain.play_plainly();
      for (index_t at = 0; at < says.prompt; ++at) {
        single.play({{0, says.between(at, at + 1), at + 1 == says.prompt}});
      }
      single.play_plainly();
      dice random(11);
      while (cut.tokens() < says.prompt) {
        const index_t left = says.prompt - cut.tokens(), count = std::min(left, random.between(1, 40));
        cut.play({{0, says.between(cut.tokens(), cut.tokens() + count), count == left}});
      }
      while (!cut.done()) cut.play({cut.next(0, random.between(1, 7))});
      CAPTURE(std::string(name));
      CAPTURE(of.name);
      CHECK(difference(plain.at(0).log, cut.at(0).log) == "");
      CHECK(difference(plain.at(0).log, single.at(0).log) == "");
    }
  };
  for_each_policy([&](const char* name, const auto& policy) { check(name, policy, {2, 4, 2, 16}); });
  check("full, a large group", small::full, {1, 40, 2, 24});
}

TEST_CASE("a rule that does nothing changes no bit") {
  const shape model{2, 4, 2, 24};
  for_each_policy([&](const char* name, const auto& policy) {
    const tape says = make_tape(model, kind::peaked, markup::pairs, 160, 61, 3);
    zoomr::config limits = limits_for(says.size());
    using policy_type = std::decay_t<decltype(policy)>;
    player<policy_type> plain(model, policy, limits);
    const std::vector<float> none(8, -zoomr::infinity);
    limits.logits.sinks = view<const float, 2>(none.data(), {2, 4});
    player<policy_type> other(model, policy, limits);
    plain.open(says), other.open(says);
    plain.play_plainly(), other.play_plainly();
    CAPTURE(std::string(name));
    CHECK(difference(plain.at(0).log, other.at(0).log) == "");
  });
}

TEST_CASE("a scale of the model's own is the same as queries that were multiplied before, where both are exact") {
  const shape model{2, 4, 2, 64};
  for_each_preset([&](const char* name, const auto& policy) {
    const tape says = make_tape(model, kind::uniform, markup::pairs, 130, 50, 5);
    zoomr::config limits = limits_for(says.size());
    using policy_type = std::decay_t<decltype(policy)>;
    player<policy_type> usual(model, policy, limits);
    limits.logits.scale = 0.125f;
    player<policy_type> own(model, policy, limits);
    usual.open(says), own.open(says);
    usual.play_plainly(), own.play_plainly();
    CAPTURE(std::string(name));
    CHECK(difference(usual.at(0).log, own.at(0).log) == "");
  });
}

TEST_CASE("the share that the audit finds is that of the tokens, whatever the sinks") {
  const shape model{2, 4, 2, 16};
  const tape says = make_tape(model, kind::peaked, markup::sentences, 150, 61, 9);
  for (const model_rule& of : all_model_rules(model)) {
    zoomr::config limits = limits_for(says.size());
    limits.audit = true;
    limits.logits = of.rule();
    player<std::decay_t<decltype(small::full)>> full(model, small::full, limits);
    full.open(says), full.play_plainly();
    CAPTURE(of.name);
    CHECK(full.cache.stats(full.at(0).seq).captured() == doctest::Approx(1.0).epsilon(1e-6));

    player<std::decay_t<decltype(small::quest)>> some(model, small::quest, limits);
    some.open(says), some.play_plainly();
    reference::history past = history_of(says);
    past.logits = logits_of(limits.logits);
    past.logits.sinks.clear();
    double sum = 0, count = 0;
    for (const auto& [place, got] : some.at(0).log) {
      const index_t at = place.first;
      if (at < says.prompt) continue;
      std::vector<index_t> all;
      for (index_t t = 0; t <= at; ++t) all.push_back(t);
      for (std::size_t row = 0; row < got.attended.size(); ++row) {
        const auto layer = static_cast<index_t>(row) / 4, head = static_cast<index_t>(row) % 4;
        const auto lse = [&](const std::vector<index_t>& positions) {
          return reference::attend(
                     positions, past.query(at, layer, head, 0), 16,
                     [&](index_t t) { return past.key(t, layer, head / 2, 0); },
                     [&](index_t t) { return past.value(t, layer, head / 2, 0); }, past.logits,
                     static_cast<index_t>(row), 4, at)
              .lse;
        };
        sum += std::exp(lse(got.attended[row]) - lse(all)), ++count;
      }
    }
    CHECK(some.cache.stats(some.at(0).seq).captured() == doctest::Approx(sum / count).epsilon(1e-4));
  }
}

TEST_CASE("out and lse contain the sink, as a token whose value is zero") {
  const shape model{1, 4, 2, 16};
  const tape says = make_tape(model, kind::uniform, markup::pairs, 90, 40, 13);
  zoomr::config limits = limits_for(says.size());
  using policy_type = std::decay_t<decltype(small::full)>;
  player<policy_type> without(model, small::full, limits);
  const std::vector<float> sinks{0.5f, 9.0f, 90.0f, -40.0f};
  limits.logits.sinks = view<const float, 2>(sinks.data(), {1, 4});
  player<policy_type> with(model, small::full, limits);
  without.open(says), with.open(says);
  without.play_plainly(), with.play_plainly();
  for (const auto& [at, plain] : without.at(0).log) {
    const token_result& got = with.at(0).log.at(at);
    for (std::size_t head = 0; head < 4; ++head) {
      const double lse = plain.lse.numbers[head], sink = sinks[head];
      const double both = std::max(lse, sink) + std::log1p(std::exp(-std::abs(lse - sink)));
      CHECK(got.lse.numbers[head] == doctest::Approx(both).epsilon(1e-6));
      for (std::size_t d = 0; d < 16; ++d) {
        const double right = plain.out.numbers[head * 16 + d] * std::exp(lse - both);
        REQUIRE(std::abs(got.out.numbers[head * 16 + d] - right) <=
                1e-6 * std::exp(lse - both) + 1e-37);  // below 2^-126 it is 0
      }
    }
  }
}

TEST_CASE("numbers that no model has are refused in words") {
  const shape model{2, 4, 2, 8};
  const auto refused = [&](auto change, std::string_view sentence) {
    zoomr::config limits = limits_for(64);
    change(limits.logits);
    try {
      zoomr::kv_cache cache(model, small::full, limits);
    } catch (const zoomr::precondition_error& mistake) {
      CAPTURE(std::string(mistake.what()));
      return std::string_view(mistake.what()).find(sentence) != std::string_view::npos;
    }
    return false;
  };
  using rule = zoomr::logit_rule;
  for (const float odd : {-1.0f, zoomr::infinity, zoomr::not_a_number}) {
    CHECK(refused([&](rule& r) { r.scale = odd; }, "logits.scale must be positive and finite, or 0"));
    CHECK(refused([&](rule& r) { r.soft_cap = odd; }, "logits.soft_cap must be positive and finite, or 0"));
    const std::vector<float> slopes{0.5f, 0.0f, odd, 0.1f};
    CHECK(refused([&](rule& r) { r.alibi_slopes = view<const float>(slopes); }, "logits.alibi_slopes must be finite"));
  }
  for (const float odd : {zoomr::infinity, zoomr::not_a_number}) {
    std::vector<float> sinks(8, 0.0f);
    sinks[7] = odd;
    CHECK(refused(
        [&](rule& r) {
          r.sinks = view<const float, 2>(sinks.data(), {2, 4});
        },
        "logits.sinks must be finite"));
  }
  const std::vector<float> zeros(9, 0.0f);
  CHECK(refused(
      [&](rule& r) {
        r.sinks = view<const float, 2>(zeros.data(), {2, 3});
      },
      "config: logits.sinks are [2, 3], wanted [2, 4]"));
  CHECK(refused([&](rule& r) { r.alibi_slopes = view<const float>(zeros.data(), {2}); },
                "config: logits.alibi_slopes are [2], wanted [4]"));
}

}  // namespace
}  // namespace zoomr_test
