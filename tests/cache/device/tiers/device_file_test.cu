// SPDX-License-Identifier: Apache-2.0
// A device cache over pinned memory with a file behind it has the bits of one whose pages all lie on the device,
// however few lie in pinned memory. What has no room there is refused, and a file that fails loses nothing.
#include <cache/device/tiers/device_tiers.hpp>
#include <cache/device/tiers/file_limits.hpp>
#include <cache/support/small_policies.hpp>
#include <support/file_calls.hpp>
#include <support/temporary_folder.hpp>
#include <zoomr/device_transfer.cuh>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

inline constexpr auto kv_head_asks = with(small::quest, [](auto& p) { p.aggregate.per = zoomr::scope::kv_head; });

/// Plays of a cache whose pages all lie on the device, and of caches with little pinned memory, and with
/// enough for all pages. The bits are the same, and only the last one never uses its file.
/// @param seed  of the order in which streams work
/// @param play  play(player, policy)
template <class Policy, class Play>
void check_file(const Policy& policy, const shape& of, const std::vector<tape>& says, zoomr::config limits,
                std::uint64_t seed, Play play, bool fixed = false, bool prefetch = true) {
  INFO("seed ", seed);
#if defined(ZOOMR_SIMT)
  simt::settings how = simt::how;
  how.streams = static_cast<simt::schedule>(seed % 3);
  const simt::scoped_settings until_then(how);
#endif
  const auto opened = [&](auto& plays) {
    plays.cache.fixed = fixed;
    for (const tape& each : says) plays.open(each);
  };
  device_player<Policy> resident(of, policy, limits);
  opened(resident);
  play(resident, policy);
  auto moved = with_placement(policy, zoomr::tiered<>{});
  moved.placement.prefetch = prefetch;
  temporary_folder folder;
  zoomr::arena_statistics stats;
  const auto play_with = [&](std::int64_t blocks, index_t room) {
    const std::string path = folder.path();
    device_player<decltype(moved)> plays(of, moved, file_limits(moved, limits, blocks, room, path.c_str(), of));
    opened(plays);
    play(plays, moved);
    REQUIRE(resident.voices.size() == plays.voices.size());
    for (index_t v = 0; v < static_cast<index_t>(plays.voices.size()); ++v) {
      same_bits(resident.at(v).log, plays.at(v).log);
    }
    plays.cache.cache().expect_pages_came();
    stats = plays.cache.cache().tiers(plays.cache.tiers());
  };
  const std::int64_t all = all_blocks(limits, of);
  const std::int64_t enough =
      enough_blocks(least_blocks(limits, of, prefetch), all, [&](std::int64_t blocks) { play_with(blocks, 5); });
  CAPTURE(enough);
  CHECK(enough < all);
  CHECK((stats.file_in > 0 && stats.file_out > 0));
  CHECK(stats.file_in % page_bytes(of) == 0);
  play_with(all, 1);
  CHECK((stats.file_in == 0 && stats.file_out == 0));
}

/// One sequence with everything that can happen to it.
template <class Policy>
void check_wildly(const Policy& policy, kind look, markup text, std::uint64_t seed, bool fixed = false,
                  bool prefetch = true) {
  const shape deep{6, 4, 2, 8};
  const tape says = make_tape(deep, look, text, tokens, static_cast<index_t>(20 + seed * 7 % 20), seed);
  const auto play = [&](auto& plays, const auto& with) { play_wildly(plays, with, seed); };
  check_file(policy, deep, {says}, limits_for(tokens), seed, play, fixed, prefetch);
}

/// Two sequences in turn, some tokens of each.
template <class Policy>
void check_in_turn(const Policy& policy, markup text, std::uint64_t seed, bool fixed = false) {
  const shape three{3, 4, 2, 8};
  const std::vector<tape> says{make_tape(three, kind::peaked, text, 80, 40, seed),
                               make_tape(three, kind::uniform, text, 80, 33, seed + 1)};
  const auto play = [&](auto& plays, const auto&) {
    for (index_t to = 41; to < 90; to += 13) plays.play_plainly(0, to), plays.play_plainly(1, to + 5);
  };
  zoomr::config limits = limits_for(80, 2);
  limits.pool_tokens = 14 * 16;
  check_file(policy, three, says, limits, seed, play, fixed);
}

}  // namespace

