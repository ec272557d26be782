// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of step.hpp. What the host decides (begin, needs_second_pass, commit) and what it enqueues (start,
// append, attend, restart) are apart, so that what is enqueued can be captured as a graph and replayed for later steps.
#pragma once

#include <zoomr/cache/device/launching/launches.cuh>

namespace zoomr::inline v0 {

/// One forward pass over new tokens of some sequences, packed one sequence after the other.
///
/// Made by `device_cache::begin`, which it must not outlive; one at a time for each cache. Enqueue `start`; then for
/// each layer in ascending order `append` and `attend`; if `needs_second_pass` returns true, `restart` and the same for
/// the second pass; then `commit`. Every pointer is to device memory; every call enqueues on its stream and returns at
/// once. All steps of a cache use one stream, or streams that the caller orders.
///
/// A call that is forgotten, comes twice or out of its order is a `precondition_error`, as on the host
/// (cache/planning/step_layers.hpp). With `fixed` all calls of a pass are made, or none: then a graph has made them.
///
/// For a graph: `upload`, which is never part of a graph; then capture `start`, `append` and `attend` of a step begun
/// with `fixed`, behind them `join`, and launch the graph for every later step between its `upload` and its `commit`.
/// The second pass is a second graph, from `restart` on, with an `upload` of its own after `needs_second_pass`.
/// @tparam Launcher  by which it enqueues: of one kind of cache, or of any
template <class Launcher>
class basic_device_step : public step_items<detail::any_device_core<typename Launcher::storage>> {
  using core_type = detail::any_device_core<typename Launcher::storage>;
  using base = step_items<core_type>;

 public:
  basic_device_step(basic_device_step&& other) noexcept = default;
  basic_device_step(const basic_device_step&) = delete;
  basic_device_step& operator=(const basic_device_step&) = delete;
  basic_device_step& operator=(basic_device_step&&) = delete;
  ~basic_device_step() {
    if (core_ != nullptr) abandon();
  }

  /// Packed tokens of this pass.
  index_t tokens() const { return table().counts().tokens; }
  /// Copies the table of this pass to the device, once. Of its own accord `start` or `restart` does it; before a graph
  /// is captured or launched it is for the caller to do, on the same stream.
  /// @cost  one copy, and an event after it; 1 launch where pages are shared that the step will write
  void upload(stream_ref stream) {
    expect_open();
    if (uploaded_ > pass_) return;
    ZOOMR_EXPECTS(!is_captured(stream),
                  "a table is not uploaded by a graph: call upload before the capture, and before each launch");
    enqueue([&](const auto& launches) { launches.upload(stream); });
    uploaded_ = pass_ + 1;
  }

  /// Uploads the step's table, brings the index up to date, and begins the choices of all layers together.
  /// @cost  one copy, 2 launches; 3 if one choice serves all layers
  void start(stream_ref stream) {
    upload(stream);
    enqueue([&](const auto& launches) { launches.update_index(stream), launches.begin_choices(stream); });
    core_->step.layers.start();
  }

  /// Before the second pass, after `needs_second_pass` has returned true.
  void restart(stream_ref stream) {
    upload(stream);
    enqueue([&](const auto& launches) { launches.begin_choices(stream); });
    core_->step.layers.start();
  }

  /// Stores keys and values of one layer, as pending, divided by their scales.
  /// @param keys    [tokens, kv_heads, head_dim]  rotated
  /// @param values  [tokens, kv_heads, value width]; where they are in keys: none
  template <class Number>
  void append(index_t layer, view<const Number, 3> keys, view<const Number, 3> values, stream_ref stream) {
    expect_append(layer, keys, values);
    enqueue([&](const auto& launches) { launches.append(layer, keys, values, stream); });
    core_->step.layers.append(layer);
  }
  template <class Number>
  void append(index_t layer, view<const Number, 3> keys, stream_ref stream) {
    append(layer, keys, view<const Number, 3>{}, stream);
  }

