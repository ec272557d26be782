// SPDX-License-Identifier: Apache-2.0
// Voters who do not know, on the device: the same choices as the host's.
#include <cache/device/device_against_host.hpp>
#include <cache/support/small_policies.hpp>
#include <support/stride.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

template <class Policy>
auto flat_above(const Policy& policy, float bits) {
  return with(policy, [&](auto& p) { p.select.flat = bits; });
}

}  // namespace

TEST_CASE("a flat posterior goes on by summaries: chunks, dropped steps and rollbacks, as for a graph too") {
  constexpr kind looks[] = {kind::uniform, kind::peaked, kind::ties, kind::with_infinities};
  for (const std::uint64_t seed : seeds_from(1, 4)) {
    check(small::unsure_voters, looks[seed % 4], markup::sentences, seed, seed == 3);
    check(small::thoughts_or_votes, looks[seed % 4], markup::pairs, seed, seed == 2);
  }
  check_together(small::unsure_voters, 1, 1);
}

TEST_CASE("at any threshold") {
  for (const float flat : {0.0f, 1.0f, zoomr::infinity}) {
    CAPTURE(flat);
    check(flat_above(small::unsure_voters, flat), kind::peaked, markup::sentences, 5);
  }
}

}  // namespace zoomr_test