TEST_CASE("full, and choices for all layers, as for a graph") {
  check_wildly(small::full, kind::uniform, markup::stray, 1);
  check_wildly(small::zoomr_mass, kind::uniform, markup::pairs, 3, true);
}
TEST_CASE("choices of each KV head, whose blocks are parts of pages") {
  check_wildly(kv_head_asks, kind::peaked, markup::stray, 8, true, false);
}
TEST_CASE("tokens are evicted in pinned memory, from which another sequence goes meanwhile") {
  check_in_turn(small::snapkv, markup::stray, 10);
  check_in_turn(small::sentence_kv, markup::sentences, 11);
  check_in_turn(small::h2o, markup::stray, 14, true);
}

TEST_CASE("a page that forks share comes from the file before one of them writes there") {
  const shape three{3, 4, 2, 8};
  const std::vector<tape> says{make_tape(three, kind::peaked, markup::sentences, 80, 30, 41),
                               make_tape(three, kind::uniform, markup::sentences, 80, 33, 42)};
  const tape end = with_other_end(says[0], 41, says[0].prompt, 43);
  const auto play = [&](auto& plays, const auto&) {
    plays.play_plainly(0, 41);
    fork(plays, 0, end);
    plays.play_plainly(1);  // for which all pages of the others make room
    plays.play_plainly(2), plays.play_plainly(0);
  };
  check_file(small::quest, three, says, limits_for(80, 3), 15, play);
}

TEST_CASE("a sequence moves to the host and back, while others lie in the file") {
  const shape six{6, 4, 2, 8};  // more pages move than pinned memory holds
  const std::vector<tape> says{make_tape(six, kind::peaked, markup::sentences, 80, 40, 21),
                               make_tape(six, kind::uniform, markup::sentences, 80, 33, 22)};
  const zoomr::config limits = limits_for(80, 2);
  auto moved = with_placement(kv_head_asks, zoomr::tiered<>{});
  moved.placement.prefetch = false;
  player<std::remove_const_t<decltype(kv_head_asks)>> alone(six, kv_head_asks, limits), host(six, kv_head_asks, limits);
  temporary_folder folder;
  const std::string path = folder.path();
  const zoomr::config filed = file_limits(moved, limits, 3 * 6 + 5, 4, path.c_str(), six);
  device_player<decltype(moved)> device(six, moved, filed);
  for (const tape& each : says) alone.open(each), device.open(each);
  for (index_t to : {44, 58, 80}) {
    for (index_t v : {0, 1}) alone.play_plainly(v, to), device.play_plainly(v, to);
    if (to == 80) break;
    auto& cache = device.cache.cache();
    host.voices = {device.at(0)};
    host.at(0).seq = zoomr::to_host(cache, device.at(0).seq, host.cache, zoomr::stream{});
    cache.close(device.at(0).seq);
    host.play_plainly(0, to + 5), alone.play_plainly(0, to + 5);
    device.at(0).seq = zoomr::to_device(host.cache, host.at(0).seq, cache, zoomr::stream{});
    device.at(0).log = host.at(0).log;
    host.cache.close(host.at(0).seq);
  }
  for (index_t v : {0, 1}) compare(alone.at(v).log, device.at(v).log);
  CHECK(device.cache.cache().tiers({}).file_in > 0);
}

