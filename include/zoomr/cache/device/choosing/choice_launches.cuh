// SPDX-License-Identifier: Apache-2.0
// L6. What a step enqueues for choices: summaries, and in each layer the kernel that scores, chooses and finds ranges.
//
// On the caller's stream, in this order: when a step starts `summarize`, `begin`; in each layer `see_queries`,
// `choose`; after the last layer `end`. In `commit`, where something was evicted, or a prompt or an item that was
// passed whole has closed segments or ended, `summarize`, `summarize_again`, `choose_at_commit`. Grids cover the tokens
// after the prompts.
#pragma once

#include <zoomr/cache/device/choosing/summaries.cuh>
#include <zoomr/cache/device/launching/layer_kernel.cuh>
#include <zoomr/cache/device/launching/pass.cuh>
#include <zoomr/cache/device/voting/voter_launches.cuh>

#include <algorithm>  // std::min

namespace zoomr::inline v0::detail {

/// The launches of one pass that are about choices. With `fixed` none of their arguments or grids depends on the step.
template <class Policy, class T, index_t HeadDim, index_t Group, class Ranks>
struct choice_launches : device_pass<Policy, T> {
  using pass = device_pass<Policy, T>;
  using pass::arrays, pass::core, pass::deciding, pass::fixed, pass::grid, pass::in_prompt, pass::may_choose,
      pass::table;

  using pass::pass;

  voter_launches<Policy, T, HeadDim, Ranks> voters() const { return {core, table, deciding, in_prompt, fixed}; }

  /// One choice serves all layers.
  static constexpr bool for_all(const Policy& policy) { return policy.aggregate.per == scope::sequence; }

  /// A second pass reads what the first has chosen, unless only another group of layers needs it.
  bool chooses_in_pass() const { return table != step_table::second_pass || chooses_for_next_tokens(core.policy); }

  /// As device_launches::load.
  template <class Number>
  void load() const {
    load_kernel(layer_kernel<HeadDim, Group, Policy, T, Number>);
    if constexpr (reads_summaries<Policy>) {
      load_kernel(summarize_kernel<Policy, T>);
      load_kernel(layer_kernel<HeadDim, Group, Policy, T, float>);
    }
    if constexpr (Policy::selects && decltype(Policy::aggregate)::counts) load_kernel(begin_kernel<Policy, T>);
    if constexpr (hears_voters<Policy>) {
      voters().template load<Number>();
    } else if constexpr (Policy::selects) {
      load_kernel(choose_for_all_kernel<Policy, T>);
      load_kernel(remember_kernel<T, Number>);
      if constexpr (may_share_choices<Policy, Ranks>()) load_kernel(choose_together_kernel<Policy, T>);
    }
  }

  /// Summarises the segments that the table lists. A graph covers three for each token.
  /// @cost  1 launch, or none
  void summarize(stream_ref stream) const {
    if constexpr (reads_summaries<Policy>) {
      const index_t closings = fixed ? 3 * core.sizes.decode_tokens : core.listed[table].counts().closings;
      if (closings == 0) return;
      launch({grid(std::min<index_t>(closings, 1024), core.sizes.model.kv_lanes()), dim3(summarize_threads)}, stream,
             summarize_kernel<Policy, T>, core.kernel_policy, arrays(), core.limits.key_scale.all);
    }
  }

  /// Makes the summaries of those sequences that have lost tokens in this commit anew, from the keys that are left: of
  /// all their segments, since a segment's keys are in other slots now, and may be fewer.
  /// @cost  1 launch for each such sequence
  void summarize_again(stream_ref stream) const {
    if constexpr (Policy::selects && decltype(Policy::evict)::observes) {
      for (const device_item& item : core.step.items) {
        const device_sequence& state = core.state(item.seq);
        if (item.due.kept == 0 || state.segment_count() == 0) continue;
        device_arrays<Policy, T> arrays_of_item = arrays();
        arrays_of_item.resummarize = {item.seq, state.segment_count(), core.held(state)};
        launch({grid(std::min<index_t>(state.segment_count(), 1024), core.sizes.model.kv_lanes()),
                dim3(summarize_threads)},
               stream, summarize_kernel<Policy, T>, core.kernel_policy, arrays_of_item, core.limits.key_scale.all);
      }
    }
  }

  /// Before layer 0, where one choice serves all layers and votes add up.
  /// @cost  1 launch, or none
  void begin(stream_ref stream) const {
    if constexpr (Policy::selects && decltype(Policy::aggregate)::counts) {
      if (deciding > 0 && for_all(core.kernel_policy) && chooses_in_pass()) begin_votes(stream);
    }
  }
  /// Behind the last layer, where one choice serves all layers. That of voters, which is read from the next token on,
  /// goes on beside what the engine enqueues next, until `basic_device_step::join`; over ranks it stays on the stream,
  /// where the engine's own exchanges are.
  /// @cost  1 launch, or none; over ranks an all-reduce before it
  void end(stream_ref stream) const {
    if constexpr (hears_voters<Policy>) {
      if (deciding == 0 || !chooses_in_pass()) return;
      const bool aside = table != step_table::commit && core.limits.ranks.alone();
      voters().choose(aside ? core.beside->fork(stream) : stream);
    } else if constexpr (Policy::selects) {
      if (deciding == 0 || !for_all(core.kernel_policy) || !chooses_in_pass()) return;
      if constexpr (may_share_choices<Policy, Ranks>()) {
        if (shares_votes()) return choose_together(0, range_use::choice, stream);
      }
      launch({grid(deciding), dim3(choose_threads)}, stream, choose_for_all_kernel<Policy, T>, core.kernel_policy,
             arrays());
    }
  }

