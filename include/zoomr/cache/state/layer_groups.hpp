// SPDX-License-Identifier: Apache-2.0
// L6. Which layers of a model, or which of their KV heads, are in which group, and what the grouped caches of host and
// device do alike with sequences that are in all groups.
#pragma once

#include <zoomr/cache/sequence.hpp>
#include <zoomr/cache/state/sequences.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/core/view.hpp>

#include <algorithm>    // std::min
#include <cstdint>      // std::uint32_t
#include <exception>    // std::exception
#include <string>       // std::string, std::to_string
#include <string_view>  // std::string_view

namespace zoomr::inline v0 {

/// Where a layer of a model, or one of its KV heads, is: its group, and which of the group's layers it is.
struct grouped_layer {
  index_t group = 0;
  index_t layer = 0;
  friend constexpr bool operator==(grouped_layer, grouped_layer) = default;
};

namespace detail {

/// work(); its failures name their group.
/// @param named  named()  returns the group's name, for the beginning of a sentence
template <class Work, class Named>
void naming_group(Work work, Named named) {
  const auto sentence = [&](const std::exception& cause) {
    std::string_view text = cause.what();
    if (text.substr(0, error::prefix.size()) == error::prefix) text.remove_prefix(error::prefix.size());
    return named() + ": " + std::string(text);
  };
  ZOOMR_TRY { work(); }
  ZOOMR_CATCH(const error& cause) { raise(cause.code(), sentence(cause)); }
  ZOOMR_CATCH(const precondition_error& cause) { raise_precondition(sentence(cause)); }
}
template <class Work>
void naming_group(index_t group, Work work) {
  naming_group(work, [=] { return "group " + std::to_string(group); });
}

/// True if sequences of a cache are open.
template <class Core>
bool in_use(const Core& core) {
  bool used = core.step.active;
  for (const auto& state : core.states) used = used || state.open;
  return used;
}

/// Which rows of a layer's arrays a place has: all of them, or those of one KV head.
struct layer_rows {
  index_t kv_head = 0;
  index_t kv_heads = 0;  // of the layer; 0: its group has all of them

  /// @param rows  [tokens, kv_heads, width]
  /// @param what  as of `expect_extents`
  template <class Number>
  view<Number, 3> of_kv_head(const char* what, view<Number, 3> rows) const {
    return rows.data() == nullptr ? rows : part(what, rows, 1);
  }
  /// @param rows  [tokens, heads, width]
  template <class Number>
  view<Number, 3> of_heads(const char* what, view<Number, 3> rows, const shape& model) const {
    return part(what, rows, model.heads);
  }
  /// @param sums  [tokens, heads], or empty
  view<float, 2> of_heads(const char* what, view<float, 2> sums, const shape& model) const {
    if (kv_heads == 0 || sums.data() == nullptr) return sums;
    expect_extents(what, sums, {{sums.extent(0), kv_heads * model.heads}});
    return {sums.data() + kv_head * model.heads, {sums.extent(0), model.heads}, {sums.stride(0), 1}};
  }
  /// What the group reads, by the heads of the model.
  slots_read in_model(slots_read read, const shape& model) const {
    if (kv_heads == 0) return read;
    const index_t first = kv_head * model.heads;
    return {read.item, read.token, kv_head, {first + read.heads.first, first + read.heads.last}, read.slots};
  }

 private:
  template <class Number>
  view<Number, 3> part(const char* what, view<Number, 3> rows, index_t heads) const {
    if (kv_heads == 0) return rows;
    expect_extents(what, rows, {{rows.extent(0), kv_heads * heads, rows.extent(2)}});
    return {rows.data() + kv_head * heads * rows.stride(1),
            {rows.extent(0), heads, rows.extent(2)},
            {rows.stride(0), rows.stride(1), 1}};
  }
};

/// What a grouped cache has beside its groups: the table of layers, its sequences, and their handles in each group. It
/// stays where it is while a step is in progress.
///
/// A table of KV heads makes each of them a layer of its group, ascending by layer and KV head of the model. The group
/// has one KV head then, and the query heads that read it.
class layer_groups {
 public:
  /// Without sequences yet.
  /// @param group_of  [layers of the model]  the group of each
  /// @throws precondition_error if there is no such group
  layer_groups(index_t groups, view<const index_t> group_of)
      : layer_groups(groups, view<const index_t, 2>(group_of.data(), {group_of.size(), 1}), false) {}
  /// @param group_of  [layers of the model, KV heads]  the group of each; -1 behind them where a layer has fewer
  layer_groups(index_t groups, view<const index_t, 2> group_of) : layer_groups(groups, group_of, true) {}
  void make_room(index_t sequences) {
    sequences_.resize(sequences);
    handles_.resize(std::int64_t{sequences} * groups());
    items_.reserve(sequences);
    least_.resize(sequences);
  }

