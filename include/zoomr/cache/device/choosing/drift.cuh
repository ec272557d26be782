// SPDX-License-Identifier: Apache-2.0
// L6. Has the asking query turned away since the last choice? The query of each choice that stays active is beside
// its levels, so that a rollback finds both.
//
// A row chooses again if the cosine of both falls below the policy's, over all heads and dimensions of the row:
//   sum q r < cosine * sqrt(sum q q) * sqrt(sum r r)
// Sums are made in the contract's order (math/dot.cuh), head by head, as on the host. A NaN chooses again.
#pragma once

#include <zoomr/cache/device/layout.cuh>
#include <zoomr/core/device/block.cuh>
#include <zoomr/math/dot.cuh>

namespace zoomr::inline v0::detail {

/// For each row of the tokens that choose: does it choose again, or keep what is active? And the query that the choice
/// is remembered by. A warp for each row: a block is one. Where one choice serves all layers, the products of the
/// layers before are added to: what the last layer finds counts, and `keep_references` follows.
///
/// Grid: tokens of the table, rows of the layer; blocks of 32 threads, no shared memory. It comes after
/// remember_kernel, whose sums it reads, and before layer_kernel, which scores only for those that choose again,
/// unless one choice serves all layers.
/// @cost  reads the row's queries, and those of the last choice, once or twice
template <class Policy, class T, class Number>
__global__ void drift_kernel(Policy policy, common_arrays<T> a, index_t layer, view<const Number, 3> queries) {
  const auto t = static_cast<index_t>(blockIdx.x);
  const auto row = static_cast<index_t>(blockIdx.y);
  if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return;
  const device_token& token = a.table.tokens[t];
  const shape& model = a.sizes.model;
  const index_t heads = model.heads / a.sizes.layer_rows;
  const auto warp_lane = static_cast<index_t>(threadIdx.x);
  view<const float, 2> sums;
  if (a.sizes.records > 0 && !token.prompt) sums = a.sums_of(token.sequence, token.position, layer);
  const auto query = [&](index_t head, index_t d) {
    const float own = to_float(queries(token.row, head, d));
    return policy.query.query(own, sums.data() == nullptr ? own : sums(head, d), token.sums);
  };
  bool drifted = !token.if_drifted;
  if (!drifted) {
    const view<const float, 2> reference = a.reference_of(token.reads, layer);
    drift_products& so_far = a.products[a.token_row(t, row)];
    const bool goes_on = a.sizes.drifts_as_one && layer > 0;
    auto [along, now, then] = goes_on ? so_far : drift_products{};
    __syncwarp(all_lanes);
    for (index_t head = row * heads; head < (row + 1) * heads; ++head) {
      float partial[3] = {};
      for (index_t d = warp_lane; d < model.head_dim; d += warp_lanes) {
        const float q = query(head, d);
        partial[0] = fused(q, reference(head, d), partial[0]);
        partial[1] = fused(q, q, partial[1]);
        partial[2] = fused(reference(head, d), reference(head, d), partial[2]);
      }
      along += warp_sum(partial[0]);
      now += warp_sum(partial[1]);
      then += warp_sum(partial[2]);
    }
    if (warp_lane == 0) so_far = {along, now, then};
    drifted = !(along >= policy.refresh.drift() * square_root(now) * square_root(then));
  }
  if (warp_lane == 0) a.drifted[a.token_row(t, row)] = drifted ? 1 : 0;
  const view<float, 2> kept = a.reference_of(token.chooses, layer);
  for (index_t head = row * heads; head < (row + 1) * heads; ++head) {
    for (index_t d = warp_lane; d < model.head_dim; d += warp_lanes) {
      const bool turned = drifted || a.sizes.drifts_as_one;
      kept(head, d) = turned ? query(head, d) : a.reference_of(token.reads, layer)(head, d);
    }
  }
}

/// The choice that a token keeps is remembered by the queries that have made it, in all layers: instead of the token's
/// own, which drift_kernel has left there. All threads of a block call it, for the last layer.
/// @cost  copies layers * heads * head_dim floats
template <class T>
__device__ void keep_references(block_threads& block, const common_arrays<T>& a, const device_token& token) {
  const std::int64_t numbers = a.sizes.model.layers * a.sizes.query_numbers();
  const float* from = a.references + token.reads * numbers;
  float* to = a.references + token.chooses * numbers;
  for (std::int64_t i = block.thread(); i < numbers; i += block.size()) to[i] = from[i];
}

}  // namespace zoomr::inline v0::detail
