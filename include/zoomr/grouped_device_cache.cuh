// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of grouped_kv_cache.hpp: one cache for a model whose layers differ, made of a device_cache for each
// group of them.
#pragma once

#include <zoomr/device_cache.cuh>
#include <zoomr/grouped_device_step.cuh>

#include <algorithm>    // std::min
#include <memory>       // std::unique_ptr
#include <optional>     // std::optional
#include <tuple>        // std::get, std::tuple
#include <type_traits>  // std::remove_reference_t
#include <utility>      // std::index_sequence_for, std::move

namespace zoomr::inline v0 {

/// Layers of a model in groups, each of which is a `device_cache`: of any shape, policy, storage type and capacities.
/// A sequence has as many tokens in each; what a call cannot do in all groups, it does in none.
///
/// @code
///   const std::vector<index_t> group_of = {0, 0, 0, 1, 0, 0, 0, 1};  // for each layer of the model
///   grouped_device_cache cache(group_of, of_sliding_layers, of_the_others);
/// @endcode
///
/// Calls are those of `device_cache`, with layers of the model. What differs between groups is read from one group,
/// with its own handle: `in_group(seq, g)`. A policy counts only the layers of its group. Where one policy needs a
/// second pass, the others must have choices that stay active, or make none: a choice for each token alone would not
/// outlive its layer.
/// @tparam Caches  device_cache<...>
template <class... Caches>
class grouped_device_cache {
  static constexpr index_t count = static_cast<index_t>(sizeof...(Caches));
  static_assert(count > 0, "grouped_device_cache: it needs at least one group");

 public:
  using step_type = grouped_device_step<Caches...>;

  /// @param group_of  [layers of the model]  the group of each; within a group they are in ascending order
  /// @param groups    without open sequences; they outlive this, and steps are begun here alone
  /// @throws precondition_error if a group has other layers than in the table, or is in use, or where a choice of a
  ///         first pass would be lost
  explicit grouped_device_cache(view<const index_t> group_of, Caches&... groups)
      : groups_(&groups...), table_(std::make_unique<detail::layer_groups>(count, group_of)) {
    index_t sequences = unlimited;
    bool again = false, forgets = false;
    each([&](auto& cache, index_t g) {
      const auto& in = *cache.core_;
      const index_t layers = table_->layers_in(g);
      ZOOMR_EXPECTS(layers == in.sizes.model.layers, "its shape has " + std::to_string(in.sizes.model.layers) +
                                                         " layers, the table of layers " + std::to_string(layers));
      ZOOMR_EXPECTS(!detail::in_use(in), "sequences of it are open");
      again = again || (in.policy.aggregate.per == scope::sequence && in.policy.refresh.second_pass);
      forgets = forgets || (in.sizes.selects && !in.sizes.persists);
      sequences = (std::min)(sequences, in.limits.max_sequences);
    });
    ZOOMR_EXPECTS(!again || !forgets,
                  "groups: one has a second pass, which on a device needs choices of the others that stay active");
    table_->make_room(sequences);
  }

  // What follows compiles nowhere, and says why.
  explicit grouped_device_cache(view<const index_t, 2>, Caches&...) {
    static_assert(count == 0, "grouped_device_cache: its groups have whole layers; a table of KV heads is the host's");
  }

  index_t groups() const { return count; }
  index_t layers() const { return table_->layers(); }
  grouped_layer place(index_t layer) const { return table_->place(layer); }
  template <index_t Group>
  auto& group() const {
    return *std::get<std::size_t{Group}>(groups_);
  }
  /// The handle of the sequence within a group.
  sequence in_group(sequence seq, index_t g) const {
    table_->expect_group(g);
    return handle(expect_open(seq), g);
  }

