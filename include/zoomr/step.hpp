// SPDX-License-Identifier: Apache-2.0
// L6. A step is a transaction: append and attend for each layer, perhaps a second pass, then commit. Keys are
// pending until then; a step that is dropped without commit never happened.
#pragma once

#include <zoomr/cache/host/attending/layer_attention.hpp>
#include <zoomr/cache/host/attending/listing.hpp>
#include <zoomr/cache/host/commit.hpp>
#include <zoomr/cache/host/shared_pages.hpp>
#include <zoomr/cache/state/mistaken_arrays.hpp>
#include <zoomr/cache/state/step_items.hpp>
#include <zoomr/core/function_ref.hpp>
#include <zoomr/paging/stored_rows.hpp>
#include <zoomr/policy/placement/placement.hpp>

#include <algorithm>  // std::fill_n

namespace zoomr::inline v0 {

/// One forward pass over new tokens of some sequences, packed one sequence after the other.
/// Made by `kv_cache::begin`; one at a time for each cache, which it must not outlive. For each layer, in any order
/// (one with a donor after that), call `append`, if it has keys, and `attend` (or, before the end of the prompt,
/// `observe`); then `needs_second_pass`, and if it returns true the same for its tokens; then `commit`. A call that is
/// forgotten, comes twice or too early is a `precondition_error`; items without an accepted token need none.
template <class T, class Placement>
class step : public step_items<detail::cache_core<pool_of<Placement, T>>>, private detail::mistaken_arrays {
  using pool_type = pool_of<Placement, T>;
  using core_type = detail::cache_core<pool_type>;
  using base = step_items<core_type>;

 public:
  step(step&& other) noexcept = default;
  step(const step&) = delete;
  step& operator=(const step&) = delete;
  step& operator=(step&&) = delete;
  ~step();
  using detail::mistaken_arrays::append, detail::mistaken_arrays::attend, detail::mistaken_arrays::observe;

  /// Packed tokens of this pass.
  index_t tokens() const { return tokens_; }
  /// Why an item has failed in this step, or nullptr: with a tiered placement its pages may not come. The sentence
  /// names the file, the block and the system's reason where there are any. The other items go on; of this one, outputs
  /// are NaN and no token is committed (what to do: docs/errors.md).
  const char* failure(index_t item) const;

  /// Stores keys and values of one layer, as pending, divided by their scales.
  /// @param keys    [tokens, kv_heads, head_dim]  rotated; any strides
  /// @param values  [tokens, kv_heads, value_width]  any strides; left out under `shape::values_in_keys`
  /// @pre   not attended or observed in this pass; until then `append` may come again, and overwrites
  /// @cost  copies both once
  void append(index_t layer, view<const float, 3> keys, view<const float, 3> values = {});
  void append(index_t layer, view<const bfloat16, 3> keys, view<const bfloat16, 3> values = {});
  void append(index_t layer, view<const float16, 3> keys, view<const float16, 3> values = {});
  /// For an engine that has written them into its pages itself, divided by their scales: those of an item at the slots
  /// from `slot(item)` on. All else is as above.
  void append(index_t layer) requires(!pool_of<Placement, T>::owns_pages);
  /// Slots that `commit` may write in some KV lane, where it moves tokens together that eviction has left; none, as a
  /// rule. Whoever else reads the pages that hold them would read other tokens afterwards.
  token_range moved_slots(index_t item) const;

  /// Attends: before the end of the prompt to all that the layer sees, afterwards to what the policy gives of it.
  /// @param queries  [tokens, heads, head_dim]  rotated; scale, cap and bias (config.logits) are applied here
  /// @param out      [tokens, heads, value_width]
  /// @param lse      [tokens, heads]  natural logarithm of the sum of exp(logit); may be empty
  /// @pre   append(layer) came before; once for each layer and pass
  /// @throws error(ranks) where ranks choose or attend together, and one does not answer: drop the step
  /// @cost  After the prompt: key and value are read of each attended token and KV head (each query head with
  /// `scope::head`); for each choice that is due, all summaries of its KV heads, once for every four query heads.
  /// In the prompt: all keys and values up to the token, once for every 16 queries of the KV head's group and of
  /// adjacent tokens. No allocation
  void attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse = {});

