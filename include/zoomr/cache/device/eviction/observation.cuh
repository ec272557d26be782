// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of observation.hpp: what tokens receive of some queries' attention, all KV heads of a layer at once,
// and which of them a KV lane keeps for it. Query q pays token t the share exp(l(q, t) - max) / sum of exp(l(q, u) -
// max) over the tokens u that it sees; l are natural logits, and the sum is one of integers, the same in any order.
//
// Three kernels read the keys one after the other, for the largest logit, the sum and the shares: products are made
// again rather than stored, since for 32 queries of a long prompt they would fill more memory than its keys.
#pragma once

#include <zoomr/cache/device/eviction/observed_queries.cuh>
#include <zoomr/core/device/streams.cuh>
#include <zoomr/math/best.cuh>
#include <zoomr/math/dot.cuh>
#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/evict/rating.cuh>

namespace zoomr::inline v0::detail {

inline constexpr index_t observe_threads = 128;

/// The logits of one query head, 8 queries by 4 tokens in each warp: thread l has those of query l / 4 and token l % 4.
template <index_t HeadDim, class T, class Number>
class observing_warp {
 public:
  static constexpr index_t queries = 8;  // at once
  static constexpr index_t tokens = 4;
  static constexpr index_t turns = observed_together<HeadDim> / queries;
  using queries_in_block = shared_array<float, observed_together<HeadDim> * HeadDim>;
  static_assert(fits_a_block<queries_in_block>, "observed_together: fewer queries of so many numbers");

  /// All threads call it; a barrier follows.
  __device__ observing_warp(const observing_queries<T, Number>& batch, index_t head, queries_in_block& block_queries)
      : batch_(batch),
        block_queries_(block_queries),
        head_(head),
        logits_(batch.logits_of(head, 1)),
        lane_(static_cast<index_t>(threadIdx.x) % warp_lanes) {
    for (auto i = static_cast<index_t>(threadIdx.x); i < batch.count * HeadDim; i += observe_threads) {
      block_queries[i] = to_float(batch.queries(batch.row_of(i / HeadDim), head, i % HeadDim));
    }
    __syncthreads();
  }

  /// Visits the tokens of this warp, 4 at a time.
  template <class Visit>
  __device__ void each_four(Visit visit) {
    const auto warp = static_cast<index_t>(blockIdx.x * observe_threads + threadIdx.x) / warp_lanes;
    const auto warps = static_cast<index_t>(gridDim.x) * observe_threads / warp_lanes;
    for (index_t first = warp * tokens; first < batch_.held(); first += warps * tokens) {
      take_keys(first);
      visit();
    }
  }

  /// Of this thread.
  __device__ index_t token() const { return first_ + lane_ % tokens; }
  __device__ index_t query(index_t turn) const { return turn * queries + lane_ / tokens; }
  __device__ bool has(index_t turn) const { return turn * queries < batch_.count; }
  __device__ bool sees(index_t turn) const {
    return query(turn) < batch_.count && token() < batch_.context + query(turn);
  }

  /// All threads call it; where the query does not see the token the result means nothing.
  __device__ float logit(index_t turn) const {
    float partial[std::size_t{partial_sums}] = {};
#pragma unroll
    for (index_t c = 0; c < cells; ++c) {
      const index_t d = c * warp_lanes + lane_;
      if (d >= HeadDim) break;
#pragma unroll
      for (index_t q = 0; q < queries; ++q) {
        const index_t query = turn * queries + q;
        const float query_number = query < batch_.count ? block_queries_[query * HeadDim + d] : 0.0f;
#pragma unroll
        for (index_t t = 0; t < tokens; ++t) {
          partial[q * tokens + t] = fused(query_number, keys_[t][c], partial[q * tokens + t]);
        }
      }
    }
    const float scaled = fused(batch_.scale, warp_sums(partial), -0.0f);  // rounded by itself, whatever it is added to
    return logits_(scaled, 0, token(), batch_.position + query(turn));
  }

 private:
  static constexpr index_t cells = (HeadDim + warp_lanes - 1) / warp_lanes;

