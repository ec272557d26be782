// SPDX-License-Identifier: Apache-2.0
// L6. What callers can read and do with the sequences of a cache, on host and device.
#pragma once

#include <zoomr/cache/state/sequences.hpp>

#include <algorithm>  // std::min
#include <memory>     // std::unique_ptr
#include <string>     // std::to_string
#include <utility>    // std::move

namespace zoomr::inline v0 {
namespace detail {
struct cache_access;  // device_transfer.cuh
class layer_groups;   // layer_groups.hpp
}

/// `kv_cache` and `device_cache` are made of it. The core is on the heap, so that a cache may be moved while a step
/// points to it.
/// @tparam Core  what the cache owns: `states`, `step`, `limits`, `sizes.model`, `clear(state)`, `roll_back(state, to)`
template <class Core>
class cache_base {
 public:
  const shape& model() const { return core_->sizes.model; }

  /// A new, empty sequence.
  /// @throws error(capacity) if config.max_sequences are open
  sequence open() { return detail::open_sequence(core_->states); }
  /// Gives the sequence's memory back to the pool.
  void close(sequence seq) { core_->clear(expect_unused(seq)); }
  /// Makes the sequence what it was when `tokens` tokens were committed: details, summaries, segments, query sums
  /// and selection. Rolling back into a prompt reopens it.
  /// @throws error(rollback_depth) if more would have to be rolled back than was kept; nothing has changed
  void rollback(sequence seq, index_t tokens) {
    auto& going_back = expect_held(seq, tokens);
    if (tokens < going_back.tokens()) core_->roll_back(going_back, tokens);
  }

  /// Committed tokens.
  index_t tokens(sequence seq) const { return expect_open(seq).tokens(); }
  /// What the model counts the token at a position by, or, of `tokens(seq)`, the next one: its position, unless an edit
  /// has moved it, or a step had positions of the engine's own.
  index_t model_position(sequence seq, index_t position) const {
    const auto& state = expect_open(seq);
    ZOOMR_EXPECTS(position >= 0 && position <= state.tokens(),
                  "model_position: the position must lie in 0 ... tokens(seq)");
    return state.model_position(position);
  }
  /// True until a step with `prompt_ends` is committed: all tokens until then are prompt, and attend to all that
  /// their layer sees. True again from a step with `step_item::prompt_begins` to the next one with `prompt_ends`.
  bool in_prompt(sequence seq) const { return expect_open(seq).in_prompt(); }
  /// Slots at the front that no query reads again, since a layer's window (config.logits) has passed them, as far as
  /// config.rollback_tokens lets it come back: whole pages of 16. The cache has given its own pages back; pages of an
  /// engine that are there can serve others, and their entries of the block table be -1.
  index_t passed_slots(sequence seq) const {
    return core_->limits.logits.window > 0 ? expect_open(seq).freed_pages * page_tokens : 0;
  }
  /// Closed segments, ascending; valid until the sequence changes.
  view<const segment> segments(sequence seq) const { return expect_open(seq).segments; }

 protected:
  // `begin` and `plan` of both, before all else: whatever there is room for, such a step can be.
  // @param check  check(item, i)  throws if it cannot, by its sequence, which is open
  // @throws precondition_error if it cannot be
  template <class Check>
  void expect_items(view<const step_item> items, Check check) const {
    core_->step.expect_idle();
    detail::expect_some(items);
    for (index_t i = 0; i < items.size(); ++i) {
      expect_open(items[i].seq);
      detail::expect_once(items, i);
      check(items[i], i);
    }
  }

  // `begin` of both: checks all items, then plans them.
  // @param check  as of `expect_items`
  // @param plan   plan()  adds the items to the step, and takes what they need; what it throws undoes it
  template <class Check, class Plan>
  void plan_step(view<const step_item> items, Check check, Plan plan) {
    expect_items(items, check);
    ZOOMR_TRY { plan(); }
    ZOOMR_CATCH_ALL {
      core_->step.items.clear();
      detail::rethrow();
    }
    core_->step.layers.clear();
    core_->step.active = true;
  }

  // `plan` of both.
  // @param check      as of `expect_items`
  // @param plan_item  as of `plan_alone`
  template <class Check, class PlanItem>
  void plan_taken(view<const step_item> items, view<index_t> taken, Check check, PlanItem plan_item) const {
    expect_extents("plan: taken is", taken, {{items.size()}});
    expect_items(items, check);
    for (index_t i = 0; i < items.size(); ++i) taken[i] = items[i].ids.size();
    plan_alone(items, taken, plan_item);
    core_->step.expect_room();
  }

  // How many tokens `begin` would take, if there are the pages for them. Nothing changes.
  // @param taken      [items]  lowered to it
  // @param plan_item  plan_item(item)  adds it to the step
  // @throws precondition_error as `begin`; what there is no room for, `step_plan::expect_room` says afterwards
  template <class PlanItem>
  void plan_alone(view<const step_item> items, view<index_t> taken, PlanItem plan_item) const {
    core_->step.expect_idle();
    ZOOMR_TRY {
      for (index_t i = 0; i < items.size(); ++i) {
        plan_item(items[i]);
        taken[i] = (std::min)(taken[i], core_->step.items.back().tokens);
      }
    }
    ZOOMR_CATCH_ALL {
      core_->step.items.clear();
      detail::rethrow();
    }
    core_->step.items.clear();
  }

  // Pages are the cache's own, so that items come without block tables.
  static void expect_no_table(const step_item& item, index_t i) {
    ZOOMR_EXPECTS(item.pages.size() == 0, "begin: item " + std::to_string(i) +
                                              " has a block table, but the pages are the cache's own: it is for the "
                                              "placement engine_pages");
  }

  // A sequence that is open, while no step is in progress.
  auto& expect_unused(sequence seq) const {
    core_->step.expect_idle();
    return expect_open(seq);
  }
  // The same, which holds so many tokens that it can be rolled back to `tokens`.
  auto& expect_held(sequence seq, index_t tokens) const {
    auto& going_back = expect_unused(seq);
    ZOOMR_EXPECTS(tokens >= 0 && tokens <= going_back.tokens(), "rollback: the position must lie in 0 ... tokens(seq)");
    return going_back;
  }
  // What an open sequence was is forgotten, as if it were closed; its handle stays, for what it becomes.
  auto& emptied(sequence seq) {
    auto& state = expect_open(seq);
    core_->clear(state);
    state.generation = seq.generation;
    return state;
  }
  // The state of an open sequence.
  // @throws precondition_error if the handle is of no open sequence
  auto& expect_open(sequence seq) const { return detail::expect_open(core_->states, seq); }

  std::unique_ptr<Core> core_;

  friend struct detail::cache_access;
  friend class detail::layer_groups;
};

}  // namespace zoomr::inline v0
