// SPDX-License-Identifier: Apache-2.0
// L6. Has the asking query turned away since the last choice? The query of each choice that stays in force lies beside
// its levels, so that a rollback finds both.
#pragma once

#include <zoomr/cache/device_layout.cuh>
#include <zoomr/math/dot.cuh>

namespace zoomr {
inline namespace v0 {

/// For each row of the tokens that choose: does it choose anew, or keep what is in force? And the query that the choice
/// is remembered by. A warp for each row: a block is one.
/// @cost  reads the row's queries, and those of the last choice, once or twice
template <class Policy, class T, class Number>
__global__ void drift_kernel(Policy policy, device_arrays<Policy, T> a, index layer, view<const Number, 3> queries) {
  const auto t = static_cast<index>(blockIdx.x);
  const auto row = static_cast<index>(blockIdx.y);
  if (t >= a.table.counts->tokens || a.table.tokens[t].chooses < 0) return;
  const device_token& token = a.table.tokens[t];
  const shape& model = a.sizes.model;
  const index heads = model.heads / a.sizes.layer_rows;
  const auto lane = static_cast<index>(threadIdx.x);
  view<const float, 2> sums;
  if (a.sizes.records > 0 && !token.prompt) sums = a.sums_of(token.sequence, token.position, layer);
  const auto asked = [&](index head, index d) {
    const float own = to_float(queries(token.row, head, d));
    return policy.ask.ask(own, sums.data() == nullptr ? own : sums(head, d), token.sums);
  };
  bool drifted = !token.if_drifted;
  if (!drifted) {
    const view<const float, 2> reference = a.reference_of(token.reads, layer);
    float along = 0.0f;
    float now = 0.0f;
    float then = 0.0f;
    for (index head = row * heads; head < (row + 1) * heads; ++head) {
      float partial[3] = {};
      for (index d = lane; d < model.head_dim; d += warp_lanes) {
        const float q = asked(head, d);
        partial[0] = fused(q, reference(head, d), partial[0]);
        partial[1] = fused(q, q, partial[1]);
        partial[2] = fused(reference(head, d), reference(head, d), partial[2]);
      }
      along += warp_sum(partial[0]);
      now += warp_sum(partial[1]);
      then += warp_sum(partial[2]);
    }
    drifted = !(along >= policy.refresh.drift() * square_root(now) * square_root(then));
  }
  if (lane == 0) a.drifted[a.token_row(t, row)] = drifted ? 1 : 0;
  const view<float, 2> kept = a.reference_of(token.chooses, layer);
  for (index head = row * heads; head < (row + 1) * heads; ++head) {
    for (index d = lane; d < model.head_dim; d += warp_lanes) {
      kept(head, d) = drifted ? asked(head, d) : a.reference_of(token.reads, layer)(head, d);
    }
  }
}

}  // namespace v0
}  // namespace zoomr