  index_t groups() const { return counts_.size(); }
  index_t layers() const { return kv_heads_.size(); }
  index_t layers_in(index_t g) const { return counts_[g]; }
  /// True if the table is one of KV heads.
  bool by_kv_head() const { return by_kv_head_; }
  grouped_layer place(index_t layer) const {
    ZOOMR_EXPECTS(!by_kv_head_, "the table of groups is one of KV heads: name one of the layer");
    return place(layer, 0);
  }
  /// @param kv_head  whichever it is where a layer is in its group as a whole
  grouped_layer place(index_t layer, index_t kv_head) const {
    expect_layer("place", layer);
    ZOOMR_EXPECTS(!by_kv_head_ || (kv_head >= 0 && kv_head < kv_heads_[layer]),
                  "layer " + std::to_string(layer) + " has no KV head " + std::to_string(kv_head));
    return at(layer, by_kv_head_ ? kv_head : 0);
  }
  /// [layers of the model, KV heads], or [layers of the model]; groups of KV heads that a layer has not are -1
  view<const grouped_layer> places() const { return view<const grouped_layer>(places_); }
  void expect_group(index_t g) const {
    ZOOMR_EXPECTS(g >= 0 && g < groups(), "there is no group " + std::to_string(g));
  }
  /// visit(layer, place) for each layer, or each KV head of each, ascending.
  template <class Visit>
  void each_place(Visit visit) const {
    for (index_t layer = 0; layer < layers(); ++layer) {
      for (index_t head = 0; head < kv_heads_[layer]; ++head) visit(layer, at(layer, head));
    }
  }
  /// work(a place of the layer, its rows) for each; failures name the layer and its group.
  template <class Work>
  void in_layer(const char* call, index_t layer, Work work) const {
    expect_layer(call, layer);
    for (index_t head = 0; head < kv_heads_[layer]; ++head) {
      const grouped_layer place = at(layer, head);
      const layer_rows rows{head, by_kv_head_ ? kv_heads_[layer] : 0};
      naming_group([&] { work(place, rows); }, [&] { return name_of(layer, head, place); });
    }
  }

  /// @return its id
  index_t expect_open(sequence seq) { return detail::expect_open(sequences_, seq), seq.id; }
  /// The handle of the sequence within a group.
  sequence& handle(index_t id, index_t g) { return handles_[std::int64_t{id} * groups() + g]; }
  /// A new sequence, in all groups or in none.
  /// @param each   each(work)  work(group, its number) for each
  /// @param make   make(group, its number, handle of `from` in it) -> its new sequence
  /// @param check  check(id), when all are made
  template <class Each, class Make, class Check>
  sequence open_as(sequence from, Each each, Make make, Check check) {
    const sequence seq = open_sequence(sequences_);
    index_t ready = 0;
    ZOOMR_TRY {
      each([&](auto& group, index_t g) {
        handle(seq.id, g) = make(group, g, from.id < 0 ? from : handle(from.id, g));
        ready = g + 1;
      });
      check(seq.id);
    }
    ZOOMR_CATCH_ALL {
      each([&](auto& group, index_t g) {
        if (g < ready) group.close(handle(seq.id, g));
      });
      sequences_[seq.id].open = false;  // the handle was given to no caller
      rethrow();
    }
    return seq;
  }
  /// The groups have closed theirs.
  void close(index_t id) {
    sequences_[id].open = false;
    ++sequences_[id].generation;
  }