  /// @throws error(capacity) if config.max_sequences of some group are open; nothing has changed
  sequence open() {
    return open_as([](auto& in, index_t, sequence) { return in.open(); }, {});
  }
  void close(sequence seq) {
    const index_t id = expect_open(seq);
    each([&](auto& in, index_t g) { in.expect_unused(handle(id, g)); });
    each([&](auto& in, index_t g) { in.close(handle(id, g)); });
    table_->close(id);
  }
  /// @throws error(rollback_depth) if some group does not go back so far; nothing has changed in any
  void rollback(sequence seq, index_t tokens) {
    const index_t id = expect_open(seq);
    each([&](auto& in, index_t g) { in.core_->expect_known(in.expect_held(handle(id, g), tokens), tokens); });
    each([&](auto& in, index_t g) { in.rollback(handle(id, g), tokens); });
  }
  /// @throws error(capacity) as `open`
  /// @cost   2 launches for each group
  sequence fork(sequence from, stream_ref stream) {
    expect_open(from);
    return open_as([&](auto& in, index_t, sequence original) { return in.fork(original, stream); }, from);
  }
  /// As of `device_cache`.
  /// @cost   as above
  void fork(sequence from, sequence into, stream_ref stream) {
    const index_t id = expect_open(from), other = expect_open(into);
    each([&](auto& in, index_t g) { in.expect_unused(handle(id, g)); });
    each([&](auto& in, index_t g) { in.fork(handle(id, g), handle(other, g), stream); });
  }

  /// True if `begin` will find tables to write, in all groups; `wait` waits until then.
  bool ready() const {
    bool every_group = true;
    each([&](auto& in, index_t) { every_group = in.ready() && every_group; });
    return every_group;
  }
  void wait() {
    each([](auto& in, index_t) { in.wait(); });
  }

  /// Begins a step in all groups. It takes of each draft the fewest tokens that a group takes.
  /// @throws as `device_cache::begin`, of any group; nothing has changed
  /// @cost   plans each item twice, once to find out how many tokens are taken
  step_type begin(view<const step_item> items, bool fixed = false) {
    each([](auto& in, index_t) { in.core_->home.expect_current("begin"); });
    plan_all(items, fixed);
    return begin_all(items, fixed, std::index_sequence_for<Caches...>{});
  }
  step_type begin(sequence seq, view<const token_id> ids, bool prompt_ends = false, bool fixed = false) {
    const step_item item{seq, ids, prompt_ends};
    return begin(view<const step_item>(&item, {1}), fixed);
  }

  /// As of `device_cache`: the fewest tokens that a group would take.
  void plan(view<const step_item> items, view<index_t> taken) const {
    expect_extents("plan: taken is", taken, {{items.size()}});
    plan_all(items, false);
    for (index_t i = 0; i < items.size(); ++i) taken[i] = table_->least()[i];
  }

  index_t tokens(sequence seq) const { return group<0>().tokens(handle(expect_open(seq), 0)); }
  bool in_prompt(sequence seq) const { return group<0>().in_prompt(handle(expect_open(seq), 0)); }

 private:
  static constexpr const char* no_pages = "begin: block tables of groups are told by `block_table` of each";

  sequence handle(index_t id, index_t g) const { return table_->handle(id, g); }
  index_t expect_open(sequence seq) const { return table_->expect_open(seq); }

  // work(group, its number) for each; failures name it.
  template <class Work>
  void each(Work work) const {
    index_t g = 0;
    const auto in_turn = [&](auto* in) { detail::naming_group(g, [&] { work(*in, g); }), ++g; };
    std::apply([&](auto*... in) { (in_turn(in), ...); }, groups_);
  }

  // As of `layer_groups`.
  template <class Make>
  sequence open_as(Make make, sequence from) {
    return table_->open_as(
        from, [&](auto work) { each(work); }, make, [](index_t) {});
  }

  void plan_all(view<const step_item> items, bool fixed) const {
    each([](auto& in, index_t) { in.core_->step.expect_idle(); });
    table_->plan(
        items, no_pages, {}, [this](auto work) { each(work); }, fixed);
  }
  // One after the other; where one fails, those before it are dropped.
  template <std::size_t... G>
  step_type begin_all(view<const step_item> items, bool fixed, std::index_sequence<G...>) {
    return step_type(*table_, {begin_in<G>(items, fixed)...});
  }
  template <std::size_t G>
  auto begin_in(view<const step_item> items, bool fixed) {
    auto& in = *std::get<G>(groups_);
    std::optional<typename std::remove_reference_t<decltype(in)>::step_type> step;
    constexpr auto g = static_cast<index_t>(G);
    detail::naming_group(g, [&] { step.emplace(in.begin(table_->listed(items, g), fixed)); });
    return std::move(*step);
  }

  std::tuple<Caches*...> groups_;
  std::unique_ptr<detail::layer_groups> table_;  // a step points to it, also when the cache is moved
};

}  // namespace zoomr::inline v0
