// SPDX-License-Identifier: Apache-2.0
// L6. What a step enqueues: the kernels' launches, part by part. `device_step` calls them, in this order: `upload`,
// `update_index` and `begin_choices` when a step starts; `append`, `see` and `attend` in each layer; `evict_tokens`
// and `after_commit` in its commit. All go to the stream that the caller gives; nothing waits for the device.
//
// Until the stream has passed them the caller leaves keys, values, queries and outputs alone, and the host the pinned
// table. All else that a launch needs it has by value, or is in the cache's own arrays.
#pragma once

#include <zoomr/cache/device/choosing/choice_launches.cuh>
#include <zoomr/cache/device/eviction/token_eviction.cuh>
#include <zoomr/cache/device/forking.cuh>
#include <zoomr/cache/device/launching/listing.cuh>
#include <zoomr/cache/device/launching/rows.cuh>
#include <zoomr/cache/device/tiers/fetch_launches.cuh>

namespace zoomr::inline v0::detail {

/// The launches of one pass. With `fixed` they depend on the policy, the cache's limits and the layer alone.
template <class Policy, class T, index_t HeadDim, index_t Group, class Values, class Ranks>
struct device_launches : device_pass<Policy, T> {
  using pass = device_pass<Policy, T>;
  using pass::arrays, pass::core, pass::deciding, pass::fixed, pass::grid, pass::in_prompt, pass::table;

  using pass::pass;

  static constexpr bool tiered = fetch_launches<Policy, T, HeadDim>::tiered;

  choice_launches<Policy, T, HeadDim, Group, Ranks> choices() const {
    return {core, table, deciding, in_prompt, fixed};
  }
  fetch_launches<Policy, T, HeadDim> fetching() const { return {core, table, deciding, in_prompt, fixed}; }

  /// Loads all kernels that steps and forks launch, if queries are of `Number`.
  template <class Number>
  void load() const {
    load_kernel(copy_shared_pages_kernel<T>);
    load_kernel(prepare_kernel<T>);
    load_kernel(append_kernel<T, Number>);
    load_kernel(list_own_slots_kernel<T>);
    load_kernel(list_slots_kernel<T>);
    choices().template load<Number>();
    fetching().load();
    load_forking<T>();
    if constexpr (decltype(Policy::evict)::observes) load_eviction<HeadDim, Policy, T, Number>();
    if (core.sizes.decode_tiles == 0) {
      load_rows<Group, Number, chosen_rows<T, tiered>>();
    } else {
      load_kernel(query_tile_kernel<T>);
      load_rows<tile_row_heads, Number, shared_rows<T, tiered>>();
    }
    load_rows<tile_row_heads, Number, prompt_rows<T, tiered>>();
  }

  /// Sends the pass's table, and copies the pages that it lists.
  /// @cost  a copy, and 1 launch if pages are shared that the step writes
  void upload(stream_ref stream) const {
    pass::upload(stream);
    const index_t copies = core.listed[table].counts().copies;
    if (copies == 0) return;
    launch({grid(copies, core.sizes.model.layers), dim3(copy_threads)}, stream, copy_shared_pages_kernel<T>, arrays());
  }

  /// Enters the pages and the closed segments that the table lists, and summarises these. Blocks of the first kernel
  /// take entries in turn, so that 8 serve any step.
  /// @cost  1 launch, 2 if the policy chooses and segments have closed
  void update_index(stream_ref stream) const {
    launch({grid(8), dim3(plain_threads)}, stream, prepare_kernel<T>, arrays());
    choices().summarize(stream);
  }

  /// Begins the choices of all layers together.
  /// @cost  1 launch, or none
  void begin_choices(stream_ref stream) const { choices().begin(stream); }

  /// Remembers a layer's queries [tokens, heads, head_dim], for evictions and choices, and scores for the latter. It
  /// comes after `append`, since observed queries see the keys of their own tokens.
  template <class Number>
  void see(index_t layer, view<const Number, 3> queries, stream_ref stream) const {
    if constexpr (decltype(Policy::evict)::observes) {
      if (table == step_table::first_pass) observe_prompts<HeadDim>(core, arrays(), layer, queries, stream);
      if (core.sizes.noted > 0 && deciding > 0) {
        launch({grid(deciding), dim3(plain_threads)}, stream, note_kernel<T, Number>, arrays(), layer, queries);
      }
    }
    choices().see_queries(layer, queries, stream);
  }