TEST_CASE("a step whose pages did not come is rolled back, and nothing is lost") {
  const shape three{3, 4, 2, 8};
  const std::vector<tape> says{make_tape(three, kind::peaked, markup::sentences, 80, 40, 31),
                               make_tape(three, kind::uniform, markup::sentences, 80, 33, 32)};
  const zoomr::config limits = limits_for(80, 2);
  const auto moved = with_placement(small::quest, zoomr::tiered<>{});
  using player_type = device_player<std::remove_const_t<decltype(moved)>>;
  player<std::remove_const_t<decltype(small::quest)>> alone(three, small::quest, limits);
  for (const tape& each : says) alone.open(each);
  for (index_t v : {0, 1}) alone.play_plainly(v);
  index_t failed = 0;
  for (const file_calls::fault how : {file_calls::fault::error, file_calls::fault::full}) {
    temporary_folder folder;
    const std::string path = folder.path();
    file_calls::now = {.path = path.c_str()};
    player_type device(three, moved, file_limits(moved, limits, 3 * 3 + 2 * 5, 4, path.c_str(), three));
    for (const tape& each : says) device.open(each);
    auto& cache = device.cache.cache();
    for (index_t v : {0, 1}) device.play_plainly(v, 41);
    for (index_t call = 0; !device.done(0) || !device.done(1); ++call) {
      for (index_t v : {0, 1}) {
        if (device.done(v)) continue;
        file_calls::now.made = 0, file_calls::now.fails = call % 5, file_calls::now.how = how;
        const index_t before = device.tokens(v);
        device.play({device.next(v, 1)});
        const bool went_wrong = file_calls::now.made > file_calls::now.fails;
        file_calls::now.fails = -1;
        const std::string said = sentence_of([&] { cache.expect_pages_came(); });
        REQUIRE((said != "") == went_wrong);
        if (!went_wrong) continue;
        CHECK(said.find("of the tier's file " + path + " cannot be ") != std::string::npos);
        CHECK(sentence_of([&] { cache.expect_pages_came(); }) == "");
        ++failed;
        device.rollback(v, before);
        device.play({device.next(v, 1)});
        CHECK(sentence_of([&] { cache.expect_pages_came(); }) == "");
      }
    }
    file_calls::now = {};
    for (index_t v : {0, 1}) compare(alone.at(v).log, device.at(v).log);
  }
  CHECK(failed > 20);
}

TEST_CASE("what cannot work over a file is refused with one sentence") {
  const auto moved = with_placement(small::quest, zoomr::tiered<>{});
  using cache_type = zoomr::device_cache<std::remove_const_t<decltype(moved)>, float, 8, 2>;
  const auto refused = [&](const zoomr::config& limits) {
    const std::string why = sentence_of([&] { cache_type::bytes(model, moved, limits, 3); });
    CHECK((why == "" || sentence_of([&] { cache_type::host_bytes(model, moved, limits); }) == why));
    return why;
  };
  temporary_folder folder;
  const std::string path = folder.path();
  const zoomr::config limits =
      file_limits(moved, limits_for(tokens, 4), 2 * 2 + 2 * zoomr::pages_for(tokens), 4, path.c_str());
  CHECK(refused(limits) == "");
  CHECK(cache_type::host_bytes(model, moved, limits) == limits.tiers.host);
  CHECK(cache_type::bytes(model, moved, limits, 3) <= limits.tiers.device);
  zoomr::config other = limits;
  --other.tiers.host;
  const std::string host = std::to_string(limits.tiers.host);
  CHECK(refused(other).find("must be at least " + host + ", for one layer of the longest") != std::string::npos);
  other = limits, --other.tiers.file;
  CHECK(refused(other).find("for all pages of the pool") != std::string::npos);
  other = limits, other.tiers.path = nullptr;
  CHECK(refused(other).find("tiers.file needs tiers.path") != std::string::npos);
  other = limits, other.tiers.host = zoomr::byte_count{1} << 50;
  CHECK(cache_type::host_bytes(model, moved, other) ==
        (all_blocks(limits, model) + zoomr::pinned_spares) * page_bytes(model));

  // A step that needs more than there is: the others go on.
  device_player<std::remove_const_t<decltype(moved)>> device(model, moved, limits);
  const tape says = make_tape(model, kind::uniform, markup::sentences, tokens, 70, 1);
  device.open(says), device.open(says);
  auto& cache = device.cache.cache();
  const std::vector<token_id> first = says.between(0, 70), some = says.between(0, 20);
  const std::string why = sentence_of([&] { cache.begin(device.at(0).seq, view<const token_id>(first)); });
  CHECK(why.find("the step needs 20 pages of one layer in pinned memory at a time, there is room for 14: raise "
                 "config.tiers.host") != std::string::npos);
  CHECK(cache.tokens(device.at(0).seq) == 0);
  device.play({{0, some, false}});
  CHECK(cache.tokens(device.at(0).seq) == 20);

  const std::string nowhere = folder.path() + "/not/there";
  zoomr::config without = limits;
  without.tiers.path = nowhere.c_str();
  using player_type = device_player<std::remove_const_t<decltype(moved)>>;
  CHECK(sentence_of([&] { player_type none(model, moved, without); }).find("cannot be made") != std::string::npos);
}

}  // namespace zoomr_test