  /// The same with 16 bits, if config.half_queries: queries are widened first, outputs rounded at the end.
  void attend(index_t layer, view<const bfloat16, 3> queries, view<bfloat16, 3> out, view<float, 2> lse = {});
  void attend(index_t layer, view<const float16, 3> queries, view<float16, 3> out, view<float, 2> lse = {});

  /// Instead of `attend`, for engines whose own kernel attends, through their pages or `kv_cache::kv_lane`: makes the
  /// choices that are due, and lists which slots each query reads.
  /// @param queries  [tokens, heads, head_dim]  rotated
  /// @param visit    visit(slots_read) for each token and each set of query heads that read the same; its ranges are
  ///                 valid until it returns
  /// @pre   as of `attend`
  /// @cost  that of `attend` without reading keys or values
  template <class Visit>
  void list_slots(index_t layer, view<const float, 3> queries, Visit visit) requires(!pool_type::may_fail) {
    list(layer, queries, visit);
  }
  template <class Number, class Visit>
  void list_slots(index_t layer, view<Number, 3> queries, Visit visit) requires(sizeof(Number) == 2) {
    list_slots(layer, widened("list_slots", layer, queries), visit);
  }

  /// Instead of `attend`, before the end of the prompt, for engines whose own kernel does the prefill: only lets the
  /// policy see the queries. Needed for the prompt's last chunk; for chunks before it if they hold queries that
  /// eviction or a choice uses at the end; for each chunk if attention adds up from the first token on.
  /// @param queries  [tokens, heads, head_dim]  rotated; only the last ones that the policy observes are read
  /// @pre   append(layer) came before; once for each layer
  void observe(index_t layer, view<const float, 3> queries);
  void observe(index_t layer, view<const bfloat16, 3> queries);
  void observe(index_t layer, view<const float16, 3> queries);

  /// Call after the last layer: true if some items' last tokens must be passed once more, under the selection
  /// that they have just made. They form a pass of their own: one token for each item that is `active`.
  /// @param accepted  [items]  tokens that will be committed; of an item that has failed any number, it takes no part
  bool needs_second_pass(view<const index_t> accepted);
  bool needs_second_pass(index_t accepted) { return needs_second_pass(view<const index_t>(&accepted, {1})); }

  /// Makes the first `accepted` tokens of each item part of its sequence; the others never were. The step is over.
  /// Without `needs_second_pass` before it, a choice that has a second pass serves the following tokens instead.
  /// @param accepted  [items]  0 ... tokens(item), as given to `needs_second_pass`; of a prompt all tokens, or none
  /// @throws error(storage) if tokens are accepted of an item that has failed, or fails now since pages of a tiered
  /// placement do not come: the items that it names are as they were before the step; the others are committed
  /// @throws error(ranks) as `attend` and `needs_second_pass` do: nothing is committed, or the sentence says that all
  /// is
  void commit(view<const index_t> accepted);
  void commit(index_t accepted) { commit(view<const index_t>(&accepted, {1})); }
  /// All tokens of all items.
  void commit();

 private:
  template <class, class>
  friend class any_kv_cache;
  template <class, class>
  friend class grouped_step;
  friend struct detail::listed_calls;
  using base::at, base::chooses_again, base::core_, base::ends_first_pass, base::expect_commit, base::expect_layer,
      base::in_pass, base::pass_;

  template <class Number>
  void store(index_t layer, view<const Number, 3> keys, view<const Number, 3> values);
  void list(index_t layer, view<const float, 3> queries,
            function_ref<void(const slots_read&)> visit) requires(!pool_of<Placement, T>::may_fail);