  /// `attend` can store the keys and values of the pass: no prompt's queries are observed, which see their own keys.
  bool stores() const { return deciding > 0 && in_prompt == 0; }
  /// Arguments of `attend`, to store them.
  template <class Number>
  layer_inputs<Number> to_store(index_t layer, view<const Number, 3> queries, view<const Number, 3> keys,
                                view<const Number, 3> values, stream_ref stream) const {
    fetching().join(stream);
    return {layer, queries, keys, values, core.limits.key_scale.all, core.limits.value_scale.all};
  }

  /// Stores a layer's keys and values [tokens, kv_heads, their width] as pending.
  /// @cost  1 launch
  template <class Number>
  void append(index_t layer, view<const Number, 3> keys, view<const Number, 3> values, stream_ref stream) const {
    fetching().join(stream);  // a page that comes must not miss what is written into it
    launch({grid(deciding + in_prompt), dim3(plain_threads)}, stream, append_kernel<T, Number>, arrays(), layer, keys,
           values, core.limits.key_scale.all, core.limits.value_scale.all);
  }

  /// Writes where the pass's keys and values go.
  /// @cost  1 launch
  void append_slots(view<index_t> slots, stream_ref stream) const {
    launch({grid(8), dim3(plain_threads)}, stream, list_own_slots_kernel<T>, arrays(), slots);
  }

  /// Chooses, and lists what each token reads.
  /// @cost  2 launches
  template <class Number>
  void list_slots(index_t layer, view<const Number, 3> queries, view<index_t, 3> slots, view<index_t, 2> counts,
                  stream_ref stream) const {
    if (deciding > 0) choices().choose(layer_inputs<Number>{layer, queries}, stream);
    launch({grid(deciding + in_prompt, core.sizes.layer_rows), dim3(plain_threads)}, stream, list_slots_kernel<T>,
           arrays(), slots, counts);
    if (layer == core.sizes.model.layers - 1) choices().end(stream);
  }

  /// Chooses and attends for the tokens after their prompts, and attends for those before. Where one choice serves all
  /// layers, it is made after the last layer, from what all of them have added to its votes.
  template <class Number>
  void attend(const layer_inputs<Number>& in, view<Number, 3> out, view<float, 2> lse, stream_ref stream) const {
    const shape& model = core.sizes.model;
    const index_t layer = in.layer;
    const view<const Number, 3> queries = in.queries;
    if (deciding > 0) choices().choose(in, stream);
    fetching().fetch(layer, stream);
    fetching().fetch_ahead(layer + 1, stream);
    if (deciding > 0) gather_chosen(layer, queries, out, lse, stream);
    if (in_prompt > 0) {
      const index_t first = core.decoding_tiles;
      const index_t tiles = core.listed[table].counts().tiles - first;
      const prompt_rows<T, tiered> rows{{}, tiles * model.kv_heads, first, layer};
      gather<tile_row_heads>(layer, queries, out, lse, rows, 1, stream);
    }
    if (layer == model.layers - 1) choices().end(stream);
  }

  /// Heads of a row where tokens read together: room for those of a query tile.
  static constexpr index_t tile_row_heads = Group < most_tile_heads ? most_tile_heads : Group;

  /// Attends for the tokens after the prompt: where there may be drafts, for those of one together.
  /// @cost  1 launch, 2 where there may be drafts and the layer has found ranges
  template <class Number>
  void gather_chosen(index_t layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse,
                     stream_ref stream) const {
    const index_t readers = core.sizes.readers();
    if (core.sizes.decode_tiles == 0) {
      const chosen_rows<T, tiered> rows{{}, deciding * readers, layer};
      const bool behind_layer = !core.sizes.tiered;  // which lets the next launch begin
      gather<Group>(layer, queries, out, lse, rows, core.sizes.splits, stream, behind_layer);
      return;
    }
    const index_t pass_tiles = table == step_table::first_pass ? core.decoding_tiles : deciding;
    const index_t tiles = fixed ? core.sizes.decode_tiles : pass_tiles;
    if (finds_ranges(core.kernel_policy, layer)) {
      launch({grid(tiles, core.sizes.layer_rows), dim3(resolve_threads)}, stream, query_tile_kernel<T>, arrays());
    }
    gather<tile_row_heads>(layer, queries, out, lse, shared_rows<T, tiered>{{}, tiles * readers, layer},
                           core.sizes.splits, stream);
  }

  bool plain_logits() const { return core.limits.logits.plain() && core.arrays.sinks == nullptr; }
  template <index_t Heads, class Number, class Rows>
  void load_rows() const {
    using details = decltype(fetching().stored(std::declval<common_arrays<T>&>(), 0));
    if (plain_logits()) {
      load_gather<T, HeadDim, Heads, gather_task<T, Number, Rows, scaled_logits, details>, Values>();
    } else {
      load_gather<T, HeadDim, Heads, gather_task<T, Number, Rows, layer_logits, details>, Values>();
    }
  }

