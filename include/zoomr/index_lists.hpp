// SPDX-License-Identifier: Apache-2.0
// L6. Models that choose for themselves what they read, by index keys of their own (DSA, MSA, QSA): one cache holds the
// index keys, and lists tokens by them; the other one holds keys and values, and attends to what is listed. Both have
// the same steps, forks and edits. In a layer, in place of `attend`:
//
//     index_step.append(layer, index_keys);                                       [tokens, 1, index_dim]
//     list_by_index(index_step, layer, dsa_rule, index_queries, head_weights, listed);
//     step.append(layer, keys, values);
//     attend_listed(step, layer, queries, listed, out);
// zoomr.hpp does not include it.
#pragma once

#include <zoomr/attention/index_rule.hpp>
#include <zoomr/cache/host/attending/listed_attention.hpp>
#include <zoomr/cache/host/choosing/index_lists.hpp>
#include <zoomr/grouped_step.hpp>

namespace zoomr::inline v0 {
namespace detail {

/// What the functions below need of a step.
struct listed_calls {
  template <class Step>
  explicit listed_calls(const char* call, Step& step, index_t layer)
      : model(step.expect_layer(call, layer)), tokens(step.tokens_), second_pass(step.pass_ == 1) {
    const auto& core = core_of(step);
    ZOOMR_EXPECTS(attends_everything(core.policy, core.limits.max_tokens),
                  std::string(call) + ": the policy gives what is attended: take one that attends everything, as full");
    ZOOMR_EXPECTS(core.limits.token_ranks.alone(), std::string(call) + ": not with config.token_ranks");
    core.step.layers.expect_queries(call, layer);
  }
  template <class Step>
  static auto& core_of(Step& step) {
    return *step.core_;
  }
  /// work(item) of those in this pass.
  template <class Core, class Work>
  void each_item(Core& core, Work work) const {
    for (planned_item& item : core.step.items) {
      if (!second_pass || item.second_pass) work(item);
    }
  }
  template <class Grouped, class Work>
  static void in_layer(const char* call, Grouped& step, index_t layer, Work work) {
    step.in_layer(call, layer, work);
  }

  const shape& model;
  index_t tokens;
  bool second_pass;
};

}  // namespace detail

/// Attends, in prompts too: each query to the tokens that are listed for it.
/// @param queries  [tokens, heads, head_dim]  rotated, as of `step::attend`
/// @param listed   [tokens, 1 or kv_heads, most]  positions in the sequence, ascending, none after the query's own; -1
///                 behind the last. One list is of all heads
/// @param out      [tokens, heads, value_width]  zeros where nothing is listed
/// @param lse      [tokens, heads]; may be empty
/// @pre   append(layer) came before; the policy attends everything, as `full`; once for each layer and pass
/// @cost  key and value are read of each listed token and KV head. No allocation
template <class T, class Placement>
void attend_listed(step<T, Placement>& in, index_t layer, view<const float, 3> queries, view<const index_t, 3> listed,
                   view<float, 3> out, view<float, 2> lse = {}) requires(!pool_of<Placement, T>::may_fail) {
  const detail::listed_calls call("attend_listed", in, layer);
  auto& core = call.core_of(in);
  const shape& model = call.model;
  expect_extents("attend_listed: queries are", queries, {{call.tokens, model.heads, model.head_dim}});
  expect_extents("attend_listed: out is", out, {{call.tokens, model.heads, model.value_width()}});
  if (lse.data() != nullptr) expect_extents("attend_listed: lse is", lse, {{call.tokens, model.heads}});
  const index_t lists = listed.extent(1) == 1 ? 1 : model.kv_heads;
  expect_extents("attend_listed: listed is", listed, {{call.tokens, lists, listed.extent(2)}});
  queries = core.hadamard.queries(queries);
  const auto attention = [&](detail::planned_item& item) {
    return detail::listed_attention<pool_of<Placement, T>>(core, item, layer, call.second_pass, queries, listed, out,
                                                           lse);
  };
  call.each_item(core, [&](detail::planned_item& item) { attention(item).expect(); });
  call.each_item(core, [&](detail::planned_item& item) { attention(item).attend(); });
  core.hadamard.transform_back(out);
  core.step.layers.see(layer);
}

/// The same in a layer of a grouped cache, whose groups have whole layers.
template <class T, class Placement>
void attend_listed(grouped_step<T, Placement>& in, index_t layer, view<const float, 3> queries,
                   view<const index_t, 3> listed, view<float, 3> out, view<float, 2> lse = {}) {
  detail::listed_calls::in_layer("attend_listed", in, layer, [&](auto& of_group, index_t own, const auto&) {
    attend_listed(of_group, own, queries, listed, out, lse);
  });
}

/// Lists what queries read by index keys, in place of `attend` in the cache that holds these: its model has one KV
/// head, and the heads of the index. Of equal scores the first block is taken.
/// @param queries  [tokens, heads, head_dim]  of the index
/// @param weights  [tokens, heads]  empty: 1
/// @param listed   out: [tokens, 1, rule.most_tokens()] by all heads together, or [tokens, heads, ...] by each alone,
///                 without weights; as `attend_listed` takes it
/// @pre   append(layer) came before; once for each layer and pass
/// @cost  reads the index keys of all tokens that a query sees, once for each four heads; allocates 4 bytes for each
///        block, and for each block and list
template <class T, class Placement>
void list_by_index(step<T, Placement>& in, index_t layer, const index_rule& rule, view<const float, 3> queries,
                   view<const float, 2> weights, view<index_t, 3> listed) requires(!pool_of<Placement, T>::may_fail) {
  const detail::listed_calls call("list_by_index", in, layer);
  auto& core = call.core_of(in);
  const shape& model = call.model;
  const char* const problem = rule.problem();
  ZOOMR_EXPECTS(problem == nullptr, problem);
  ZOOMR_EXPECTS(model.kv_heads == 1, "list_by_index: index keys are of one KV head");
  const bool weighted = weights.data() != nullptr, together = listed.extent(1) == 1;
  ZOOMR_EXPECTS(together || !weighted, "list_by_index: heads that list alone have no weights");
  expect_extents("list_by_index: queries are", queries, {{call.tokens, model.heads, model.head_dim}});
  if (weighted) expect_extents("list_by_index: weights are", weights, {{call.tokens, model.heads}});
  const index_t lists = together ? 1 : model.heads;
  expect_extents("list_by_index: listed is", listed, {{call.tokens, lists, rule.most_tokens()}});
  queries = core.hadamard.queries(queries);
  call.each_item(core, [&](const detail::planned_item& item) {
    const auto keys = core.kv_lane(core.state_of(item), layer, 0);
    const index_t first = call.second_pass ? item.last() : item.first, end = item.first + item.tokens;
    detail::for_each_piece(core.threads_for(std::int64_t{end - first} * end), end - first, [&](index_t t, index_t) {
      const index_t row = item.packed + t;
      detail::index_lists(keys, rule, first + t + 1, lists)
          .list(queries[row], weighted ? weights[row] : view<const float>{}, listed[row]);
    });
  });
  core.step.layers.see(layer);
}

}  // namespace zoomr::inline v0
