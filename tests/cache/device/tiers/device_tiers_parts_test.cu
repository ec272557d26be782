// SPDX-License-Identifier: Apache-2.0
// Where each KV head reads tokens of its own, what comes from the host is its part of a page alone; where all read the
// same, it is the page of all. What has come is counted against a naive model of what each head reads.
#include <cache/device/tiers/device_tiers.hpp>
#include <cache/support/small_policies.hpp>
#include <support/nightly.hpp>

#include <doctest/doctest.h>

#include <array>  // std::array
#include <set>    // std::set

namespace zoomr_test {
namespace {

inline constexpr shape three_heads{2, 6, 3, 8};
inline constexpr auto quest_by_kv_head =
    with(small::quest, [](auto& p) { p.select.segments = 2, p.zone.dense_layers = 0; });
inline constexpr auto quest_by_head = with(small::quest, [](auto& p) { p.aggregate.per = zoomr::scope::head; });
inline constexpr auto sentence_box =
    with(zoomr::presets::sentence_box_with(14), [](auto& p) { p.segment.longest = 9, p.zone.recent = 6; });
inline constexpr auto keeps_all = with(small::snapkv, [](auto& p) { p.evict.tokens = 2 * tokens; });

template <class Policy>
index_t parts_of(const Policy& policy, const shape& of) {
  const zoomr::config limits = limits_for(tokens);
  return zoomr::detail::device_sizes(of, zoomr::detail::any_policy_of<Policy>(policy), limits, 3,
                                     zoomr::detail::pages_in::tiers)
      .page_parts;
}

/// What has been read so far, if a page has `parts` blocks in each layer: each once.
struct naive_blocks {
  index_t parts = 1;
  std::set<std::array<index_t, 4>> blocks = {};  // voice, layer, page, part
  std::int64_t visits = 0;

