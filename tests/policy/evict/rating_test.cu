// SPDX-License-Identifier: Apache-2.0
// A block rates tokens, and updates importance, as the host does: the same bits.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>
#include <zoomr/policy/evict/accumulated_attention.hpp>
#include <zoomr/policy/evict/observation_window.hpp>
#include <zoomr/policy/evict/redundancy_aware.cuh>

namespace zoomr {

namespace {

using zoomr_test::device_array;

/// What lanes hold: keys of which some repeat others, of which some are no numbers.
struct lane {
  index_t group = 1;
  index_t tokens = 1;
  index_t head_dim = 8;
  index_t scored = 1;
  index_t queries = 3;
  std::vector<float> received;  // [group, tokens]
  std::vector<float> keys;      // [tokens, head_dim]
};

lane random_kv_lane(std::uint64_t seed, index_t group, index_t tokens, index_t head_dim, bool odd) {
  unit::random random(seed);
  lane made{group, tokens, head_dim, tokens - random.below(std::min(tokens, 5)), 3, {}, {}};
  made.received = random.floats(unit::size(group * tokens), 0.0f, 1.0f);
  const auto some = random.floats(unit::size(4 * head_dim));
  for (index_t t = 0; t < tokens; ++t) {
    const bool again = random.chance(0.3);
    const bool zero = random.chance(0.02);
    const auto from = unit::size(random.below(4) * head_dim);
    for (index_t d = 0; d < head_dim; ++d) {
      const float own = random.uniform(-1.0f, 1.0f);
      const float key = again ? 3.0f * some[from + unit::size(d)] + 0.1f * own : own;
      made.keys.push_back(zero ? 0.0f : odd && random.chance(0.003) ? not_a_number : key);
    }
  }
  if (odd) made.received[unit::size(random.below(group * tokens))] = not_a_number;
  return made;
}

template <class Evictor>
__global__ void rate_with(Evictor evict, kv_lane_attention seen, view<float> importance) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  rate(evict, seen, importance, block);
}

template <class Evictor>
__global__ void update_with(Evictor evict, view<const observed_query> observed, view<float> received) {
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  for (index_t q = 0; q < observed.size(); ++q) {
    update_importance(evict, observed[q], received.slice(0, observed[q].keys.extent(0)), block);
    __syncthreads();
  }
}

bool same(const std::vector<float>& a, const std::vector<float>& b, index_t count) {
  for (std::size_t i = 0; i < unit::size(count); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (!both_nan && bits_as<std::uint32_t>(a[i]) != bits_as<std::uint32_t>(b[i])) return false;
  }
  return true;
}

template <class Evictor>
bool rates_the_same(const Evictor& evict, const lane& of, index_t threads) {
  std::vector<float> expected(unit::size(of.tokens), 7.0f);
  std::vector<float> keys = of.keys;
  kv_lane_attention seen{view<const float, 2>(of.received.data(), {of.group, of.tokens}),
                         view<float, 2>(keys.data(), {of.tokens, of.head_dim}), of.scored, of.queries};
  evict.rate(seen, expected);
  device_array<float> received(of.received), copied(of.keys);
  device_array<float> importance(of.tokens, 7.0f);
  seen.received = {received.data(), {of.group, of.tokens}};
  seen.keys = {copied.data(), {of.tokens, of.head_dim}};
  launch({dim3(1), dim3(static_cast<unsigned>(threads))}, stream_ref{}, &rate_with<Evictor>, evict, seen,
         importance.view());
  return same(importance.values(), expected, of.scored);
}

/// Queries of the group's first head, or of another.
template <class Evictor>
bool updates_the_same(const Evictor& evict, const lane& of, index_t count, index_t threads, index_t head = 0,
                      float scale = 0.0f, float soft_cap = 0.0f) {
  unit::random random(static_cast<std::uint64_t>(of.tokens));
  const index_t group = of.group;
  const std::vector<float> queries = random.floats(unit::size(count * group * of.head_dim));
  std::vector<float> expected(unit::size(of.tokens), 2.0f), work(expected.size());
  device_array<float> asked(queries), keys(of.keys), place(of.tokens, 0.0f), received(of.tokens, 2.0f);
  std::vector<observed_query> all;
  for (index_t q = 0; q < count; ++q) {
    const index_t seen = of.tokens - count + 1 + q;
    observed_query observed;
    observed.group = {queries.data() + q * group * of.head_dim, {group, of.head_dim}};
    observed.keys = {of.keys.data(), {seen, of.head_dim}};
    observed.position = 100 + q;
    observed.work = view<float>(work).slice(0, seen);
    observed.head = head;
    observed.earlier = of.tokens - count;
    observed.scale = scale, observed.logits.soft_cap = soft_cap;
    evict.update_importance(observed, view<float>(expected).slice(0, seen));
    observed.group = {asked.data() + q * group * of.head_dim, {group, of.head_dim}};
    observed.keys = {keys.data(), {seen, of.head_dim}};
    observed.work = place.view().slice(0, seen);
    all.push_back(observed);
  }
  device_array<observed_query> observed(all);
  launch({dim3(1), dim3(static_cast<unsigned>(threads))}, stream_ref{}, &update_with<Evictor>, evict,
         view<const observed_query>(observed.view()), received.view());
  return same(received.values(), expected, of.tokens);
}

}  // namespace

