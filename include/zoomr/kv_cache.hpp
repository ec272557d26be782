// SPDX-License-Identifier: Apache-2.0
// L6. The cache: sequences, and the steps and edits that change them.
#pragma once

#include <zoomr/step.hpp>
#include <zoomr/tier/tiered_lane.hpp>

#include <memory>  // std::unique_ptr
#include <string>  // std::to_string

namespace zoomr {
inline namespace v0 {

/// Keys, values and their index for some sequences under one policy.
///
/// All memory is allocated by the constructor; `bytes` says how much before. Not thread-safe: one thread at a
/// time. Results do not depend on how sequences are batched, nor on how a text was cut into steps.
///
/// @tparam Policy  what compose() makes
/// @tparam T       storage type of keys and values: float, bfloat16, float16, float8, int8; the last two with scales
///                 (config.key_scale, config.value_scale)
template <class Policy, class T = float>
class kv_cache {
 public:
  using step_type = step<Policy, T>;
  using store_type = decltype(Policy::store);

  /// @throws precondition_error for a shape, policy or config that cannot work; error(capacity) without memory
  kv_cache(const shape& model, const Policy& policy, const config& limits) {
    const memory_use use = bytes(model, policy, limits);
    core_ = allocated(use.total() + use.host, [&] {
      const char* problem = classes_problem(policy, limits);
      ZOOMR_EXPECTS(problem == nullptr, problem);
      return std::make_unique<cache_core<Policy, T>>(model, policy, limits);
    });
  }

  /// What a cache of this kind will hold at most, by tier, before anything is allocated.
  /// @throws precondition_error as the constructor, also for 2^60 bytes or more
  static memory_use bytes(const shape& model, const Policy& policy, const config& limits) {
    return allocated(0, [&] {
      check(model, policy, limits);
      return cache_core<Policy, T>::bytes(model, policy, limits);
    });
  }

  /// The same of this cache.
  memory_use capacity() const { return cache_core<Policy, T>::bytes(core_->sizes.model, core_->policy, core_->limits); }

  const shape& model() const { return core_->sizes.model; }
  const Policy& policy() const { return core_->policy; }

  /// A new, empty sequence.
  /// @throws error(capacity) if config.sequences are open
  sequence open() { return open_sequence(core_->states); }

  /// Gives the sequence's memory back to the pool.
  void close(sequence seq) {
    expect_idle();
    auto& closing = expect_open(seq);
    closing.forget_everything();
    core_->trim_pages(closing);
  }

  /// Begins a step for several sequences, each at most once. Decides from the ids alone how many tokens are
  /// taken and how many passes are needed.
  /// @throws error(capacity) if a sequence, its segments or the pool would overflow, error(storage) if a commit has
  /// failed and summaries cannot be made again; nothing has changed
  step_type begin(view<const step_item> items) {
    expect_idle();
    ZOOMR_EXPECTS(items.size() > 0, "begin: a step needs at least one item");
    core_->items.clear();
    for (index i = 0; i < items.size(); ++i) {
      const auto& stepped = expect_item(core_->states, items, i, core_->limits);
      try {
        renew_summaries(*core_, state(items[i].seq.id));
      } catch (const error& why) {
        throw error(why.code(), "begin: item " + std::to_string(i) +
                                    ": after a commit that failed its summaries cannot be made again: " +
                                    (why.what() + error::prefix.size()));
      }
      expect_observed(core_->policy, stepped, items[i]);
      plan_item(items[i]);
    }
    take_pages();
    core_->layers.clear();
    core_->stepping = true;
    return step_type(*core_);
  }

  /// Begins a step for one sequence. `prompt_ends` marks the last chunk of its prompt.
  step_type begin(sequence seq, view<const token_id> ids, bool prompt_ends = false) {
    const step_item item{seq, ids, prompt_ends};
    return begin(view<const step_item>(&item, {1}));
  }

  /// Makes the sequence what it was when `tokens` tokens were committed: details, summaries, segments, query sums
  /// and selection. Rolling back into the prompt reopens it.
  /// @throws error(undo_depth) if more would have to be undone than was kept; nothing has changed
  void rollback(sequence seq, index tokens) {
    expect_idle();
    auto& undone = expect_open(seq);
    ZOOMR_EXPECTS(tokens >= 0 && tokens <= undone.tokens(), "rollback: the position must lie in 0 ... tokens(seq)");
    if (tokens == undone.tokens()) return;
    expect_undo(undone, tokens);
    core_->roll_back(undone, tokens);
  }

  /// Committed tokens.
  index tokens(sequence seq) const { return expect_open(seq).tokens(); }
  /// True until a step with `prompt_ends` is committed: all tokens until then are prompt, and attend to everything.
  bool in_prompt(sequence seq) const { return expect_open(seq).in_prompt(); }
  /// Closed segments, ascending; valid until the sequence changes.
  view<const segment> segments(sequence seq) const { return expect_open(seq).segments; }
  /// Rows of the selection in force: 1, layers, layers * kv_heads or layers * heads; 0 if nothing is ever chosen.
  index selection_rows() const { return core_->sizes.selection_rows; }
  /// One row of the selection in force, or of the last choice; valid until the sequence changes.
  const selection_row& selected(sequence seq, index row) const {
    ZOOMR_EXPECTS(row >= 0 && row < selection_rows(), "selected: there is no such row");
    return expect_open(seq).in_force.row(row);
  }
  const statistics& stats(sequence seq) const { return expect_open(seq).stats; }

  /// Bytes in use now, by what they hold.
  memory_use bytes(sequence seq) const { return core_->bytes_in_use(expect_open(seq)); }

  /// KV heads whose keys and values move together between tiers: all of a layer, or one where each reads tokens of its
  /// own.
  index block_heads() const { return core_->sizes.blocks.heads; }
  /// What a tiered store has moved since the cache was made, for all sequences.
  tier_statistics tiers() const requires tiered_store<store_type> { return core_->pool.stats(); }

  /// Records what each query attends after the prompt into `into`, or stops doing so with nullptr. For tests and
  /// pictures: memory that runs out while it records is a std::bad_alloc, after which the cache must not be used again.
  void trace(attention_trace* into) { core_->trace = into; }
  /// Records each choice into `into`, or stops doing so with nullptr; memory as with `trace`.
  void trace_choices(choice_trace* into) { core_->choice.trace = into; }

 private:
  static void check(const shape& model, const Policy& policy, const config& limits) {
    const char* problem = cache_problem(model, policy, limits);
    ZOOMR_EXPECTS(problem == nullptr, problem);
  }

  sequence_state<Policy>& state(index id) const { return core_->states[static_cast<std::size_t>(id)]; }

  void expect_idle() const { ZOOMR_EXPECTS(!core_->stepping, "a step is in progress: commit or drop it first"); }

  sequence_state<Policy>& expect_open(sequence seq) const { return zoomr::expect_open(core_->states, seq); }

  void plan_item(const step_item& item) {
    index planned = 0;
    index draft = 0;
    index packed = 0;
    index remembered = 0;
    for (const planned_item& before : core_->items) {
      planned += before.tokens;
      packed += before.tokens;
      draft += before.prompt ? 0 : before.tokens;
      remembered += before.prompt ? std::min(before.tokens, core_->sizes.remembered) : 0;
    }
    const auto& stepped = state(item.seq.id);
    planned_item made =
        plan(core_->policy, stepped, stepped.log.last_position(), item, core_->limits, core_->sizes.most_segments,
             view<planned_token>(core_->table).slice(planned, core_->limits.step_tokens));
    made.planned = planned;
    made.draft = draft;
    made.packed = packed;
    made.remembered = remembered;
    if (made.chooses) core_->pending[static_cast<std::size_t>(made.seq)].clear();
    core_->items.push_back(made);
  }

  void take_pages() {
    zoomr::take_pages(
        core_->pool, core_->items,
        [&](const planned_item& item) { return state(item.seq).slot_end(item.first + item.tokens); },
        [&](const planned_item& item) -> std::vector<index>& { return state(item.seq).pages; });
  }

  void expect_undo(const sequence_state<Policy>& undone, index to) const {
    const bool deep = to < undone.undo_floor;
    const bool generated = !undone.in_prompt() && to >= undone.prompt_end;
    const bool sums = core_->sizes.query_parts > 0 && deep && generated;
    const bool choices = core_->persists() && generated && !undone.log.reaches(to);
    const bool given_up = to < undone.prompt_end && (undone.kept_each > 0 || undone.evicted_pages > 0);
    const bool evicted = core_->policy.store.evicts && deep && generated;
    const bool observed = to < undone.observed_end && (to > 0 || undone.kept_each > 0);
    if (sums || choices || given_up || evicted || observed) {
      throw error(errc::undo_depth,
                  "cannot roll back from " + std::to_string(undone.tokens()) + " to " + std::to_string(to) +
                      " tokens: " +
                      (given_up   ? "the policy has given up tokens of the prompt"
                       : observed ? "at " + std::to_string(undone.observed_end) +
                                        " tokens the policy has given some up, or added up the attention that they got"
                                  : "config.undo_tokens is " + std::to_string(core_->limits.undo_tokens) +
                                        ", counted from the longest that the sequence ever was"));
    }
  }

  friend struct inspection;  // of tests: it is defined nowhere else

  std::unique_ptr<cache_core<Policy, T>> core_;
};

template <class Policy>
kv_cache(shape, Policy, config) -> kv_cache<Policy, float>;

}  // namespace v0
}  // namespace zoomr