  /// One pass over the tokens [first, last) of voice `v`, whose outputs the log has.
  template <class Plays>
  void pass(Plays& plays, index_t v, zoomr::token_range range, index_t pass, const shape& of) {
    const tape& says = *plays.at(v).says;
    for (index_t layer = 0; layer < of.layers; ++layer) {
      std::set<std::pair<index_t, index_t>> read;  // page, part
      for (index_t position = range.first; position < range.last; ++position) {
        const auto found = plays.at(v).log.find({position, pass});
        if (found == plays.at(v).log.end()) continue;
        for (index_t head = 0; head < of.heads; ++head) {
          const index_t part = parts == 1 ? 0 : head / of.group();
          const auto at = static_cast<std::size_t>(layer * of.heads + head);
          if (position < says.prompt) {
            for (index_t before = 0; before <= position; ++before) read.insert({before / 16, part});
          } else {
            for (const index_t each : found->second.attended[at]) read.insert({each / 16, part});
          }
        }
      }
      visits += static_cast<std::int64_t>(read.size());
      for (const auto& [page, part] : read) blocks.insert({v, layer, page, part});
    }
  }
};

/// Two sequences, their prompts in chunks and then drafts of some tokens that are all accepted, by turns or together;
/// what the cache counts is what the models have read.
template <class Policy>
void check_counts(const Policy& policy, markup text, const shape& of, bool fixed, std::uint64_t seed) {
  constexpr index_t length = 67;
  const auto moved_to = [&](bool prefetch) {
    auto moved = with_placement(policy, zoomr::tiered<>{});
    moved.placement.prefetch = prefetch;
    return moved;
  };
  using moved_type = decltype(moved_to(true));
  const std::array<tape, 2> says{make_tape(of, kind::peaked, text, length, 38, seed),
                                 make_tape(of, kind::uniform, text, length, 21, seed + 1)};
  const zoomr::config limits = limits_for(length, 2);
  const index_t parts = parts_of(policy, of);
  const zoomr::byte_count head_bytes = 2 * 16 * of.head_dim * zoomr::byte_count{sizeof(float)};
  const zoomr::byte_count block_bytes = head_bytes * of.kv_heads / parts;

  std::array<result_log, 2> first_logs;
  for (const index_t room : {1, 5, 1000}) {
    for (const bool prefetch : {false, true}) {
      CAPTURE(room);
      CAPTURE(prefetch);
      const auto moved = moved_to(prefetch);
      device_player<moved_type> plays(of, moved, arena_limits(moved, limits, room, of));
      plays.cache.fixed = fixed;
      naive_blocks by_part{parts}, whole{1};
      for (const tape& each : says) plays.open(each);
      dice random(seed);
      const auto play = [&](const std::vector<part>& step) {
        std::vector<index_t> from;
        for (const part& each : step) from.push_back(plays.tokens(each.voice));
        plays.play(step);
        for (std::size_t i = 0; i < step.size(); ++i) {
          const index_t now = plays.tokens(step[i].voice);
          REQUIRE(now > from[i]);  // all that the step has taken
          for (index_t pass = 0; pass < 2; ++pass) {
            by_part.pass(plays, step[i].voice, {from[i], now}, pass, of);
            whole.pass(plays, step[i].voice, {from[i], now}, pass, of);
          }
        }
      };
      for (index_t v = 0; v < 2; ++v) {
        const index_t prompt = says[static_cast<std::size_t>(v)].prompt;
        play({{v, says[static_cast<std::size_t>(v)].between(0, 17), false}});
        play({{v, says[static_cast<std::size_t>(v)].between(17, prompt), true}});
      }
      while (!plays.done(0) || !plays.done(1)) {
        std::vector<part> step;
        for (index_t v = 0; v < 2; ++v) {
          if (plays.done(v) || random.chance(40)) continue;
          step.push_back(plays.next(v, random.between(1, 4)));
        }
        if (!step.empty()) play(step);
      }

      zoomr::pinned_memory there(sizeof(zoomr::arena_counts));
      auto& counts = *static_cast<zoomr::arena_counts*>(there.data());
      const auto& cache = plays.cache.cache();
      cache.read_tiers(counts, zoomr::stream_ref{});
      zoomr::stream_event copied;
      copied.record(zoomr::stream_ref{});
      copied.wait();
      const zoomr::arena_statistics stats = cache.tiers(counts);
      const auto distinct = static_cast<std::int64_t>(by_part.blocks.size());
      CHECK(stats.hits + stats.misses == by_part.visits);
      const zoomr::byte_count of_pages = whole.visits * head_bytes * of.kv_heads;  // if a block were always a page
      CHECK((parts == 1 ? by_part.visits * block_bytes == of_pages : by_part.visits * block_bytes < of_pages));
      CHECK(stats.stalls == stats.misses - stats.in_place);
      CHECK(stats.bytes_in == (stats.misses - stats.in_place + stats.prefetched) * block_bytes);
      CHECK((prefetch || stats.prefetched == 0));
      CHECK(stats.prefetched_hits == stats.prefetched);
      CHECK(stats.bytes_out == 0);
      if (room == 1000) {
        CHECK(stats.in_place == 0);
        CHECK(stats.misses + stats.prefetched == distinct);
        CHECK(stats.bytes_in == distinct * block_bytes);
      } else {
        CHECK(stats.misses + stats.prefetched > distinct);
      }
      for (index_t v = 0; v < 2; ++v) {
        result_log& expected = first_logs[static_cast<std::size_t>(v)];
        if (expected.empty()) expected = plays.at(v).log;
        same_bits(expected, plays.at(v).log);
      }
    }
  }
}

}  // namespace

TEST_CASE("a block is one KV head's part of a page where each may read slots of its own") {
  CHECK(parts_of(small::full, three_heads) == 1);
  CHECK(parts_of(small::zoomr_mass, three_heads) == 1);
  CHECK(parts_of(small::zoomr_focus, three_heads) == 1);
  CHECK(parts_of(small::arkvale, three_heads) == 1);
  CHECK(parts_of(keeps_all, three_heads) == 1);  // nothing is ever evicted
  CHECK(parts_of(quest_by_kv_head, three_heads) == 3);
  CHECK(parts_of(quest_by_head, three_heads) == 3);
  CHECK(parts_of(small::snapkv, three_heads) == 3);
  CHECK(parts_of(small::sentence_kv, three_heads) == 3);
  CHECK(parts_of(quest_by_kv_head, {2, 4, 1, 8}) == 1);
  for_each_preset([](const std::string& name, const auto& policy) {
    CAPTURE(name);
    const zoomr::detail::any_policy_of<std::remove_cvref_t<decltype(policy)>> of(policy);
    const zoomr::detail::layout host(three_heads, of, limits_for(tokens));
    CHECK(parts_of(policy, three_heads) * host.blocks.heads == 3);
  });
}

TEST_CASE("what comes is the union of what the heads of each block read") {
  check_counts(quest_by_kv_head, markup::sentences, model, false, 1);
  check_counts(quest_by_head, markup::stray, three_heads, true, 2);
  ZOOMR_NIGHTLY(check_counts(sentence_box, markup::sentences, three_heads, false, 3));
  ZOOMR_NIGHTLY(check_counts(small::zoomr_focus, markup::pairs, model, false, 4));
}

TEST_CASE("three KV heads with blocks of their own, in arenas of any size") {
  check_tiers(quest_by_kv_head, kind::peaked, markup::stray, 8, {1, 1000}, true, three_heads);
  check_tiers(quest_by_head, kind::ties, markup::stray, 9, {5}, false, three_heads);
  ZOOMR_NIGHTLY(check_tiers(small::sentence_kv, kind::peaked, markup::sentences, 11, {9}, false, three_heads));
  check_tiers(small::h2o, kind::ties, markup::stray, 14, {2}, true, three_heads);
  ZOOMR_NIGHTLY(check_tiers(small::r_kv, kind::uniform, markup::stray, 12, {3}, false, three_heads));
  check_tiers(keeps_all, kind::uniform, markup::stray, 10, {5}, false, three_heads);
}

TEST_CASE("tokens that read alone, with some room, and where each KV head's part is read where it lies") {
  const tape says = make_tape(three_heads, kind::peaked, markup::stray, 60, 40, 31);
  zoomr::config limits = limits_for(60);
  limits.max_draft_tokens = 1;  // no query tiles
  const auto played = [&](const auto& policy, const zoomr::config& with, zoomr::arena_counts* counts) {
    device_player<std::remove_cvref_t<decltype(policy)>> plays(three_heads, policy, with);
    plays.open(says);
    plays.play_plainly();
    if constexpr (zoomr::tiered_placement<decltype(policy.placement)>) *counts = plays.cache.tiers();
    return plays.at(0).log;
  };
  const auto check = [&](const auto& policy) {
    const auto moved = with_placement(policy, zoomr::tiered<>{});
    const result_log expected = played(policy, limits, nullptr);
    zoomr::arena_counts counts;
    for (const index_t room : {1, 3, 40}) {
      CAPTURE(room);
      same_bits(expected, played(moved, arena_limits(moved, limits, room, three_heads), &counts));
      CHECK(counts.misses > counts.in_place);
    }
    const scoped_plan plan({.fetches = false});
    same_bits(expected, played(moved, arena_limits(moved, limits, 4, three_heads), &counts));
    CHECK((counts.hits == 0 && counts.prefetched == 0 && counts.misses > 0 && counts.in_place == counts.misses));
  };
  check(quest_by_kv_head);
  check(quest_by_head);
  check(small::snapkv);
}

TEST_CASE("each KV head's part of what is known comes ahead: nothing of the second layer is missed") {
  const auto check = [](const auto& policy) {
    const auto moved = with_placement(policy, zoomr::tiered<>{});
    const tape says = make_tape(three_heads, kind::peaked, markup::stray, 60, 40, 31);
    zoomr::config limits = limits_for(60);
    limits.min_sparse_context = 1000;
    device_player<std::remove_const_t<decltype(moved)>> plays(three_heads, moved,
                                                              arena_limits(moved, limits, 1000, three_heads));
    plays.open(says);
    plays.play_plainly();
    const zoomr::arena_counts counts = plays.cache.tiers();
    CHECK(
        (counts.misses >= 3 * 3 && counts.prefetched == counts.misses && counts.prefetched_hits == counts.prefetched));
  };
  check(quest_by_kv_head);  // all of it is attended
  check(quest_by_head);
  check(small::snapkv);
}

TEST_CASE("arenas have whole pages of frames, within the bytes that they are given") {
  const auto moved = with_placement(quest_by_kv_head, zoomr::tiered<>{});
  using moved_type = std::remove_const_t<decltype(moved)>;
  using cache_type = zoomr::device_cache<moved_type, float, 8, 2>;
  using core_type = zoomr::detail::device_core<moved_type, float>;
  const zoomr::detail::any_policy_of<moved_type> policy(moved);
  zoomr::config limits = arena_limits(moved, limits_for(tokens), 1, three_heads);
  const zoomr::byte_count page = 2 * 3 * 16 * 8 * 4 + 3 * zoomr::device_arena<float>::frame_bytes;
  const zoomr::byte_count least = limits.tiers.device;
  for (const index_t more : {0, 1, 2, 7}) {
    for (const zoomr::byte_count odd : {zoomr::byte_count{0}, page - 1}) {
      limits.tiers.device = least + more * page + odd;
      CHECK(core_type::sized(three_heads, policy, limits, 3).arena_frames == 3 * (1 + more));
      CHECK(cache_type::bytes(three_heads, moved, limits, 3) <= limits.tiers.device);
    }
  }
  limits.tiers.device = least + 1000 * page;  // 2 layers of all pages
  CHECK(core_type::sized(three_heads, policy, limits, 3).arena_frames == 3 * 2 * zoomr::pages_for(tokens));
}

TEST_CASE("places, blocks and entries of single KV heads are counted up to the last that fits") {
  using sizes_type = zoomr::detail::device_sizes;
  zoomr::detail::common_arrays<float> a;
  a.sizes.model = {4, 10, 5, 8};
  a.sizes.pages = sizes_type::most_tiered;
  a.sizes.page_parts = 5, a.sizes.part_bits = 3;
  a.sizes.strides = {a.sizes.page_numbers(), 16 * 8, 8};
  a.arena.frames = a.sizes.frames_in(std::int64_t{1} << 40);
  CHECK((a.arena.frames % 5 == 0 && a.arena.frames <= sizes_type::most_tiered));
  CHECK(a.arena.frames > sizes_type::most_tiered - 5);
  std::vector<float> numbers(64);
  const float* const host = numbers.data() + 32;
  const index_t end = a.host_place(0) * 16;
  REQUIRE(end > 0);
  const zoomr::tiered_layer<float> stored(a.in_block(numbers.data()).read_only(), host, end, a.sizes.part_bits);
  const std::int64_t page = a.sizes.page_numbers();
  for (const index_t frame : {0, 1, 4, 5, 7, 12344, a.arena.frames - 1}) {
    CAPTURE(frame);
    const index_t place = a.place_of(frame);
    REQUIRE((place >= 0 && place < a.host_place(0)));
    for (const index_t kv_head : {0, 4}) {
      CHECK(stored.offset(place << 4 | 3, kv_head) == frame / 5 * page + frame % 5 * 128 + 3 * 8);
    }
  }
  for (const index_t of : {0, 1, a.sizes.pages - 1}) {
    const std::int64_t place = std::int64_t{a.host_place(of)} << 4 | 15;
    REQUIRE(place < zoomr::unlimited);
    CHECK(stored.offset(static_cast<index_t>(place), 2) == of * page + 2 * 128 + 15 * 8 + 32);
  }

  const auto problem = [](const auto& policy, const shape& of, const zoomr::config& limits) {
    const zoomr::detail::any_policy_of<std::remove_cvref_t<decltype(policy)>> any(policy);
    const char* found = sizes_type::tiers_problem(of, any, limits);
    return std::string(found == nullptr ? "" : found);
  };
  zoomr::config limits = limits_for(tokens);
  limits.pool_tokens = 1 << 29;  // 2^25 pages
  CHECK(problem(quest_by_kv_head, {31, 4, 2, 8}, limits) == "");
  CHECK(problem(quest_by_kv_head, {32, 4, 2, 8}, limits).find("fewer than 2^31 blocks") != std::string::npos);
  CHECK(problem(small::full, {32, 4, 2, 8}, limits) == "");
  CHECK(problem(small::full, {64, 4, 2, 8}, limits).find("fewer than 2^31 blocks") != std::string::npos);
  limits.pool_tokens += 16;
  CHECK(problem(small::full, {1, 4, 2, 8}, limits).find("at most 2^25 pages") != std::string::npos);
  limits.pool_tokens = 1 << 20;
  limits.max_tokens = 1 << 29, limits.max_sequences = 32;
  CHECK(problem(small::full, {1, 4, 2, 8}, limits) == "");
  CHECK(problem(quest_by_kv_head, {1, 4, 2, 8}, limits).find("must be less than 2^31") != std::string::npos);
  limits.max_sequences = 31;
  CHECK(problem(quest_by_kv_head, {1, 4, 2, 8}, limits) == "");
}

}  // namespace zoomr_test
