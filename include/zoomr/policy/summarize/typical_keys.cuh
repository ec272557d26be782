// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of typical_keys.hpp.
#pragma once

#include <zoomr/math/order.hpp>
#include <zoomr/policy/summarize/by_dimension.cuh>
#include <zoomr/policy/summarize/typical_keys.hpp>

namespace zoomr::inline v0 {

template <>
struct summary_scratch<typical_keys> {
  static constexpr index_t most_tokens = 1024;  // of a cue
  static constexpr index_t most_dims = 256;

  shared_array<float, most_dims> mean;
  shared_array<std::uint64_t, most_tokens> rank;  // of each key; the best is the highest, no two are equal
};

/// Means and products as on the host; the best keys are found one after the other, as the largest rank below the last.
/// All threads call it.
/// @pre at most 1024 tokens of at most 256 dimensions
/// @cost  reads each key three times; a pass over the ranks, and a barrier, for each key that is taken
template <class Cue, class Keep>
__device__ void make_summary(const typical_keys& summarize, const Cue& cue, index_t head_dim, block_threads& block,
                             summary_scratch<typical_keys>& scratch, Keep keep) {
  const auto mean_of = [&](index_t d, auto counts) {
    float sum = 0.0f;
    index_t taken = 0;
    for (index_t t = 0; t < cue.count(); ++t) {
      if (!counts(t)) continue;
      sum += cue.key(t, d);
      ++taken;
    }
    return quotient(sum, static_cast<float>(taken));
  };
  for (index_t d = block.thread(); d < head_dim; d += block.size()) {
    scratch.mean[d] = mean_of(d, [](index_t) { return true; });
  }
  __syncthreads();
  for (index_t t = block.thread(); t < cue.count(); t += block.size()) {
    const float product =
        sum_over_dims(head_dim, [&](float acc, index_t d) { return fused(cue.key(t, d), scratch.mean[d], acc); });
    const auto ordered = static_cast<std::uint64_t>(order_key(product) + (votes_t{1} << 31));
    scratch.rank[t] = ordered << 32 | static_cast<std::uint32_t>(cue.count() - t);  // ties to the earlier key
  }
  std::uint64_t least = ~std::uint64_t{0};
  const index_t taken = summarize.keys < cue.count() ? summarize.keys : cue.count();
  for (index_t i = 0; i < taken; ++i) {
    std::uint64_t best = 0;
    for (index_t t = block.thread(); t < cue.count(); t += block.size()) {
      const std::uint64_t rank = scratch.rank[t];
      if (rank < least && rank > best) best = rank;
    }
    least = block.largest(best);
  }
  for (index_t d = block.thread(); d < head_dim; d += block.size()) {
    keep(d, 0, mean_of(d, [&](index_t t) { return scratch.rank[t] >= least; }));
  }
}

}  // namespace zoomr::inline v0
