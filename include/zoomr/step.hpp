// SPDX-License-Identifier: Apache-2.0
// L6. A step is a transaction: append and attend for each layer, perhaps a second pass, then commit. Keys are
// provisional until then; a step that is dropped without commit never happened.
#pragma once

#include <zoomr/cache/attending.hpp>
#include <zoomr/cache/commit.hpp>

#include <utility>  // std::exchange

namespace zoomr {
inline namespace v0 {

/// One forward pass over new tokens of some sequences, packed one sequence after the other.
///
/// Made by `kv_cache::begin`; one at a time for each cache, which it must not outlive. For each layer, in any order of
/// layers, call `append` and then `attend` (or, before the end of the prompt, `observe`); then `again`, and if it says
/// so the same for the tokens of the second pass; then `commit`. A call that is forgotten, comes twice or too early is
/// a `precondition_error` (cache/step_layers.hpp); items of which no token is accepted need none.
template <class Policy, class T>
class step {
 public:
  step(step&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), pass_(other.pass_), tokens_(other.tokens_) {}
  step(const step&) = delete;
  step& operator=(const step&) = delete;
  step& operator=(step&&) = delete;
  ~step() {
    if (core_ != nullptr) abandon();
  }

  /// Packed tokens of this pass.
  index tokens() const { return tokens_; }
  /// Tokens of one item that the step takes: all of a prompt's, and of a draft those up to the first that
  /// closes a segment or makes a choice that stays in force.
  index tokens(index item) const { return at(item).tokens; }
  /// Position of an item's first token in this pass.
  index position(index item) const { return pass_ == 0 ? at(item).first : at(item).last(); }
  /// True if the item takes part in this pass; its packed tokens begin at `packed(item)`.
  bool active(index item) const { return pass_ == 0 || at(item).again; }
  index packed(index item) const { return at(item).packed; }
  index items() const {
    ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one");
    return static_cast<index>(core_->items.size());
  }
  /// Why an item has failed in this step, or nullptr: with a tiered store its pages may not come. The sentence names
  /// the file, the block and the system's reason where there are any. The other items go on; of this one, outputs are
  /// NaN and no token is committed (docs/errors.md says what to do).
  const char* failure(index item) const {
    return at(item).failed ? core_->failures[failure_of(item)].c_str() : nullptr;
  }
  /// 2 if some item's last token will be passed again, provided that it is accepted; known from the start.
  index passes() const {
    for (index i = 0; i < items(); ++i) {
      if (asks_again(at(i))) return 2;
    }
    return 1;
  }

  /// Stores keys and values of one layer, provisionally, divided by their scales.
  /// @param keys, values  [tokens, kv_heads, head_dim]  keys rotated
  /// @pre   the layer has not been attended or observed in this pass; until then `append` may come again, and
  /// overwrites
  /// @cost  copies both once
  void append(index layer, view<const float, 3> keys, view<const float, 3> values) {
    const shape& model = expect_layer("append", layer);
    const extents<3> wanted{{tokens_, model.kv_heads, model.head_dim}};
    expect_extents("append: keys are", keys, wanted), expect_extents("append: values are", values, wanted);
    core_->layers.expect_append(layer);
    for (index head = 0; head < model.kv_heads; ++head) {  // one after the other: each may have pages of its own
      for_each_token([&](planned_item& item, index position, index packed) {
        core_->may_fail(item, [&] {
          auto& state = core_->state_of(item);
          const auto lane = core_->lane(state, layer, head);
          T* key = lane.writable_key(state.slot_end(position));
          T* value = key + lane.value_offset;
          for (index d = 0; d < model.head_dim; ++d) {
            key[d] = from_float<T>(keys(packed, head, d) / core_->limits.key_scale);
            value[d] = from_float<T>(values(packed, head, d) / core_->limits.value_scale);
          }
        });
      });
    }
    core_->layers.append(layer);
  }

  /// Attends: before the end of the prompt to everything, afterwards to what the policy gives.
  /// @param queries  [tokens, heads, head_dim]  rotated; the scale 1 / sqrt(head_dim) is applied here
  /// @param out      [tokens, heads, head_dim]
  /// @param lse      [tokens, heads]  natural logarithm of the sum of exp(logit); may be empty
  /// @pre   append(layer) came before; once for each layer and pass
  /// @cost  2 * head_dim numbers read for each attended token and KV head; no allocation
  void attend(index layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse = {}) {
    const shape& model = expect_layer("attend", layer);
    const extents<3> wanted{{tokens_, model.heads, model.head_dim}};
    expect_extents("attend: queries are", queries, wanted), expect_extents("attend: out is", out, wanted);
    if (lse.data() != nullptr) expect_extents("attend: lse is", lse, {{tokens_, model.heads}});
    core_->layers.expect_queries("attend", layer);
    note_queries(layer, queries);
    for (planned_item& item : core_->items) {
      if (pass_ == 1 && !item.again) continue;
      const bool done = core_->may_fail(
          item, [&] { attending<Policy, T>(*core_, item, layer, pass_ == 1, queries, out, lse).attend(); });
      const index first = item.packed;
      const index tokens = pass_ == 1 ? 1 : item.tokens;
      for (index t = first; !done && t < first + tokens; ++t) {
        for (index head = 0; head < model.heads; ++head) std::fill_n(out[t][head].data(), model.head_dim, not_a_number);
      }
    }
    for (planned_item& item : core_->items) {
      if (pass_ == 0 || item.again) prefetch_layer(*core_, item, layer + 1, pass_ == 1);
    }
    core_->layers.see(layer);
  }

  /// Instead of `attend`, before the end of the prompt, for engines whose own kernel does the prefill: only
  /// lets the policy see the queries. Needed for the prompt's last chunk; for chunks before it if they hold queries
  /// that retention observes at the end; for each chunk if the policy adds up attention from the first token on.
  /// @param queries  [tokens, heads, head_dim]  rotated; only the last ones that the policy observes are read
  /// @pre   append(layer) came before; once for each layer
  void observe(index layer, view<const float, 3> queries) {
    const shape& model = expect_layer("observe", layer);
    expect_extents("observe: queries are", queries, {{tokens_, model.heads, model.head_dim}});
    for (const planned_item& item : core_->items) {
      ZOOMR_EXPECTS(item.prompt, "observe: after the end of the prompt the cache itself attends");
    }
    core_->layers.expect_queries("observe", layer);
    note_queries(layer, queries);
    core_->layers.see(layer);
  }

  /// Call after the last layer: true if some items' last tokens must be passed once more, under the selection
  /// that they have just made. They form a pass of their own: one token for each item that is `active`.
  /// @param accepted  [items]  tokens that will be committed; of an item that has failed any number, it takes no part
  bool again(view<const index> accepted) {
    expect_possible("again", accepted);
    if (pass_ == 1) return false;
    expect_complete("again", accepted);
    index packed = 0;
    for (index i = 0; i < items(); ++i) {
      planned_item& item = at(i);
      item.announced = accepted[i];
      item.again = asks_again(item) && accepted[i] == item.tokens;
      if (!item.again) continue;
      make_choice(*core_, item);
      count_pass(*core_, item);
      item.packed = packed++;
    }
    if (packed == 0) return false;
    pass_ = 1;
    tokens_ = packed;
    core_->layers.clear();
    return true;
  }
  bool again(index accepted) { return again(view<const index>(&accepted, {1})); }

  /// Makes the first `accepted` tokens of each item part of its sequence; the others never were. The step is over.
  /// Without `again` before it, a choice that asks again serves the following tokens instead.
  /// @param accepted  [items]  0 ... tokens(item), as `again` was told; a prompt's tokens are all accepted, or none
  /// @throws error(storage) if tokens are accepted of an item that has failed, or fails now since pages of a tiered
  /// store do not come: the items that it names are as they were before the step; the others are committed
  void commit(view<const index> accepted) {
    expect_possible("commit", accepted);
    expect_complete("commit", accepted);
    for (index i = 0; i < items(); ++i) {
      ZOOMR_EXPECTS(at(i).announced < 0 || at(i).announced == accepted[i] || at(i).failed,
                    "commit: `again` was told that " + std::to_string(at(i).announced) + " tokens of item " +
                        std::to_string(i) + " are accepted, not " + std::to_string(accepted[i]));
    }
    std::string failed;
    for (index i = 0; i < items(); ++i) {
      if (at(i).failed ? accepted[i] == 0 : try_commit_item(*core_, at(i), accepted[i])) continue;
      failed += (failed.empty() ? "item " : "; item ") + std::to_string(i) + ": " + (failure(i) + error::prefix.size());
    }
    const char* const what = items() == 1 ? "the step is not committed: " : "the other items are committed, but not ";
    abandon();
    if (!failed.empty()) throw error(errc::storage, what + failed);
  }
  void commit(index accepted) { commit(view<const index>(&accepted, {1})); }
  /// All tokens.
  void commit() {
    ZOOMR_EXPECTS(core_ != nullptr && items() == 1, "commit: say how many tokens of each item are accepted");
    commit(at(0).tokens);
  }

 private:
  template <class, class>
  friend class kv_cache;

  explicit step(cache_core<Policy, T>& core) : core_(&core) {
    for (const planned_item& item : core.items) tokens_ += item.tokens;
  }

  planned_item& at(index item) const {
    ZOOMR_EXPECTS(item >= 0 && item < items(),
                  "the step has no item " + std::to_string(item) + ", it has " + std::to_string(items()));
    return core_->items[static_cast<std::size_t>(item)];
  }

  std::size_t failure_of(index item) const { return static_cast<std::size_t>(at(item).seq); }

  bool asks_again(const planned_item& item) const {
    return !item.failed && item.chooses && !item.prompt && core_->policy.agree.per == scope::sequence &&
           core_->policy.refresh.ask_again;
  }

  const shape& expect_layer(const char* call, index layer) const {
    ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one");
    core_->layers.expect_layer(call, layer);
    return core_->sizes.model;
  }

  // Before `call`: so many tokens can be accepted.
  void expect_possible(const char* call, view<const index> accepted) const {
    ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one");
    expect_counts(call, items(), accepted);
    for (index i = 0; i < items(); ++i) expect_count(call, i, at(i), accepted[i]);
  }
  // Before `call`: whatever the accepted tokens need of this pass has been done.
  void expect_complete(const char* call, view<const index> accepted) {
    for (index i = 0; i < items(); ++i) {
      planned_item& item = at(i);
      if (pass_ == 0) item.heard = item.prompt && core_->layers.all_seen();
      if (accepted[i] == 0 || item.failed || (pass_ == 1 && !item.again)) continue;
      core_->layers.expect_complete(call, i, must_be_seen(item));
    }
  }

  // body(item, position, packed) for the tokens of this pass.
  template <class Body>
  void for_each_token(Body body) {
    for (planned_item& item : core_->items) {
      if (pass_ == 1 && !item.again) continue;
      const index first = pass_ == 1 ? item.tokens - 1 : 0;
      for (index t = first; t < item.tokens; ++t) body(item, item.first + t, item.packed + t - first);
    }
  }

  // The queries of this item count. Of a prompt the last chunk's always do. After it, tokens may be written that nobody
  // attends from, in any layer, if they make no choice and the policy remembers no queries.
  bool must_be_seen(const planned_item& item) const {
    if (!item.prompt) {
      const layout<Policy>& sizes = core_->sizes;
      return item.chooses || sizes.query_parts > 0 || sizes.noted > 0 || pass_ == 1 || core_->layers.any_seen();
    }
    return item.prompt_ends || (item.prompt && core_->sizes.carried > 0 && !core_->policy.zone.prompt);
  }

  // What retention observes in the prompt, and who makes the choice at its end.
  void note_queries(index layer, view<const float, 3> queries) {
    for (planned_item& item : core_->items) {
      if (!item.prompt || pass_ == 1) continue;
      const view<const float, 3> asked = queries.slice(item.packed, item.packed + item.tokens);
      remember_queries(*core_, item, layer, asked);
      if (must_be_seen(item)) core_->may_fail(item, [&] { observe_prompt(*core_, item, layer, asked); });
    }
  }

  void abandon() {
    for (const planned_item& item : core_->items) core_->forget_provisional(core_->state_of(item));
    core_->items.clear();
    core_->stepping = false;
    core_ = nullptr;
  }

  cache_core<Policy, T>* core_;
  index pass_ = 0;
  index tokens_ = 0;
};

}  // namespace v0
}  // namespace zoomr