  /// For an engine that stores them itself in its own pages, divided by their scales, at the slots of `append_slots`.
  /// They must be there when what follows on the stream runs; all else is as above.
  void append(index_t layer) requires(Launcher::in_engine) {
    expect_layer("append", layer);
    ZOOMR_EXPECTS(core_->sizes.in_engine,
                  "append: the pages are the cache's own, which keys and values must be given for");
    core_->step.layers.expect_append(layer);
    if (!replayable_) core_->step.layers.expect_next("append", layer);
    core_->step.layers.append(layer);
  }
  /// Where keys and values of the pass go, as slots of the pool: the number of a page times its tokens, plus the place
  /// in it. The same in all layers; `start` or `restart` comes before.
  /// @param slots  [tokens]  out
  /// @cost  1 launch
  void append_slots(view<index_t> slots, stream_ref stream) const {
    expect_extents("append_slots: slots are", slots, {{(std::max)(deciding() + prompt_tokens(), slots.size())}});
    enqueue([&](const auto& launches) { launches.append_slots(slots, stream); });
  }

  /// Attends: before the end of the prompt to everything, afterwards to what the policy gives.
  /// @param queries  [tokens, heads, head_dim]  rotated; scale, cap and bias (config.logits) are applied here
  /// @param out      [tokens, heads, value width]
  /// @param lse      [tokens, heads]  natural logarithm of the sum of exp(logit); may be empty
  /// @cost  2 launches; 1 more where config.max_draft_tokens exceeds 1, 1 or 2 more for the tokens of prompts; for
  /// eviction 1 more, and for each prompt whose queries count 4 for each 32 of them and 1 or 2 at its end; over tiers 4
  /// more, and 4 beside that `append` of the next layer waits for
  template <class Number>
  void attend(index_t layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse,
              stream_ref stream) {
    expect_attend(layer, queries, out);
    core_->step.layers.expect_queries("attend", layer);
    enqueue([&](const auto& launches) {
      launches.see(layer, queries, stream);
      launches.attend(detail::layer_inputs<Number>{layer, queries}, out, lse, stream);
    });
    core_->step.layers.see(layer);
  }
  /// `append` and `attend` at once.
  /// @cost  as `attend`, and 1 launch more only where tokens of prompts are in the step, or eviction observes
  ///        attention: of a step after the prompts, where config.max_draft_tokens is 1, 2 launches for each layer
  template <class Number>
  void attend(index_t layer, view<const Number, 3> queries, view<const Number, 3> keys, view<const Number, 3> values,
              view<Number, 3> out, view<float, 2> lse, stream_ref stream) {
    enqueue([&](const auto& launches) {
      if (!launches.stores()) {
        append(layer, keys, values, stream);
        attend(layer, queries, out, lse, stream);
        return;
      }
      expect_append(layer, keys, values);
      expect_attend(layer, queries, out);
      core_->step.layers.append(layer);
      core_->step.layers.expect_queries("attend", layer);
      const auto in = launches.to_store(layer, queries, keys, values, stream);
      launches.see(layer, queries, stream);
      launches.attend(in, out, lse, stream);
      core_->step.layers.see(layer);
    });
  }
  template <class Number>
  void attend(index_t layer, view<const Number, 3> queries, view<const Number, 3> keys, view<Number, 3> out,
              view<float, 2> lse, stream_ref stream) {
    attend(layer, queries, keys, view<const Number, 3>{}, out, lse, stream);
  }

  /// Instead of `attend`, for engines whose own kernel attends: makes the choices that are due, and lists which slots
  /// of the pool each query reads.
  /// @param queries  [tokens, heads, head_dim]  rotated
  /// @param slots    [tokens, device_cache::rows_in_layer(), room]  out: ascending in the sequence, then -1; in a
  ///                 prompt all up to the token's own. What has no room is left out
  /// @param counts   [tokens, rows_in_layer()]  out: how many slots are read, also if there is no room for them
  /// @cost  that of `attend` without reading keys or values, and room numbers written for each token and row
  template <class Number>
  void list_slots(index_t layer, view<const Number, 3> queries, view<index_t, 3> slots, view<index_t, 2> counts,
                  stream_ref stream) requires(!Launcher::tiered) {
    const shape& model = expect_layer("list_slots", layer);
    ZOOMR_EXPECTS(!core_->sizes.tiered,
                  "list_slots: over tiers slots have no place that stays: the cache itself attends");
    expect_shape("list_slots: queries are", queries, model.heads, model.head_dim);
    const index_t least = deciding() + prompt_tokens(), rows = core_->sizes.layer_rows;
    expect_extents("list_slots: slots are", slots, {{(std::max)(least, slots.extent(0)), rows, slots.extent(2)}});
    expect_extents("list_slots: counts are", counts, {{(std::max)(least, counts.extent(0)), rows}});
    core_->step.layers.expect_queries("list_slots", layer);
    enqueue([&](const auto& launches) {
      launches.see(layer, queries, stream);
      launches.list_slots(layer, queries, slots, counts, stream);
    });
    core_->step.layers.see(layer);
  }

