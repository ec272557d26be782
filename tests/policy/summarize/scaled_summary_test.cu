// SPDX-License-Identifier: Apache-2.0
// Summaries that have a scale, one after the other by the same block, against the host's.
#include <zoomr/policy/any_policy_of.hpp>
#include <zoomr/policy/summarize/by_dimension.cuh>
#include <zoomr/policy/summarize/key_box.hpp>
#include <zoomr/policy/summarize/key_cuboid.hpp>
#include <zoomr/policy/summarize/key_mean.hpp>

#include <doctest/doctest.h>

#include <cmath>    // std::ldexp
#include <cstring>  // std::memcmp
#include <vector>   // std::vector

#include "support/device_memory.hpp"
#include "support/inputs.hpp"
#include "support/mutations.hpp"

namespace {

using namespace zoomr;
using zoomr_test::device_array;
using zoomr_test::dice;

struct cue_of {
  view<const float, 2> keys;  // [tokens, dims]

  __device__ index_t count() const { return keys.extent(0); }
  __device__ float key(index_t t, index_t d) const { return keys(t, d); }
};

template <class Number, class Summarizer>
__global__ void summarize_cues(Summarizer summarize, view<const float, 3> cues, view<Number, 2> out,
                               view<float> scales) {
  using summary = typename Summarizer::summary;
  __shared__ block_scratch scratch;
  __shared__ summary_scratch<Summarizer> own;
  block_threads block(scratch);
  for (index_t i = 0; i < cues.extent(0); ++i) {
    const auto keep = [&](index_t d, index_t r, float value, float scale) {
      out(i, d * summary::rows + r) = stored_number<summary, Number>(r, value, scale);
    };
    const float scale =
        detail::make_scaled_summary<Number>(summarize, cue_of{cues[i]}, cues.extent(2), block, own, keep);
    if (block.thread() == 0) scales[i] = scale;
  }
}

// Cues of the same number of keys, each ten times as large as the one before, or as small; one has an infinity.
std::vector<float> keys_of(index_t cues, index_t tokens, index_t dims) {
  dice random(5);
  std::vector<float> made;
  for (index_t i = 0; i < cues; ++i) {
    for (index_t k = 0; k < tokens * dims; ++k) {
      made.push_back(std::ldexp(static_cast<float>(random.between(-1000, 1000)), i % 2 == 0 ? 4 * i : -30 * i));
    }
  }
  if (cues > 2) made[static_cast<std::size_t>(2 * tokens * dims)] = infinity;
  return made;
}

// False if a number or a scale differs from the host's.
template <class Number, class Summarizer>
bool right(Summarizer summarize, index_t cues, index_t tokens, index_t dims) {
  using stored = stored_summaries<Number, Summarizer>;
  constexpr index_t rows = Summarizer::summary::rows;
  const std::vector<float> numbers = keys_of(cues, tokens, dims);
  device_array<float> keys(numbers);
  device_array<Number> out(std::int64_t{cues} * dims * rows, Number{});
  device_array<float> scales(cues, 77.0f);
  launch({dim3(1), dim3(static_cast<unsigned>(summarize_threads))}, zoomr::stream_ref{},
         summarize_cues<Number, Summarizer>, summarize, view<const float, 3>(keys.data(), {cues, tokens, dims}),
         view<Number, 2>(out.data(), {cues, dims * rows}), view<float>(scales.data(), {cues}));
  const auto got = out.values();
  const auto got_scales = scales.values();
  const detail::any_summarizer_of<stored> host{stored{summarize}};
  const auto of_one = static_cast<std::size_t>(dims * rows);
  for (index_t i = 0; i < cues; ++i) {
    const view<const float, 2> cue(numbers.data() + std::int64_t{i} * tokens * dims, {tokens, dims});
    std::vector<float> made(of_one), work(static_cast<std::size_t>(tokens));
    std::vector<index_t> order(work.size());
    const view<float, 2> cells(made.data(), {dims, rows});
    if (host.at_once) {
      host.make(cue, view<index_t>(order), view<float>(work), cells);
    } else {
      host.open(cells);
      for (index_t t = 0; t < tokens; ++t) host.fold(cells, cue[t].data());
      host.close(cells, tokens);
    }
    std::vector<std::byte> kept(of_one + sizeof(float));
    host.store(cells, kept.data());
    const auto at = static_cast<std::size_t>(i);
    if (std::memcmp(kept.data(), got.data() + at * of_one, of_one) != 0) return false;
    if (std::memcmp(kept.data() + of_one, &got_scales[at], sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("summaries in 8 bits have the host's numbers and scales, for each number of dimensions") {
  for (const index_t dims : {8, 120, 128, 136, 256, 576}) {
    for (const index_t tokens : {1, 7}) {
      CAPTURE(dims);
      CHECK(right<float8>(key_mean{}, 4, tokens, dims));
      CHECK(right<int8>(key_mean{}, 4, tokens, dims));
      CHECK(right<float8>(key_box{}, 4, tokens, dims));
      CHECK(right<int8>(key_box{}, 4, tokens, dims));
      CHECK(right<float8>(key_cuboid{}, 4, tokens, dims));
    }
  }
}

TEST_CASE("in any order of threads, and no barrier between two summaries can be left out") {
  const auto body = [] { return right<float8>(key_box{}, 4, 3, 136); };
  zoomr_test::in_all_orders([&](const std::string&) { CHECK(body()); });
  CHECK(zoomr_test::barriers_not_missed(body) == std::vector<std::string>{});
}