  template <class Number>
  view<const float, 3> widened(const char* call, index_t layer, view<Number, 3> queries);
  template <class Number>
  void attend_halves(index_t layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse);

  explicit step(core_type& core);

  // body(item, position, packed) for the tokens of this pass.
  template <class Body>
  void for_each_token(Body body);

  // Each layer must attend or observe with this item's queries before `commit`. Other tokens after the prompt may be
  // appended without attention, but then in all layers.
  bool must_be_seen(const detail::planned_item& item) const;
  auto queries_needed() const {
    return [this](const detail::planned_item& item) { return must_be_seen(item); };
  }

  void note_queries(index_t layer, view<const float, 3> queries);

  // Begins the second pass of the items for which takes_part(i): those that choose, or whose other groups do.
  template <class TakesPart>
  bool pass_again(view<const index_t> accepted, TakesPart takes_part);

  void abandon();

  index_t tokens_ = 0;
};

template <class T, class Placement>
step<T, Placement>::step(core_type& core) : base(core) {
  for (const detail::planned_item& item : core.step.items) tokens_ += item.tokens;
}

template <class T, class Placement>
step<T, Placement>::~step() {
  if (core_ != nullptr) abandon();
}

template <class T, class Placement>
const char* step<T, Placement>::failure(index_t item) const {
  return at(item).failed ? core_->failures[static_cast<std::size_t>(at(item).seq)].c_str() : nullptr;
}

template <class T, class Placement>
void step<T, Placement>::append(index_t layer, view<const float, 3> keys, view<const float, 3> values) {
  store(layer, keys, values);
}

template <class T, class Placement>
void step<T, Placement>::append(index_t layer, view<const bfloat16, 3> keys, view<const bfloat16, 3> values) {
  store(layer, keys, values);
}

template <class T, class Placement>
void step<T, Placement>::append(index_t layer, view<const float16, 3> keys, view<const float16, 3> values) {
  store(layer, keys, values);
}

template <class T, class Placement>
void step<T, Placement>::append(index_t layer) requires(!pool_of<Placement, T>::owns_pages) {
  expect_layer("append", layer);
  core_->step.layers.expect_append(layer);
  core_->step.layers.append(layer);
}

template <class T, class Placement>
token_range step<T, Placement>::moved_slots(index_t item) const {
  return shared_writes_of(*core_).moved_by_eviction(at(item));
}

template <class T, class Placement>
void step<T, Placement>::attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) {
  const shape& model = expect_layer("attend", layer);
  expect_extents("attend: queries are", queries, {{tokens_, model.heads, model.head_dim}});
  expect_extents("attend: out is", out, {{tokens_, model.heads, model.value_width()}});
  if (lse.data() != nullptr) expect_extents("attend: lse is", lse, {{tokens_, model.heads}});
  core_->step.layers.expect_queries("attend", layer, core_->anchors.anchor(layer));
  queries = core_->hadamard.queries(queries);
  note_queries(layer, queries);
  for (detail::planned_item& item : core_->step.items) {
    if (!in_pass(item)) continue;
    const bool done = core_->may_fail(
        item, [&] { detail::layer_attention<pool_type>(*core_, item, layer, pass_ == 1, queries, out, lse).attend(); });
    const index_t last = item.packed + (pass_ == 1 ? 1 : item.tokens);
    for (index_t t = item.packed; !done && t < last; ++t) {
      for (index_t head = 0; head < model.heads; ++head)
        std::fill_n(out[t][head].data(), model.value_width(), not_a_number);
    }
  }
  if (core_->rank_states.used()) finish_rows_of_ranks(*core_, layer, pass_ == 1, out, lse);
  core_->hadamard.transform_back(out);
  for (detail::planned_item& item : core_->step.items) {
    if (in_pass(item)) prefetch_layer(*core_, item, layer + 1, pass_ == 1);
  }
  core_->step.layers.see(layer);
}

