// SPDX-License-Identifier: Apache-2.0
// A cache that was chosen at run time gives the bits of the device_cache that it is; what is not in the list is
// refused.
#include <cache/device/device_engine.hpp>
#include <cache/support/small_policies.hpp>
#include <zoomr/device_transfer.cuh>
#include <zoomr/grouped_device_cache.cuh>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

namespace zoomr_test::at_run_time {
namespace {

using zoomr::any_device_cache, zoomr::device_cache, zoomr::sequence, zoomr::stream_ref;

inline constexpr index_t most = 110;
inline constexpr auto tiered_quest = with_placement(small::quest, zoomr::tiered<>{});
inline constexpr auto quest_in_engine = with_placement(small::quest, zoomr::engine_pages{});

// What the program is compiled for.
template <const auto& Policy, index_t HeadDim, index_t Group, class Values = zoomr::values_apart<HeadDim>>
using on_device = device_cache<zoomr::policy_of<Policy>, float, HeadDim, Group, Values>;
using served =
    zoomr::device_caches<float, on_device<small::quest, 8, 2>, on_device<small::quest, 16, 4>,
                         on_device<small::zoomr_mass, 8, 2>, on_device<small::zoomr_voters, 16, 4>,
                         on_device<small::h2o, 16, 1>, on_device<tiered_quest, 8, 2>, on_device<quest_in_engine, 8, 2>,
                         on_device<small::sentence_box, 24, 4, zoomr::values_in_keys<16>>>;

/// Memory of a cache, on the device and pinned.
struct room {
  device_array<std::byte> memory;
  zoomr::pinned_memory pinned;
  bool tiered;