  /// Instead of `attend`, before the end of the prompt, for engines whose own kernel does the prefill.
  /// Needed for the prompt's last chunk if its queries make a choice or tokens are evicted then; for chunks before it
  /// if they hold queries that eviction observes at the end; for each chunk if the policy adds up attention from the
  /// first token on.
  /// @param queries  [tokens, heads, head_dim]  rotated
  template <class Number>
  void observe(index_t layer, view<const Number, 3> queries, stream_ref stream) {
    const shape& model = expect_layer("observe", layer);
    expect_shape("observe: queries are", queries, model.heads, model.head_dim);
    ZOOMR_EXPECTS(prompt_tokens() == tokens(), "observe: after the end of the prompt the cache itself attends");
    core_->step.layers.expect_queries("observe", layer);
    enqueue([&](const auto& launches) { launches.see(layer, queries, stream); });
    core_->step.layers.see(layer);
  }

  /// Call after the last layer: true if some items' last tokens must be passed once more, under the selection that they
  /// have just made. They form a pass of their own: one token for each item that is `active`.
  /// @param accepted  [items]  tokens that will be committed
  bool needs_second_pass(view<const index_t> accepted) {
    if (!ends_first_pass(accepted, queries_needed())) return false;
    return pass_again(accepted, [&](index_t i) { return chooses_again(i, accepted[i]); });
  }
  bool needs_second_pass(index_t accepted) { return needs_second_pass(view<const index_t>(&accepted, {1})); }

  /// What is enqueued on `stream` from now on waits for what the step has left beside it: the choices of voters, which
  /// go on from the last layer's `attend`, beside the engine's own work after it. `commit` does it. A capture calls it
  /// before it ends, behind what may be beside; a policy that leaves nothing beside does nothing.
  /// @cost  an event, or nothing
  void join(stream_ref stream) {
    expect_open();
    core_->home.expect_current("join");
    if (core_->beside) core_->beside->join(stream);
  }

  /// Makes the first `accepted` tokens of each item part of its sequence; the others never were. The step is over.
  /// @param accepted  [items]  0 ... tokens(item), as given to `needs_second_pass`; of a prompt all tokens,
  ///                  or none
  /// @param stream    of a prompt, and of an item that is passed whole, its segments' summaries and at its end the
  ///                  choice are enqueued here; and what evicts tokens that are due, with the summaries of what is left
  void commit(view<const index_t> accepted, stream_ref stream) {
    expect_commit(accepted, queries_needed());
    expect_uploaded(accepted, stream);
    join(stream);
    core_->listed[detail::step_table::commit].clear();
    for (index_t i = 0; i < base::items(); ++i) core_->commit_item(at(i), accepted[i]);
    const detail::device_counts listed = core_->listed[detail::step_table::commit].counts();
    launcher_.enqueue(*core_, detail::step_table::commit, listed.tokens, 0, false, [&](const auto& last) {
      for (index_t i = 0; i < base::items(); ++i) {
        if (accepted[i] > 0) last.commit_queries(at(i), stream);
      }
      if (last.evict_tokens(stream) || listed.tokens > 0 || listed.closings > 0) last.after_commit(stream);
    });
    abandon();
  }
  void commit(index_t accepted, stream_ref stream) { commit(view<const index_t>(&accepted, {1}), stream); }

 private:
  template <class>
  friend class basic_device_cache;
  template <class...>
  friend class grouped_device_step;

  basic_device_step(core_type& core, const Launcher& launcher, bool fixed) : base(core, fixed), launcher_(launcher) {}

  using base::at, base::chooses_again, base::core_, base::ends_first_pass, base::expect_commit, base::expect_layer,
      base::expect_open, base::pass_, base::replayable_;

