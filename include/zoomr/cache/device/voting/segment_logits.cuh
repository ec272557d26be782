// SPDX-License-Identifier: Apache-2.0
// L6. The logits of a segment's keys for one query, 32 keys at a time: a warp copies rows to shared memory, and each
// lane multiplies one of them, in the contract's order (math/dot.hpp).
//
// Copies are of 16 bytes, past registers; four lanes take 64 bytes of a key, so that eight keys come by one
// instruction. A row there has an odd number of pieces: 32 lanes that read one piece each, of as many keys, meet in no
// bank. The query lies beside, and is read by all lanes at once.
#pragma once

#include <zoomr/attention/token_list.cuh>
#include <zoomr/core/device/vectors.cuh>
#include <zoomr/math/dot.hpp>
#include <zoomr/policy/lane_logits.hpp>

namespace zoomr::inline v0::detail {

/// What a model does to the products of queries with keys, as an argument of a kernel.
struct key_logits {
  float scale = 1.0f;             // of products with keys as they are stored
  float soft_cap = 0.0f;          // 0: none
  const float* slopes = nullptr;  // [heads]  of a bias by distance; nullptr: none

  ZOOMR_HD lane_logits rule(index_t head) const {
    lane_logits rule{soft_cap, {}, {}};
    if (slopes != nullptr) rule.slopes = {slopes + head, {1}};
    return rule;
  }
};

/// Threads of a block that scores: each warp has keys of its own in the shared memory of the block.
inline constexpr index_t scoring_threads = 128;
/// Keys whose logits a warp keeps while it scores a segment; those of the others it makes twice.
inline constexpr index_t kept_logits = 256;

/// The logits of a segment's keys. All lanes of a warp call its members.
template <index_t HeadDim, class T>
class segment_logits {
  static constexpr index_t warps = scoring_threads / warp_lanes;
  static constexpr index_t per_piece = per_vector<T>;
  static constexpr index_t pieces = HeadDim / per_piece;             // of 16 bytes, in a key
  static constexpr index_t most_pieces = pieces < 16 ? pieces : 16;  // that are there at a time
  static constexpr index_t row = most_pieces | 1;
  static constexpr index_t query_pieces = HeadDim / 4;
  static_assert(HeadDim % per_piece == 0, "score_by_keys: a key is a multiple of 16 bytes");
  static_assert(pieces == most_pieces || most_pieces * per_piece % partial_sums == 0,
                "a key that comes in parts is cut where the first partial sum has its turn");

 public:
  /// The block's shared memory.
  struct memory {
    shared_array<uint4, warps * warp_lanes * row> keys;  // [warps, keys, pieces]
    shared_array<uint4, warps * query_pieces> queries;   // [warps, head_dim]  four floats in each
    shared_array<float, warps * kept_logits> kept;
  };

  __device__ segment_logits(const stored_layer<T>& layer, view<const index_t> pages, index_t kv_head, token_range slots,
                            memory& shared)
      : layer_(layer),
        pages_(pages),
        kv_head_(kv_head),
        slots_(slots),
        shared_(shared),
        lane_(static_cast<index_t>(threadIdx.x) % warp_lanes),
        warp_(static_cast<index_t>(threadIdx.x) / warp_lanes) {}

  /// @param query  [head_dim]
  __device__ void ask(view<const float> query, const lane_logits& rule, float scale, index_t position) {
    rule_ = rule;
    scale_ = scale;
    position_ = position;
    __syncwarp(all_lanes);  // the one before has been read
    for (index_t i = lane_; i < query_pieces; i += warp_lanes) {
      shared_.queries[warp_ * query_pieces + i] = {bits_as<unsigned>(query[4 * i]), bits_as<unsigned>(query[4 * i + 1]),
                                                   bits_as<unsigned>(query[4 * i + 2]),
                                                   bits_as<unsigned>(query[4 * i + 3])};
    }
    __syncwarp(all_lanes);
  }

