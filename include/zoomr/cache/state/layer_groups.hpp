// SPDX-License-Identifier: Apache-2.0
// L6. Which layers of a model are in which group, and what the grouped caches of host and device do alike with
// sequences that are in all groups.
#pragma once

#include <zoomr/cache/state/sequences.hpp>
#include <zoomr/core/table.hpp>

#include <algorithm>    // std::min
#include <cstdint>      // std::uint32_t
#include <exception>    // std::exception
#include <string>       // std::string, std::to_string
#include <string_view>  // std::string_view

namespace zoomr::inline v0 {

/// Where a layer of a model is: its group, and which of the group's layers it is.
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

/// What a grouped cache has beside its groups: the table of layers, its sequences, and their handles in each group. It
/// stays where it is while a step is in progress.
class layer_groups {
 public:
  /// Without sequences yet.
  /// @param group_of  [layers of the model]  the group of each
  /// @throws precondition_error if there is no such group
  layer_groups(index_t groups, view<const index_t> group_of) : counts_(groups) {
    layers_.reserve(group_of.size());
    for (const index_t g : group_of) {
      ZOOMR_EXPECTS(g >= 0 && g < groups,
                    "groups: the table of layers names group " + std::to_string(g) + " of " + std::to_string(groups));
      layers_.push_back({g, counts_[g]++});
    }
  }
  void make_room(index_t sequences) {
    sequences_.resize(sequences);
    handles_.resize(std::int64_t{sequences} * groups());
    items_.reserve(sequences);
    least_.resize(sequences);
  }

  index_t groups() const { return counts_.size(); }
  index_t layers() const { return layers_.size(); }
  index_t layers_in(index_t g) const { return counts_[g]; }
  grouped_layer place(index_t layer) const {
    ZOOMR_EXPECTS(layer >= 0 && layer < layers(), "there is no layer " + std::to_string(layer));
    return layers_[layer];
  }
  void expect_group(index_t g) const {
    ZOOMR_EXPECTS(g >= 0 && g < groups(), "there is no group " + std::to_string(g));
  }
  /// work(place of the layer); failures name the layer and its group.
  template <class Work>
  void in_layer(const char* call, index_t layer, Work work) const {
    ZOOMR_EXPECTS(layer >= 0 && layer < layers(), std::string(call) + ": there is no layer " + std::to_string(layer) +
                                                      ", the model has " + std::to_string(layers()));
    const grouped_layer at = layers_[layer];
    naming_group([&] { work(at); },
                 [&] {
                   return "layer " + std::to_string(layer) + ", which is layer " + std::to_string(at.layer) +
                          " of group " + std::to_string(at.group);
                 });
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

  table<grouped_layer> layers_;  // [layers of the model]
  table<index_t> counts_;        // [groups]  layers of each
  table<state> sequences_;
  table<sequence> handles_;  // [sequences, groups]
  table<step_item> items_;   // [sequences]  with the handles of the group that begins its step
  table<index_t> least_;     // [sequences]
};

}  // namespace detail
}  // namespace zoomr::inline v0
