// SPDX-License-Identifier: Apache-2.0
// How pages come is a matter of time alone; and what calibration finds follows from the times that it has taken.
#include <bench/tools/calibration.cuh>
#include <cache/device/tiers/arena_limits.hpp>
#include <cache/support/small_policies.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

#include <numeric>  // std::iota

namespace zoomr_test {
namespace {

template <class Policy>
void check_plans(const Policy& policy, markup text) {
  const tape says = make_tape(model, kind::peaked, text, 60, 40, 31);
  const zoomr::config limits = limits_for(60);
  const auto moved = with_placement(policy, zoomr::tiered<>{});
  const auto played = [&](const auto& of, const zoomr::config& with, zoomr::arena_counts* counts) {
    device_player<std::remove_cvref_t<decltype(of)>> plays(model, of, with);
    plays.open(says);
    plays.play_plainly();
    if constexpr (zoomr::tiered_placement<decltype(of.placement)>) *counts = plays.cache.tiers();
    return plays.at(0).log;
  };
  const auto resident = played(policy, limits, nullptr);
  const zoomr::config tiers = arena_limits(moved, limits, 6);
  zoomr::arena_counts before;
  CHECK(difference(resident, played(moved, tiers, &before)) == "");
  for (const index_t blocks : {1, 3, 5000}) {
    CAPTURE(blocks);
    const scoped_plan plan({.fetch_blocks = blocks});
    zoomr::arena_counts counts;
    CHECK(difference(resident, played(moved, tiers, &counts)) == "");
    CHECK((counts.hits == before.hits && counts.misses == before.misses && counts.in_place == before.in_place));
    CHECK((counts.prefetched == before.prefetched && counts.prefetched > 0));
  }
  const scoped_plan plan({.fetches = false});
  zoomr::arena_counts counts;
  CHECK(difference(resident, played(moved, tiers, &counts)) == "");
  CHECK(counts.misses == before.hits + before.misses);
  CHECK((counts.in_place == counts.misses && counts.hits == 0 && counts.prefetched == 0));
}

std::string refusal(index_t kv_heads, double reads, void* memory, void* details) {
  try {
    zoomr::calibrate_transfers<float, 8, 2, float>(kv_heads, reads, memory, details, zoomr::stream_ref{});
    return "";
  } catch (const zoomr::precondition_error& problem) {
    return problem.what();
  }
}

}  // namespace

TEST_CASE("a plan changes no bits, and one without fetching reads everything where it lies") {
  check_plans(small::full, markup::stray);
  check_plans(small::zoomr_focus, markup::pairs);
}

TEST_CASE("a plan without blocks is refused") {
  const scoped_plan plan({.fetch_blocks = 0});
  const auto moved = with_placement(small::full, zoomr::tiered<>{});
  using player_type = device_player<std::remove_const_t<decltype(moved)>>;
  CHECK_THROWS_WITH_AS(player_type(model, moved, arena_limits(moved, limits_for(tokens), 4)),
                       doctest::Contains("at least one block that fetches"), zoomr::precondition_error);
}

TEST_CASE("fetching pays from so many reads on as make up for the way") {
  const zoomr::page_times same_way{.fetch = 10, .on_device = 1, .in_place = 10};
  CHECK(!same_way.fetching_pays(1));
  CHECK(same_way.fetching_pays(2));
  const zoomr::page_times slow_copies{.fetch = 30, .on_device = 1, .in_place = 10};
  CHECK(!slow_copies.fetching_pays(3.3));
  CHECK(slow_copies.fetching_pays(3.4));
  const zoomr::page_times slow_readers{.fetch = 10, .on_device = 1, .in_place = 12};
  CHECK(slow_readers.fetching_pays(1));
  CHECK(!zoomr::page_times{.fetch = 1, .on_device = 5, .in_place = 5}.fetching_pays(1e9));
}

TEST_CASE("as few blocks copy as take no more than 5 % longer than the best") {
  CHECK(zoomr::calibration::few_blocks({9, 5, 3, 2, 1.04, 1}) == 128);
  CHECK(zoomr::calibration::few_blocks({9, 5, 3, 2, 1.06, 1}) == 256);
  CHECK(zoomr::calibration::few_blocks({1, 1, 1, 1, 1, 1}) == 8);
  CHECK(zoomr::calibration::few_blocks({3, 1, 2, 2, 2, 2}) == 16);
  CHECK(zoomr::calibration::few_blocks({0, 0, 0, 0, 0, 0}) == 8);
}

TEST_CASE("calibration copies and reads all of its pages, and nothing beside them") {
  constexpr std::size_t count = 7, numbers = 2 * 2 * 16 * 8;
  std::vector<float> sent(count * numbers);
  std::iota(sent.begin(), sent.end(), 1.0f);
  for (const unsigned blocks : {1u, 3u, 20u}) {
    device_array<float> from(sent), to(count * numbers + 1, -1.0f);
    zoomr::launch({dim3(blocks), dim3(64)}, zoomr::stream_ref{}, zoomr::calibration::copy_pages_kernel<float>,
                  static_cast<const float*>(from.data()), to.data(), static_cast<index_t>(count),
                  static_cast<std::int64_t>(numbers));
    std::vector<float> came = to.values();
    CHECK(came.back() == -1.0f);
    came.pop_back();
    CHECK(came == sent);
  }
  const zoomr::byte_count bytes = zoomr::calibration_bytes<float, 8, 2, float>(1, 3);
  const zoomr::byte_count host_bytes = zoomr::calibration_host_bytes<float, 8>(1);
  CHECK(host_bytes == 256 * 2 * 16 * 8 * 4);
  zoomr::pinned_memory details(host_bytes + 1);
  std::memset(details.data(), 0x5a, static_cast<std::size_t>(host_bytes + 1));
  device_array<std::byte> memory(bytes + 512, std::byte{0x5a});
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  std::byte* const aligned = memory.data() + (256 - at % 256) % 256;
  for (const double reads : {1.0, 1e6}) {
    const auto found =
        zoomr::calibrate_transfers<float, 8, 2, float>(1, reads, aligned, details.data(), zoomr::stream_ref{}, 3);
    const auto& known = zoomr::calibration::block_counts;
    CHECK(std::find(known.begin(), known.end(), found.plan.fetch_blocks) != known.end());
    CHECK((found.times.fetch > 0 && found.times.on_device > 0 && found.times.in_place > 0));
    CHECK(found.plan.fetches == found.times.fetching_pays(reads));
  }
  const std::vector<std::byte> all = memory.values();
  const auto end = static_cast<std::size_t>(aligned - memory.data()) + static_cast<std::size_t>(bytes);
  CHECK(std::all_of(all.begin() + static_cast<std::ptrdiff_t>(end), all.end(),
                    [](std::byte each) { return each == std::byte{0x5a}; }));
  CHECK(static_cast<std::byte*>(details.data())[host_bytes] == std::byte{0x5a});

  for (const auto& [kv_heads, reads] : {std::pair{0, 1.0}, {1, 0.5}}) {
    CHECK(refusal(kv_heads, reads, aligned, details.data()).find("must be at least 1") != std::string::npos);
  }
  CHECK(refusal(1, 1.0, nullptr, details.data()).find("there must be memory") != std::string::npos);
  CHECK(refusal(1, 1.0, aligned, nullptr).find("there must be memory") != std::string::npos);
}

}  // namespace zoomr_test
