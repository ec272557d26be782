// SPDX-License-Identifier: Apache-2.0
// A summarizer of somebody else's that needs all keys at once: on the device it makes what it makes on the host, so
// that the same segments are chosen.
#include <cache/device/device_against_host.hpp>
#include <cache/support/small_policies.hpp>

#include <doctest/doctest.h>

namespace foreign {

using zoomr::index_t;
using zoomr::view;

/// A segment's last key stands for it, and the one that is most like it.
struct last_and_alike {
  using role = zoomr::role::summarizer;
  struct summary {
    static constexpr index_t rows = 2;
  };
  void make(view<const float, 2> keys, view<index_t>, view<float> work, view<float, 2> out) const {
    const index_t last = keys.extent(0) - 1;
    index_t best = 0;
    for (index_t t = 0; t < last; ++t) {
      work[t] = zoomr::dot(&keys(t, 0), &keys(last, 0), keys.extent(1));
      if (work[best] < work[t]) best = t;
    }
    for (index_t d = 0; d < keys.extent(1); ++d) out(d, 0) = keys(last, d), out(d, 1) = keys(best, d);
  }
  friend bool operator==(const last_and_alike&, const last_and_alike&) = default;
};

/// The mean of the products with both.
struct both_products {
  using role = zoomr::role::scorer;
  using summary = last_and_alike::summary;
  ZOOMR_HD float term(float acc, float query, const zoomr::cells<2>& c) const {
    return zoomr::fused(query, 0.5f * c.row[0], zoomr::fused(query, 0.5f * c.row[1], acc));
  }
  friend bool operator==(const both_products&, const both_products&) = default;
};

}  // namespace foreign

template <>
struct zoomr::summary_scratch<foreign::last_and_alike> {
  static constexpr zoomr::index_t most_tokens = 16;
  zoomr::shared_array<float, most_tokens> products;
};

namespace foreign {

template <class Cue, class Keep>
__device__ void make_summary(const last_and_alike&, const Cue& cue, index_t head_dim, zoomr::block_threads& block,
                             zoomr::summary_scratch<last_and_alike>& scratch, Keep keep) {
  const index_t last = cue.count() - 1;
  for (index_t t = block.thread(); t < last; t += block.size()) {
    scratch.products[t] = zoomr::sum_over_dims(
        head_dim, [&](float acc, index_t d) { return zoomr::fused(cue.key(t, d), cue.key(last, d), acc); });
  }
  __syncthreads();
  index_t best = 0;
  for (index_t t = 0; t < last; ++t) {
    if (scratch.products[best] < scratch.products[t]) best = t;
  }
  for (index_t d = block.thread(); d < head_dim; d += block.size()) {
    keep(d, 0, cue.key(last, d)), keep(d, 1, cue.key(best, d));
  }
  __syncthreads();
}

}  // namespace foreign

namespace zoomr_test {
namespace {

constexpr auto alike =
    zoomr::compose(zoomr::sentences{.longest = 16}, foreign::last_and_alike{}, foreign::both_products{},
                   zoomr::fill_budget{.tokens = 30}, zoomr::every_token{}, zoomr::zones{.sinks = 4, .recent = 6});

}  // namespace

TEST_CASE("a foreign summarizer that needs all keys at once") {
  static_assert(zoomr::device_summarizer<foreign::last_and_alike>);
  static_assert(!zoomr::dimension_summarizer<foreign::last_and_alike>);
  check(alike, kind::uniform, markup::sentences, 1);
  check(alike, kind::peaked, markup::stray, 2);
  check(alike, kind::ties, markup::sentences, 3, true);
}

TEST_CASE("segments that are too long for its shared memory are refused") {
  const auto long_ones = with(alike, [](auto& p) { p.segment.longest = 17; });
  CHECK_THROWS_WITH_AS((zoomr::device_cache<std::remove_const_t<decltype(long_ones)>, float, 8, 2>::bytes(
                           model, long_ones, limits_for(60))),
                       doctest::Contains("the policy's summarizer takes shorter segments"), zoomr::precondition_error);
}

}  // namespace zoomr_test
