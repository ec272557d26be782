// SPDX-License-Identifier: Apache-2.0
// Tokens are evicted on the device while decoding, as on the host: each lane keeps the same ones.
#include <cache/device/device_against_host.hpp>
#include <cache/support/model_logits.hpp>
#include <cache/support/small_policies.hpp>
#include <support/mutations.hpp>
#include <support/nightly.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

template <class Policy>
void check_looks(const Policy& policy, std::uint64_t first, index_t prompt = 0) {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties};
  for (const std::uint64_t seed : seeds_from(first, 3)) {
    check(policy, looks[seed % 3], markup::sentences, seed, seed % 3 == 2, prompt);
  }
}

}  // namespace

TEST_CASE("each preset that evicts tokens while decoding") {
  for_each_preset([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    if constexpr (evicts_later<std::remove_cvref_t<decltype(policy)>>) check_looks(policy, 1);
  });
}
TEST_CASE("r_kv: what is looked at and not said twice") {
  check_looks(small::r_kv, 1);
  check_looks(with(small::r_kv, [](auto& p) { p.evict.mean_of_group = true, p.evict.tokens = 17; }), 4, 30);
  check(small::r_kv, kind::with_infinities, markup::sentences, 8, false, 40);
}
TEST_CASE("drafts of more tokens than queries are remembered, in whatever order their blocks come") {
  in_block_orders([] {
    const auto policy = with(small::r_kv, [](auto& p) { p.evict.queries = 3, p.evict.every = 16; });
    check(policy, kind::uniform, markup::sentences, 60, true, 20, {}, 16);
    check_together(policy, 62, 16);
  });
}
TEST_CASE("what is evicted under a scale, caps and sinks of the model's own") {
  for (const model_rule& of : all_model_rules(model)) {
    zoomr::logit_rule rule = of.rule();
    CAPTURE(of.name);
    check(with(small::r_kv, [](auto& p) { p.evict.mean_of_group = true; }), kind::uniform, markup::sentences, 6, false,
          40, rule);
    check(small::h2o, kind::peaked, markup::sentences, 7, false, 30, rule);
  }
}
TEST_CASE("a prompt that is pinned stays, whatever is evicted after it") {
  check_looks(small::pinned_prompt, 10);
  check_looks(with(small::pinned_prompt, [](auto& p) { p.evict.tokens = 12, p.evict.recent = 3; }), 14, 5);
  check_looks(with(small::r_kv, [](auto& p) { p.evict.tokens = 17, p.zone.prompt = true; }), 50, 20);
  check(small::pinned_prompt, kind::with_infinities, markup::sentences, 18, false, 10);
}
TEST_CASE("h2o: attention adds up from the first token") {
  check_looks(small::h2o, 20);
  check_looks(with(small::h2o, [](auto& p) { p.evict.tokens = 20; }), 24, 60);
  check(small::h2o, kind::with_infinities, markup::sentences, 28, false, 50);
}
TEST_CASE("segments are summarised anew, and a choice stays active") { check_looks(small::evicting, 30, 40); }
TEST_CASE("no rollback behind the last time, and what is refused changes nothing") {
  device_player<std::remove_const_t<decltype(small::h2o)>> device(model, small::h2o, limits_for(tokens));
  const tape says = make_tape(model, kind::peaked, markup::sentences, 80, 50, 3);
  device.open(says);
  device.play({{0, says.between(0, 20), false}});
  const auto refused = [&](index_t to) {
    try {
      device.cache.rollback(device.at(0).seq, to);
    } catch (const zoomr::error& caught) {
      return caught.code() == zoomr::errc::rollback_depth;
    }
    return false;
  };
  CHECK(refused(10));  // attention has been added up
  device.rollback(0, 0);
  device.play_plainly(0, 60);
  CHECK(refused(56));  // 7 tokens after the prompt some were evicted
  CHECK(refused(40));
  CHECK(device.tokens() == 60);
  device.rollback(0, 57);
  device.play_plainly();
  player<std::remove_const_t<decltype(small::h2o)>> host(model, small::h2o, limits_for(tokens));
  host.open(says);
  host.play_plainly();
  compare(host.at(0).log, device.at(0).log);
}
TEST_CASE("numbers in fewer bytes, under scales") {
  const auto same = [](const auto& policy, kind look) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    using stored = zoomr::int8;
    constexpr shape wide{2, 4, 2, 16};
    zoomr::config limits = limits_for(tokens);
    limits.key_scale = 0.03f, limits.value_scale = 0.01f;
    player<policy_type, stored> host(wide, policy, limits);
    player<policy_type, stored, device_as_host<policy_type, stored, 16, 2>> device(wide, policy, limits);
    const tape says = make_tape(wide, look, markup::sentences, tokens, 45, 7);
    host.open(says), device.open(says);
    host.play_plainly(), device.play_plainly();
    for (const auto& one : host.at(0).log) {
      CAPTURE(one.first.first);
      REQUIRE(device.at(0).log.at(one.first).attended == one.second.attended);
    }
  };
  same(small::r_kv, kind::peaked);
  ZOOMR_NIGHTLY(same(small::pinned_prompt, kind::peaked));
  ZOOMR_NIGHTLY(same(small::h2o, kind::uniform));
  ZOOMR_NIGHTLY(same(small::sentence_kv, kind::peaked));
}
TEST_CASE("several sequences") {
  check_together(small::r_kv, 40);
  check_together(small::pinned_prompt, 41);
  check_together(small::h2o, 42);
  check_together(small::evicting, 43);
}

}  // namespace zoomr_test