  template <class Caches, class Policy>
  room(Caches, const shape& model, const Policy& policy, const zoomr::config& limits)
      : memory(Caches::bytes(model, policy, limits, 2) + 256, std::byte{0xff}),
        pinned(Caches::host_bytes(model, policy, limits) + 1),
        tiered(zoomr::tiered_placement<decltype(Policy::placement)>) {}
  void* aligned() { return memory.data() + (256 - reinterpret_cast<std::uintptr_t>(memory.data()) % 256) % 256; }
  void* details() { return tiered ? pinned.data() : nullptr; }
};

/// What a cache says and gives, in its order.
struct heard {
  std::vector<float> outputs;
  std::vector<index_t> counts;
  index_t second_passes = 0;
  friend bool operator==(const heard&, const heard&) = default;
};

/// One step of a sequence, or one that is dropped between two layers.
template <class Cache>
index_t take(Cache& cache, sequence seq, view<const token_id> ids, bool ends, bool drops, bool at_once, heard& log) {
  const shape model = cache.model();
  const stream_ref on{};
  const index_t before = cache.tokens(seq);
  auto begun = cache.begin(seq, ids, ends);
  auto step = std::move(begun);
  const index_t accepted = step.taken(0);
  index_t pass = 0;
  do {
    const index_t tokens = step.tokens(), first = step.position(0);
    const auto now = ids.slice(first - before, first - before + tokens);
    pass == 0 ? step.start(on) : step.restart(on);
    for (index_t layer = 0; layer < model.layers; ++layer) {
      device_array<float> k(numbers(model, role::key, now, first, layer, pass));
      device_array<float> v(numbers(model, role::value, now, first, layer, pass));
      device_array<float> q(numbers(model, role::query, now, first, layer, pass));
      device_array<float> out(std::int64_t{tokens} * model.heads * model.value_width(), 77.0f);
      device_array<float> lse(std::int64_t{tokens} * model.heads, 77.0f);
      const view<const float, 3> keys(k.data(), {tokens, model.kv_heads, model.head_dim});
      const view<const float, 3> queries(q.data(), {tokens, model.heads, model.head_dim});
      view<const float, 3> values;
      if (!model.values_in_keys) values = {v.data(), {tokens, model.kv_heads, model.head_dim}};
      const view<float, 3> outputs(out.data(), {tokens, model.heads, model.value_width()});
      const view<float, 2> ends_of(lse.data(), {tokens, model.heads});
      if (at_once) {
        step.attend(layer, queries, keys, values, outputs, ends_of, on);
      } else {
        step.append(layer, keys, values, on);
        if (drops && layer > 0) return 0;
        step.attend(layer, queries, outputs, ends_of, on);
      }
      for (auto* each : {&out, &lse}) {
        const std::vector<float> got = each->values();
        log.outputs.insert(log.outputs.end(), got.begin(), got.end());
      }
    }
    ++pass;
  } while (step.needs_second_pass(accepted));
  log.second_passes += pass - 1;
  step.commit(accepted, on);
  return accepted;
}

/// A text in chunks and drafts, with steps that are dropped, rollbacks, and a fork that goes on.
template <class Cache>
heard play(Cache& cache, std::uint64_t seed) {
  heard log;
  dice random(seed);
  const std::vector<token_id> ids = text_of(markup::pairs, most, 40, seed);
  sequence here = cache.open();
  for (index_t now = 0; now < most;) {
    const index_t count = now < 40 ? std::min(40 - now, random.between(5, 20)) : random.between(1, 4);
    const auto next = view<const token_id>(ids).slice(now, std::min(now + count, most));
    if (!cache.ready()) cache.wait();
    const bool drops = random.chance(15);
    now += take(cache, here, next, now < 40 && now + count >= 40, drops, !drops && random.chance(50), log);
    if (now > 70 && random.chance(15)) {
      const index_t back = now - random.between(1, 6);
      try {
        cache.rollback(here, back), now = back;
      } catch (const zoomr::error& too_deep) {
        log.counts.push_back(static_cast<index_t>(too_deep.code()));
      }
    }
    if (now > 50 && random.chance(10)) {
      const sequence forked = cache.fork(here, stream_ref{});
      cache.close(here);
      here = forked;
    }
    for (const index_t count_now : {cache.tokens(here), cache.segments(here).size(), cache.passed_slots(here),
                                    static_cast<index_t>(cache.pinned(here).size())}) {
      log.counts.push_back(count_now);
    }
  }
  return log;
}

/// The same text through a device_cache and through the cache that the list makes.
template <class Cache, class Policy>
heard compare(const shape& model, const Policy& policy, const zoomr::config& limits) {
  room one(zoomr::device_caches<float, Cache>{}, model, policy, limits), other(served{}, model, policy, limits);
  CHECK(served::template has<Policy>(model));
  CHECK(one.memory.values().size() == other.memory.values().size());
  Cache known(model, policy, limits, one.aligned(), stream_ref{}, 2, one.details());
#if defined(ZOOMR_SIMT)
  simt::loaded_kernels.clear();
#endif
  any_device_cache<float> any = served::make(model, policy, limits, other.aligned(), stream_ref{}, 2, other.details());
  const heard expected = play(known, 3);
#if defined(ZOOMR_SIMT)
  simt::launched_kernels.clear();
#endif
  any_device_cache<float> moved = std::move(any);
  CHECK(play(moved, 3) == expected);
#if defined(ZOOMR_SIMT)
  for (const void* kernel : simt::launched_kernels) CHECK(simt::loaded_kernels.count(kernel) == 1);
#endif
  CHECK(expected.outputs.size() > 100);
  CHECK(moved.rows_in_layer() == known.rows_in_layer());
  return expected;
}

}  // namespace

TEST_CASE("a cache that was chosen at run time gives the same bits, whatever policy and heads") {
  const shape narrow{2, 4, 2, 8}, wide{2, 8, 2, 16}, alone{2, 2, 2, 16};
  compare<on_device<small::quest, 8, 2>>(narrow, small::quest, limits_for(most, 2));
  compare<on_device<small::quest, 16, 4>>(wide, small::quest, limits_for(most, 2));
  CHECK(compare<on_device<small::zoomr_mass, 8, 2>>(narrow, small::zoomr_mass, limits_for(most, 2)).second_passes > 0);
  compare<on_device<small::h2o, 16, 1>>(alone, small::h2o, limits_for(most, 2));
  compare<on_device<small::zoomr_voters, 16, 4>>(wide, small::zoomr_voters,
                                                 with_voters(small::zoomr_voters, limits_for(most, 2), wide));
  shape latent{2, 4, 1, 24, 16};
  latent.values_in_keys = true;
  compare<on_device<small::sentence_box, 24, 4, zoomr::values_in_keys<16>>>(latent, small::sentence_box,
                                                                            limits_for(most, 2));
}

TEST_CASE("over tiers too") {
  zoomr::config limits = limits_for(most, 2);
  limits.tiers.device = 1 << 20;
  compare<on_device<tiered_quest, 8, 2>>(shape{2, 4, 2, 8}, tiered_quest, limits);
}

TEST_CASE("what the list does not have is refused, with what it has") {
  const zoomr::config limits = limits_for(most, 2);
  const auto refused = [&](const shape& model, const auto& policy) {
    return mistake_of([&] { served::bytes(model, policy, limits); });
  };
  const auto end = [](const std::string& text, const std::string& tail) {
    return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
  };
  CHECK(refused({2, 4, 2, 16}, small::quest) ==
        "zoomr: device_caches: this policy is compiled in for heads of 8 dimensions, group 2; of 16 dimensions, group "
        "4, not of 16 dimensions, group 2: add that device_cache to the list");
  const std::string other = refused({2, 4, 2, 8}, small::snapkv);
  CAPTURE(other);
  CHECK(other.find("zoomr: device_caches: no device_cache of this policy (unsegmented observation_window") == 0);
  CHECK(other.find("fixed_pages keep_all key_box") != std::string::npos);
  CHECK(end(other, "add one for heads of 8 dimensions, group 2 to the list"));
  const shape apart{2, 4, 1, 24, 16};
  CHECK(refused(apart, small::sentence_box) ==
        "zoomr: device_caches: this policy is compiled in for heads of 24 dimensions with values of 16 in keys, group "
        "4, not of 24 dimensions with values of 16, group 4: add that device_cache to the list");
  CHECK(refused({2, 3, 2, 8}, small::quest) == "zoomr: shape: heads must be a multiple of kv_heads");
  CHECK(!served::has<zoomr::policy_of<small::snapkv>>({2, 4, 2, 8}));
  // What device_cache itself refuses comes as it says it.
  CHECK(mistake_of([&] {
          served::make({2, 4, 2, 8}, small::quest, limits, nullptr, stream_ref{});
        }) == "zoomr: device_cache: memory must be aligned to 256 bytes");
}

TEST_CASE("a placement that a cache does not have is refused by its calls") {
  const shape model{1, 4, 2, 8};
  zoomr::config limits = limits_for(most, 2);
  limits.tiers.device = 1 << 20;
  room plain(served{}, model, small::quest, limits), over_tiers(served{}, model, tiered_quest, limits);
  auto cache = served::make(model, small::quest, limits, plain.aligned(), stream_ref{}, 2);
  auto tiered = served::make(model, tiered_quest, limits, over_tiers.aligned(), stream_ref{}, 2, over_tiers.details());
  const std::vector<token_id> ids(3, plain_id);
  const index_t page = 0;
  const sequence seq = cache.open();
  zoomr::arena_counts counts;
  CHECK(mistake_of([&] { cache.block_table(seq, view<const index_t>(&page, {1}), stream_ref{}); }) ==
        "zoomr: block_table: the pages are the cache's own: it is for the placement engine_pages");
  CHECK(mistake_of([&] { cache.read_tiers(counts, stream_ref{}); }) == "zoomr: read_tiers: the placement has no tiers");
  CHECK(mistake_of([&] { cache.begin(seq, ids).append(0); }) ==
        "zoomr: append: the pages are the cache's own, which keys and values must be given for");
  CHECK(cache.tokens(seq) == 0);
  tiered.read_tiers(counts, stream_ref{});
  auto step = tiered.begin(tiered.open(), ids);
  step.start(stream_ref{});
  device_array<float> given(3 * 4 * 8, 0.5f);
  step.append(0, view<const float, 3>(given.data(), {3, 2, 8}), view<const float, 3>(given.data(), {3, 2, 8}),
              stream_ref{});
  CHECK(mistake_of([&] {
          step.list_slots(0, view<const float, 3>(given.data(), {3, 4, 8}), {}, {}, stream_ref{});
        }) == "zoomr: list_slots: over tiers slots have no place that stays: the cache itself attends");
}

TEST_CASE("pages of an engine: where keys and values go, and a table that is told") {
  const shape model{1, 4, 2, 8};
  zoomr::config limits = limits_for(most, 2);
  const engine_arrays engine(model, 4, layouts[0]);
  limits.engine = engine.memory;
  room one(served{}, model, quest_in_engine, limits);
  auto cache = served::make(model, quest_in_engine, limits, one.aligned(), stream_ref{}, 2);
  const std::vector<token_id> ids(3, plain_id);
  const index_t page = 2, other = 3;
  zoomr::step_item item{cache.open(), view<const token_id>(ids)};
  item.pages = view<const index_t>(&page, {1});
  auto step = cache.begin(view<const zoomr::step_item>(&item, {1}));
  step.start(stream_ref{});
  device_array<index_t> slots(3, -1), listed(3 * 2 * 8, -1), counts(3 * 2, -1);
  device_array<float> given(3 * 4 * 8, 0.5f);
  step.append_slots({slots.data(), {3}}, stream_ref{});
  CHECK(slots.values() == std::vector<index_t>{32, 33, 34});
  step.append(0);
  step.list_slots(0, view<const float, 3>(given.data(), {3, 4, 8}), {listed.data(), {3, 2, 8}}, {counts.data(), {3, 2}},
                  stream_ref{});
  CHECK(counts.values() == std::vector<index_t>{1, 1, 2, 2, 3, 3});
  step.commit(3, stream_ref{});
  cache.block_table(item.seq, view<const index_t>(&other, {1}), stream_ref{});
  item.pages = {};
  auto moved = cache.begin(view<const zoomr::step_item>(&item, {1}));
  moved.start(stream_ref{});
  moved.append_slots({slots.data(), {3}}, stream_ref{});
  CHECK(slots.values() == std::vector<index_t>{51, 52, 53});
}

TEST_CASE("a sequence moves to a host's cache and back") {
  const shape model{2, 8, 2, 16};
  const zoomr::config limits = limits_for(most, 2);
  room one(served{}, model, small::quest, limits);
  auto cache = served::make(model, small::quest, limits, one.aligned(), stream_ref{}, 2);
  zoomr::any_kv_cache<> host = zoomr::kv_cache(model, small::quest, limits);
  const std::vector<token_id> ids = text_of(markup::pairs, 40, 30, 5);
  heard first, again;
  const sequence seq = cache.open();
  take(cache, seq, view<const token_id>(ids).slice(0, 30), true, false, true, first);
  const sequence there = to_host(served{}, cache, seq, host, stream_ref{});
  CHECK(host.tokens(there) == 30);
  const sequence back = to_device(served{}, host, there, cache, stream_ref{});
  first = {};
  const auto next = view<const token_id>(ids).slice(30, 32);
  CHECK(take(cache, seq, next, false, false, true, first) == take(cache, back, next, false, false, true, again));
  CHECK(first == again);
  CHECK(!first.outputs.empty());
  using other_list = zoomr::device_caches<float, on_device<small::h2o, 16, 1>, on_device<quest_in_engine, 8, 2>>;
  CHECK(mistake_of([&] { to_host(other_list{}, cache, seq, host, stream_ref{}); }) ==
        "zoomr: to_host, to_device: the list has no cache of this policy with pages of its own");
}

TEST_CASE("layers in groups may be caches that were chosen at run time") {
  const shape narrow{1, 4, 2, 8}, wide{1, 8, 2, 16};
  const zoomr::config limits = limits_for(most, 2);
  room one(served{}, narrow, small::quest, limits), other(served{}, wide, small::quest, limits);
  auto first = served::make(narrow, small::quest, limits, one.aligned(), stream_ref{}, 2);
  auto second = served::make(wide, small::quest, limits, other.aligned(), stream_ref{}, 2);
  const std::vector<index_t> group_of{0, 1};
  zoomr::grouped_device_cache both(view<const index_t>(group_of), first, second);
  const sequence seq = both.open();
  const std::vector<token_id> ids(5, plain_id);
  auto step = both.begin(seq, ids, true);
  step.start(stream_ref{});
  device_array<float> given(5 * 8 * 16, 0.5f), out(5 * 8 * 16, 0.0f);
  for (index_t layer = 0; layer < 2; ++layer) {
    const shape& of = layer == 0 ? narrow : wide;
    const view<const float, 3> kv(given.data(), {5, of.kv_heads, of.head_dim});
    const view<const float, 3> q(given.data(), {5, of.heads, of.head_dim});
    step.attend(layer, q, kv, kv, view<float, 3>(out.data(), {5, of.heads, of.head_dim}), view<float, 2>{},
                stream_ref{});
    CHECK(out.values()[0] == 0.5f);
  }
  step.commit(5, stream_ref{});
  CHECK(both.tokens(seq) == 5);
}

}  // namespace zoomr_test::at_run_time
