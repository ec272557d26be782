// SPDX-License-Identifier: Apache-2.0
// L6. What a device cache keeps in memory. Plain data: host and device see the same.
//
// All of it is in the one block that the caller gives the cache, in the order of `carve`, each array aligned to 256
// bytes; a tiered placement has its pool elsewhere. The struct of addresses and sizes is an argument of each kernel, by
// value. The order of kernels on the caller's stream is all that orders who writes and who reads. The side stream of a
// tiered placement writes nothing but the arena (ahead.cuh).
#pragma once

#include <zoomr/cache/device/memory/common_arrays.cuh>
#include <zoomr/cache/device/voting/voter_arrays.cuh>

#include <type_traits>  // std::conditional_t

namespace zoomr::inline v0::detail {

/// Everything that a device cache keeps on the device.
template <class Policy, class T>
struct device_arrays : common_arrays<T>,
                       std::conditional_t<hears_voters<Policy>, some_voters, no_voters>,
                       std::conditional_t<weighs_heads<Policy>, some_weights, no_weights> {
  using number = summary_number<decltype(Policy::summarize)>;  // of summaries

  // [sequences][KV lanes][segments][head_dim, in the order of summary_place][rows]  of summarize_kernel, for scoring
  number* summaries = nullptr;
  float* scales = nullptr;  // [sequences][KV lanes][segments]  of summaries that have them

  /// Takes everything but the table from a block.
  void carve(carver& from, const cache_sizes& cache) {
    common_arrays<T>::carve(from, cache);
    if constexpr (hears_voters<Policy>) this->voting.carve(from, cache);
    if constexpr (weighs_heads<Policy>) {
      this->head_weights = from.take<votes_t>(std::int64_t{cache.model.layers} * cache.model.heads);
    }
    summaries = from.take<number>(
        bounded_product({cache.sequences, cache.model.kv_lanes(), cache.segments, cache.summary_numbers}));
    scales =
        from.take<float>(bounded_product({cache.sequences, cache.model.kv_lanes(), scales_of(cache, cache.segments)}));
  }
  /// Scales of so many segments of a KV lane: none, unless their summaries have them.
  static index_t scales_of(const device_sizes& cache, index_t segments) {
    return scales_summaries<number> && cache.summary_numbers > 0 ? segments : 0;
  }
  /// Where the tokens of a KV lane are; a policy that gives none up pays nothing for it.
  ZOOMR_HD slot_map slots_of(index_t sequence, index_t kv_lane, held_slots held) const {
    if constexpr (decltype(Policy::evict)::observes) {
      return this->eviction.slots_of(sequence, kv_lane, held);
    } else {
      return {};
    }
  }
};

}  // namespace zoomr::inline v0::detail