  /// Attends for `rows`, with `splits` blocks for each. Launches of one stream share `partial` and `arrived`: each has
  /// read what it has written before the next begins.
  /// @tparam Heads  of a row
  /// @cost   1 launch
  template <index_t Heads, class Number, class Rows>
  void gather(index_t layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse, const Rows& rows,
              index_t splits, stream_ref stream, bool early = false) const {
    const logit_rule& rule = core.limits.logits;
    const float scale = rule.scale > 0.0f ? rule.scale : 1.0f / std::sqrt(static_cast<float>(HeadDim));
    const common_arrays<T>& a = core.arrays;
    if (plain_logits()) {
      gather<Heads>(scaled_logits{scale}, layer, queries, out, lse, rows, splits, stream, early);
    } else {
      const float* const sinks = a.sinks == nullptr ? nullptr : a.sinks + std::int64_t{layer} * core.sizes.model.heads;
      gather<Heads>(layer_logits{scale, rule.soft_cap, sinks, a.slopes}, layer, queries, out, lse, rows, splits, stream,
                    early);
    }
  }
  template <index_t Heads, class Logits, class Number, class Rows>
  void gather(const Logits& logits, index_t layer, view<const Number, 3> queries, view<Number, 3> out,
              view<float, 2> lse, const Rows& rows, index_t splits, stream_ref stream, bool early) const {
    common_arrays<T> layer_arrays = arrays();
    const auto details = fetching().stored(layer_arrays, layer);
    gather_task<T, Number, Rows, Logits, std::remove_const_t<decltype(details)>> task;
    task.layer = details;
    task.rows = rows;
    task.rows.a = layer_arrays;
    task.logits = logits;
    task.queries = queries;
    task.out = out;
    task.lse = lse;
    task.key_scale = core.limits.key_scale.all;
    task.value_scale = core.limits.value_scale.all;
    task.partial = layer_arrays.partial;
    task.arrived = layer_arrays.arrived;
    gather_attend<T, HeadDim, Heads, Values>(task, splits, stream, early);
  }

  /// Makes what is remembered of an item's queries part of its sequence, whose tokens are committed.
  /// @cost  of a prompt 1 launch, or none
  void commit_queries(const device_item& item, stream_ref stream) const {
    if constexpr (hears_voters<Policy>) {
      commit_voters(core, item, stream);
    } else {
      detail::commit_queries(core, arrays(), item, stream);
    }
  }

  /// Evicts the tokens that the commits of this step have made due; it reads no table.
  /// @return  true if KV lanes hold other tokens than before
  bool evict_tokens(stream_ref stream) const {
    bool any = false;
    if constexpr (decltype(Policy::evict)::observes) {
      for (const device_item& item : core.step.items)
        any = evict_in_lanes<HeadDim>(core, arrays(), item, stream) || any;
    }
    return any;
  }

  /// Summarises what a chunk of a prompt has closed, or an item that was passed whole, and anew what is left after an
  /// eviction; then makes the choices of the commit. It comes after `evict_tokens`: summaries are of the tokens that
  /// are left.
  void after_commit(stream_ref stream) const {
    upload(stream);
    update_index(stream);
    choices().summarize_again(stream);
    choices().choose_at_commit(stream);
  }
};

/// By which a step of one kind of cache enqueues. Steps of any kind have another launcher (any_device_cache.cuh).
template <class Policy, class T, index_t HeadDim, index_t Group, class Values, class Ranks>
struct device_launcher {
  using storage = T;
  static constexpr bool tiered = tiered_placement<decltype(Policy::placement)>;
  static constexpr bool may_be_tiered = tiered;
  static constexpr bool in_engine = !pool_of<decltype(Policy::placement), T>::owns_pages;

  /// work(launches) with those of a pass; the other arguments are those of `device_pass`.
  template <class Work>
  void enqueue(any_device_core<T>& core, step_table table, index_t deciding, index_t in_prompt, bool fixed,
               Work work) const {
    work(device_launches<Policy, T, HeadDim, Group, Values, Ranks>{typed(core), table, deciding, in_prompt, fixed});
  }
  /// As detail::copy_sequence.
  void copy_sequence(any_device_core<T>& core, index_t from, index_t to, stream_ref stream) const {
    detail::copy_sequence(typed(core), from, to, stream);
  }

 private:
  static device_core<Policy, T>& typed(any_device_core<T>& core) { return static_cast<device_core<Policy, T>&>(core); }
};

}  // namespace zoomr::inline v0::detail
