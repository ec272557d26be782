// SPDX-License-Identifier: Apache-2.0
// L6. One cache for a model whose layers differ: groups of layers, each with a shape, a policy and capacities of its
// own, and sequences and steps that go through all of them.
#pragma once

#include <zoomr/cache/host/editing/group_edit.hpp>
#include <zoomr/grouped_step.hpp>
#include <zoomr/kv_cache.hpp>

#include <algorithm>  // std::min
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
/// Calls are those of `any_kv_cache`, with layers of the model. What differs between groups is asked of one:
/// `cache.group(g).slots(cache.in_group(seq, g))`. A policy counts only the layers of its group: `zones.dense_layers`
/// too, and a choice for all layers is one for all of these.
template <class T = float, class Placement = placement>
class grouped_kv_cache {
 public:
  using cache_type = any_kv_cache<T, Placement>;
  using step_type = grouped_step<T, Placement>;

  /// @param groups    without open sequences
  /// @param group_of  [layers of the model]  the group of each; within a group they are in ascending order
  /// @throws precondition_error if a group has other layers than the table says, or is in use
  grouped_kv_cache(std::vector<cache_type> groups, view<const index_t> group_of) {
    ZOOMR_EXPECTS(!groups.empty(), "groups: a cache needs at least one");
    const auto count = static_cast<index_t>(groups.size());
    core_ = std::make_unique<core>(core{std::move(groups), {{count, group_of}, {}, {}}});
    index_t sequences = unlimited;
    for (index_t g = 0; g < count; ++g) {
      const auto& group = *at(g).core_;
      const index_t layers = table().layers_in(g);
      ZOOMR_EXPECTS(layers == group.sizes.model.layers, "groups: the shape of group " + std::to_string(g) + " has " +
                                                            std::to_string(group.sizes.model.layers) +
                                                            " layers, the table of layers " + std::to_string(layers));
      ZOOMR_EXPECTS(!detail::in_use(group), "groups: sequences of group " + std::to_string(g) + " are open");
      sequences = (std::min)(sequences, group.limits.max_sequences);
    }
    table().make_room(sequences);
    core_->steps.takes_part.resize(static_cast<std::size_t>(sequences));
    core_->steps.group_steps.reserve(static_cast<std::size_t>(count));
  }

  /// Groups, layers of the model, and where a layer is.
  index_t groups() const { return count(); }
  index_t layers() const { return table().layers(); }
  grouped_layer place(index_t layer) const { return table().place(layer); }
  const cache_type& group(index_t g) const {
    table().expect_group(g);
    return at(g);
  }
  /// The sequence as a group knows it: for calls of `group(g)`.
  sequence in_group(sequence seq, index_t g) const {
    group(g);
    return handle(expect_open(seq), g);
  }

  /// A new, empty sequence.
  /// @throws error(capacity) if config.max_sequences of some group are open; nothing has changed
  sequence open() {
    return open_as([](cache_type& in, index_t, sequence) { return in.open(); }, {});
  }
  void close(sequence seq) {
    const index_t id = expect_open(seq);
    for (index_t g = 0; g < count(); ++g) at(g).close(handle(id, g));
    table().close(id);
  }
  /// @throws error(rollback_depth) if some group does not go back so far; nothing has changed in any
  void rollback(sequence seq, index_t tokens) {
    const index_t id = expect_open(seq);
    each([&](cache_type& in, index_t g) { in.core_->expect_known(in.expect_held(handle(id, g), tokens), tokens); });
    for (index_t g = 0; g < count(); ++g) at(g).rollback(handle(id, g), tokens);
  }
  /// @throws error(capacity) as `open`
  sequence fork(sequence from) {
    expect_open(from);
    return open_as([](cache_type& in, index_t, sequence original) { return in.fork(original); }, from);
  }
  /// As of `any_kv_cache`.
  void fork(sequence from, sequence into) {
    const index_t id = expect_open(from), other = expect_open(into);
    expect_unused(from);
    for (index_t g = 0; g < count(); ++g) at(g).fork(handle(id, g), handle(other, g));
  }

