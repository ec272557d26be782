// SPDX-License-Identifier: Apache-2.0
// L6. Summaries of closed segments, from keys as they are stored. A segment that a step closes is summarised when the
// next step of its sequence starts, or by the commit itself if it is of a prompt. Where a commit evicts tokens, all
// segments of that sequence are summarised again. Over tiers keys are read in the host's memory.
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>
#include <zoomr/policy/score/scores.cuh>
#include <zoomr/policy/summarize/by_dimension.cuh>

namespace zoomr::inline v0::detail {

/// The keys of a segment's cue in one KV lane, as they are stored: of those that the KV lane still holds.
template <class T>
struct stored_cue {
  stored_layer<T> layer;
  view<const index_t> pages;  // [pages of the sequence]
  index_t kv_head;
  token_range slots;  // of the KV lane, without gaps
  float scale;        // of keys

  __device__ index_t count() const { return slots.size(); }
  /// Dimension `d` of the t-th key, the product with its scale rounded by itself.
  __device__ float key(index_t t, index_t d) const {
    const std::int64_t at = layer.offset(pool_slot(pages, slots.first + t, layer.page_bits), kv_head);
    return fused(to_float(layer.keys[at + d]), scale, -0.0f);
  }
};

/// Summarises the closed segments of the table, or those of one sequence again, one KV lane in each block: keys in
/// ascending order, as on the host.
///
/// Grid: closed segments, which blocks take in turn if there are more; KV lanes of the model. Shared memory: that of
/// block collectives, and the summarizer's own. It comes after prepare_kernel, and after the kernels that have written
/// or moved these keys; layer_kernel reads what it makes.
/// @cost  reads each key of a cue as often as the summarizer does, head_dim * rows numbers written for each segment
template <class Policy, class T>
__global__ void __launch_bounds__(summarize_threads)
    summarize_kernel(Policy policy, device_arrays<Policy, T> a, float key_scale) {
  using summary = typename decltype(Policy::summarize)::summary;
  using number = summary_number<decltype(Policy::summarize)>;
  using summarizer_scratch = summary_scratch<decltype(Policy::summarize)>;
  static_assert(fits_a_block<block_scratch, summarizer_scratch, numbers_until_scaled<summary, number>>,
                "summarizer: its summary_scratch is too large");
  __shared__ block_scratch scratch;
  __shared__ summarizer_scratch own_scratch;
  block_threads block(scratch);
  const auto kv_lane = static_cast<index_t>(blockIdx.y);
  const index_t kv_heads = a.sizes.model.kv_heads;
  const auto layer = a.layer(kv_lane / kv_heads).read_only();
  for (auto i = static_cast<index_t>(blockIdx.x); i < a.closing_count(); i += static_cast<index_t>(gridDim.x)) {
    const device_closing closing = a.closing(i);
    const slot_map slots = a.slots_of(closing.sequence, kv_lane, closing.held);
    const stored_cue<T> cue{layer, a.pages_of(closing.sequence), kv_lane % kv_heads,
                            token_range{slots.slot_of(closing.closed.cue_begin), slots.slot_of(closing.closed.cue_end)},
                            key_scale};
    number* out =
        a.summaries + a.summaries_at(closing.sequence, kv_lane) + std::int64_t{closing.id} * a.sizes.summary_numbers;
    const index_t head_dim = a.sizes.model.head_dim;
    const auto keep = [&](index_t d, index_t r, float value, float scale = 1.0f) {
      out[summary_place(head_dim, d) * summary::rows + r] = stored_number<summary, number>(r, value, scale);
    };
    if constexpr (scales_summaries<number>) {
      const float scale = make_scaled_summary<number>(policy.summarize, cue, head_dim, block, own_scratch, keep);
      if (block.thread() == 0) a.scales[a.scales_at(closing.sequence, kv_lane) + closing.id] = scale;
    } else {
      make_summary(policy.summarize, cue, head_dim, block, own_scratch, keep);
    }
  }
}

}  // namespace zoomr::inline v0::detail
