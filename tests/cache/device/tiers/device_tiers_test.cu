// SPDX-License-Identifier: Apache-2.0
// A device cache over a tiered placement has the bits of one whose details all lie on the device, whatever its arena
// holds.
#include <cache/device/tiers/device_tiers.hpp>
#include <cache/support/small_policies.hpp>

#include <doctest/doctest.h>
#include <support/mutations.hpp>
#include <support/nightly.hpp>

#include <set>  // std::set

namespace zoomr_test {
namespace {

inline constexpr auto kv_head_chooses = with(small::quest, [](auto& p) { p.aggregate.per = zoomr::scope::kv_head; });
inline constexpr auto head_chooses = with(small::quest, [](auto& p) { p.aggregate.per = zoomr::scope::head; });

/// Calls body(schedule) with what goes on beside a layer done before the layer, after it, and in between.
template <class Body>
void in_side_orders(Body body) {
#if defined(ZOOMR_SIMT)
  for (const simt::schedule when : {simt::schedule::early, simt::schedule::late, simt::schedule::random}) {
    simt::settings how = simt::how;
    how.streams = when;
    const simt::scoped_settings until_then(how);
    body(static_cast<int>(when));
  }
#else
  body(0);
#endif
}

}  // namespace

TEST_CASE("full, in arenas of any size") { check_tiers(small::full, kind::uniform, markup::stray, 1, {1, 5, 9, 1000}); }
TEST_CASE("zoomr_mass: choices of all layers, asked again, as for a graph") {
  check_tiers(small::zoomr_mass, kind::uniform, markup::pairs, 3, {5}, true);
}
TEST_CASE("layers with a window, in arenas of any size") {
  check_tiers(small::full, kind::uniform, markup::stray, 2, {2, 5, 1000}, false, model, 17);
  check_tiers(small::zoomr_mass, kind::peaked, markup::pairs, 3, {5}, true, model, 30);
}
#if defined(ZOOMR_ALL_CHECKS)
TEST_CASE("zoomr_focus: each layer alone") { check_tiers(small::zoomr_focus, kind::peaked, markup::pairs, 4, {9}); }
#endif
TEST_CASE("sentence_box, and quest for each KV head or each head") {
  ZOOMR_NIGHTLY(check_tiers(small::sentence_box, kind::peaked, markup::sentences, 6, {5}));
  check_tiers(kv_head_chooses, kind::peaked, markup::stray, 8, {2}, true);
  check_tiers(head_chooses, kind::ties, markup::stray, 9, {1000});
}
TEST_CASE("tokens are evicted in the host's memory, and in the arena's copies") {
  check_tiers(small::snapkv, kind::uniform, markup::stray, 10, {5, 1000});
  ZOOMR_NIGHTLY(check_tiers(small::sentence_kv, kind::peaked, markup::sentences, 11, {9}));
  ZOOMR_NIGHTLY(check_tiers(small::r_kv, kind::uniform, markup::stray, 12, {3, 1000}));
  ZOOMR_NIGHTLY(check_tiers(small::pinned_prompt, kind::peaked, markup::stray, 13, {5}));
  check_tiers(small::h2o, kind::ties, markup::stray, 14, {1000}, true);
}

namespace {

/// A plain play of three layers, as a resident cache and with arenas of some sizes, with and without prefetching.
template <class Policy>
void check_prefetching(const Policy& policy, markup text, bool fixed = false) {
  const shape three{3, 4, 2, 8};
  const tape says = make_tape(three, kind::peaked, text, 72, 50, 21);
  const zoomr::config limits = limits_for(72);
  const auto played = [&](const auto& of, const zoomr::config& with, zoomr::arena_counts* counts) {
    device_player<std::remove_cvref_t<decltype(of)>> plays(three, of, with);
    plays.cache.fixed = fixed;
    plays.open(says);
    plays.play_plainly();
    if constexpr (zoomr::tiered_placement<decltype(of.placement)>) *counts = plays.cache.tiers();
    return plays.at(0).log;
  };
  const auto resident = played(policy, limits, nullptr);
  auto moved = with_placement(policy, zoomr::tiered<>{});
  for (const index_t frames : {1, 3, 7, 12}) {
    CAPTURE(frames);
    const zoomr::config tiers = arena_limits(moved, limits, frames, three);
    moved.placement.prefetch = false;
    zoomr::arena_counts without;
    same_bits(resident, played(moved, tiers, &without));
    CHECK(without.prefetched == 0);
    moved.placement.prefetch = true;
    in_side_orders([&](int order) {
      CAPTURE(order);
      zoomr::arena_counts with;
      same_bits(resident, played(moved, tiers, &with));
      CHECK(with.hits + with.misses == without.hits + without.misses);
      CHECK(with.prefetched_hits == with.prefetched);  // nothing comes in vain, and nothing goes before it is read
      CHECK((frames > 1 || with.prefetched == 0));
      CHECK((frames < 7 || with.prefetched > 0));  // no layer reads more than five pages
      CHECK(with.pass == without.pass);
    });
  }
}

}  // namespace

TEST_CASE("what the next layer reads comes while this one is attended") {
  check_prefetching(small::full, markup::stray);
  check_prefetching(small::zoomr_mass, markup::pairs, true);
  ZOOMR_NIGHTLY(check_prefetching(small::zoomr_focus, markup::pairs));
  check_prefetching(kv_head_chooses, markup::stray);
}

TEST_CASE("what a row reads is known before, unless it chooses in that very layer") {
  const auto known = [](const auto& policy, index_t layer, auto change) {
    zoomr::detail::device_token token;
    token.chooses = 3;
    change(token);
    return zoomr::detail::known_before(policy, token, layer);
  };
  const auto as_it_is = [](zoomr::detail::device_token&) {};
  CHECK(!known(kv_head_chooses, 1, as_it_is));
  CHECK(!known(small::zoomr_focus, 1, as_it_is));
  CHECK(known(small::zoomr_focus, 1, [](auto& token) { token.chooses = -1; }));
  CHECK(known(small::zoomr_focus, 1, [](auto& token) { token.dense = true; }));
  CHECK(known(small::zoomr_focus, 1, [](auto& token) { token.prompt = true; }));
  CHECK(known(small::zoomr_mass, 1, as_it_is));  // one choice for all layers, made for the tokens that come
  CHECK(known(small::full, 1, as_it_is));
  auto dense_first = kv_head_chooses;
  dense_first.zone.dense_layers = 2;
  CHECK(known(dense_first, 1, as_it_is));
  CHECK(!known(dense_first, 2, as_it_is));
}

TEST_CASE("what is asked for ahead is asked for once, and leaves the places of the layer being read alone") {
  using policy_type = std::remove_cvref_t<decltype(with_placement(small::full, zoomr::tiered<>{}))>;
  constexpr index_t pages = 12, frames = 4;
  constexpr unsigned pass = 7;
  for (const bool prompt : {true, false}) {
    std::vector<zoomr::detail::device_token> three(3);
    for (index_t t = 0; t < 3; ++t) {  // a draft, or a chunk, of sequence 1 at slots 46, 47, 48: pages 0 ... 3
      zoomr::detail::device_token& token = three[static_cast<std::size_t>(t)];
      token.sequence = 1, token.position = token.slot = 46 + t, token.row = t;
      token.zone = {0, 20, 30, 47 + t};  // pages 0, 1 and from 1 on
      token.prompt = prompt;
    }
    zoomr::detail::device_counts listed;
    listed.tokens = 3;
    std::vector<index_t> page_table(8, 11), block_frames(std::size_t{2 * pages});
    for (index_t at = 0; at < 4; ++at) page_table[static_cast<std::size_t>(4 + at)] = 9 - 2 * at;
    block_frames[pages + 7] = 3;  // page 1 of the sequence, in layer 1, lies in frame 2
    block_frames[5] = 1;          // page 2 in layer 0

    device_array<zoomr::detail::device_token> tokens_there(three);
    device_array<zoomr::detail::device_counts> listed_there(1, listed);
    device_array<index_t> page_table_there(page_table), block_frames_there(block_frames), places(8, -7);
    device_array<unsigned> used(frames, pass), asked(8, 2 * pass), came_for(frames, 0u);
    device_array<zoomr::arena_request> requests(8, zoomr::arena_request{-1, -1});
    zoomr::arena_counts counts;
    counts.pass = pass;
    device_array<zoomr::arena_counts> counts_there(1, counts);
    zoomr::detail::device_arrays<policy_type, float> arrays;
    arrays.sizes.model = {2, 4, 2, 8};
    arrays.sizes.pages = pages, arrays.sizes.sequence_pages = 4, arrays.sizes.layer_rows = 1;
    arrays.sizes.tiered = true;
    arrays.table.tokens = tokens_there.data(), arrays.table.counts = listed_there.data();
    arrays.page_table = page_table_there.data();
    auto& arena = arrays.arena;
    arena.frames = frames, arena.used = used.data(), arena.stamps = asked.data(), arena.came_for = came_for.data();
    arena.block_frames = block_frames_there.data(), arena.places = places.data(), arena.requests = requests.data();
    arena.counts = counts_there.data();
    zoomr::launch({dim3(4, 1), dim3(64)}, zoomr::stream_ref{}, zoomr::detail::expect_pages_kernel<policy_type, float>,
                  with_placement(small::full, zoomr::tiered<>{}), arrays, 1);

    const zoomr::arena_counts after = counts_there.values()[0];
    REQUIRE(after.requests == 3);
    std::set<index_t> requested, entries;
    for (std::size_t w = 0; w < 3; ++w) {
      requested.insert(requests.values()[w].block);
      entries.insert(requests.values()[w].entry);
    }
    CHECK((requested == std::set<index_t>{9, 5, 3} && entries == std::set<index_t>{4, 6, 7}));
    CHECK(used.values() == std::vector<unsigned>{pass, pass, pass + 1, pass});
    CHECK(places.values() == std::vector<index_t>(8, -7));
    CHECK((after.found == 0 && after.prefetched_hits == 0 && after.pass == pass));
  }
}

TEST_CASE("what comes ahead takes half of the arena at most, the frames that would go first, and none that is read") {
  using policy_type = std::remove_cvref_t<decltype(with_placement(small::full, zoomr::tiered<>{}))>;
  constexpr index_t layers = 3, pages = 40, entries = 64;
  constexpr unsigned pass = 100;  // what is being read
  dice random(5);
  for (int i = 0; i < 60; ++i) {
    const index_t frames = random.between(1, 23);
    const index_t parts = random.between(1, 3);
    const index_t asked = random.between(0, 30);
    CAPTURE(frames);
    CAPTURE(asked);
    std::vector<unsigned> used;
    std::vector<index_t> block_in, block_frames(static_cast<std::size_t>(layers * pages * parts));
    for (index_t frame = 0; frame < frames; ++frame) {
      used.push_back(static_cast<unsigned>(random.between(i % 3 == 0 ? 95 : 0, pass + 1)));
      block_in.push_back(frame + 1);  // of layer 0
      block_frames[static_cast<std::size_t>(frame)] = frame + 1;
    }
    std::vector<zoomr::arena_request> requests(std::size_t{entries});
    for (index_t w = 0; w < asked; ++w) requests[static_cast<std::size_t>(w)] = {2 * w, pages * parts - 1 - w};
    zoomr::arena_counts counts;
    counts.pass = pass;
    counts.requests = asked;

    device_array<unsigned> used_there(used), came_for(frames, 0u);
    device_array<index_t> block_in_there(block_in), block_frames_there(block_frames), given(frames, -1),
        places(entries, -7);
    device_array<zoomr::arena_request> requests_there(requests);
    device_array<zoomr::arena_counts> counts_there(1, counts);
    zoomr::detail::device_arrays<policy_type, float> arrays;
    arrays.sizes.model = {layers, 4, 2, 8};
    arrays.sizes.pages = pages, arrays.sizes.page_parts = parts;
    arrays.arena.frames = frames;
    arrays.arena.used = used_there.data(), arrays.arena.came_for = came_for.data();
    arrays.arena.block_in = block_in_there.data(), arrays.arena.block_frames = block_frames_there.data();
    arrays.arena.grants = given.data(), arrays.arena.places = places.data();
    arrays.arena.requests = requests_there.data(), arrays.arena.counts = counts_there.data();
    const index_t blocks = random.between(1, 9);  // of which some have no frame
    device_array<index_t> of_class(blocks * zoomr::arena_classes, -1);
    device_array<zoomr::arena_stretch> stretches(blocks, zoomr::arena_stretch{});
    arrays.arena.of_class = of_class.data(), arrays.arena.stretches = stretches.data();
    const zoomr::launch_shape shape{dim3(static_cast<unsigned>(blocks)), dim3(zoomr::detail::place_threads)};
    zoomr::launch(shape, zoomr::stream_ref{}, zoomr::detail::count_frames_kernel<float>, arrays, true);
    zoomr::launch(shape, zoomr::stream_ref{}, zoomr::detail::give_frames_kernel<float>, arrays, 1, true);

    // The rule in words: passed over by its layer, the longer the sooner, then the latest layers first.
    const auto goes_after = [&](index_t frame) {
      const index_t age = static_cast<index_t>(pass + 1 - used[static_cast<std::size_t>(frame)]);
      index_t doublings = 0;
      while ((layers << doublings) <= age) ++doublings;
      return doublings > 0 ? -doublings : age;
    };
    std::vector<index_t> may_go;
    for (index_t frame = 0; frame < frames; ++frame) {
      if (used[static_cast<std::size_t>(frame)] < pass) may_go.push_back(frame);
    }
    std::stable_sort(may_go.begin(), may_go.end(), [&](index_t a, index_t b) { return goes_after(a) < goes_after(b); });
    const auto most = static_cast<std::size_t>(std::min(asked, frames / 2));
    if (may_go.size() > most) may_go.resize(most);
    std::sort(may_go.begin(), may_go.end());
    const zoomr::arena_counts after = counts_there.values()[0];
    REQUIRE(after.fetched == static_cast<index_t>(may_go.size()));
    CHECK(after.prefetched == may_go.size());
    CHECK((after.pass == pass && after.counted == 0));
    CHECK((after.requests == 0 && after.hits + after.misses == 0));
    CHECK(places.values() == std::vector<index_t>(std::size_t{entries}, -7));
    for (std::size_t g = 0; g < may_go.size(); ++g) {
      const auto frame = static_cast<std::size_t>(may_go[g]);
      CHECK(given.values()[g] == may_go[g]);
      CHECK((used_there.values()[frame] == pass + 1 && came_for.values()[frame] == pass + 1));
      CHECK(block_in_there.values()[frame] == pages * parts + requests[g].block + 1);
      CHECK(block_frames_there.values()[static_cast<std::size_t>(pages * parts + requests[g].block)] == may_go[g] + 1);
      CHECK(block_frames_there.values()[frame] == 0);
    }
  }
}

TEST_CASE("no barrier of placing can be left out") {
  const tape says = make_tape(model, kind::peaked, markup::stray, 56, 50, 12);
  const auto logged = [&](auto policy, const zoomr::config& limits) {
    device_player<decltype(policy)> plays(model, policy, limits);
    plays.open(says);
    plays.play_plainly();
    return plays.at(0).log;
  };
  const zoomr::config limits = limits_for(56);
  const auto moved = with_placement(small::full, zoomr::tiered<>{});
  const zoomr::config tiers = arena_limits(moved, limits, 5);
  const auto expected = logged(small::full, limits);
  const auto plays_the_same = [&] { return difference(expected, logged(moved, tiers)) == ""; };
  in_all_orders([&](const std::string& order) {
    CAPTURE(order);
    CHECK(plays_the_same());
  });
#if defined(ZOOMR_SIMT)
  index_t found = 0;
  for_each_barrier_left_out(plays_the_same, [&](const left_out_barrier& one) {
    if (one.barrier.find("placing.cuh") == std::string::npos) return;
    CAPTURE(one.barrier);
    CHECK(one.noticed);
    ++found;
  });
  CHECK(found == 4);
#endif
}

TEST_CASE("several sequences share an arena, prompts beside drafts") {
  const auto play = [](auto policy, zoomr::config limits) {
    limits.max_batched_tokens = 48;
    device_player<decltype(policy)> plays(model, policy, limits);
    std::vector<tape> says;
    for (std::uint64_t v = 0; v < 3; ++v) {
      says.push_back(make_tape(model, kind::peaked, v == 2 ? markup::pairs : markup::sentences, 60, 30, 10 + v));
    }
    for (const tape& one : says) plays.open(one);
    play_together(plays, 10);
    std::vector<result_log> logs;
    for (index_t v = 0; v < 3; ++v) logs.push_back(plays.at(v).log);
    return logs;
  };
  const auto moved = with_placement(small::quest, zoomr::tiered<>{});
  zoomr::config limits = limits_for(60, 3);
  limits.max_batched_tokens = 48;
  const auto expected = play(small::quest, limits);
  const auto got = play(moved, arena_limits(moved, limits, 3));
  for (std::size_t v = 0; v < 3; ++v) same_bits(expected[v], got[v]);
}

TEST_CASE("what cannot work is refused with one sentence") {
  const auto moved = with_placement(small::quest, zoomr::tiered<>{});
  using cache_type = zoomr::device_cache<std::remove_const_t<decltype(moved)>, float, 8, 2>;
  const auto refused = [&](const zoomr::config& limits) {
    try {
      cache_type::bytes(model, moved, limits, 3);
      return std::string();
    } catch (const zoomr::precondition_error& problem) {
      return std::string(problem.what());
    }
  };
  zoomr::config limits = arena_limits(moved, limits_for(tokens), 4);
  CHECK(refused(limits) == "");
  CHECK(cache_type::bytes(model, moved, limits, 3) <= limits.tiers.device);
  limits.tiers.host = cache_type::host_bytes(model, moved, limits);
  CHECK(refused(limits) == "");
  --limits.tiers.host;
  CHECK(refused(limits).find("tiers.host must be 0 or at least") != std::string::npos);
  limits.tiers.host = 0;
  limits.pool_tokens = 1 << 30;
  CHECK(refused(limits).find("at most 2^25 pages") != std::string::npos);
  limits.pool_tokens = 1 << 20;
  limits.max_tokens = 1 << 30, limits.max_sequences = 64;
  CHECK(refused(limits).find("sequences * pages of max_tokens") != std::string::npos);
}

}  // namespace zoomr_test
