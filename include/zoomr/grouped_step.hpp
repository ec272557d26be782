// SPDX-License-Identifier: Apache-2.0
// L6. A step over layers that are in several caches, which are the groups: one step in each of them, and all or nothing
// over all of them.
//
// Where a group needs a second pass, the last tokens of these items change in all layers. So all groups pass them
// again: they overwrite the pending keys and values, and attend with the choices that they have made. A commit goes
// item by item: what may fail is done in all groups before any of them can no longer go back.
#pragma once

#include <zoomr/cache/state/layer_groups.hpp>
#include <zoomr/step.hpp>

#include <algorithm>  // std::max
#include <string>     // std::to_string
#include <utility>    // std::exchange
#include <vector>     // std::vector

namespace zoomr::inline v0 {

namespace detail {

/// What a grouped cache keeps of the step in progress.
template <class T, class Placement>
struct grouped_steps {
  layer_groups groups;
  std::vector<step<T, Placement>> group_steps;  // [groups] while a step is in progress
  std::vector<unsigned char> takes_part;        // [sequences] item i is in the second pass
};

}  // namespace detail

/// One forward pass over new tokens of some sequences, through the layers of all groups; made by
/// `grouped_kv_cache::begin`. Everything is as of `step`, of which it makes one in each group: layers are those of the
/// model, tokens are packed alike in all of them, and a layer's arrays have the shape of its group. The sentence of a
/// failure names the group; a layer in it is counted as the group counts.
///
/// Where the groups have KV heads, a call goes through those of its layer one after the other: each reads its rows of
/// the layer's arrays, which have all heads of the model, and writes its own; nothing is copied.
template <class T, class Placement>
class grouped_step : private detail::mistaken_arrays {
 public:
  using detail::mistaken_arrays::append, detail::mistaken_arrays::attend, detail::mistaken_arrays::observe;
  using step_type = step<T, Placement>;

  grouped_step(grouped_step&& other) noexcept : steps_(std::exchange(other.steps_, nullptr)) {}
  grouped_step(const grouped_step&) = delete;
  grouped_step& operator=(const grouped_step&) = delete;
  grouped_step& operator=(grouped_step&&) = delete;
  ~grouped_step();

  /// Packed tokens of this pass.
  index_t tokens() const { return any().tokens(); }
  /// Tokens of one item that the step takes: the fewest that a group takes.
  index_t taken(index_t item) const { return any().taken(item); }
  index_t position(index_t item) const { return any().position(item); }
  index_t model_position(index_t item) const { return any().model_position(item); }
  bool active(index_t item) const { return any().active(item); }
  index_t packed(index_t item) const { return any().packed(item); }
  index_t items() const { return any().items(); }
  /// 2 if some group may need a second pass.
  index_t passes() const;
  /// Why an item has failed in some group, or nullptr. It is committed in none.
  const char* failure(index_t item) const;
  /// The step of one group, for what differs between them: `slot`, `moved_slots`.
  const step_type& group(index_t g) const;

  /// @param keys, values  of the layer's group, as of `step`
  template <class Number>
  void append(index_t layer, view<const Number, 3> keys, view<const Number, 3> values = {});
  template <class Number>
  void append(index_t layer, view<Number, 3> keys, view<Number, 3> values = {}) {
    append(layer, view<const Number, 3>(keys), view<const Number, 3>(values));
  }
  void append(index_t layer) requires(!pool_of<Placement, T>::owns_pages);
  /// @param queries, out  of the layer's group, as of `step`
  template <class Number>
  void attend(index_t layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse = {});
  template <class Number>
  void attend(index_t layer, view<Number, 3> queries, view<Number, 3> out, view<float, 2> lse = {}) {
    attend(layer, view<const Number, 3>(queries), out, lse);
  }
  template <class Number, class Visit>
  void list_slots(index_t layer, view<Number, 3> queries, Visit visit) requires(!pool_of<Placement, T>::may_fail) {
    const view<const Number, 3> const_queries = queries;
    in_layer("list_slots", layer, [&](step_type& in, index_t own, const detail::layer_rows& rows) {
      const shape& model = in.core_->sizes.model;
      in.list_slots(own, rows.of_heads("list_slots: queries are", const_queries, model),
                    [&](const slots_read& read) { visit(rows.in_model(read, model)); });
    });
  }
  template <class Number>
  void observe(index_t layer, view<Number, 3> queries);

