// SPDX-License-Identifier: Apache-2.0
// What a block finds of the attention that tokens have received, and what it keeps for it, has the bits of the host's.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/device_memory.hpp>
#include <support/mutations.hpp>
#include <zoomr/cache/device/eviction/observation.cuh>
#include <zoomr/cache/host/eviction/observation.hpp>
#include <zoomr/policy/any_policy_of.hpp>
#include <zoomr/policy/evict/keep_all.hpp>
#include <zoomr/policy/evict/observation_window.hpp>

#include <cstring>  // std::memcmp

namespace foreign {

using zoomr::index_t;

/// Rates with all threads of the block in turn, from the last token on: other threads read what one has written.
struct backwards {
  using role = zoomr::role::evictor;
  static constexpr bool observes = true;
  static constexpr bool accumulates = false;
  static constexpr bool reads_keys = false;
  static constexpr bool while_decoding = false;
  index_t tokens = 4;

  constexpr index_t kept(index_t of) const { return tokens < of ? tokens : of; }
  constexpr index_t observed(index_t of) const { return of < 2 ? of : 2; }
  constexpr index_t safe(index_t of) const { return of < 2 ? of : 2; }
  void rate(const zoomr::kv_lane_attention& seen, zoomr::view<float> importance) const {
    for (index_t t = 0; t < seen.scored; ++t) importance[t] = seen.received(0, t);
  }
  friend bool operator==(const backwards&, const backwards&) = default;
};

__device__ inline void rate(const backwards&, const zoomr::kv_lane_attention& seen, zoomr::view<float> importance,
                            zoomr::block_threads& block) {
  for (index_t i = block.thread(); i < seen.scored; i += block.size()) {
    importance[seen.scored - 1 - i] = seen.received(0, seen.scored - 1 - i);
  }
}

static_assert(zoomr::evictor<backwards> && zoomr::device_observer<backwards>);
static_assert(!zoomr::device_observer<zoomr::keep_all>);

}  // namespace foreign

namespace zoomr::detail {

namespace {

using zoomr_test::device_array;

/// Queries of one layer, and the keys of one sequence in pages that lie anyhow.
template <class T, index_t HeadDim>
struct scene {
  static constexpr index_t kv_heads = 2;
  index_t group = 2;
  index_t tokens = 1;
  index_t count = 1;      // queries
  index_t first_row = 0;  // of the first one
  index_t rows = 1;
  float key_scale = 1.0f;
  float soft_cap = 0.0f;
  std::vector<index_t> pages;
  std::vector<T> keys;         // [page][kv_head][16][HeadDim]
  std::vector<float> queries;  // [rows][heads][HeadDim]