  /// As of `any_kv_cache`: from all groups, or where it fails from none. In an engine's pages a fork has had a step of
  /// its own before.
  /// @param turn  turn(layer of the model, key of its group), or position_gap{}
  /// @return  with the placement engine_pages: of each group, the entries of its block table that go
  template <class Turn = detail::unturned>
  auto erase(sequence seq, token_range positions, const Turn& turn = {}) {
    std::vector<token_range> entries = erase_span(seq, positions, turn);
    if constexpr (!pool_type::owns_pages) return entries;
  }
  /// As of `any_kv_cache`, in all groups or in none.
  /// @param turn  as of `erase`
  template <class Turn = detail::unturned>
  void shift(sequence seq, token_range positions, index_t distance, const Turn& turn = {}) {
    expect_unused(seq);
    edit<detail::span_shift>(expect_open(seq), positions, turn, distance);
  }

  /// Begins a step in all groups. It takes of each draft the fewest tokens that a group takes.
  /// @param tables  [items, groups]  block tables, with the placement engine_pages, in place of `step_item::pages`;
  ///                empty: the pages that they have
  /// @throws as `any_kv_cache::begin`, of any group; nothing has changed
  /// @cost   plans each item twice, once to find out how many tokens are taken
  step_type begin(view<const step_item> items, view<const view<const index_t>, 2> tables = {}) {
    expect_idle();
    table().expect_items(items, no_pages);
    if (tables.data() != nullptr) expect_extents("begin: tables are", tables, {{items.size(), count()}});
    each([&](cache_type& in, index_t g) { in.plan_alone(table().listed(items, g, tables), table().least()); });
    ZOOMR_TRY {
      each([&](cache_type& in, index_t g) {
        core_->steps.group_steps.push_back(in.begin(table().listed(items, g, tables)));
      });
    }
    ZOOMR_CATCH_ALL {
      core_->steps.group_steps.clear();
      detail::rethrow();
    }
    return step_type(core_->steps);
  }
  step_type begin(sequence seq, view<const token_id> ids, bool prompt_ends = false) {
    const step_item item{seq, ids, prompt_ends};
    return begin(view<const step_item>(&item, {1}));
  }
  /// As of `any_kv_cache`: the fewest tokens that a group would take.
  void plan(view<const step_item> items, view<index_t> taken) const {
    expect_idle();
    table().plan(items, no_pages, taken, [this](auto work) { each(work); });
  }

  /// Writes which layer is in which group, and then the sequence of each group as `any_kv_cache::save` does.
  void save(sequence seq, byte_sink& to) {
    const index_t id = expect_open(seq);
    for (index_t g = 0; g < count(); ++g) at(g).expect_unused(handle(id, g));
    detail::sink_of_part part(to);
    detail::section_writer out(part, detail::groups_magic);
    group_table(out);
    out.finish();
    each([&](cache_type& in, index_t g) { in.save(handle(id, g), part); });
    to.finish();
  }
  void save(sequence seq, byte_sink&& to) { save(seq, to); }
  /// As of `any_kv_cache`.
  byte_count save_bytes(sequence seq) {
    detail::byte_counter counted;
    save(seq, counted);
    return counted.bytes();
  }
  /// Under the policies that the groups have now, whatever they were.
  /// @param tables  [groups]  its block tables, with the placement engine_pages
  /// @throws as `any_kv_cache::load`, of any group; error(format) if its layers are in other groups too. Nothing has
  ///         changed then
  sequence load(byte_source& from, view<const view<const index_t>> tables = {}) {
    expect_idle();
    if (tables.size() > 0) expect_extents("load: tables are", tables, {{count()}});
    detail::section_reader in(from, detail::groups_magic, "saved sequence of groups of layers");
    group_table(in);
    const auto load_group = [&](cache_type& to, index_t g, sequence) {
      return to.load(from, tables.size() > 0 ? tables[g] : view<const index_t>{});
    };
    return open_as(load_group, {}, [&](index_t id) { expect_same_text(id); });
  }
  sequence load(byte_source&& from, view<const view<const index_t>> tables = {}) { return load(from, tables); }

  index_t tokens(sequence seq) const { return at(0).tokens(handle(expect_open(seq), 0)); }
  bool in_prompt(sequence seq) const { return at(0).in_prompt(handle(expect_open(seq), 0)); }