  /// The logit of key first + lane; behind the last key that of the last one.
  __device__ float make(index_t first) {
    const float logit = logit_at(first);
    if (first < kept_logits) shared_.kept[warp_ * kept_logits + first + lane_] = logit;
    return logit;
  }
  __device__ float again(index_t first) {
    return first < kept_logits ? shared_.kept[warp_ * kept_logits + first + lane_] : logit_at(first);
  }

 private:
  // The key that this lane looks after, counted from `first`.
  __device__ index_t own_key(index_t first) const {
    const index_t left = slots_.size() - first;
    return lane_ < left ? lane_ : left - 1;
  }

  // Brings pieces from `piece` on of the keys from `first` on; what is there already comes not again.
  __device__ void stage(index_t first, index_t piece) {
    if (first == staged_first_ && piece == staged_piece_) return;
    staged_first_ = first;
    staged_piece_ = piece;
    const index_t own_slot = slots_.first + first + own_key(first);
    const T* const own = layer_.keys + layer_.offset(pool_slot(pages_, own_slot, layer_.page_bits), kv_head_);
    const index_t quarter = lane_ % 4, keys = slots_.size() - first;
    __syncwarp(all_lanes);  // what was there has been read
#pragma unroll
    for (index_t eight = 0; eight < warp_lanes; eight += 8) {
      const index_t key = eight + lane_ / 4;
      const auto address = __shfl_sync(all_lanes, bits_as<std::uint64_t>(own), key);
      const T* const from = bits_as<const T*>(address) + (piece + quarter) * per_piece;
      const index_t to = (warp_ * warp_lanes + key) * row + quarter;
      if (key >= keys) continue;
#pragma unroll
      for (index_t i = 0; i < most_pieces; i += 4) {
        const bool there = pieces % 4 == 0 ? pieces % most_pieces == 0 || piece + i < pieces
                                           : i + quarter < most_pieces && piece + i + quarter < pieces;
        if (there) copy_async(shared_.keys[to + i], reinterpret_cast<const uint4*>(from + i * per_piece));
      }
    }
    copy_async_commit();
    copy_async_wait<0>();
    __syncwarp(all_lanes);
  }

  __device__ float logit_at(index_t first) {
    const index_t own = own_key(first);
    float partial[std::size_t{partial_sums}] = {};
#pragma unroll 1
    for (index_t piece = 0; piece < pieces; piece += most_pieces) {
      stage(first, piece);
#pragma unroll
      for (index_t i = 0; i < most_pieces; ++i) {
        if (pieces % most_pieces == 0 || piece + i < pieces) add_piece(own, i, piece + i, partial);
      }
    }
    return rule_(fused(scale_, halving_sum(partial), -0.0f), 0, slots_.first + first + own, position_);
  }

  // Adds the products of piece `at` of what is there of a key, with piece `piece` of the query.
  __device__ void add_piece(index_t key, index_t at, index_t piece, float (&partial)[std::size_t{partial_sums}]) {
    float numbers[std::size_t{per_piece}];
    unpack<T>(shared_.keys[(warp_ * warp_lanes + key) * row + at], numbers);
#pragma unroll
    for (index_t i = 0; i < per_piece; i += 4) {
      const uint4 query = shared_.queries[warp_ * query_pieces + piece * (per_piece / 4) + i / 4];
      float* const sums = partial + (at * per_piece + i) % partial_sums;
      sums[0] = fused(bits_as<float>(query.x), numbers[i], sums[0]);
      sums[1] = fused(bits_as<float>(query.y), numbers[i + 1], sums[1]);
      sums[2] = fused(bits_as<float>(query.z), numbers[i + 2], sums[2]);
      sums[3] = fused(bits_as<float>(query.w), numbers[i + 3], sums[3]);
    }
  }

  const stored_layer<T>& layer_;
  view<const index_t> pages_;
  index_t kv_head_;
  token_range slots_;
  memory& shared_;
  index_t lane_;
  index_t warp_;
  index_t staged_first_ = -1, staged_piece_ = 0;  // what the warp's part of the shared memory has
  lane_logits rule_;
  float scale_ = 1.0f;
  index_t position_ = 0;
};

}  // namespace zoomr::inline v0::detail
