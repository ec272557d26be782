// SPDX-License-Identifier: Apache-2.0
// L6. What a step enqueues so that the pages of a tiered placement come. Nothing, where all are on the device.
//
// On the caller's stream: `append` joins the side stream; in `attend` the layer's own pages are fetched after
// layer_kernel; then the side stream forks, and fetches for the next layer while the caller's goes on with attention.
// Both write the arena's tables, but never at the same time: one is joined before the other begins.
#pragma once

#include <zoomr/attention/gather.cuh>
#include <zoomr/cache/device/launching/kernels.cuh>
#include <zoomr/cache/device/launching/pass.cuh>
#include <zoomr/cache/device/tiers/ahead.cuh>
#include <zoomr/cache/device/tiers/fetching.cuh>
#include <zoomr/cache/device/tiers/placing.cuh>

#include <algorithm>  // std::any_of, std::min

namespace zoomr::inline v0::detail {

/// When pages come: as their layer is about to read them, or while the one before is attended.
enum class fetch_time { due, ahead };

/// The launches of one pass that are about tiers.
template <class Policy, class T, index_t HeadDim>
struct fetch_launches : device_pass<Policy, T> {
  using pass = device_pass<Policy, T>;
  using pass::arrays, pass::core, pass::deciding, pass::fixed, pass::grid, pass::in_prompt, pass::table;

  using pass::pass;

  static constexpr bool tiered = tiered_placement<decltype(Policy::placement)>;

  /// As device_launches::load.
  void load() const {
    if constexpr (tiered) {
      load_kernel(ask_for_pages_kernel<T>);
      load_kernel(expect_pages_kernel<Policy, T>);
      load_kernel(count_frames_kernel<T>);
      load_kernel(give_frames_kernel<T>);
      load_kernel(fetch_pages_kernel<T>);
    }
  }

  /// Brings what the layer's rows read to the arena of a tiered placement. Attention must follow on the same stream.
  /// @cost  4 launches, 2 if the plan fetches nothing
  void fetch(index_t layer, stream_ref stream) const {
    if constexpr (tiered) {
      join(stream);
      launch({grid(deciding + in_prompt, core.sizes.layer_rows), dim3(plain_threads)}, stream, ask_for_pages_kernel<T>,
             arrays(), layer);
      bring(layer, fetch_time::due, stream);
    }
  }

  /// Brings what the layer will certainly read, while the one before is attended and the caller makes its queries:
  /// until `join`, which `append` calls. Until then nothing may write pages, or fetch.
  /// @cost  as `fetch`, on the side stream, with an event before and one after; none if nothing can be foreseen
  void fetch_ahead(index_t layer, stream_ref from) const {
    if constexpr (tiered) {
      const bool due = core.beside && core.arrays.arena.plan.fetches && layer < core.sizes.model.layers;
      if (!due || !foresees(layer)) return;
      const stream_ref stream = core.beside->fork(from);
      launch({grid(deciding + in_prompt, core.sizes.layer_rows), dim3(plain_threads)}, stream,
             expect_pages_kernel<Policy, T>, core.kernel_policy, arrays(), layer);
      bring(layer, fetch_time::ahead, stream);
    }
  }
  /// What is enqueued on `stream` from now on waits for the side stream; nothing, unless it has forked.
  void join(stream_ref stream) const {
    if (core.beside) core.beside->join(stream);
  }

  /// True if what some row of the pass reads may be certain before its layer; of a graph, of any pass.
  bool foresees(index_t layer) const {
    if (fixed) return may_be_known_before(core.kernel_policy, core.sizes, layer);
    const auto& tokens = core.listed[table].tokens;
    return std::any_of(tokens.begin(), tokens.end(),
                       [&](const device_token& token) { return known_before(core.kernel_policy, token, layer); });
  }

  /// Gives frames to what was requested, and copies it there; both grids are the same in any step. Where the plan
  /// fetches nothing the first kernel still counts the pass.
  void bring(index_t layer, fetch_time time, stream_ref stream) const {
    const bool ahead = time == fetch_time::ahead;
    const dim3 blocks = grid(place_blocks(core.arrays.arena.frames));
    launch({blocks, dim3(place_threads)}, stream, count_frames_kernel<T>, arrays(), ahead);
    const transfer_plan& plan = core.arrays.arena.plan;
    if (!plan.fetches) return;
    launch({blocks, dim3(place_threads)}, stream, give_frames_kernel<T>, arrays(), layer, ahead);
    const device_sizes& sizes = core.sizes;
    const index_t copying = (std::min)(sizes.sequences * sizes.sequence_pages * sizes.page_parts, plan.fetch_blocks);
    launch({grid(copying), dim3(fetch_threads)}, stream, fetch_pages_kernel<T>, arrays(), layer);
  }

  /// Keys and values of a layer, as the rows of `of_rows` name their pages: over tiers `of_rows` then names them by
  /// place, in the arena or after it in the host's memory.
  auto stored(common_arrays<T>& of_rows, index_t layer) const {
    if constexpr (tiered) {
      of_rows.page_table = of_rows.arena.places;
      of_rows.heads_apart = of_rows.sizes.page_parts > 1 ? of_rows.sizes.sequences : 0;
      const stored_layer<T> arena = of_rows.in_block(of_rows.arena.memory).read_only();
      return tiered_layer<T>(arena, of_rows.page(layer, 0), of_rows.host_place(0) * page_tokens,
                             of_rows.sizes.part_bits);
    } else {
      return stored_layer<T>(core.layer(layer).read_only());
    }
  }
};

}  // namespace zoomr::inline v0::detail