  /// Bytes in use now; what the groups hold together.
  memory_use bytes(sequence seq) const {
    const index_t id = expect_open(seq);
    return sum_of([&](index_t g) { return at(g).bytes(handle(id, g)); });
  }
  /// What the groups hold together at most.
  memory_use capacity() const {
    return sum_of([&](index_t g) { return at(g).capacity(); });
  }
  /// Tokens and passes of the sequence; what the groups have attended and chosen together; the sum of their peaks.
  statistics stats(sequence seq) const {
    const index_t id = expect_open(seq);
    statistics sum = at(0).stats(handle(id, 0));
    for (index_t g = 1; g < count(); ++g) sum.add_layers(at(g).stats(handle(id, g)));
    return sum;
  }
  /// As of `any_kv_cache`; layers and sequences in the records are the group's.
  void trace(index_t g, attention_trace* into) { group(g), at(g).trace(into); }
  void trace_choices(index_t g, choice_trace* into) { group(g), at(g).trace_choices(into); }

 private:
  using pool_type = pool_of<Placement, T>;
  static constexpr const char* no_pages = "begin: each group has a block table of its own: hand over `tables`";

  void expect_unused(sequence seq) {
    const index_t id = expect_open(seq);
    each([&](cache_type& in, index_t g) { in.expect_unused(handle(id, g)); });
  }
  // The first section of a saved sequence: which group each layer is in.
  template <class Archive>
  void group_table(Archive& archive) const {
    archive.section("groups", [&] {
      bool same = !Archive::reads || archive.left() == layers() * static_cast<byte_count>(sizeof(index_t));
      for (index_t layer = 0; same && layer < layers(); ++layer) {
        index_t group = place(layer).group;
        archive.number(group);
        same = group == place(layer).group;
      }
      if (!same) detail::refuse_file("the file's layers are in other groups than those of this cache");
    });
  }
  template <class Turn>
  std::vector<token_range> erase_span(sequence seq, token_range positions, const Turn& turn) {
    const index_t id = expect_open(seq);
    expect_unused(seq);
    if (!detail::needs_erasing(at(0).expect_unused(handle(id, 0)), positions)) {
      std::vector<token_range> entries;
      for (index_t g = 0; g < count(); ++g) entries.push_back({0, entries_of(id, g)});
      if (positions.size() > 0) rollback(seq, positions.first);
      for (index_t g = 0; g < count(); ++g) entries[static_cast<std::size_t>(g)].first = entries_of(id, g);
      return entries;
    }
    if constexpr (std::is_same_v<Turn, position_gap>) {
      return edit<detail::span_erasure>(id, positions, detail::unturned{}, true);
    } else {
      return edit<detail::span_erasure>(id, positions, turn, false);
    }
  }
  index_t entries_of(index_t id, index_t g) const {
    return static_cast<index_t>(at(g).expect_open(handle(id, g)).pages.size());
  }
  // @return  what each group's edit has finished with
  template <template <class, class> class Edit, class Turn, class How>
  std::vector<token_range> edit(index_t id, token_range positions, const Turn& turn, How how) {
    detail::group_edit<Edit, pool_type, Turn> edited(turn, table());
    each([&](cache_type& in, index_t g) { edited.prepare(*in.core_, handle(id, g).id, positions, how); });
    ZOOMR_TRY {
      each([&](cache_type&, index_t g) { edited.write(g); });
    }
    ZOOMR_CATCH(const error& why) {
      edited.forget();
      detail::rethrow();
    }
    std::vector<token_range> entries;
    for (index_t g = 0; g < count(); ++g) entries.push_back(edited.finish(g));
    return entries;
  }

  struct core {
    std::vector<cache_type> groups;
    detail::grouped_steps<T, Placement> steps;
  };

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
  void expect_same_text(index_t id) const {
    const auto& first = at(0).expect_open(handle(id, 0));
    for (index_t g = 1; g < count(); ++g) {
      const auto& state = at(g).expect_open(handle(id, g));
      const bool same_prompts = state.prompt_end == first.prompt_end && state.later_prompts == first.later_prompts &&
                                state.moved == first.moved;
      if (state.tokens() != first.tokens() || !same_prompts) {
        detail::refuse_file("the groups of the file have different texts");
      }
    }
  }

  template <class Bytes>
  memory_use sum_of(Bytes bytes) const {
    memory_use sum;
    for (index_t g = 0; g < count(); ++g) sum += bytes(g);
    return sum;
  }

  std::unique_ptr<core> core_;
};

}  // namespace zoomr::inline v0
