// SPDX-License-Identifier: Apache-2.0
// L6. The bookkeeping of a step, once for host and device: its items, its passes, and which calls have come.
//
// Tokens are packed item after item: in the first pass all that are taken, in the second the last token of each item
// that has one. Nothing here touches keys or the device; what a call does beside this is `step`'s or `device_step`'s.
#pragma once

#include <zoomr/cache/planning/step_layers.hpp>
#include <zoomr/cache/state/sequences.hpp>
#include <zoomr/core/table.hpp>

#include <algorithm>  // std::min
#include <string>     // std::to_string
#include <utility>    // std::exchange
#include <vector>     // std::vector

namespace zoomr::inline v0 {
namespace detail {

struct listed_calls;  // zoomr/index_lists.hpp

/// What a cache keeps of the step in progress.
/// @tparam Item  a planned_item, with whatever else its cache needs of it
template <class Item>
struct step_plan {
  std::vector<Item> items;      // [sequences]
  table<planned_token> tokens;  // [max_batched_tokens]
  step_layers layers;           // of the pass in progress
  feeding_memory segmenting;    // while an item is planned
  table<index_t> taken;         // [sequences]  working memory
  std::string shortage;         // why there is no room for those that are planned; empty: there is
  bool active = false;

  step_plan(const shape& model, const config& limits, const any_segmenter& segmenter)
      : tokens(limits.max_batched_tokens),
        layers(model.layers, limits.donors),
        segmenting{std::vector<std::byte>(segmenter.state_bytes), {}} {
    items.reserve(static_cast<std::size_t>(limits.max_sequences));
    taken.resize(static_cast<std::size_t>(limits.max_sequences));
  }
  static byte_count bytes(const shape& model, const config& limits) {
    return step_layers::bytes(model.layers) +
           limits.max_batched_tokens * static_cast<byte_count>(sizeof(planned_token));
  }

  planned_token& token(const planned_item& item, index_t position) {
    return tokens[item.planned + position - item.first];
  }
  view<const planned_token> first_tokens(const planned_item& item, index_t count) const {
    return view<const planned_token>(tokens).slice(item.planned, item.planned + count);
  }
  void expect_idle() const { ZOOMR_EXPECTS(!active, "a step is in progress: commit or drop it first"); }

  /// Plans the next item, after those that are planned already.
  /// @param last_choice  as of `plan`
  /// @param remembered   queries that eviction may observe at the end of a prompt: `layout::remembered`
  /// @throws precondition_error as `plan`; the caller forgets the step then
  Item& add(const any_policy& policy, const token_state& state, index_t last_choice, const step_item& item,
            const config& limits, index_t most_segments, index_t remembered) {
    if (items.empty()) shortage.clear();
    Item& next = items.emplace_back();
    for (const Item* before = items.data(); before != &next; ++before) {
      next.planned += before->tokens;
      next.draft += before->prompt ? 0 : before->tokens;
      next.remembered += before->prompt ? (std::min)(before->tokens, remembered) : 0;
    }
    next.packed = next.planned;
    plan(next, policy, state, last_choice, item, limits, most_segments,
         view<planned_token>(tokens).slice(next.planned, limits.max_batched_tokens), segmenting, shortage);
    return next;
  }
  /// [items]  tokens of each that the step takes; valid until the next call
  view<const index_t> all_taken() {
    const auto count = static_cast<index_t>(items.size());
    for (index_t i = 0; i < count; ++i) taken[i] = items[static_cast<std::size_t>(i)].tokens;
    return view<const index_t>(taken).slice(0, count);
  }
  /// After all items are planned, so that a mistake in one of them is told before: they find room.
  /// @throws error(capacity) if a sequence or its segment table would overflow
  void expect_room() {
    if (!shortage.empty()) raise(errc::capacity, std::exchange(shortage, {}));
  }
};

/// Commits the items of a step, one after the other, and ends it.
/// @param failure  failure(i)  why item i has failed, or nullptr
/// @param commit   commit(i)   false if it fails now
/// @param end      end()       when all have had their turn
/// @throws error(storage) that names the items that have failed, and of which tokens were accepted
template <class Failure, class Commit, class End>
void commit_items(view<const index_t> accepted, Failure failure, Commit commit, End end) {
  std::string failed;
  for (index_t i = 0; i < accepted.size(); ++i) {
    if (failure(i) != nullptr ? accepted[i] == 0 : commit(i)) continue;
    failed += (failed.empty() ? "item " : "; item ") + std::to_string(i) + ": " + (failure(i) + error::prefix.size());
  }
  end();
  if (failed.empty()) return;
  const char* const what =
      accepted.size() == 1 ? "the step is not committed: " : "the other items are committed, but not ";
  raise(errc::storage, what + failed);
}

}  // namespace detail

/// What callers can read of a step. `step` and `device_step` derive from it.
/// @tparam Core  the cache: `step`, a step_plan; `state_of(item)`; `policy`; `sizes.model`
template <class Core>
class step_items {
 public:
  /// Tokens of one item that the step takes: all of a prompt's, or of one that is passed whole; of a draft at most
  /// config.max_draft_tokens, up to the first that closes a segment, makes a choice that stays active, or has tokens
  /// evicted.
  index_t taken(index_t item) const { return at(item).tokens; }
  /// Position of an item's first token in this pass.
  index_t position(index_t item) const { return pass_ == 0 ? at(item).first : at(item).last(); }
  /// The same of its model position: what the engine rotates queries and keys by.
  index_t model_position(index_t item) const { return core_->state_of(at(item)).model_position(position(item)); }
  /// The slot of an item's first token in this pass; the others follow. In each KV lane it is the same.
  index_t slot(index_t item) const { return core_->state_of(at(item)).slot_end(position(item)); }
  /// True if the item takes part in this pass; its packed tokens begin at `packed(item)`.
  bool active(index_t item) const { return in_pass(at(item)); }
  index_t packed(index_t item) const { return at(item).packed; }
  index_t items() const {
    expect_open();
    return static_cast<index_t>(core_->step.items.size());
  }
  /// 2 if some item's last token will be passed again, provided that it is accepted; known from the start.
  index_t passes() const {
    for (index_t i = 0; i < items(); ++i) {
      if (may_pass_twice(at(i))) return 2;
    }
    return 1;
  }