TEST_CASE("ratings have the bits of the host's") {
  std::uint64_t seed = 1;
  for (const index_t tokens : {1, 2, 31, 33, 64, 65, 150}) {
    const bool odd = seed % 3 == 0;
    ++seed;
    const lane of = random_kv_lane(seed, 1 + tokens % 3, tokens, seed % 2 == 0 ? 8 : 40, odd);
    CAPTURE(tokens);
    CHECK(rates_the_same(redundancy_aware{.pooling = 3}, of, 64));
    CHECK(rates_the_same(redundancy_aware{.mean_of_group = true, .attention = 0.6f, .similar = 0.9f}, of, 32));
    CHECK(rates_the_same(observation_window{.mean_of_group = odd}, of, 64));
    CHECK(rates_the_same(accumulated_attention{}, of, 64));
  }
  zoomr_test::in_all_orders([](const std::string& order) {
    CAPTURE(order);
    CHECK(rates_the_same(redundancy_aware{}, random_kv_lane(50, 2, 100, 16, false), 64));
  });
}

TEST_CASE("queries of a model with a scale and a cap of its own are observed as on the host") {
  for (const bool mean : {false, true}) {
    const lane of = random_kv_lane(41, 4, 70, 24, mean);
    CHECK(updates_the_same(redundancy_aware{.mean_of_group = mean}, of, 3, 64, 0, 0.4f));
    CHECK(updates_the_same(redundancy_aware{.mean_of_group = mean}, of, 3, 64, 0, 0.0f, 0.5f));
    CHECK(updates_the_same(redundancy_aware{.mean_of_group = mean}, of, 3, 32, 0, 0.9f, 2.0f));
  }
}

TEST_CASE("groups of queries are observed as on the host") {
  std::uint64_t seed = 120;
  for (const index_t tokens : {4, 33, 64, 100, 260}) {
    for (const index_t group : {1, 3}) {
      for (const bool mean : {false, true}) {
        CAPTURE(tokens);
        CAPTURE(group);
        ++seed;
        const lane of = random_kv_lane(seed, group, tokens, seed % 2 == 0 ? 8 : 40, seed % 3 == 0);
        CHECK(updates_the_same(redundancy_aware{.mean_of_group = mean}, of, std::min(tokens, 5), 64));
        CHECK(updates_the_same(redundancy_aware{}, of, 1, 32, group - 1));
      }
    }
  }
  zoomr_test::in_all_orders([](const std::string& order) {
    CAPTURE(order);
    CHECK(updates_the_same(redundancy_aware{}, random_kv_lane(90, 2, 150, 8, false), 5, 64));
  });
}

TEST_CASE("no barrier of rating and hearing can be left out") {
  const auto rating = [] { return rates_the_same(redundancy_aware{}, random_kv_lane(51, 2, 100, 16, false), 64); };
  CHECK(zoomr_test::barriers_not_missed(rating) == std::vector<std::string>{});
  const auto updating = [] {
    return updates_the_same(redundancy_aware{}, random_kv_lane(91, 2, 150, 8, false), 5, 64);
  };
  // between two queries, for updaters that read what another thread has added: this one does not
  CHECK(zoomr_test::barriers_not_missed(updating) == std::vector<std::string>{"rating_test.cu:60"});
}

}  // namespace zoomr
