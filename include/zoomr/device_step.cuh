// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of step.hpp. What the host decides (begin, again, commit) and what it enqueues (start, append,
// attend, restart) are apart, so that what is enqueued can be captured as a graph and replayed for later steps.
#pragma once

#include <zoomr/cache/device_launches.cuh>

#include <utility>  // std::exchange

namespace zoomr {
inline namespace v0 {

/// One forward pass over new tokens of some sequences, packed one sequence after the other.
///
/// Made by `device_cache::begin`, which it must not outlive; one at a time for each cache. Enqueue `start`; then for
/// each layer in ascending order `append` and `attend`; if `again` says so, `restart` and the same for the second pass;
/// then `commit`. Every pointer is to device memory, every call enqueues on the stream that it is given and returns at
/// once. All steps of a cache use one stream, or streams that the caller orders.
///
/// A call that is forgotten, comes twice or out of its order is a `precondition_error`, as on the host
/// (cache/step_layers.hpp). With `fixed` all calls of a pass are made, or none: then a graph has made them.
///
/// For a graph: `upload`, which is never part of a graph; then capture `start`, `append` and `attend` of a step begun
/// with `fixed`, and launch the graph for every later step between its `upload` and its `commit`. The second pass is a
/// second graph, from `restart` on, with an `upload` of its own after `again`.
template <class Policy, class T, index HeadDim, index Group>
class device_step {
 public:
  device_step(device_step&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)),
        pass_(other.pass_),
        uploaded_(other.uploaded_),
        fixed_(other.fixed_) {}
  device_step(const device_step&) = delete;
  device_step& operator=(const device_step&) = delete;
  device_step& operator=(device_step&&) = delete;
  ~device_step() {
    if (core_ != nullptr) abandon();
  }

  /// Packed tokens of this pass.
  index tokens() const { return table().counts->tokens; }
  /// Tokens of one item that the step takes.
  index tokens(index item) const { return at(item).plan.tokens; }
  /// Position of an item's first token in this pass.
  index position(index item) const { return pass_ == 0 ? at(item).plan.first : at(item).plan.last(); }
  /// True if the item takes part in this pass; its packed tokens begin at `packed(item)`.
  bool active(index item) const { return pass_ == 0 || at(item).plan.again; }
  index packed(index item) const { return at(item).plan.packed; }
  index items() const {
    ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one");
    return static_cast<index>(core_->items.size());
  }
  /// 2 if some item's last token will be passed again, provided that it is accepted; known from the start.
  index passes() const {
    for (index i = 0; i < items(); ++i) {
      if (asks_again(at(i).plan)) return 2;
    }
    return 1;
  }

  /// Copies the table of this pass to the device, once. Of its own accord `start` or `restart` does it; before a graph
  /// is captured or launched it is for the caller to do, on the same stream.
  /// @cost  one copy; an event behind it says when the host may write that table again
  void upload(stream on) {
    ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one");
    if (uploaded_ > pass_) return;
    ZOOMR_EXPECTS(!is_captured(on),
                  "a table is not uploaded by a graph: call upload before the capture, and before each launch");
    enqueue().upload(on);
    uploaded_ = pass_ + 1;
  }

  /// Uploads the step's table, brings the index up to date, and begins the choices of all layers together.
  /// @cost  one copy, 2 launches; 3 if one choice serves all layers
  void start(stream on) {
    upload(on);
    const auto now = enqueue();
    now.update_index(on);
    now.begin_choices(on);
    core_->layers.start();
  }

  /// Before the second pass, after `again` has said that there is one.
  void restart(stream on) {
    upload(on);
    core_->layers.start();
  }

  /// Stores keys and values of one layer, provisionally, divided by their scales.
  /// @param keys, values  [tokens, kv_heads, head_dim]  keys rotated
  template <class Number>
  void append(index layer, view<const Number, 3> keys, view<const Number, 3> values, stream on) {
    const shape& model = expect_layer("append", layer);
    expect_shape("append: keys are", keys, model.kv_heads), expect_shape("append: values are", values, model.kv_heads);
    core_->layers.expect_append(layer);
    if (!fixed_) core_->layers.expect_next("append", layer);
    enqueue().append(layer, keys, values, on);
    core_->layers.append(layer);
  }

  /// Attends: before the end of the prompt to everything, afterwards to what the policy gives.
  /// @param queries  [tokens, heads, head_dim]  rotated; the scale 1 / sqrt(head_dim) is applied here
  /// @param out      [tokens, heads, head_dim]
  /// @param lse      [tokens, heads]  natural logarithm of the sum of exp(logit); may be empty
  /// @cost  2 launches without a selector, 3 or 4 with one, 1 more where config.draft_tokens exceeds 1, 1 more for the
  ///        tokens of prompts; for retention 1 more, and for each prompt whose queries count 4 for each 32 of them and
  ///        1 or 2 at its end; over tiers 3 more, and 3 beside that `append` of the next layer waits for
  template <class Number>
  void attend(index layer, view<const Number, 3> queries, view<Number, 3> out, view<float, 2> lse, stream on) {
    const shape& model = expect_layer("attend", layer);
    expect_shape("attend: queries are", queries, model.heads), expect_shape("attend: out is", out, model.heads);
    core_->layers.expect_queries("attend", layer);
    const auto now = enqueue();
    now.see(layer, queries, on);
    now.attend(layer, queries, out, lse, on);
    core_->layers.see(layer);
  }

  /// Instead of `attend`, before the end of the prompt, for engines whose own kernel does the prefill.
  /// Needed for the prompt's last chunk if its queries make a choice or tokens are given up then; for chunks before it
  /// if they hold queries that retention observes at the end; for each chunk if the policy adds up attention from the
  /// first token on.
  /// @param queries  [tokens, heads, head_dim]  rotated
  template <class Number>
  void observe(index layer, view<const Number, 3> queries, stream on) {
    const shape& model = expect_layer("observe", layer);
    expect_shape("observe: queries are", queries, model.heads);
    ZOOMR_EXPECTS(prompt_tokens() == tokens(), "observe: after the end of the prompt the cache itself attends");
    core_->layers.expect_queries("observe", layer);
    enqueue().see(layer, queries, on);
    core_->layers.see(layer);
  }

  /// Call after the last layer: true if some items' last tokens must be passed once more, under the selection that they
  /// have just made. They form a pass of their own: one token for each item that is `active`.
  /// @param accepted  [items]  tokens that will be committed
  bool again(view<const index> accepted) {
    expect_possible("again", accepted);
    if (pass_ == 1) return false;
    expect_complete("again", accepted);
    index packed = 0;
    core_->clear_table(1);
    for (index i = 0; i < items(); ++i) {
      planned_item& plan = at(i).plan;
      plan.announced = accepted[i];
      plan.again = asks_again(plan) && accepted[i] == plan.tokens;
      if (!plan.again) continue;
      plan.packed = packed++;
      core_->list_token(1, at(i), plan.last(), plan.packed, true);
      core_->list_shares(1, 1);
    }
    pass_ = packed > 0 ? 1 : 0;
    if (packed > 0) core_->layers.clear();
    return packed > 0;
  }
  bool again(index accepted) { return again(view<const index>(&accepted, {1})); }

  /// Makes the first `accepted` tokens of each item part of its sequence; the others never were. The step is over.
  /// @param accepted  [items]  0 ... tokens(item), as `again` was told; a prompt's tokens are all accepted, or none
  /// @param on        of a prompt, its segments' summaries and at its end the first choice are enqueued here; and what
  ///                  gives up tokens that are due, with the summaries of what is left
  void commit(view<const index> accepted, stream on) {
    expect_possible("commit", accepted);
    expect_complete("commit", accepted);
    expect_uploaded(accepted, on);
    for (index i = 0; i < items(); ++i) {
      const index announced = at(i).plan.announced;
      ZOOMR_EXPECTS(announced < 0 || announced == accepted[i],
                    "commit: `again` was told that " + std::to_string(announced) + " tokens of item " +
                        std::to_string(i) + " are accepted, not " + std::to_string(accepted[i]));
    }
    core_->clear_table(2);
    for (index i = 0; i < items(); ++i) core_->commit_item(at(i), accepted[i]);
    const device_counts& listed = *core_->on_host(2).counts;
    const launches_type last{*core_, 2, listed.tokens};
    for (index i = 0; i < items(); ++i) {
      if (accepted[i] > 0) commit_queries(*core_, last.arrays(), at(i), on);
    }
    if (last.give_up(on) || listed.tokens > 0 || listed.closings > 0) last.after_prompt(on);
    abandon();
  }
  void commit(index accepted, stream on) { commit(view<const index>(&accepted, {1}), on); }

 private:
  template <class, class, index, index>
  friend class device_cache;
  using launches_type = device_launches<Policy, T, HeadDim, Group>;

  device_step(device_core<Policy, T>& core, bool fixed) : core_(&core), fixed_(fixed) {}

  device_item& at(index item) const {
    ZOOMR_EXPECTS(item >= 0 && item < items(),
                  "the step has no item " + std::to_string(item) + ", it has " + std::to_string(items()));
    return core_->items[static_cast<std::size_t>(item)];
  }
  const device_table& table() const {
    ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one");
    return core_->on_host(pass_);
  }
  index prompt_tokens() const { return pass_ == 0 ? core_->prompt_tokens : 0; }
  /// Tokens after the prompt that launches cover: those of the pass, or as many as any replay may have.
  index deciding() const { return fixed_ ? core_->sizes.decode_tokens : tokens() - prompt_tokens(); }

  const shape& expect_layer(const char* call, index layer) const {
    ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one");
    core_->layers.expect_layer(call, layer);
    return core_->sizes.model;
  }
  // With `fixed`, what is captured must have room for any step.
  template <class Number>
  void expect_shape(const char* what, view<Number, 3> packed, index heads) const {
    const index least = deciding() + prompt_tokens();
    expect_extents(what, packed, {{std::max(least, packed.extent(0)), heads, HeadDim}});
  }
  // Before `call`: so many tokens can be accepted.
  void expect_possible(const char* call, view<const index> accepted) const {
    ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one");
    expect_counts(call, items(), accepted);
    for (index i = 0; i < items(); ++i) expect_count(call, i, at(i).plan, accepted[i]);
  }
  // Before `call`: whatever the accepted tokens need of this pass has been enqueued.
  void expect_complete(const char* call, view<const index> accepted) {
    for (index i = 0; i < items(); ++i) {
      planned_item& plan = at(i).plan;
      if (pass_ == 0) plan.heard = plan.prompt && core_->layers.all_seen();
      const bool replayed = fixed_ && !core_->layers.any();
      if (accepted[i] == 0 || (pass_ == 1 && !plan.again) || replayed) continue;
      core_->layers.expect_complete(call, i, must_be_seen(plan));
    }
  }
  // The queries of this item count, as on the host; of a prompt, if they make a choice or retention observes them now.
  bool must_be_seen(const planned_item& plan) const {
    if (plan.prompt || plan.chooses) return plan.chooses || core_->observes(plan);
    const device_sizes& sizes = core_->sizes;
    return sizes.records > 0 || sizes.noted > 0 || sizes.drifts || pass_ == 1 || core_->layers.any_seen();
  }
  void expect_uploaded(view<const index> accepted, stream on) const {
    ZOOMR_EXPECTS(!is_captured(on), "commit: a commit is not part of a graph");
    for (const index tokens : accepted) {
      ZOOMR_EXPECTS(tokens == 0 || uploaded_ > pass_,
                    "commit: the device was not told of this pass: call start, or upload before its graph is launched");
    }
  }
  bool asks_again(const planned_item& plan) const {
    return plan.chooses && !plan.prompt && core_->policy.agree.per == scope::sequence &&
           core_->policy.refresh.ask_again;
  }

  launches_type enqueue() const { return {*core_, pass_, deciding(), prompt_tokens(), fixed_}; }

  void abandon() {
    if (core_->beside) {
      try {
        core_->beside->join();  // of a step that is dropped between two layers
      } catch (...) {           // what is broken says so at the next launch
      }
    }
    for (const device_item& item : core_->items) core_->trim(core_->state(item.plan.seq));
    core_->items.clear();
    core_->uploads.advance();
    core_->stepping = false;
    core_ = nullptr;
  }

  device_core<Policy, T>* core_;
  index pass_ = 0;
  index uploaded_ = 0;  // passes whose tables are on their way
  bool fixed_ = false;
};

}  // namespace v0
}  // namespace zoomr
