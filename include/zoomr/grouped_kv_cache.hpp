// SPDX-License-Identifier: Apache-2.0
// L6. One cache for a model whose layers, or KV heads, differ: groups of them, each with a shape, a policy and
// capacities of its own, and sequences and steps that go through all of them.
#pragma once

#include <zoomr/cache/host/editing/group_edit.hpp>
#include <zoomr/grouped_step.hpp>
#include <zoomr/kv_cache.hpp>

#include <algorithm>  // std::min, std::ranges
#include <memory>     // std::unique_ptr
#include <string>     // std::to_string
#include <utility>    // std::move
#include <vector>     // std::vector

namespace zoomr::inline v0 {

/// Layers of a model in groups, each of which is an `any_kv_cache`: sliding-window layers and full ones, layers with
/// fewer KV heads, the first layers dense and the others under a sparse policy. All have one storage type and one
/// placement. A sequence has as many tokens in each group; what a call cannot do in all groups, it does in none.
///
/// @code
///   std::vector<any_kv_cache<bfloat16>> groups;  // sliding-window layers, then the others
///   groups.push_back(kv_cache<policy_of<presets::full>, bfloat16>(shape_of_sliding, presets::full, of_window));
///   groups.push_back(kv_cache<policy_of<mine>, bfloat16>(shape_of_others, mine, limits));
///   const std::vector<index_t> group_of = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1};  // for each layer of the model
///   grouped_kv_cache<bfloat16> cache(std::move(groups), group_of);
/// @endcode
///
/// Calls are those of `any_kv_cache`, with layers of the model. What differs between groups is read from one group:
/// `cache.group(g).slots(cache.in_group(seq, g))`. A policy counts only the layers of its group: `zones.dense_layers`
/// too, and a choice for all layers is one for all of these.
///
/// Groups may have KV heads in place of layers: retrieval heads, which keep what is read far back, and streaming heads
/// with a window, whose pages go back to the pool. Each KV head is a layer of its group then, in ascending order of
/// layers and KV heads: the group's shape has so many layers, one KV head, and the query heads that read it. Tables of
/// its config, and what counts layers in its policy, are by these.
///
/// @code
///   // [layers, KV heads]  0: a retrieval head; 1: a streaming head
///   grouped_kv_cache<bfloat16> cache(std::move(groups), view<const index_t, 2>(group_of.data(), {layers, kv_heads}));
/// @endcode
/// @source  DuoAttention, arXiv:2410.10819; RazorAttention, arXiv:2407.15891
template <class T = float, class Placement = placement>
class grouped_kv_cache {
 public:
  using cache_type = any_kv_cache<T, Placement>;
  using step_type = grouped_step<T, Placement>;

  /// @param groups    without open sequences
  /// @param group_of  [layers of the model]  the group of each; within a group they are in ascending order
  /// @throws precondition_error if a group has other layers than in the table, or is in use
  grouped_kv_cache(std::vector<cache_type> groups, view<const index_t> group_of);
  /// @param group_of  [layers of the model, KV heads]  that of each KV head; -1 behind them where a layer has fewer
  /// @throws precondition_error as above, also if a group's shape has several KV heads, or if groups that share a layer
  ///         differ in the rest of their shapes, or in config.half_queries
  grouped_kv_cache(std::vector<cache_type> groups, view<const index_t, 2> group_of);
  grouped_kv_cache(grouped_kv_cache&& other) noexcept;
  grouped_kv_cache& operator=(grouped_kv_cache&& other) noexcept;
  ~grouped_kv_cache();

  /// Groups, layers of the model, and where a layer is.
  index_t groups() const { return count(); }
  index_t layers() const { return table().layers(); }
  grouped_layer place(index_t layer) const { return table().place(layer); }
  grouped_layer place(index_t layer, index_t kv_head) const { return table().place(layer, kv_head); }
  const cache_type& group(index_t g) const;
  /// The handle of the sequence within a group: for calls of `group(g)`.
  sequence in_group(sequence seq, index_t g) const;

  /// A new, empty sequence.
  /// @throws error(capacity) if config.max_sequences of some group are open; nothing has changed
  sequence open();
  void close(sequence seq);
  /// @throws error(rollback_depth) if some group does not go back so far; nothing has changed in any
  void rollback(sequence seq, index_t tokens);
  /// @throws error(capacity) as `open`
  sequence fork(sequence from);
  /// As of `any_kv_cache`.
  void fork(sequence from, sequence into);

  /// As of `any_kv_cache`: from all groups, or where it fails from none. In an engine's pages a fork has had a step of
  /// its own before.
  /// @param turn  turn(layer of the model, key of its group), or position_gap{}
  /// @return  with the placement engine_pages: of each group, the entries of its block table that go
  template <class Turn = detail::unturned>
  auto erase(sequence seq, token_range positions, const Turn& turn = {}) {
    std::vector<token_range> entries = erase_span(seq, positions, turn);
    if constexpr (!pool_type::owns_pages) return entries;
  }
  /// As of `any_kv_cache`: whether it could be erased from all groups.
  /// @param turn  as of `erase`
  template <class Turn = detail::unturned>
  void plan_erase(sequence seq, token_range positions, const Turn& turn = {}) const;
  /// As of `any_kv_cache`, of all groups.
  bool holds_all() const;
  /// As of `any_kv_cache`, of any group.
  bool evicts_while_decoding() const;
  /// As of `any_kv_cache`, in all groups or in none.
  /// @param turn  as of `erase`
  template <class Turn = detail::unturned>
  void shift(sequence seq, token_range positions, index_t distance, const Turn& turn = {});

