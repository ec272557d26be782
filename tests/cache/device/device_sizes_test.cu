// SPDX-License-Identifier: Apache-2.0
// What a device cache says that it needs: for any config it is right in magnitude, or refused; nothing wraps.
#include <cache/support/small_policies.hpp>
#include <zoomr/device_cache.cuh>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <support/inputs.hpp>

#include <algorithm>  // std::clamp, std::min
#include <cmath>      // std::floor
#include <string>     // std::string

namespace zoomr_test {
namespace {

constexpr index_t head_dim = 64;
constexpr index_t query_heads = 2;

index_t any_count(dice& random, index_t most) {
  const std::int64_t made = (std::int64_t{1} << random.between(0, 31)) + random.between(-1, 2);
  return static_cast<index_t>(std::clamp<std::int64_t>(random.chance(15) ? most : made, 1, most));
}

/// The largest arrays of a device cache of floats, in a number that does not wrap.
template <class Policy>
long double largest_arrays(const shape& m, const Policy& policy, const zoomr::config& c) {
  using real = long double;
  const real tokens = c.max_tokens, sequences = c.max_sequences, undo = std::min(c.rollback_tokens, c.max_tokens);
  const real asked = std::same_as<decltype(policy.segment), zoomr::unsegmented> ? 0 : c.most_segments();
  const real segments = [&] {
    if constexpr (std::same_as<decltype(policy.segment), zoomr::fixed_pages>) {
      return std::min(asked, std::floor(real{1} * c.max_tokens / policy.segment.longest));
    }
    return asked;
  }();
  const real decoding = std::min(real{1} * c.max_batched_tokens, sequences * c.max_draft_tokens);
  const real query = real{1} * m.layers * m.heads * head_dim;
  real made = real{1} * zoomr::pages_for(c.pool()) * 16 * 2 * m.kv_lanes() * head_dim * 4;
  if constexpr (Policy::selects) {
    made += sequences * m.kv_lanes() * segments * head_dim * decltype(policy.summarize)::summary::rows * 4;
    if (decltype(policy.query)::sums) made += sequences * (undo + 1 + c.max_draft_tokens) * query * 4;
    made += decoding * m.heads * segments * 4;
  }
  if constexpr (decltype(policy.evict)::observes) {
    if (policy.evict.kept(c.max_tokens) < c.max_tokens && decltype(policy.evict)::accumulates) {
      made += 2 * sequences * m.layers * m.heads * tokens * 4;
    }
  }
  return made;
}

template <class Policy>
void check_sizes(const char* name, const Policy& policy) {
  using cache_type = zoomr::device_cache<Policy, float, head_dim, query_heads>;
  CAPTURE(std::string(name));
  dice random(32);
  index_t accepted = 0;
  index_t too_large = 0;
  index_t too_many = 0;
  for (index_t round = 0; round < 4000; ++round) {
    CAPTURE(round);
    shape m{any_count(random, 1024), 0, any_count(random, 512), head_dim};
    m.heads = m.kv_heads * query_heads;
    zoomr::config c;
    const bool moderate = random.chance(50);  // so that most numbers are numbers
    c.max_sequences = any_count(random, moderate ? 64 : 1 << 30);
    c.max_tokens = any_count(random, 1 << 30);
    c.pool_tokens = random.chance(50) ? 0 : any_count(random, zoomr::unlimited);
    c.max_segments = random.chance(50) ? 0 : any_count(random, moderate ? 1 << 20 : zoomr::unlimited);
    c.max_batched_tokens = any_count(random, moderate ? 1 << 16 : zoomr::unlimited);
    c.max_draft_tokens = any_count(random, moderate ? 64 : zoomr::unlimited);
    c.rollback_tokens = random.chance(30) ? 0 : any_count(random, moderate ? 1 << 20 : zoomr::unlimited);
    const long double least = largest_arrays(m, policy, c);
    try {
      const auto needed = static_cast<long double>(cache_type::bytes(m, policy, c));
      REQUIRE(needed >= least);
      REQUIRE(needed < 0x1p60L);
      ++accepted;
    } catch (const zoomr::precondition_error& why) {
      if (std::string(why.what()) == "zoomr: config: a cache of this shape would need 2^60 bytes or more") {
        ++too_large;
      } else {
        REQUIRE(std::string(why.what()).find("must be less than 2^31") != std::string::npos);
        REQUIRE(!moderate);
        ++too_many;
      }
    }
  }
  CHECK(accepted > 500);
  CHECK(too_large > 20);
  CHECK(too_many > 200);
}

}  // namespace

TEST_CASE("bytes of a device cache are right for any config, or refused: nothing wraps") {
  check_sizes("quest", small::quest);
  check_sizes("by_kv_head", small::by_kv_head);
  check_sizes("h2o", small::h2o);
}

TEST_CASE("pinned memory of a tiered placement, too") {
  const auto policy = with_placement(small::full, zoomr::tiered<>{});
  using cache_type = zoomr::device_cache<std::remove_const_t<decltype(policy)>, float, head_dim, query_heads>;
  zoomr::config limits;
  limits.max_tokens = 1 << 30;
  limits.max_sequences = 1;
  CHECK(cache_type::host_bytes({1, 2, 1, head_dim}, policy, limits) == (zoomr::byte_count{1} << 30) * 2 * head_dim * 4);
  limits.pool_tokens = zoomr::unlimited;
  CHECK(cache_type::host_bytes({1024, 1024, 512, head_dim}, policy, limits) == zoomr::byte_count{1} << 59);
}

}  // namespace zoomr_test