  index_t heads() const { return kv_heads * group; }
  paged_kv_lane<const T> kv_lane(index_t kv_head) const {
    const std::int64_t head_stride = std::int64_t{page_tokens} * HeadDim;
    return {
        keys.data() + kv_head * head_stride, kv_heads * head_stride, {HeadDim, HeadDim, HeadDim, HeadDim, 0}, pages};
  }
  const float* query(index_t q, index_t head) const {
    return queries.data() + unit::size(((first_row + q) % rows * heads() + head) * HeadDim);
  }
};

template <class T, index_t HeadDim>
scene<T, HeadDim> random_scene(unit::random& random, index_t group, index_t tokens, index_t count, bool odd) {
  scene<T, HeadDim> made;
  made.group = group, made.tokens = tokens, made.count = count;
  made.rows = count + random.below(4);
  made.first_row = random.below(made.rows);
  made.key_scale = random.chance(0.5) ? 1.0f : 0.37f;
  made.soft_cap = random.chance(0.5) ? 0.0f : random.uniform(0.1f, 4.0f);
  const index_t needed = pages_for(tokens);
  for (index_t p = 0; p < needed; ++p) made.pages.push_back((p * 5 + 3) % (needed * 5 + 4));
  made.keys.resize(unit::size((needed * 5 + 4) * scene<T, HeadDim>::kv_heads * page_tokens * HeadDim));
  const bool peaked = random.chance(0.5);
  for (T& key : made.keys) {
    const float number = odd && random.chance(0.003) ? random.chance(0.5) ? not_a_number : infinity
                                                     : random.uniform(-1.0f, 1.0f) * (peaked ? 4.0f : 1.0f);
    key = from_float<T>(number);
  }
  made.queries = random.floats(unit::size(made.rows * made.heads() * HeadDim), -2.0f, 2.0f);
  return made;
}

/// What all tokens have received, head by head, of queries that are observed 32 at a time.
template <class T, index_t HeadDim>
std::vector<float> on_host(const scene<T, HeadDim>& of, std::vector<float> received, index_t known) {
  const shape model{1, of.heads(), of.kv_heads, HeadDim};
  config given;
  given.key_scale = of.key_scale;
  observation observed(model, of.tokens, false);
  for (index_t kv_head = 0; kv_head < of.kv_heads; ++kv_head) {
    const index_t first = kv_head * of.group;
    float* const of_group = received.data() + std::ptrdiff_t{first} * of.tokens;
    for (index_t g = 0; g < of.group; ++g) {
      const view<float> sums = observed.sums(g, of.tokens);
      std::copy_n(of_group + std::ptrdiff_t{g} * of.tokens, of.tokens, sums.data());
      std::fill(sums.begin() + known, sums.end(), 0.0f);
    }
    for (index_t q = 0; q < of.count; ++q) {
      const view<const float, 2> asking(of.query(q, first), {of.group, HeadDim});
      observed.add(of.kv_lane(kv_head), asking, of.tokens - of.count + 1 + q, given.logit_scale(0, 0, HeadDim),
                   model_logits{{of.soft_cap, {}, {}}, of.group, 0});
    }
    for (index_t g = 0; g < of.group; ++g) {
      std::copy_n(observed.sums(g, of.tokens).data(), of.tokens, of_group + std::ptrdiff_t{g} * of.tokens);
    }
  }
  return received;
}

template <class T, index_t HeadDim>
std::vector<float> on_device(const scene<T, HeadDim>& of, const std::vector<float>& before, index_t known) {
  device_array<index_t> pages(of.pages);
  device_array<T> keys(of.keys);
  device_array<float> queries(of.queries);
  device_array<float> received(before);
  device_array<observed_sum> sums(std::int64_t{of.heads()} * observed_at_once, {7, 7, 7});
  const std::int64_t head_stride = std::int64_t{page_tokens} * HeadDim;
  config given;
  given.key_scale = of.key_scale;
  observing_queries<T, float> asks;
  asks.layer = stored_layer<T>{keys.data(), nullptr, of.kv_heads * head_stride, head_stride, HeadDim, 4};
  asks.pages = pages.view();
  asks.queries = {queries.data(), {of.rows, of.heads(), HeadDim}};
  asks.group = of.group;
  asks.scale = given.logit_scale(0, 0, HeadDim), asks.soft_cap = of.soft_cap;
  asks.sums = sums.data();
  asks.received = {received.data(), {of.heads(), of.tokens}};
  asks.before = asks.received;
  asks.known = known;
  for (index_t first = 0; first < of.count; first += asks.count) {
    asks.count = std::min(observed_at_once, of.count - first);
    asks.first_row = (of.first_row + first) % of.rows;
    asks.context = of.tokens - of.count + 1 + first;
    observe_queries<HeadDim>(asks, stream_ref{});
    asks.known = asks.held();
  }
  return received.values();
}

/// NaN is NaN, whatever its bits.
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool both_nan = a[i] != a[i] && b[i] != b[i];
    if (!both_nan && bits_as<std::uint32_t>(a[i]) != bits_as<std::uint32_t>(b[i])) return false;
  }
  return a.size() == b.size();
}

template <class T, index_t HeadDim>
bool right(std::uint64_t seed, index_t group, index_t tokens, index_t count, bool odd = false) {
  unit::random random(seed);
  const auto of = random_scene<T, HeadDim>(random, group, tokens, count, odd);
  const index_t known = random.below(tokens - count + 2);
  const std::vector<float> before = random.floats(unit::size(of.heads() * tokens), 0.0f, 3.0f);
  return same(on_host(of, before, known), on_device(of, before, known));
}

/// What is kept of KV lanes with ratings of many looks: ties, NaN, nothing but NaN.
template <class Evictor>
struct listed_lanes {
  view<const kv_lane_to_choose> kv_lanes;
  __device__ kv_lane_to_choose at(index_t i) const { return kv_lanes[i]; }
};