  /// Begins a step in all groups. It takes of each draft the fewest tokens that a group takes.
  /// @param tables  [items, groups]  block tables, with the placement engine_pages, in place of `step_item::pages`;
  ///                empty: the pages that they have
  /// @throws as `any_kv_cache::begin`, of any group; nothing has changed
  /// @cost   plans each item twice, once to find out how many tokens are taken
  step_type begin(view<const step_item> items, view<const view<const index_t>, 2> tables = {});
  step_type begin(sequence seq, view<const token_id> ids, bool prompt_ends = false);
  /// As of `any_kv_cache`: the fewest tokens that a group would take.
  void plan(view<const step_item> items, view<index_t> taken) const;

  /// Writes which layer is in which group, and then the sequence of each group as `any_kv_cache::save` does.
  void save(sequence seq, byte_sink& to);
  void save(sequence seq, byte_sink&& to) { save(seq, to); }
  /// As of `any_kv_cache`.
  byte_count save_bytes(sequence seq);
  /// Under the policies that the groups have now, whatever they were.
  /// @param tables  [groups]  its block tables, with the placement engine_pages
  /// @throws as `any_kv_cache::load`, of any group; error(format) if its layers are in other groups too. Nothing has
  ///         changed then
  sequence load(byte_source& from, view<const view<const index_t>> tables = {});
  sequence load(byte_source&& from, view<const view<const index_t>> tables = {}) { return load(from, tables); }

  index_t tokens(sequence seq) const { return at(0).tokens(handle(expect_open(seq), 0)); }
  index_t model_position(sequence seq, index_t position) const {
    return at(0).model_position(handle(expect_open(seq), 0), position);
  }
  bool in_prompt(sequence seq) const { return at(0).in_prompt(handle(expect_open(seq), 0)); }

  /// Bytes in use now; what the groups hold together.
  memory_use bytes(sequence seq) const;
  /// What the groups hold together at most.
  memory_use capacity() const;
  /// Tokens and passes of the sequence; what the groups have attended and chosen together; the sum of their peaks.
  statistics stats(sequence seq) const;
  /// As of `any_kv_cache`; layers and sequences in the records are the group's.
  void trace(index_t g, attention_trace* into) { group(g), at(g).trace(into); }
  void trace_choices(index_t g, choice_trace* into) { group(g), at(g).trace_choices(into); }

 private:
  using pool_type = pool_of<Placement, T>;
  static constexpr const char* no_pages =
      pool_type::owns_pages ? nullptr : "begin: each group has a block table of its own: hand over `tables`";

  grouped_kv_cache(std::vector<cache_type>&& groups, detail::layer_groups table_of);
  void expect_alike_in_layers() const;
  void expect_unused(sequence seq) const;
  // The first section of a saved sequence: which group each layer, or KV head, is in.
  template <class Archive>
  void group_table(Archive& archive) const;
  template <class Turn>
  std::vector<token_range> erase_span(sequence seq, token_range positions, const Turn& turn);
  template <class Turn>
  void plan_edit(index_t id, token_range positions, const Turn& turn, bool gap) const;
  index_t entries_of(index_t id, index_t g) const;
  // @return  what each group's edit has finished with
  template <template <class, class> class Edit, class Turn, class How>
  std::vector<token_range> edit(index_t id, token_range positions, const Turn& turn, How how);

  struct core {
    std::vector<cache_type> groups;
    detail::grouped_steps<T, Placement> steps;
  };

  const char (&magic() const)[8] { return table().by_kv_head() ? detail::kv_head_groups_magic : detail::groups_magic; }
  detail::layer_groups& table() const { return core_->steps.groups; }
  index_t count() const { return table().groups(); }
  cache_type& at(index_t g) const { return core_->groups[static_cast<std::size_t>(g)]; }
  sequence handle(index_t id, index_t g) const { return table().handle(id, g); }
  index_t expect_open(sequence seq) const { return table().expect_open(seq); }
  void expect_idle() const {
    ZOOMR_EXPECTS(core_->steps.group_steps.empty(), "a step is in progress: commit or drop it first");
  }
  // work(group, its number) for each; failures name it.
  template <class Work>
  void each(Work work) const {
    for (index_t g = 0; g < count(); ++g) detail::naming_group(g, [&] { work(at(g), g); });
  }

  // As of `layer_groups`.
  template <class Make, class Check>
  sequence open_as(Make make, sequence from, Check check) {
    return table().open_as(
        from, [&](auto work) { each(work); }, make, check);
  }
  template <class Make>
  sequence open_as(Make make, sequence from) {
    return open_as(make, from, [](index_t) {});
  }
  void expect_same_text(index_t id) const;

  template <class Bytes>
  memory_use sum_of(Bytes bytes) const {
    memory_use sum;
    for (index_t g = 0; g < count(); ++g) sum += bytes(g);
    return sum;
  }

  std::unique_ptr<core> core_;
};

}  // namespace zoomr::inline v0

#include <zoomr/grouped_kv_cache.inl>

#define ZOOMR_HAS_GROUPS
#include <zoomr/compiled.inl>