  /// How many tokens of each item a step in all groups takes, the fewest that one takes: `least`. It is what `begin`
  /// and `plan` of a single cache do, in their order: what is wrong with an item, in any group, is told before what a
  /// group has no room for.
  /// @param no_pages  error message for an item that has a block table; nullptr: its groups refuse it
  /// @param tables    [items, groups], or empty
  /// @param each      as of `open_as`; a group, in which no step is in progress, has `expect_passable`, `plan_alone`
  /// @param fixed     to be told to `expect_passable`
  template <class Each, class... Fixed>
  void plan(view<const step_item> items, const char* no_pages, view<const view<const index_t>, 2> tables, Each each,
            Fixed... fixed) {
    expect_some(items);
    for (index_t i = 0; i < items.size(); ++i) {
      expect_open(items[i].seq);
      expect_once(items, i);
      ZOOMR_EXPECTS(no_pages == nullptr || items[i].pages.size() == 0, no_pages);
      least_[i] = items[i].ids.size();
      each([&](const auto& group, index_t g) { group.expect_passable(item_in(items, i, g, tables), i, fixed...); });
    }
    each([&](const auto& group, index_t g) { group.plan_alone(listed(items, g, tables), least()); });
    each([&](const auto& group, index_t) { group.core_->step.expect_room(); });
  }
  /// [sequences]  tokens of item i that each group takes
  view<index_t> least() { return view<index_t>(least_); }
  /// The items with the handles of group `g` and the tokens that the step takes; valid until the next call.
  view<const step_item> listed(view<const step_item> items, index_t g, view<const view<const index_t>, 2> tables = {}) {
    items_.clear();
    for (index_t i = 0; i < items.size(); ++i) items_.push_back(item_in(items, i, g, tables));
    return view<const step_item>(items_);
  }

 private:
  layer_groups(index_t groups, view<const index_t, 2> group_of, bool by_kv_head)
      : by_kv_head_(by_kv_head), counts_(groups), most_kv_heads_(group_of.extent(1)) {
    ZOOMR_EXPECTS(groups > 0, "groups: a cache needs at least one");
    places_.reserve(std::int64_t{group_of.extent(0)} * most_kv_heads_);
    kv_heads_.reserve(group_of.extent(0));
    for (index_t layer = 0; layer < group_of.extent(0); ++layer) {
      kv_heads_.push_back(0);
      for (const index_t g : group_of[layer]) add(g);
      ZOOMR_EXPECTS(kv_heads_.back() > 0, "groups: the table has no KV head of layer " + std::to_string(layer));
    }
  }
  // The next KV head of the last layer, or none.
  void add(index_t g) {
    const bool none = by_kv_head_ && g == -1;
    ZOOMR_EXPECTS(none || (g >= 0 && g < groups()),
                  "groups: the table of layers names group " + std::to_string(g) + " of " + std::to_string(groups()));
    const bool last = places_.size() % most_kv_heads_ == kv_heads_.back();
    ZOOMR_EXPECTS(none || last, "groups: the table names a KV head of layer " + std::to_string(layers() - 1) +
                                    " behind an entry of -1");
    places_.push_back(none ? grouped_layer{-1, -1} : grouped_layer{g, counts_[g]++});
    kv_heads_.back() += none ? 0 : 1;
  }
  grouped_layer at(index_t layer, index_t head) const { return places_[std::int64_t{layer} * most_kv_heads_ + head]; }
  std::string name_of(index_t layer, index_t head, grouped_layer place) const {
    return "layer " + std::to_string(layer) + (by_kv_head_ ? ", KV head " + std::to_string(head) : std::string()) +
           ", which is layer " + std::to_string(place.layer) + " of group " + std::to_string(place.group);
  }
  void expect_layer(const char* call, index_t layer) const {
    ZOOMR_EXPECTS(layer >= 0 && layer < layers(), std::string(call) + ": there is no layer " + std::to_string(layer) +
                                                      ", the model has " + std::to_string(layers()));
  }

  // One of them. A block table of its own stays, for a group to refuse.
  step_item item_in(view<const step_item> items, index_t i, index_t g, view<const view<const index_t>, 2> tables) {
    step_item item = items[i];
    item.seq = handle(item.seq.id, g);
    if (item.positions.size() == item.ids.size()) item.positions = item.positions.slice(0, least_[i]);
    item.ids = item.ids.slice(0, least_[i]);
    if (tables.data() != nullptr) item.pages = tables(i, g);
    return item;
  }

  struct state {
    bool open = false;
    std::uint32_t generation = 0;
  };

  bool by_kv_head_;
  table<grouped_layer> places_;  // [layers of the model, most KV heads], or [layers of the model, 1]
  table<index_t> counts_;        // [groups]  layers of each
  table<index_t> kv_heads_;      // [layers of the model]  of each in the table; 1 where it is in a group as a whole
  index_t most_kv_heads_;        // of a layer
  table<state> sequences_;
  table<sequence> handles_;  // [sequences, groups]
  table<step_item> items_;   // [sequences]  with the handles of the group that begins its step
  table<index_t> least_;     // [sequences]
};

}  // namespace detail
}  // namespace zoomr::inline v0