  /// Remembers a layer's queries [tokens, heads, head_dim] where `choose` does not: those of prompts.
  /// @cost  1 launch where there are prompts; for voters 1 for each of them
  template <class Number>
  void see_queries(index_t layer, view<const Number, 3> queries, stream_ref stream) const {
    if constexpr (hears_voters<Policy>) {
      if (in_prompt > 0) voters().remember(layer, queries, stream);
    } else if constexpr (Policy::selects) {
      if (in_prompt > 0) {
        launch({grid(core.sizes.sequences), dim3(plain_threads)}, stream, remember_kernel<T, Number>, arrays(), layer,
               queries);
      }
    }
  }

  /// Scores for the tokens that choose, makes a layer's choices that are due, and finds the ranges of its tokens. Keys
  /// and values are stored, if `in` has some. A second pass scores nothing: it reads what the first has chosen.
  /// @pre   deciding > 0
  /// @cost  1 launch; where ranks make the choice of a layer 3, and an all-reduce
  template <class Number>
  void choose(const layer_inputs<Number>& in, range_use use, stream_ref stream) const {
    if constexpr (may_share_choices<Policy, Ranks>() && !hears_voters<Policy>) {
      if (scores(in.layer) && !for_all(core.kernel_policy) && shares_votes()) {
        begin_votes(stream);
        Policy adds_votes = core.kernel_policy;  // as where one choice serves all layers: only this layer's votes
        adds_votes.aggregate.per = scope::sequence;
        launch_layer<HeadDim, Group>(adds_votes, arrays(), in, true, use == range_use::choice ? use : range_use::known,
                                     deciding, stream);
        return choose_together(in.layer, use, stream);
      }
    }
    launch_layer<HeadDim, Group>(core.kernel_policy, arrays(), in, scores(in.layer), use, deciding, stream);
  }
  /// The same for the attention that follows.
  template <class Number>
  void choose(const layer_inputs<Number>& in, stream_ref stream) const {
    choose(in, finds_ranges(core.kernel_policy, in.layer) ? range_use::attention : range_use::known, stream);
  }

  /// Makes the choices of the commit: where a prompt has ended, or one has waited for an item that was passed whole.
  /// They are made from the queries of the item's last token, which `choice_queries` has of all layers. A token of the
  /// commit's table has its sequence for a row, so that the array is seen as [sequences, heads, head_dim].
  /// @cost  a launch for each layer, and up to 2 more, or 4 where heads vote; none if no choice is due
  void choose_at_commit(stream_ref stream) const {
    if constexpr (Policy::selects) {
      if (deciding == 0) return;
      begin(stream);
      if constexpr (reads_summaries<Policy>) {
        const shape& model = core.sizes.model;
        const std::int64_t layer_queries = core.sizes.query_numbers();
        for (index_t layer = 0; layer < model.layers; ++layer) {
          if (!scores(layer)) continue;
          const view<const float, 3> queries(core.arrays.choice_queries + layer * layer_queries,
                                             {core.sizes.sequences, model.heads, model.head_dim},
                                             {model.layers * layer_queries, model.head_dim, 1});
          choose(layer_inputs<float>{layer, queries}, range_use::choice, stream);
        }
      }
      end(stream);
    }
  }

 private:
  void begin_votes(stream_ref stream) const {
    launch({grid(deciding), dim3(choose_threads)}, stream, begin_kernel<Policy, T>, core.kernel_policy, arrays());
  }
  // Some token chooses, from the votes of all ranks' heads.
  bool shares_votes() const {
    return !core.limits.ranks.alone() && core.kernel_policy.aggregate.per < scope::kv_head && may_choose();
  }
  void choose_together(index_t layer, range_use use, stream_ref stream) const {
    const device_arrays<Policy, T> a = arrays();
    add_up(core, a.votes, std::int64_t{deciding} * core.sizes.segments, stream);
    launch({grid(deciding), dim3(choose_threads)}, stream, choose_together_kernel<Policy, T>, core.kernel_policy, a,
           layer, use);
  }

  // A choice for all layers is made by all.
  bool scores(index_t layer) const {
    if constexpr (!reads_summaries<Policy>) return false;
    return chooses_in_pass() && deciding > 0 &&
           (layer >= core.kernel_policy.zone.dense_layers || for_all(core.kernel_policy));
  }
};

}  // namespace zoomr::inline v0::detail