template <class T, class Placement>
void step<T, Placement>::attend(index_t layer, view<const bfloat16, 3> queries, view<bfloat16, 3> out,
                                view<float, 2> lse) {
  attend_halves(layer, queries, out, lse);
}

template <class T, class Placement>
void step<T, Placement>::attend(index_t layer, view<const float16, 3> queries, view<float16, 3> out,
                                view<float, 2> lse) {
  attend_halves(layer, queries, out, lse);
}

template <class T, class Placement>
void step<T, Placement>::list(index_t layer, view<const float, 3> queries,
                              function_ref<void(const slots_read&)> visit) requires(!pool_of<Placement, T>::may_fail) {
  const shape& model = expect_layer("list_slots", layer);
  expect_extents("list_slots: queries are", queries, {{tokens_, model.heads, model.head_dim}});
  core_->step.layers.expect_queries("list_slots", layer, core_->anchors.anchor(layer));
  queries = core_->hadamard.queries(queries);
  note_queries(layer, queries);
  for (index_t i = 0; i < base::items(); ++i) {
    if (in_pass(at(i))) detail::list_slots(*core_, at(i), i, layer, pass_ == 1, queries, visit);
  }
  core_->step.layers.see(layer);
}

template <class T, class Placement>
void step<T, Placement>::observe(index_t layer, view<const float, 3> queries) {
  const shape& model = expect_layer("observe", layer);
  expect_extents("observe: queries are", queries, {{tokens_, model.heads, model.head_dim}});
  for (const detail::planned_item& item : core_->step.items) {
    ZOOMR_EXPECTS(item.prompt, "observe: after the end of the prompt the cache itself attends");
  }
  core_->step.layers.expect_queries("observe", layer);
  note_queries(layer, core_->hadamard.queries(queries));
  core_->step.layers.see(layer);
}

template <class T, class Placement>
void step<T, Placement>::observe(index_t layer, view<const bfloat16, 3> queries) {
  observe(layer, widened("observe", layer, queries));
}

template <class T, class Placement>
void step<T, Placement>::observe(index_t layer, view<const float16, 3> queries) {
  observe(layer, widened("observe", layer, queries));
}

template <class T, class Placement>
bool step<T, Placement>::needs_second_pass(view<const index_t> accepted) {
  if (!ends_first_pass(accepted, queries_needed())) return false;
  return pass_again(accepted, [&](index_t i) { return chooses_again(i, accepted[i]); });
}

template <class T, class Placement>
void step<T, Placement>::commit(view<const index_t> accepted) {
  expect_commit(accepted, queries_needed());
  core_type& core = *core_;
  if (core.exchange.used()) choose_with_ranks(core, accepted);
  detail::commit_items(
      accepted, [&](index_t i) { return failure(i); },
      [&](index_t i) { return try_commit_item(core, at(i), accepted[i]); }, [&] { abandon(); });
  if (core.exchange.used()) detail::expect_no_failure(core.exchange.take_failure());
}

template <class T, class Placement>
void step<T, Placement>::commit() {
  base::expect_open();
  commit(core_->step.all_taken());
}

template <class T, class Placement>
template <class Number>
void step<T, Placement>::store(index_t layer, view<const Number, 3> keys, view<const Number, 3> values) {
  const shape& model = expect_layer("append", layer);
  expect_extents("append: keys are", keys, {{tokens_, model.kv_heads, model.head_dim}});
  if (model.values_in_keys) {
    ZOOMR_EXPECTS(values.data() == nullptr, "append: the shape says that values lie in keys: give none");
  } else {
    expect_extents("append: values are", values, {{tokens_, model.kv_heads, model.value_width()}});
  }
  core_->step.layers.expect_append(layer);
  detail::for_each_piece(core_->threads_for(tokens_), model.kv_heads, [&](index_t head, index_t) {
    for_each_token([&](detail::planned_item& item, index_t position, index_t packed) {
      core_->may_fail(item, [&] {
        auto& state = core_->state_of(item);
        const auto kv_lane = core_->kv_lane(state, layer, head);
        const index_t slot = state.slot_end(position);
        T* const key = kv_lane.writable_key(slot);
        core_->hadamard.store_key(keys[packed][head], core_->limits.key_scale.at(layer, head), key, slot);
        core_->keep_key(layer, head, kv_lane.pages, slot, key);
        if (model.values_in_keys) return;
        core_->hadamard.store_value(values[packed][head], core_->limits.value_scale.at(layer, head),
                                    kv_lane.value_of(key, slot), slot);
      });
    });
  });
  core_->step.layers.append(layer);
}

