// SPDX-License-Identifier: Apache-2.0
// Tokens are evicted on the device as on the host: each lane keeps the same ones.
#include <cache/device/device_against_host.hpp>
#include <cache/support/small_policies.hpp>
#include <support/mutations.hpp>
#include <support/nightly.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

/// `preset` with changes to what it keeps.
template <class Policy>
constexpr Policy evicting(Policy preset, index_t kept, index_t queries, index_t pooling, bool mean) {
  preset.evict.tokens = kept;
  preset.evict.queries = queries;
  preset.evict.pooling = pooling;
  preset.evict.mean_of_group = mean;
  return preset;
}

// Nothing is chosen, but not everything is attended: each KV head has runs of its own.
inline constexpr auto windowed =
    with(evicting(small::snapkv, 21, 5, 3, true), [](auto& p) { p.zone.sinks = 9, p.zone.recent = 40; });
inline constexpr auto each_head_of_sentences = with(small::sentence_kv, [](auto& p) {
  p.evict.tokens = 18;
  p.aggregate.per = zoomr::scope::head;
});
// A choice that stays active, the first made of what is left of the prompt.
inline constexpr auto boundary =
    zoomr::compose(zoomr::sentences{.longest = 9}, zoomr::observation_window{.tokens = 27, .queries = 6},
                   zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::fill_budget{.tokens = 21}, zoomr::boundaries{},
                   zoomr::zones{.sinks = 3, .recent = 5, .open = 12});

// So many segments are taken, of those that have something left.
inline constexpr auto counted =
    zoomr::compose(zoomr::sentences{.longest = 5}, zoomr::observation_window{.tokens = 14, .queries = 4, .pooling = 1},
                   zoomr::key_mean{}, zoomr::mean_dot{}, zoomr::top_k{.segments = 3}, zoomr::every_token{},
                   zoomr::zones{.sinks = 1, .recent = 4, .open = 6});

// The same with boxes in 8 bits; those of segments that have lost all tokens have no scale that is a number.
inline constexpr auto counted_boxes =
    zoomr::compose(counted.segment, counted.evict, zoomr::stored_as<zoomr::float8>(zoomr::key_box{}),
                   zoomr::box_bound{}, counted.select, counted.refresh, counted.zone);

constexpr shape small_model{1, 2, 1, 8};
constexpr auto small_snapkv = evicting(small::snapkv, 150, 4, 3, false);

/// A prompt and the token after it, on the device as on the host?
bool plays_the_same() {
  const tape says = make_tape(small_model, kind::uniform, markup::sentences, 201, 200, 9);
  player<std::remove_const_t<decltype(small_snapkv)>> host(small_model, small_snapkv, limits_for(210));
  player<std::remove_const_t<decltype(small_snapkv)>, float,
         device_as_host<std::remove_const_t<decltype(small_snapkv)>, float, 8, 2>>
      device(small_model, small_snapkv, limits_for(210));
  host.open(says), device.open(says);
  host.observe_prompts = device.observe_prompts = true;
  host.play_plainly(), device.play_plainly();
  const token_result& expected = host.at(0).log.at({200, 0});
  const token_result& got = device.at(0).log.at({200, 0});
  if (got.attended != expected.attended) return false;
  for (std::size_t i = 0; i < got.out.numbers.size(); ++i) {
    if (!(std::abs(got.out.numbers[i] - expected.out.numbers[i]) < 1e-3f)) return false;
  }
  return true;
}

template <class Call>
zoomr::errc code_of(Call call) {
  try {
    call();
  } catch (const zoomr::error& caught) {
    return caught.code();
  }
  throw std::logic_error("nothing was thrown");
}

}  // namespace

TEST_CASE("a prompt of which something was evicted stays, and what is refused changes nothing") {
  const tape says = make_tape(model, kind::peaked, markup::sentences, 60, 50, 3);
  device_player<std::remove_const_t<decltype(small::snapkv)>> device(model, small::snapkv, limits_for(60));
  device.open(says);
  const zoomr::sequence seq = device.at(0).seq;
  device.play({{0, says.between(0, 30), false}});
  device.rollback(0, 20);  // still a prompt
  device.play({{0, says.between(20, 50), true}}, fate::dropped_after_pass);
  CHECK(device.tokens() == 20);
  {
    const std::vector<token_id> ids = says.between(20, 50);
    const zoomr::step_item item{seq, view<const token_id>(ids), true};
    auto step = device.cache.begin(view<const zoomr::step_item>(&item, {1}));
    const index_t all = 30;
    CHECK_THROWS_AS(step.commit(view<const index_t>(&all, {1})), zoomr::precondition_error);  // nothing was observed
  }
  CHECK(device.tokens() == 20);
  device.play({{0, says.between(20, 50), true}});
  device.play({device.next(0, 1)});
  CHECK(code_of([&] { device.cache.rollback(seq, 49); }) == zoomr::errc::rollback_depth);
  CHECK(code_of([&] { device.cache.rollback(seq, 0); }) == zoomr::errc::rollback_depth);
  CHECK(device.tokens() == 51);
  device.rollback(0, 50);
  device.play_plainly();
  player<std::remove_const_t<decltype(small::snapkv)>> host(model, small::snapkv, limits_for(60));
  host.open(says);
  host.play_plainly();
  CHECK(host.at(0).log.at({59, 0}).attended == device.at(0).log.at({59, 0}).attended);
}