  __device__ void take_keys(index_t first) {
    first_ = first;
#pragma unroll
    for (index_t t = 0; t < tokens; ++t) {
      const index_t slot = first + t < batch_.held() ? first + t : batch_.held() - 1;
      const index_t in_pool = pool_slot(batch_.pages, slot, batch_.layer.page_bits);
      const T* key = batch_.layer.keys + batch_.layer.offset(in_pool, head_ / batch_.group);
#pragma unroll
      for (index_t c = 0; c < cells; ++c) {
        const index_t d = c * warp_lanes + lane_;
        keys_[t][c] = d < HeadDim ? to_float(key[d]) : 0.0f;
      }
    }
  }

  const observing_queries<T, Number>& batch_;
  queries_in_block& block_queries_;
  index_t head_;
  lane_logits logits_;
  index_t lane_;
  index_t first_ = 0;
  float keys_[std::size_t{tokens}][std::size_t{cells}];
};

/// Finds the largest logit of each query. This grid is that of the next two kernels too: blockIdx.y is the query head,
/// warps of all blocks of a head take tokens in turn. Shared memory: the queries of the head, 32 * HeadDim floats. Each
/// kernel needs what all blocks of the one before have added to `sums`; the stream orders them.
template <index_t HeadDim, class T, class Number>
__global__ void __launch_bounds__(observe_threads) find_largest_kernel(observing_queries<T, Number> batch) {
  using warp_type = observing_warp<HeadDim, T, Number>;
  __shared__ typename warp_type::queries_in_block block_queries;
  const auto head = static_cast<index_t>(blockIdx.y);
  warp_type warp(batch, head, block_queries);
  unsigned largest[std::size_t{warp_type::turns}] = {};
  warp.each_four([&] {
#pragma unroll
    for (index_t turn = 0; turn < warp_type::turns; ++turn) {
      if (!warp.has(turn)) break;
      const unsigned word = observed_sum::word_of(warp.logit(turn));
      if (warp.sees(turn) && word > largest[turn]) largest[turn] = word;
    }
  });
#pragma unroll
  for (index_t turn = 0; turn < warp_type::turns; ++turn) {
    if (largest[turn] > 0) atomicMax(&batch.sums[head * observed_at_once + warp.query(turn)].largest, largest[turn]);
  }
}

/// Adds up the weights of each query.
template <index_t HeadDim, class T, class Number>
__global__ void __launch_bounds__(observe_threads) add_weights_kernel(observing_queries<T, Number> batch) {
  using warp_type = observing_warp<HeadDim, T, Number>;
  __shared__ typename warp_type::queries_in_block block_queries;
  const auto head = static_cast<index_t>(blockIdx.y);
  warp_type warp(batch, head, block_queries);
  const observed_sum* sums = batch.sums + head * observed_at_once;
  votes_t units[std::size_t{warp_type::turns}] = {};
  warp.each_four([&] {
#pragma unroll
    for (index_t turn = 0; turn < warp_type::turns; ++turn) {
      if (!warp.has(turn)) break;
      const float logit = warp.logit(turn);
      if (!warp.sees(turn)) continue;
      const float weight = exponential(logit - sums[warp.query(turn)].largest_logit());
      units[turn] += weight == weight ? units_of(weight) : 0;
    }
  });
#pragma unroll
  for (index_t turn = 0; turn < warp_type::turns; ++turn) {
    const auto added = static_cast<unsigned long long>(units[turn]);
    if (added > 0) atomicAdd(&batch.sums[head * observed_at_once + warp.query(turn)].units, added);
  }
}

/// Adds the shares of the queries, in their order, to what each token has received. One warp reads what a token had,
/// and writes what it has: so `received` may be `before`.
template <index_t HeadDim, class T, class Number>
__global__ void __launch_bounds__(observe_threads) add_shares_kernel(observing_queries<T, Number> batch) {
  using warp_type = observing_warp<HeadDim, T, Number>;
  __shared__ typename warp_type::queries_in_block block_queries;
  const auto head = static_cast<index_t>(blockIdx.y);
  const auto warp_lane = static_cast<index_t>(threadIdx.x) % warp_lanes;
  warp_type warp(batch, head, block_queries);
  const observed_sum* sums = batch.sums + head * observed_at_once;
  warp.each_four([&] {
    const bool present = warp.token() < batch.held();
    float received = present && warp.token() < batch.known ? batch.before(head, warp.token()) : 0.0f;
#pragma unroll
    for (index_t turn = 0; turn < warp_type::turns; ++turn) {
      if (!warp.has(turn)) break;
      const float logit = warp.logit(turn);
      float share = 0.0f;
      if (warp.sees(turn)) {
        const observed_sum& sum = sums[warp.query(turn)];
        const float largest = sum.largest_logit();
        share = largest != largest
                    ? not_a_number
                    : quotient(exponential(logit - largest), sum_of_units(static_cast<votes_t>(sum.units)));
      }
#pragma unroll
      for (index_t q = 0; q < warp_type::queries; ++q) {
        received += __shfl_sync(all_lanes, share, q * warp_type::tokens + warp_lane % warp_type::tokens);
      }
    }
    if (present && warp_lane < warp_type::tokens) batch.received(head, warp.token()) = received;
  });
}

/// Adds the attention that up to 32 queries pay to what the tokens have received: the same bits as the host's.
///
/// @param batch  a kernel argument; `sums` is cleared here
/// @cost   reads the keys of the sequence in this layer three times for each query head; four launches
template <index_t HeadDim, class T, class Number>
void observe_queries(const observing_queries<T, Number>& batch, stream_ref stream) {
  const index_t heads = batch.queries.extent(1);
  zero_on_device(batch.sums, static_cast<byte_count>(sizeof(observed_sum)) * heads * observed_at_once, stream);
  const index_t blocks = (batch.context + batch.count + 254) / 256;  // 16 times 4 tokens for each warp
  const launch_shape shape{dim3(static_cast<unsigned>(blocks < 64 ? blocks : 64), static_cast<unsigned>(heads)),
                           dim3(observe_threads)};
  launch(shape, stream, &find_largest_kernel<HeadDim, T, Number>, batch);
  launch(shape, stream, &add_weights_kernel<HeadDim, T, Number>, batch);
  launch(shape, stream, &add_shares_kernel<HeadDim, T, Number>, batch);
}

/// One KV lane that must evict tokens.
struct kv_lane_to_choose {
  kv_lane_attention seen;
  index_t first = 0;       // tokens at the front that are kept in any case
  view<float> importance;  // [tokens]  working memory
  view<index_t> kept;      // [how many to keep]  out: ascending slots; fewer than tokens, at least those that are safe
};

/// Tokens as a walk sees them: the first are safe, and not in it.
struct tokens_to_keep {
  view<const float> importance;
  index_t safe = 0;
  __device__ index_t size() const { return importance.size(); }
  __device__ votes_t key(index_t t) const { return t < safe ? not_eligible : order_key(importance[t]); }
  __device__ index_t tokens(index_t) const { return 1; }
};

/// Writes the slots that a KV lane keeps, as `observation::choose` does. All `Threads` threads of a block call it.
/// @cost  that of the rating, of a walk, and O(tokens / Threads)
template <index_t Threads, class Evictor>
__device__ void choose_kept(block_threads& block, best_scratch<Threads>& scratch, const Evictor& evict,
                            const kv_lane_to_choose& lane) {
  rate(evict, lane.seen, lane.importance, block);
  __syncthreads();  // a rating may share the tokens out in its own way
  const index_t scored = lane.seen.scored;
  const index_t kept = lane.kept.size();
  const index_t rated_end = kept - (lane.seen.tokens() - scored);
  index_t safe = lane.first < scored ? lane.first : scored;
  safe = safe < rated_end ? safe : rated_end;
  for (index_t t = block.thread(); t < safe; t += Threads) lane.kept[t] = t;
  const tokens_to_keep items{lane.importance.slice(0, scored), safe};
  const take_limits limits{.segments = rated_end - safe};
  best_walk<Threads, tokens_to_keep> walk(block, scratch, items, limits, not_eligible + 1);
  write_best(block, walk, lane.kept.slice(safe, rated_end));
  for (index_t i = block.thread(); rated_end + i < kept; i += Threads) lane.kept[rated_end + i] = scored + i;
}

inline constexpr index_t keep_threads = 256;

/// @see choose_kept
/// @param lanes  lanes.at(i) gives, on the device, the i-th `kv_lane_to_choose`; a block of `keep_threads` for each. It
///               comes after the kernels that have added up what tokens received
template <class Evictor, class Lanes>
__global__ void __launch_bounds__(keep_threads) choose_kept_kernel(Evictor evict, Lanes lanes) {
  __shared__ block_scratch scratch;
  __shared__ best_scratch<keep_threads> walk_scratch;
  block_threads block(scratch);
  choose_kept(block, walk_scratch, evict, lanes.at(static_cast<index_t>(blockIdx.x)));
}

}  // namespace zoomr::inline v0::detail