  /// Call after the last layer: true if some items' last tokens must be passed once more, through the layers of all
  /// groups. Groups that do not need it attend with the choices that they have.
  /// @param accepted  [items]  as of `step`
  bool needs_second_pass(view<const index_t> accepted);
  bool needs_second_pass(index_t accepted) { return needs_second_pass(view<const index_t>(&accepted, {1})); }

  /// Makes the first `accepted` tokens of each item part of its sequence, in all groups. The step is over.
  /// @param accepted  [items]  as of `step`
  /// @throws error(storage) as `step`: the items that it names are as they were before the step, in all groups; the
  /// others are committed
  void commit(view<const index_t> accepted);
  void commit(index_t accepted) { commit(view<const index_t>(&accepted, {1})); }
  /// All tokens of all items.
  void commit();

 private:
  template <class, class>
  friend class grouped_kv_cache;
  friend struct detail::listed_calls;

  explicit grouped_step(detail::grouped_steps<T, Placement>& steps) : steps_(&steps) {}

  index_t groups() const { return static_cast<index_t>(steps_->group_steps.size()); }
  // What is the same in all groups is read from the first.
  const step_type& any() const;

  template <class Work>
  void in_each(Work work);
  // work(step, layer, rows) in each group that has this layer, or KV heads of it.
  template <class Work>
  void in_layer(const char* call, index_t layer, Work work);

  // An item that has failed in one group has failed in all.
  void share_failures();

  // In all groups or in none.
  bool commit_item(index_t item, index_t accepted);
  // In group `g` and those after it, or in none of them.
  bool prepare(index_t g, index_t item, index_t accepted);