TEST_CASE("pages behind what is kept go back to the pool") {
  constexpr auto sixteen = evicting(small::snapkv, 16, 8, 7, false);
  zoomr::config limits = limits_for(70, 3);
  limits.pool_tokens = 96;  // a prompt, and a page for each of the others
  device_player<std::remove_const_t<decltype(sixteen)>> device(model, sixteen, limits);
  const tape says = make_tape(model, kind::peaked, markup::sentences, 70, 64, 3);
  for (index_t v = 0; v < 3; ++v) {
    device.open(says);
    device.play({{v, says.between(0, 64), true}});
  }
  for (index_t v = 0; v < 3; ++v) device.play({device.next(v, 1)});
  CHECK(device.tokens(2) == 65);
  const zoomr::sequence more = device.at(0).seq;
  device.cache.close(more);
  device.at(0).seq = device.cache.open();  // a new one keeps everything again
  CHECK(device.at(0).seq.id == more.id);
  CHECK(device.tokens(0) == 0);
  device.at(0).log.clear();
  device.play({{0, says.between(0, 20), false}});
  CHECK(device.tokens(0) == 20);
}

TEST_CASE("no barrier of compaction can be left out") {
  zoomr_test::in_all_orders([](const std::string& order) {
    CAPTURE(order);
    CHECK(plays_the_same());
  });
#if defined(ZOOMR_SIMT)
  index_t found = 0;
  for_each_barrier_left_out(plays_the_same, [&](const left_out_barrier& one) {
    if (one.barrier.find("eviction_kernels.cuh") == std::string::npos) return;
    CAPTURE(one.barrier);
    CHECK(one.noticed);
    ++found;
  });
  CHECK(found == 1);
#endif
}

TEST_CASE("each preset that evicts tokens of a prompt alone") {
  for_each_preset([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    if constexpr (decltype(policy.evict)::observes && !evicts_later<policy_type>) {
      check(policy, kind::peaked, markup::sentences, 3, true, 61), check(policy, kind::ties, markup::stray, 5);
    }
  });
}
TEST_CASE("snapkv: prompts of many lengths, pages full and not, and what is kept") {
  std::uint64_t seed = 1;
  for (const index_t prompt : {1, 9, 15, 16, 17, 33, 49}) {
    for (const index_t kept : {8, 16, 17, 33}) {
      if (seed++ % 4 > 0 && prompt <= kept) continue;
      const kind look = std::array{kind::peaked, kind::ties, kind::uniform}[seed % 3];
      check(evicting(small::snapkv, kept, 8, 7, seed % 2 == 0), look, markup::sentences, seed, seed % 4 == 0, prompt);
    }
  }
}
TEST_CASE("snapkv: more queries than one launch takes, one query, no pooling, one token is kept") {
  check(evicting(small::snapkv, 41, 40, 7, false), kind::peaked, markup::sentences, 3, false, 60);
  check(evicting(small::snapkv, 41, 33, 5, true), kind::uniform, markup::sentences, 4, false, 70);
  check(evicting(small::snapkv, 34, 32, 5, true), kind::uniform, markup::sentences, 5, false, 70);
  check(evicting(small::snapkv, 12, 1, 1, false), kind::peaked, markup::sentences, 6, false, 50);
  check(evicting(small::snapkv, 1, 1, 1, false), kind::ties, markup::sentences, 7, false, 20);
}
TEST_CASE("snapkv: keys that are no numbers") {
  for (const std::uint64_t seed : seeds_from(20, 6)) {
    check(evicting(small::snapkv, 16, 4, 3, seed % 2 == 0), kind::with_infinities, markup::sentences, seed, false, 45);
  }
}
TEST_CASE("each KV head has runs of its own where nothing is chosen") {
  for (const std::uint64_t seed : seeds_from(30, 4)) check(windowed, kind::peaked, markup::sentences, seed, false, 50);
}
TEST_CASE("sentence_kv: whole sentences of what is left") {
  for (const std::uint64_t seed : seeds_from(40, 4)) {
    check(with(small::sentence_kv, [&](auto& p) { p.evict.tokens = static_cast<index_t>(9 + 4 * (seed % 6)); }),
          seed % 2 == 0 ? kind::peaked : kind::ties, markup::sentences, seed, seed % 3 == 0, 50);
  }
  ZOOMR_NIGHTLY(check(small::sentence_kv_published, kind::peaked, markup::sentences, 47, false, 70));
  check(each_head_of_sentences, kind::uniform, markup::sentences, 48, false, 50);
}
TEST_CASE("segments of which nothing is left are not chosen") {
  for (const std::uint64_t seed : seeds_from(70, 3)) {
    check(counted, kind::peaked, markup::sentences, seed, false, 60);
    ZOOMR_NIGHTLY(check(counted_boxes, kind::peaked, markup::sentences, seed, false, 60));
    ZOOMR_NIGHTLY(check(with_index<zoomr::float8>(counted), kind::with_infinities, markup::sentences, seed, false, 60));
  }
}
TEST_CASE("a choice that stays active is first made of what is left") {
  for (const std::uint64_t seed : seeds_from(50, 2)) check(boundary, kind::peaked, markup::sentences, seed, false, 40);
}
TEST_CASE("several sequences, whose prompts end in one step or not") {
  for (const std::uint64_t seed : seeds_from(60, 3)) {
    check_together(evicting(small::snapkv, 14, 5, 3, false), seed);
    check_together(evicting(small::sentence_kv, 20, 8, 7, false), seed);
  }
  check_together(boundary, 64);
}

}  // namespace zoomr_test