  // Begins the second pass of the items for which takes_part(i).
  template <class TakesPart>
  bool pass_again(view<const index_t> accepted, TakesPart takes_part) {
    const auto list = [&](const detail::device_item& item, index_t row) {
      constexpr auto second = detail::step_table::second_pass;
      if (row == 0) core_->listed[second].clear();
      core_->list_token(second, item, item.last(), row);
      core_->list_tiles(second, 1);
    };
    return base::pass_again(accepted, takes_part, list) > 0;
  }

  const detail::table_lists& table() const {
    expect_open();
    return core_->listed[detail::table_for_pass(pass_)];
  }
  index_t prompt_tokens() const { return pass_ == 0 ? core_->prompt_tokens : 0; }
  /// Tokens after the prompt that launches cover: those of the pass, or as many as any replay may have.
  index_t deciding() const { return replayable_ ? core_->sizes.decode_tokens : tokens() - prompt_tokens(); }

  // With `fixed`, what is captured must have room for any step.
  template <class Number>
  void expect_shape(const char* what, view<Number, 3> packed, index_t heads, index_t width) const {
    const index_t least = deciding() + prompt_tokens();
    expect_extents(what, packed, {{(std::max)(least, packed.extent(0)), heads, width}});
  }
  template <class Number>
  void expect_append(index_t layer, view<const Number, 3> keys, view<const Number, 3> values) const {
    const shape& model = expect_layer("append", layer);
    expect_shape("append: keys are", keys, model.kv_heads, model.head_dim);
    if (model.values_in_keys) {
      ZOOMR_EXPECTS(values.data() == nullptr, "append: the shape says that values lie in keys: give none");
    } else {
      expect_shape("append: values are", values, model.kv_heads, model.value_width());
    }
    core_->step.layers.expect_append(layer);
    if (!replayable_) core_->step.layers.expect_next("append", layer);
  }
  template <class Number>
  void expect_attend(index_t layer, view<const Number, 3> queries, view<Number, 3> out) const {
    const shape& model = expect_layer("attend", layer);
    expect_shape("attend: queries are", queries, model.heads, model.head_dim);
    expect_shape("attend: out is", out, model.heads, model.value_width());
  }
  // The queries of this item count, as on the host; of a prompt, if they make a choice or eviction observes them now.
  bool must_be_seen(const detail::planned_item& item) const {
    if (item.chooses || item.goes_on()) return true;
    if (item.prompt) return core_->observes(item);
    const detail::cache_sizes& sizes = core_->sizes;
    return sizes.remembers_queries() || pass_ == 1 || core_->step.layers.any_seen();
  }
  auto queries_needed() const {
    return [this](const detail::planned_item& item) { return must_be_seen(item); };
  }
  void expect_uploaded(view<const index_t> accepted, stream_ref stream) const {
    core_->home.expect_current("commit");
    ZOOMR_EXPECTS(!is_captured(stream), "commit: a commit is not part of a graph");
    for (const index_t tokens : accepted) {
      ZOOMR_EXPECTS(tokens == 0 || uploaded_ > pass_,
                    "commit: the device was not told of this pass: call start, or upload before its graph is launched");
    }
  }
  // work(launches) with those of the pass.
  template <class Work>
  void enqueue(Work work) const {
    expect_open();
    core_->home.expect_current("step");
    launcher_.enqueue(*core_, detail::table_for_pass(pass_), deciding(), prompt_tokens(), replayable_, work);
  }

  void abandon() {
    // Of a step that is dropped between two layers. A failure comes up at the next launch.
    ZOOMR_TRY {
      if (core_->beside) core_->beside->join();
    }
    ZOOMR_CATCH_ALL {}
    if (uploaded_ == 0) undo_copies(*core_);
    core_->uploads.advance();
    base::close([core = core_](const detail::device_item& item) { core->trim(core->state(item.seq)); });
  }

  Launcher launcher_;
  index_t uploaded_ = 0;  // passes whose tables are on their way
};

/// A step of one kind of cache; the parameters are those of `device_cache`.
template <class Policy, class T, index_t HeadDim, index_t Group, class Values, class Ranks>
using device_step = basic_device_step<detail::device_launcher<Policy, T, HeadDim, Group, Values, Ranks>>;

}  // namespace zoomr::inline v0