template <class Evictor>
bool keeps_the_same(const Evictor& evict, std::uint64_t seed, index_t group, index_t tokens, index_t first) {
  unit::random random(seed);
  const index_t kept = evict.kept(tokens);
  std::vector<float> received = random.floats(unit::size(group * tokens), 0.0f, 1.0f);
  for (float& number : received) {
    if (seed % 3 == 0) number = static_cast<float>(random.below(3));
    if (seed % 4 == 0 && random.chance(0.3)) number = not_a_number;
    if (seed % 7 == 0) number = not_a_number;
    if (seed % 5 == 0) number = 0.5f + 0.5f * number;
  }
  if (seed % 5 == 0) received[unit::size(tokens / 2)] = 3.0f;  // by far the best, and not where a thread reads it
  std::vector<index_t> expected(unit::size(kept));
  observation observed({1, group, 1, 8}, tokens, false);
  observed.choose(any_evictor_of<Evictor>(evict), view<const float, 2>(received.data(), {group, tokens}),
                  evict.observed(tokens), first, view<index_t>(expected));
  device_array<float> given(received);
  device_array<float> importance(tokens, 0.75f);
  device_array<index_t> slots(kept, -7);
  kv_lane_to_choose kv_lane;
  kv_lane.seen.received = {given.data(), {group, tokens}};
  kv_lane.seen.scored = tokens - evict.safe(tokens);
  kv_lane.seen.queries = evict.observed(tokens);
  kv_lane.first = first;
  kv_lane.importance = importance.view();
  kv_lane.kept = slots.view();
  device_array<kv_lane_to_choose> kv_lanes(std::vector<kv_lane_to_choose>{kv_lane});
  launch({dim3(1), dim3(keep_threads)}, stream_ref{}, &choose_kept_kernel<Evictor, listed_lanes<Evictor>>, evict,
         listed_lanes<Evictor>{kv_lanes.view()});
  return slots.values() == expected;
}

}  // namespace

TEST_CASE("attention that tokens receive has the bits of the host's") {
  zoomr_test::in_all_orders([](const std::string& order) {
    CAPTURE(order);
    CHECK(right<float, 8>(1, 2, 40, 5));
    CHECK(right<bfloat16, 64>(2, 4, 35, 33));
  });
  std::uint64_t seed = 10;
  for (const index_t tokens : {1, 2, 3, 4, 5, 15, 16, 17, 31, 65}) {
    for (const index_t count : {1, 3, 8, 9, 32}) {
      if (count > tokens) continue;
      CAPTURE(tokens);
      CAPTURE(count);
      CHECK(right<float, 8>(++seed, 2, tokens, count));
    }
  }
  CHECK(right<bfloat16, 128>(3, 4, 300, 32));
  CHECK(right<float8, 96>(4, 3, 70, 20));
  CHECK(right<int8, 256>(5, 1, 50, 40));
  CHECK(right<float16, 64>(6, 8, 50, 50));
}

TEST_CASE("logits that are no numbers, or infinite") {
  for (std::uint64_t seed = 100; seed < 112; ++seed) CHECK(right<float, 8>(seed, 2, 30, 7, true));
}

TEST_CASE("the same tokens are kept") {
  std::uint64_t seed = 200;
  for (const index_t tokens : {2, 16, 17, 60, 300, 700}) {
    for (const index_t keep : {1, 8, 16, 100, 299}) {
      if (keep >= tokens) continue;
      for (const index_t sinks : {0, 3, 400}) {
        CAPTURE(tokens);
        CAPTURE(keep);
        CAPTURE(sinks);
        ++seed;
        const index_t queries = 1 + keep / 3;
        const observation_window evict{.tokens = keep,
                                       .queries = queries,
                                       .pooling = 1 + 2 * static_cast<index_t>(seed % 4),
                                       .mean_of_group = seed % 2 == 0};
        CHECK(keeps_the_same(evict, seed, 1 + static_cast<index_t>(seed % 3), tokens, sinks));
      }
    }
  }
  zoomr_test::in_all_orders([](const std::string& order) {
    CAPTURE(order);
    CHECK(keeps_the_same(observation_window{.tokens = 70, .queries = 9}, 3, 2, 600, 4));
    CHECK(keeps_the_same(foreign::backwards{.tokens = 40}, 5, 1, 600, 0));
  });
}

TEST_CASE("no barrier of observing and keeping can be left out") {
  const auto right_sums = [] { return right<float, 8>(7, 2, 40, 5); };
  CHECK(zoomr_test::barriers_not_missed(right_sums) == std::vector<std::string>{});
  const auto right_slots = [] { return keeps_the_same(foreign::backwards{.tokens = 40}, 5, 1, 600, 0); };
  CHECK(zoomr_test::barriers_not_missed(right_slots) == std::vector<std::string>{});
}

}  // namespace zoomr::detail
