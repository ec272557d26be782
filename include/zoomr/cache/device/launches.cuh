// SPDX-License-Identifier: Apache-2.0
// L6. What a step enqueues: the kernels' launches, part by part.
#pragma once

#include <zoomr/cache/device/ahead.cuh>
#include <zoomr/cache/device/core.cuh>
#include <zoomr/cache/device/fetching.cuh>
#include <zoomr/cache/device/kernels.cuh>
#include <zoomr/cache/device/rows.cuh>
#include <zoomr/cache/device/summaries.cuh>
#include <zoomr/cache/device/token_eviction.cuh>

namespace zoomr {
inline namespace v0 {
namespace detail {

/// The launches of one pass.
template <class Policy, class T, index_t HeadDim, index_t Group>
struct device_launches {
  device_core<Policy, T>& core;
  index_t t;              // its table: 0 the first pass, 1 the second, 2 the choices after a prompt
  index_t deciding;       // tokens after the prompt that launches cover: those of the pass, or of any step
  index_t in_prompt = 0;  // tokens before its end
  bool fixed = false;     // for a graph

  static dim3 grid(index_t x, index_t y = 1) { return {static_cast<unsigned>(x), static_cast<unsigned>(y)}; }
  static constexpr bool for_all(const Policy& policy) { return policy.aggregate.per == scope::sequence; }

  device_arrays<Policy, T> arrays() const {
    device_arrays<Policy, T> of = core.arrays;
    of.table = core.on_device[t];
    return of;
  }

  void upload(stream on) const { core.uploads.upload(t, core.on_device[t], on); }

  void update_index(stream on) const {
    launch({grid(8), dim3(plain_threads)}, on, prepare_kernel<T>, arrays());
    if constexpr (Policy::selects) {
      const index_t closings = fixed ? 3 * core.sizes.decode_tokens : core.on_host(t).counts->closings;
      if (closings == 0) return;
      launch({grid(std::min<index_t>(closings, 1024), core.sizes.model.kv_lanes()), dim3(summarize_threads)}, on,
             summarize_kernel<Policy, T>, core.policy, arrays(), core.limits.key_scale);
    }
  }

  void begin_choices(stream on) const {
    if constexpr (Policy::selects && decltype(Policy::aggregate)::counts) {
      if (deciding == 0 || !for_all(core.policy)) return;
      launch({grid(deciding), dim3(choose_threads)}, on, begin_kernel<Policy, T>, core.policy, arrays());
    }
  }
  void end_choices(stream on) const {
    if constexpr (Policy::selects) {
      if (deciding == 0 || !for_all(core.policy)) return;
      launch({grid(deciding), dim3(choose_threads)}, on, choose_for_all_kernel<Policy, T>, core.policy, arrays());
    }
  }

  /// Remembers a layer's queries, and scores for the tokens that choose.
  template <class Number>
  void see(index_t layer, view<const Number, 3> queries, stream on) const {
    if constexpr (decltype(Policy::evict)::observes) {
      if (t == 0) observe_prompts<HeadDim>(core, arrays(), layer, queries, on);
      if (core.sizes.noted > 0 && deciding > 0) {
        launch({grid(deciding), dim3(plain_threads)}, on, note_kernel<T, Number>, arrays(), layer, queries);
      }
    }
    if constexpr (Policy::selects) {
      if (core.sizes.records > 0 || in_prompt > 0) {
        launch({grid(core.sizes.sequences), dim3(plain_threads)}, on, remember_kernel<T, Number>, arrays(), layer,
               queries);
      }
      if (t == 0) score(layer, queries, on);
    }
  }

  template <class Number>
  void score(index_t layer, view<const Number, 3> queries, stream on) const {
    if (deciding == 0) return;
    if (layer < core.policy.zone.dense_layers && !for_all(core.policy)) return;  // a choice for all is made by all
    if (core.sizes.drifts) {
      launch({grid(deciding, core.sizes.layer_rows), dim3(warp_lanes)}, on, drift_kernel<Policy, T, Number>,
             core.policy, arrays(), layer, queries);
    }
    const device_arrays<Policy, T> all = arrays();
    using summary = typename device_arrays<Policy, T>::number;
    const rows_to_score<T, Number, summary> rows{all, all.summaries, layer, queries,
                                                 deciding * core.sizes.model.kv_heads};
    score_segments<Group>(core.policy.query, core.policy.score, HeadDim, rows, core.sizes.score_blocks(), on);
    if constexpr (decltype(Policy::aggregate)::counts) {
      if (!for_all(core.policy)) return;
      launch({grid(deciding), dim3(choose_threads)}, on, votes_kernel<Policy, T>, core.policy, arrays(), layer);
    }
  }

  template <class Number>
  void append(index_t layer, view<const Number, 3> keys, view<const Number, 3> values, stream on) const {
    join(on);  // a page that comes must not miss what is written into it
    launch({grid(deciding + in_prompt), dim3(plain_threads)}, on, append_kernel<T, Number>, arrays(), layer, keys,
           values, core.limits.key_scale, core.limits.value_scale);
  }

  /// Chooses and attends for the tokens after their prompts, and attends for those before.
  template <class Number>
  void attend(index_t layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse, stream on) const {
    const shape& model = core.sizes.model;
    if (deciding > 0) select(layer, true, on);
    fetch(layer, on);
    fetch_ahead(layer + 1, on);
    if (deciding > 0) gather_chosen(layer, queries, out, lse, on);
    if (in_prompt > 0) {
      const index_t first = core.decoding_tiles;
      const index_t tiles = core.on_host(t).counts->tiles - first;
      const prompt_rows<T> rows{{}, tiles * model.kv_heads, first};
      gather<together>(layer, queries, out, lse, rows, 1, on);
    }
    if (layer == model.layers - 1 && t == 0) end_choices(on);
  }

  void select(index_t layer, bool attends, stream on) const {
    launch({grid(deciding, core.sizes.layer_rows), dim3(choose_threads)}, on, select_kernel<Policy, T>, core.policy,
           arrays(), layer, attends);
  }

  /// Brings what the layer's rows read to the arena of a tiered placement.
  void fetch(index_t layer, stream on) const {
    if constexpr (tiered_placement<decltype(Policy::placement)>) {
      join(on);
      launch({grid(deciding + in_prompt, core.sizes.layer_rows), dim3(plain_threads)}, on, ask_for_pages_kernel<T>,
             arrays(), layer);
      bring(layer, false, on);
    }
  }

  /// Brings what the layer will read, as far as that is known, while the one before is attended and the caller makes
  /// its queries: until `join`, which `append` calls.
  void fetch_ahead(index_t layer, stream from) const {
    if constexpr (tiered_placement<decltype(Policy::placement)>) {
      const bool due = core.beside && core.arrays.arena.plan.fetches && layer < core.sizes.model.layers;
      if (!due || !foresees(layer)) return;
      const stream on = core.beside->fork(from);
      launch({grid(deciding + in_prompt, core.sizes.layer_rows), dim3(plain_threads)}, on,
             expect_pages_kernel<Policy, T>, core.policy, arrays(), layer);
      bring(layer, true, on);
    }
  }
  void join(stream on) const {
    if (core.beside) core.beside->join(on);
  }

  /// True if some row of the pass may be known before its layer; of a graph, of any pass.
  bool foresees(index_t layer) const {
    if (fixed) return !Policy::selects || core.sizes.persists || layer < core.policy.zone.dense_layers;
    const device_table& table = core.on_host(t);
    return std::any_of(table.tokens, table.tokens + table.counts->tokens,
                       [&](const device_token& token) { return known_before(core.policy, token, layer); });
  }

  /// Gives slots to what was asked for, and copies it there.
  void bring(index_t layer, bool ahead, stream on) const {
    const index_t warps = (std::min(core.arrays.arena.slots, place_threads) + warp_lanes - 1) / warp_lanes;
    launch({grid(1), dim3(static_cast<unsigned>(warps * warp_lanes))}, on, place_pages_kernel<T>, arrays(), layer,
           ahead);
    const transfer_plan& plan = core.arrays.arena.plan;
    if (!plan.fetches) return;
    const index_t blocks = std::min(core.sizes.sequences * core.sizes.sequence_pages, plan.fetch_blocks);
    launch({grid(blocks), dim3(fetch_threads)}, on, fetch_pages_kernel<T>, arrays(), layer);
  }

  /// Keys and values of a layer, as the rows of `of` name their pages.
  auto stored(common_arrays<T>& of, index_t layer) const {
    const auto from = [&](T* block) -> stored_layer<T> {
      const std::int64_t page = of.sizes.page_numbers();
      return {block, block + of.value_offset(), page, std::int64_t{page_tokens} * HeadDim, HeadDim, 4};
    };
    T* pages = of.key(layer, 0, 0);
    if constexpr (tiered_placement<decltype(Policy::placement)>) {
      of.page_table = of.arena.places;
      return tiered_layer<T>(from(of.arena.memory), pages, of.arena.slots * page_tokens);
    } else {
      return from(pages);
    }
  }

  /// Heads of a row where tokens read together.
  static constexpr index_t together = Group < most_sharing ? most_sharing : Group;

  /// Attends for the tokens after the prompt: where there may be drafts, for those of one together.
  template <class Number>
  void gather_chosen(index_t layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse,
                     stream on) const {
    const index_t readers = core.sizes.readers();
    if (core.sizes.decode_tiles == 0) {
      const chosen_rows<T> rows{{}, deciding * readers};
      gather<Group>(layer, queries, out, lse, rows, core.sizes.splits, on);
      return;
    }
    const index_t tiles = fixed ? core.sizes.decode_tiles : t == 0 ? core.decoding_tiles : deciding;
    launch({grid(tiles, core.sizes.layer_rows), dim3(resolve_threads)}, on, query_tile_kernel<T>, arrays());
    gather<together>(layer, queries, out, lse, shared_rows<T>{{}, tiles * readers}, core.sizes.splits, on);
  }

  /// @tparam Heads  of a row
  template <index_t Heads, class Number, class Rows>
  void gather(index_t layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse, const Rows& rows,
              index_t splits, stream on) const {
    common_arrays<T> of = arrays();
    const auto details = stored(of, layer);
    gather_task<T, Number, Rows, scaled_logits, std::remove_const_t<decltype(details)>> task;
    task.layer = details;
    task.rows = rows;
    task.rows.a = of;
    task.logits = {1.0f / std::sqrt(static_cast<float>(HeadDim))};
    task.queries = queries;
    task.out = out;
    task.lse = lse;
    task.key_scale = core.limits.key_scale;
    task.value_scale = core.limits.value_scale;
    task.partial = of.partial;
    task.arrived = of.arrived;
    gather_attend<T, HeadDim, Heads>(task, splits, on);
  }

  /// Gives up what the commits of this step have made due.
  /// @return  true if KV lanes hold other tokens than before
  bool evict_tokens(stream on) const {
    bool any = false;
    if constexpr (decltype(Policy::evict)::observes) {
      for (const device_item& item : core.step.items) any = evict_in_lanes<HeadDim>(core, arrays(), item, on) || any;
    }
    return any;
  }

  /// Makes the summaries of those sequences from the keys that are left.
  void summarize_again(stream on) const {
    if constexpr (Policy::selects && decltype(Policy::evict)::observes) {
      for (const device_item& item : core.step.items) {
        const device_sequence& of = core.state(item.seq);
        if (item.due.kept == 0 || of.segment_count() == 0) continue;
        device_arrays<Policy, T> all = arrays();
        all.resummarize = {item.seq, of.segment_count(), core.held(of)};
        launch(
            {grid(std::min<index_t>(of.segment_count(), 1024), core.sizes.model.kv_lanes()), dim3(summarize_threads)},
            on, summarize_kernel<Policy, T>, core.policy, all, core.limits.key_scale);
      }
    }
  }

  /// Summarises what a chunk of a prompt has closed; and where it ends one, makes the first choice, from the queries of
  /// its last token.
  void after_prompt(stream on) const {
    upload(on);
    update_index(on);
    summarize_again(on);
    if constexpr (Policy::selects) {
      if (deciding == 0) return;
      const shape& model = core.sizes.model;
      const std::int64_t layer_queries = core.sizes.query_numbers();
      begin_choices(on);
      for (index_t layer = 0; layer < model.layers; ++layer) {
        const view<const float, 3> queries(core.arrays.asking + layer * layer_queries,
                                           {core.sizes.sequences, model.heads, model.head_dim},
                                           {model.layers * layer_queries, model.head_dim, 1});
        score(layer, queries, on);
        if (!for_all(core.policy)) select(layer, false, on);
      }
      end_choices(on);
    }
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