  detail::grouped_steps<T, Placement>* steps_;
};

template <class T, class Placement>
grouped_step<T, Placement>::~grouped_step() {
  if (steps_ != nullptr) steps_->group_steps.clear();
}

template <class T, class Placement>
index_t grouped_step<T, Placement>::passes() const {
  index_t most = any().passes();
  for (const step_type& group_step : steps_->group_steps) most = (std::max)(most, group_step.passes());
  return most;
}

template <class T, class Placement>
const char* grouped_step<T, Placement>::failure(index_t item) const {
  const char* cause = any().failure(item);
  for (const step_type& group_step : steps_->group_steps) cause = cause == nullptr ? group_step.failure(item) : cause;
  return cause;
}

template <class T, class Placement>
auto grouped_step<T, Placement>::group(index_t g) const -> const step_type& {
  any();
  ZOOMR_EXPECTS(g >= 0 && g < groups(), "the step has no group " + std::to_string(g));
  return steps_->group_steps[static_cast<std::size_t>(g)];
}

template <class T, class Placement>
template <class Number>
void grouped_step<T, Placement>::append(index_t layer, view<const Number, 3> keys, view<const Number, 3> values) {
  in_layer("append", layer, [&](step_type& in, index_t own, const detail::layer_rows& rows) {
    in.append(own, rows.of_kv_head("append: keys are", keys), rows.of_kv_head("append: values are", values));
  });
}

template <class T, class Placement>
void grouped_step<T, Placement>::append(index_t layer) requires(!pool_of<Placement, T>::owns_pages) {
  in_layer("append", layer, [&](step_type& in, index_t own, const detail::layer_rows&) {
    if constexpr (!pool_of<Placement, T>::owns_pages) in.append(own);  // clang up to 15: as of any_kv_cache::tiers
  });
}

template <class T, class Placement>
template <class Number>
void grouped_step<T, Placement>::attend(index_t layer, view<const Number, 3> queries, view<Number, 3> out,
                                        view<float, 2> lse) {
  in_layer("attend", layer, [&](step_type& in, index_t own, const detail::layer_rows& rows) {
    const shape& model = in.core_->sizes.model;
    in.attend(own, rows.of_heads("attend: queries are", queries, model), rows.of_heads("attend: out is", out, model),
              rows.of_heads("attend: lse is", lse, model));
  });
}

template <class T, class Placement>
template <class Number>
void grouped_step<T, Placement>::observe(index_t layer, view<Number, 3> queries) {
  const view<const Number, 3> const_queries = queries;
  in_layer("observe", layer, [&](step_type& in, index_t own, const detail::layer_rows& rows) {
    in.observe(own, rows.of_heads("observe: queries are", const_queries, in.core_->sizes.model));
  });
}

template <class T, class Placement>
bool grouped_step<T, Placement>::needs_second_pass(view<const index_t> accepted) {
  share_failures();
  bool first = true;
  in_each([&](step_type& in) { first = in.ends_first_pass(accepted, in.queries_needed()); });
  if (!first) return false;
  std::vector<unsigned char>& takes_part = steps_->takes_part;
  for (index_t i = 0; i < items(); ++i) {
    takes_part[static_cast<std::size_t>(i)] = 0;
    for (const step_type& group_step : steps_->group_steps) {
      if (group_step.chooses_again(i, accepted[i])) takes_part[static_cast<std::size_t>(i)] = 1;
    }
  }
  bool again = false;
  in_each([&](step_type& in) {
    again = in.pass_again(accepted, [&](index_t i) { return takes_part[static_cast<std::size_t>(i)] != 0; });
  });
  return again;
}

template <class T, class Placement>
void grouped_step<T, Placement>::commit(view<const index_t> accepted) {
  share_failures();
  in_each([&](step_type& in) { in.expect_commit(accepted, in.queries_needed()); });
  in_each([&](step_type& in) {
    if (in.core_->exchange.used()) choose_with_ranks(*in.core_, accepted);
  });
  detail::commit_items(
      accepted, [&](index_t i) { return failure(i); }, [&](index_t i) { return commit_item(i, accepted[i]); },
      [&] {
        std::string gone;
        std::vector<step_type>& over = std::exchange(steps_, nullptr)->group_steps;
        for (step_type& in : over) gone += in.core_->exchange.take_failure();
        over.clear();
        detail::expect_no_failure(gone);
      });
}

template <class T, class Placement>
void grouped_step<T, Placement>::commit() {
  any();
  commit(view<const index_t>(steps_->groups.least()).slice(0, items()));
}

template <class T, class Placement>
auto grouped_step<T, Placement>::any() const -> const step_type& {
  ZOOMR_EXPECTS(steps_ != nullptr, "the step is over: begin another one");
  return steps_->group_steps.front();
}

template <class T, class Placement>
template <class Work>
void grouped_step<T, Placement>::in_each(Work work) {
  for (index_t g = 0; g < groups(); ++g) {
    detail::naming_group(g, [&] { work(steps_->group_steps[static_cast<std::size_t>(g)]); });
  }
}

template <class T, class Placement>
template <class Work>
void grouped_step<T, Placement>::in_layer(const char* call, index_t layer, Work work) {
  any();
  steps_->groups.in_layer(call, layer, [&](grouped_layer at, const detail::layer_rows& rows) {
    work(steps_->group_steps[static_cast<std::size_t>(at.group)], at.layer, rows);
  });
}

template <class T, class Placement>
void grouped_step<T, Placement>::share_failures() {
  any();
  for (index_t i = 0; pool_of<Placement, T>::may_fail && i < items(); ++i) {
    const char* const cause = failure(i);
    for (step_type& group_step : steps_->group_steps) {
      if (cause == nullptr || group_step.at(i).failed) continue;
      group_step.core_->failures[static_cast<std::size_t>(group_step.at(i).seq)] = cause;
      group_step.at(i).failed = true;
    }
  }
}

template <class T, class Placement>
bool grouped_step<T, Placement>::commit_item(index_t item, index_t accepted) {
  if (!prepare(0, item, accepted)) return false;
  for (step_type& group_step : steps_->group_steps) finish_commit(*group_step.core_, group_step.at(item), accepted);
  return true;
}

template <class T, class Placement>
bool grouped_step<T, Placement>::prepare(index_t g, index_t item, index_t accepted) {
  if (g == groups()) return true;
  step_type& in = steps_->group_steps[static_cast<std::size_t>(g)];
  if (!try_prepare_commit(*in.core_, in.at(item), accepted)) return false;
  bool done = false;
  ZOOMR_TRY { done = prepare(g + 1, item, accepted); }
  ZOOMR_CATCH(const error& cause) {
    undo_commit(*in.core_, in.at(item));
    detail::rethrow();
  }
  if (!done) undo_commit(*in.core_, in.at(item));
  return done;
}

}  // namespace zoomr::inline v0