 protected:
  // @param replayable  a graph may have made all calls of a pass
  explicit step_items(Core& core, bool replayable = false) : core_(&core), replayable_(replayable) {}
  step_items(step_items&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), pass_(other.pass_), replayable_(other.replayable_) {}

  void expect_open() const { ZOOMR_EXPECTS(core_ != nullptr, "the step is over: begin another one"); }
  // There is this layer.
  const shape& expect_layer(const char* call, index_t layer) const {
    expect_open();
    core_->step.layers.expect_layer(call, layer);
    return core_->sizes.model;
  }
  auto& at(index_t item) const {
    ZOOMR_EXPECTS(item >= 0 && item < items(),
                  "the step has no item " + std::to_string(item) + ", it has " + std::to_string(items()));
    return core_->step.items[static_cast<std::size_t>(item)];
  }
  bool in_pass(const detail::planned_item& item) const { return pass_ == 0 || item.second_pass; }

  // Before `commit`: so many tokens can be accepted, whatever they need of this pass has been done, and these are the
  // counts that `needs_second_pass` was given.
  // @param needs  needs(item): the queries of its tokens must have been seen
  template <class Needs>
  void expect_commit(view<const index_t> accepted, Needs needs) {
    expect_possible("commit", accepted);
    expect_complete("commit", accepted, needs);
    for (index_t i = 0; i < items(); ++i) {
      const index_t announced = at(i).announced;
      ZOOMR_EXPECTS(announced < 0 || announced == accepted[i] || at(i).failed,
                    "commit: `needs_second_pass` was told that " + std::to_string(announced) + " tokens of item " +
                        std::to_string(i) + " are accepted, not " + std::to_string(accepted[i]));
    }
  }

  // Checks the arguments of `needs_second_pass`, and that whatever it needs of the first pass has been done.
  // @param needs  as in `expect_commit`
  // @return  false if the second pass has begun already
  template <class Needs>
  bool ends_first_pass(view<const index_t> accepted, Needs needs) {
    constexpr const char* call = "needs_second_pass";
    expect_possible(call, accepted);
    if (pass_ == 1) return false;
    expect_complete(call, accepted, needs);
    return true;
  }
  // Whether the pass is made depends on how many tokens are accepted: the choice is the last token's.
  bool chooses_again(index_t item, index_t accepted) const {
    return may_pass_twice(at(item)) && accepted == at(item).tokens;
  }
  // Begins the second pass of some items, all of whose tokens are accepted; of none, the first stays.
  // @param takes_part  takes_part(i): item i does
  // @param visit       visit(item, packed) for each that does, before its place among the packed tokens becomes
  //                    `packed`
  // @return            tokens of the second pass
  template <class TakesPart, class Visit>
  index_t pass_again(view<const index_t> accepted, TakesPart takes_part, Visit visit) {
    index_t packed = 0;
    for (index_t i = 0; i < items(); ++i) {
      auto& item = at(i);
      item.announced = accepted[i];
      item.second_pass = takes_part(i);
      if (!item.second_pass) continue;
      visit(item, packed);
      item.packed = packed++;
    }
    if (packed == 0) return 0;
    pass_ = 1;
    core_->step.layers.clear();
    return packed;
  }
  bool may_pass_twice(const detail::planned_item& item) const {
    return !item.failed && item.chooses && !item.prompt && core_->policy.aggregate.per == scope::sequence &&
           core_->policy.refresh.second_pass;
  }

  // The step is over, committed or not: any call that comes later finds no cache, and is refused.
  // @param visit  visit(item) for each, to give back what the step has left
  template <class Visit>
  void close(Visit visit) {
    for (const auto& item : core_->step.items) visit(item);
    core_->step.items.clear();
    core_->step.active = false;
    core_ = nullptr;
  }

  Core* core_;
  index_t pass_ = 0;
  bool replayable_;

 private:
  // Before `call`: so many tokens can be accepted.
  void expect_possible(const char* call, view<const index_t> accepted) const {
    expect_open();
    detail::expect_counts(call, items(), accepted);
    for (index_t i = 0; i < items(); ++i) detail::expect_count(call, i, at(i), accepted[i]);
  }
  // Before `call`: whatever they need of this pass has been done.
  template <class Needs>
  void expect_complete(const char* call, view<const index_t> accepted, Needs needs) {
    const detail::step_layers& layers = core_->step.layers;
    if (replayable_ && !layers.any()) return;
    for (index_t i = 0; i < items(); ++i) {
      detail::planned_item& item = at(i);
      if (pass_ == 0) item.observed = item.prompt && layers.all_seen();
      if (accepted[i] == 0 || item.failed || !in_pass(item)) continue;
      layers.expect_complete(call, i, needs(item));
    }
  }
};

}  // namespace zoomr::inline v0