template <class T, class Placement>
template <class Number>
view<const float, 3> step<T, Placement>::widened(const char* call, index_t layer, view<Number, 3> queries) {
  const shape& model = expect_layer(call, layer);
  ZOOMR_EXPECTS(core_->limits.half_queries, std::string(call) + ": queries of 16 bits need config.half_queries");
  const extents<3> expected{{tokens_, model.heads, model.head_dim}};
  if (!queries.has_shape(expected)) expect_extents((std::string(call) + ": queries are").c_str(), queries, expected);
  return core_->halves.widened(queries);
}

template <class T, class Placement>
template <class Number>
void step<T, Placement>::attend_halves(index_t layer, view<const Number, 3> queries, view<Number, 3> out,
                                       view<float, 2> lse) {
  const view<const float, 3> wide = widened("attend", layer, queries);
  const shape& model = core_->sizes.model;
  expect_extents("attend: out is", out, {{tokens_, model.heads, model.value_width()}});
  attend(layer, wide, core_->halves.out(tokens_, model.heads, model.value_width()), lse);
  core_->halves.narrow_to(out);
}

template <class T, class Placement>
template <class Body>
void step<T, Placement>::for_each_token(Body body) {
  for (detail::planned_item& item : core_->step.items) {
    if (!in_pass(item)) continue;
    const index_t first = pass_ == 1 ? item.tokens - 1 : 0;
    for (index_t t = first; t < item.tokens; ++t) body(item, item.first + t, item.packed + t - first);
  }
}

template <class T, class Placement>
bool step<T, Placement>::must_be_seen(const detail::planned_item& item) const {
  if (!item.prompt) {
    const detail::layout& sizes = core_->sizes;
    return item.chooses || item.goes_on() || sizes.query_parts > 0 || sizes.notes_queries() || pass_ == 1 ||
           core_->step.layers.any_seen();
  }
  const bool pinned = core_->policy.zone.prompt && core_->state_of(item).in_first_prompt();
  return item.prompt_ends || (core_->sizes.carried > 0 && !pinned);
}

template <class T, class Placement>
void step<T, Placement>::note_queries(index_t layer, view<const float, 3> queries) {
  for (detail::planned_item& item : core_->step.items) {
    if (!item.prompt || pass_ == 1) continue;
    const view<const float, 3> own_queries = queries.slice(item.packed, item.packed + item.tokens);
    remember_queries(*core_, item, layer, own_queries);
    if (must_be_seen(item)) core_->may_fail(item, [&] { observe_prompt(*core_, item, layer, own_queries); });
  }
}

template <class T, class Placement>
template <class TakesPart>
bool step<T, Placement>::pass_again(view<const index_t> accepted, TakesPart takes_part) {
  const index_t passed = base::pass_again(accepted, takes_part, [&](detail::planned_item& item, index_t) {
    if (!item.failed) choose_due(*core_, item, detail::choice_time::first_pass);
    count_pass(*core_, item);
  });
  if (passed > 0) tokens_ = passed;
  return passed > 0;
}

template <class T, class Placement>
void step<T, Placement>::abandon() {
  base::close([core = core_](const detail::planned_item& item) { core->forget_pending(core->state_of(item)); });
}

}  // namespace zoomr::inline v0
