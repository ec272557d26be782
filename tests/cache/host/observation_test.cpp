// SPDX-License-Identifier: Apache-2.0
// What a KV lane keeps, when the ratings are given: ties, NaN, sinks and last tokens.
#include <zoomr/cache/host/eviction/observation.hpp>
#include <zoomr/policy/any_policy_of.hpp>
#include <zoomr/policy/compose.hpp>
#include <zoomr/policy/evict/accumulated_attention.hpp>
#include <zoomr/policy/evict/observation_window.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::fill
#include <vector>     // std::vector

namespace zoomr::detail {
namespace {

using slots = std::vector<index_t>;

slots kept_of(std::vector<float> received, index_t keep, index_t recent, index_t sinks) {
  const auto tokens = static_cast<index_t>(received.size());
  observation observed({1, 1, 1, 8}, tokens, false);
  slots kept(static_cast<std::size_t>(keep));
  const accumulated_attention evict{.tokens = keep, .recent = recent};
  observed.choose(any_evictor_of<accumulated_attention>(evict), view<const float, 2>(received.data(), {1, tokens}), 1,
                  sinks, kept);
  return kept;
}

TEST_CASE("ties go to the lower slot, NaN goes first, and what is kept ascends") {
  CHECK(kept_of({2, 2, 2, 2, 2, 0}, 3, 1, 0) == slots{0, 1, 5});
  CHECK(kept_of({1, 3, 2, 3, 0, 0}, 3, 1, 0) == slots{1, 3, 5});
  CHECK(kept_of({1, not_a_number, 2, 3, 0, 0}, 5, 1, 0) == slots{0, 2, 3, 4, 5});
  CHECK(kept_of({not_a_number, not_a_number, not_a_number, 1}, 3, 1, 0) == slots{0, 1, 3});
}

TEST_CASE("pinned tokens are kept before all others, whatever they have received, in the slots that they have") {
  constexpr accumulated_attention evict{.tokens = 4, .recent = 1};
  const any_policy_of policy(compose(evict));
  token_state state(policy, 10, 1, 10);
  for (const index_t t : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    state.add(policy.segment, t == 3 || t == 7 ? token_class::pinned : token_class::plain, false);
  }
  const slots positions{0, 3, 5, 7, 9};
  const float received[] = {5, not_a_number, 4, 0, 0};
  observation observed({1, 1, 1, 8}, 5, false);
  slots kept(4);
  observed.choose(any_evictor_of<accumulated_attention>(evict), view<const float, 2>(received, {1, 5}), 1, 0, kept,
                  pinned_tokens(state), {view<const index_t>(positions), 10});
  CHECK(kept == slots{0, 1, 3, 4});
}

TEST_CASE("sinks and last tokens are kept whatever they have received, sinks as far as there is room") {
  CHECK(kept_of({0, 0, 9, 9, 9, 0, 0}, 5, 2, 2) == slots{0, 1, 2, 5, 6});
  CHECK(kept_of({0, 0, 9, 9, 9, 0, 0}, 3, 2, 5) == slots{0, 5, 6});
  CHECK(kept_of({9, 9, 9, 0}, 1, 1, 4) == slots{3});
  CHECK(kept_of({9, 9, 9, 0, 0}, 2, 2, 0) == slots{3, 4});
}

TEST_CASE("one query pays each token of its context its share, and nothing beyond") {
  observation observed({1, 1, 1, 8}, 4, false);
  std::vector<float> memory(page_tokens * 8, 0.0f);
  memory[8] = 3.0f;  // the key of slot 1
  const std::vector<index_t> pages{0};
  const paged_kv_lane<float> kv_lane{memory.data(), 0, {8, 8, 8, 8, 0}, view<const index_t>(pages)};
  const std::vector<float> query(8, 1.0f);
  const view<float> sums = observed.sums(0, 4);
  std::fill(sums.begin(), sums.end(), 1.0f);
  observed.add(kv_lane, view<const float, 2>(query.data(), {1, 8}), 3, 1 / std::sqrt(8.0f));
  const double weight = std::exp(3.0 / std::sqrt(8.0));
  CHECK(sums[0] == doctest::Approx(1 + 1 / (2 + weight)));
  CHECK(sums[1] == doctest::Approx(1 + weight / (2 + weight)));
  CHECK(sums[2] == sums[0]);
  CHECK(sums[3] == 1.0f);
}

}  // namespace
}  // namespace zoomr::detail
