// SPDX-License-Identifier: Apache-2.0
// Indexes so long that blocks share the scoring of a row: the last one to come makes the choice.
#include <cache/device/device_against_host.hpp>
#include <cache/support/small_policies.hpp>
#include <support/mutations.hpp>
#include <support/nightly.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

/// A long prompt, and some tokens and drafts after it, on the host and the device.
/// @param blocks  that share a row in the end
template <class Policy>
void check_long(const Policy& policy, markup text, std::uint64_t seed, index_t blocks) {
  constexpr index_t all = 920, prompt = 906;
  const tape says = make_tape(model, kind::peaked, text, all, prompt, seed);
  const zoomr::config limits = limits_for(all);
  player<Policy> host(model, policy, limits);
  device_player<Policy> device(model, policy, limits);
  host.open(says);
  device.open(says);
  const auto play = [&](auto& plays) {
    plays.play_plainly(0, prompt + 3);
    while (!plays.done(0)) plays.play({plays.next(0, 4)});
  };
  play(host), play(device);
  const index_t segments = host.cache.segments(host.at(0).seq).size();
  CHECK((segments + 63) / 64 >= blocks);  // layer_kernel.cuh
  CHECK(host.second_passes == device.second_passes);
  compare(host.at(0).log, device.at(0).log);
}

// rows of a choice: of a layer, of all layers, of a KV head, of a head
constexpr auto pages = with(small::quest, [](auto& p) { p.segment.longest = 4, p.select.segments = 9; });
constexpr auto for_all =
    with(small::zoomr_one_pass, [](auto& p) { p.segment.longest = 6, p.segment.prompt_piece = 4; });
constexpr auto by_mass = with(small::zoomr_mass, [](auto& p) { p.segment.longest = 6, p.segment.prompt_piece = 4; });
constexpr auto each_kv_head = with(small::sentence_kv, [](auto& p) { p.segment.longest = 3, p.evict.tokens = 700; });
constexpr auto heads_apart =
    with(small::sentence_kv_published, [](auto& p) { p.segment.longest = 3, p.evict.tokens = 700; });

}  // namespace

TEST_CASE("blocks share a row of scoring, and the last one chooses what the host chooses") {
  check_long(pages, markup::sentences, 1, 3);
  check_long(for_all, markup::pairs, 2, 3);
  check_long(by_mass, markup::pairs, 3, 3);
  check_long(each_kv_head, markup::sentences, 4, 3);
  ZOOMR_NIGHTLY(check_long(heads_apart, markup::sentences, 5, 3));
  check_long(small::by_kv_head, markup::sentences, 6, 2);
  ZOOMR_NIGHTLY(check_long(small::sentence_voters, markup::sentences, 8, 3));
}

TEST_CASE("whichever block comes last") {
  in_all_orders([&](const std::string& order) {
    INFO(order);
    check_long(each_kv_head, markup::sentences, 7, 3);
  });
}

}  // namespace zoomr_test
