// SPDX-License-Identifier: Apache-2.0
// L6. The cache: sequences, and the steps and edits that change them.
#pragma once

#include <zoomr/cache/host/editing/span_shift.hpp>
#include <zoomr/cache/host/shared_pages.hpp>
#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/cache/saving/saved_sequence.hpp>
#include <zoomr/cache/state/cache_base.hpp>
#include <zoomr/cache/state/engine_tables.hpp>
#include <zoomr/core/compiled_flags.hpp>
#include <zoomr/core/function_ref.hpp>
#include <zoomr/paging/tiers/tier_statistics.hpp>
#include <zoomr/policy/any_policy_of.hpp>
#include <zoomr/step.hpp>

#include <memory>       // std::make_unique, std::unique_ptr
#include <string>       // std::to_string
#include <type_traits>  // std::is_same_v
#include <utility>      // std::move
#include <vector>       // std::vector

namespace zoomr::inline v0 {

/// Keys, values and their index for some sequences under any policy: what every `kv_cache` of one storage type and
/// one placement is, so that code which drives a cache is compiled once for all policies.
///
/// It is made as a `kv_cache`, which may be moved into one: `any_kv_cache<> cache = kv_cache(model, policy, limits);`,
/// or `any_kv_cache<float, tiered<>>` where the policy's placement is `tiered<>`.
/// The policy is called virtually, a few times for each token and head.
///
/// One call at a time; the threads of `config.threads` may work on it. Results do not depend on how many these are, on
/// how sequences are batched, nor on how a text was cut into steps, unless items are passed whole
/// (`step_item::whole`).
///
/// @tparam T          storage type of keys and values
/// @tparam Placement  that of the policy
template <class T = float, class Placement = placement>
class any_kv_cache : public cache_base<detail::cache_core<pool_of<Placement, T>>> {
 protected:
  using pool_type = pool_of<Placement, T>;
  using core_type = detail::cache_core<pool_type>;
  using base = cache_base<core_type>;
  using base::core_, base::expect_open, base::expect_unused;

 public:
  using step_type = step<T, Placement>;
  using placement_type = Placement;

  any_kv_cache(any_kv_cache&& other) noexcept;
  any_kv_cache& operator=(any_kv_cache&& other) noexcept;
  ~any_kv_cache();

  /// What the cache holds at most.
  memory_use capacity() const;

  /// Begins a step for several sequences, each at most once. Decides from the ids alone how many tokens are
  /// taken and how many passes are needed.
  /// @throws error(capacity) if a sequence, its segments or the pool would overflow, error(storage) if a commit has
  /// failed and summaries cannot be made again; nothing has changed
  step_type begin(view<const step_item> items);

  /// Begins a step for one sequence. `prompt_ends` marks the last chunk of its prompt; a later prompt begins with a
  /// `step_item`.
  step_type begin(sequence seq, view<const token_id> ids, bool prompt_ends = false);

  /// How many tokens of each item a step would take that begins now with these items. None begins, and nothing changes:
  /// an engine that cuts its batches beforehand sees here how much of a draft would be left over.
  /// @param taken  [items]  out
  /// @throws as `begin`, but for what it needs pages or block tables for
  /// @cost   O(ids): that of planning a step, twice
  void plan(view<const step_item> items, view<index_t> taken) const;

  /// A new sequence that is what `from` is: committed tokens, index, active selection, what a rollback needs,
  /// statistics. From then on both go their own ways, with the results of two sequences to which the same tokens were
  /// passed. Beams are forks, and so are prompts that begin alike: of a sequence that is not stepped, which holds what
  /// they share.
  ///
  /// Pages are shared until one of the sequences writes there: a step copies the page that has room for its first
  /// token, and those to which an eviction at its end moves tokens. `bytes` counts a shared page for each of its
  /// sequences. With the placement engine_pages nothing is copied: the engine keeps track of shared pages.
  /// @throws error(capacity) if config.max_sequences are open; nothing has changed
  /// @cost   copies the index: the summaries of all segments, tables, remembered queries; no keys or values
  sequence fork(sequence from);
  /// The same into a sequence that is open, as llama.cpp copies sequences: what it was is closed, and its handle stays.
  /// @throws precondition_error while a step is in progress
  void fork(sequence from, sequence into);

  /// With the placement engine_pages: the sequence's slots are in these pages from now on, as with `step_item::pages`
  /// in a step. For a fork that loses tokens, or is saved, before its first step.
  /// @throws precondition_error while a step is in progress, or as `begin`; nothing has changed
  void block_table(sequence seq, view<const index_t> pages) requires(!pool_of<Placement, T>::owns_pages);

  /// Erases committed tokens: from then on the sequence is what it would be if they had never come. The tokens after
  /// count so many positions less, and segments are those of the tokens that are left. What was chosen is chosen still;
  /// sums of queries and of attention keep what the erased tokens have added. A span that ends the sequence is a
  /// rollback.
  ///
  /// A thought s of `segments(seq)` is dropped with {s.begin, s.end}; with {s.begin, s.split} its summary is left.
  /// Model positions close up too, and with `turn` keys are turned to them: it gets each key behind the span, from its
  /// layer. With `position_gap{}` they stay, and so do keys: the model sees a gap. `shift` may close it later.
  /// @code  cache.erase(seq, span, key_rotation(frequencies, -span.size()));  @endcode
  /// @param turn  turn(layer, key [head_dim])  changes the key, unscaled; it is rounded to T once more
  /// @throws precondition_error while a step is in progress, if nothing is left of a prompt that has ended, or if a
  ///         rotation is for another distance than the model positions move; error(not_held) if each KV lane has
  ///         evicted tokens of its own there, or pages were freed; error(capacity) if pages are shared, or are in
  ///         tiers, and there are none to move to; error(storage) if one does not come; as `rollback`, where it is one.
  ///         Nothing has changed then
  /// @cost   reads and writes the keys and values after the span once, and makes the summaries there anew. Where the
  ///         span's slots are whole pages no row moves: keys alone are written, and without `turn` nothing is
  template <class Turn = detail::unturned>
  void erase(sequence seq, token_range positions, const Turn& turn = {}) requires(pool_type::owns_pages) {
    erase_span(seq, positions, turn);
  }
  /// The same with the placement engine_pages.
  /// @return  the entries of the block table, as it was, that go: the next table is without them. Those of whole pages
  ///          where the span's slots are such; else entries at the end, since what is behind the span moves up
  template <class Turn = detail::unturned>
  [[nodiscard]] token_range erase(sequence seq, token_range positions,
                                  const Turn& turn = {}) requires(!pool_type::owns_pages) {
    return erase_span(seq, positions, turn);
  }

  /// Whether `erase` would do that: what it would throw is thrown, but for error(storage), and nothing changes. An
  /// engine that cannot take back what it has noted of its own asks before, and may erase later: as long as no other
  /// call has changed the cache, it can.
  /// @throws as `erase`
  /// @cost   O(segments after the span); no key is read
  template <class Turn = detail::unturned>
  void plan_erase(sequence seq, token_range positions, const Turn& turn = {}) const;

  /// Whether a committed token stays until an edit takes it: the policy evicts none, and frees none that no query
  /// reaches, and no window passes them. Then no span is refused because something of it is not held.
  bool holds_all() const;
  /// Whether the policy evicts tokens while decoding, so that a step takes drafts, and items that are `whole`, no
  /// further than an eviction.
  bool evicts_while_decoding() const;

  /// Moves the model positions of committed tokens by `distance`, and turns their keys by it, where they are. Nothing
  /// else changes, but summaries of these keys. Positions may not descend: a span moves as far as its neighbours. With
  /// the last token the next ones move too. What is remembered of queries stays as it was.
  /// @code  cache.shift(seq, span, distance, key_rotation(frequencies, distance));  @endcode
  /// @param turn  as of `erase`; none: keys are those of the new positions already, turned by the engine in its pages,
  ///              or the model turns none
  /// @throws precondition_error while a step is in progress, or if positions would descend; error(not_held) if a window
  ///         would move back to pages that were freed; error(capacity), error(storage) as `erase`. Nothing has changed
  /// @cost   reads and writes the keys of the span once, and makes the summaries from there on anew
  template <class Turn = detail::unturned>
  void shift(sequence seq, token_range positions, index_t distance, const Turn& turn = {});

  /// Writes all that a cache needs to go on with a sequence: docs/sequence_format.md. The sequence is not changed.
  /// @code  cache.save(seq, file_sink("/path/of/a/file"));  @endcode
  /// @throws precondition_error while a step is in progress; error(storage) if a page does not come, or the file cannot
  ///         be written; whatever the sink throws
  /// @cost   reads all keys and values once; allocates nothing
  void save(sequence seq, byte_sink& to);
  void save(sequence seq, byte_sink&& to) { save(seq, to); }
  /// Bytes that `save` would write now, for engines that need a buffer before.
  /// @throws precondition_error while a step is in progress
  /// @cost   O(tokens + pages * KV lanes): no key or value is read, and over tiers no page comes
  byte_count save_bytes(sequence seq);
  /// A new sequence, as the next one of `from` was when it was saved. Under the same policy every later bit is the
  /// same. Under another one segments and summaries are made again, and nothing is chosen yet.
  /// @code  sequence seq = cache.load(file_source("/path/of/a/file"));  @endcode
  /// @param pages  its block table, with the placement engine_pages: at least those that its slots need
  /// @throws precondition_error while a step is in progress; error(format) if it is damaged, or not for this cache;
  ///         error(capacity) if it has no room; error(storage) if a page or the file fails; whatever the source throws.
  ///         Nothing has changed then
  /// @cost   writes all keys and values once, and makes all summaries; allocates nothing
  sequence load(byte_source& from, view<const index_t> pages = {});
  sequence load(byte_source&& from, view<const index_t> pages = {}) { return load(from, pages); }

  /// Which tokens are pinned now: every later query attends them, as far as the model's window shows them, and they are
  /// never chosen, dropped or evicted. They are those of pinned spans, the preamble and the question that the policy's
  /// zones pin, and the first prompt if they pin that; sinks and the last tokens are not listed. Where segments are
  /// pinned a token counts once its segment is closed, where tokens are (a policy that evicts by attention and chooses
  /// no segments) once it is committed.
  ///
  /// The role says how long they stay: `question` until a later prompt that has a question ends, `pinned` until an edit
  /// takes them. A token that is both is `pinned`.
  /// @return  ranges of positions, ascending and disjoint; those that touch have different roles
  /// @throws  precondition_error if the sequence is not open
  /// @cost    O(segments), or O(tokens) where tokens are pinned; allocates the list
  std::vector<pinned_range> pinned(sequence seq) const {
    return detail::pinned_ranges(core_->policy, expect_open(seq));
  }

  /// Rows of the active selection: 1, layers, layers * kv_heads or layers * heads; 0 if nothing is ever chosen.
  index_t selection_rows() const { return core_->sizes.selection_rows; }
  /// One row of the active selection, or of the last choice; valid until the sequence changes.
  const selection_row& selected(sequence seq, index_t row) const;
  const statistics& stats(sequence seq) const { return expect_open(seq).stats; }

  /// Bytes in use now, by what they hold.
  memory_use bytes(sequence seq) const;

  /// Slots of each KV lane that hold committed tokens: as many as tokens, unless some were evicted.
  index_t slots(sequence seq) const { return expect_open(seq).slots(); }
  /// Which position is in which slot of one KV lane; valid until the sequence changes.
  slot_map slots_of(sequence seq, index_t layer, index_t kv_head) const;
  /// Where the keys and values of one KV lane are, as they are stored: by slot, of committed tokens and, in a step, of
  /// those appended. Valid until the sequence changes. `holds(slot)` is false where a page was freed.
  auto kv_lane(sequence seq, index_t layer, index_t kv_head) const requires(!pool_type::may_fail) {
    if constexpr (!pool_type::may_fail) {  // clang up to 15: as of `tiers` in kv_cache.inl
      return core_->kv_lane(open_lane(seq, layer, kv_head), layer, kv_head).read_only();
    }
  }

  /// KV heads whose keys and values move together between tiers: all of a layer, or one where each reads tokens of its
  /// own.
  index_t block_heads() const { return core_->sizes.blocks.heads; }
  /// What has been sent to other ranks since the cache was made, for all sequences: nothing without config.ranks, or
  /// where no choice needs them; by config.token_ranks something in each `attend`.
  rank_statistics ranks() const {
    const rank_statistics &choices = core_->exchange.counted(), &states = core_->rank_states.counted();
    return {choices.messages + states.messages, choices.bytes + states.bytes};
  }
  /// What a tiered placement has moved since the cache was made, for all sequences.
  tier_statistics tiers() const requires tiered_placement<Placement>;

  /// Whether attention would find a slot of a KV head in memory now, without waiting for a transfer. It moves
  /// nothing, and does not count as a use.
  bool in_memory(sequence seq, index_t layer, index_t kv_head, index_t slot) const requires tiered_placement<Placement>;

  /// Records what each query attends after the prompt into `into`, or stops doing so with nullptr. For tests and
  /// pictures: memory that runs out while it records is a std::bad_alloc, after which the cache must not be used again.
  void trace(attention_trace* into) { core_->trace = into; }
  /// Records each choice into `into`, or stops doing so with nullptr; memory as with `trace`.
  void trace_choices(choice_trace* into) { core_->choosers.front().trace = into; }

 protected:
  // @param policy       counts the memory
  // @param make_policy  makes the one that is kept
  any_kv_cache(const shape& model, const detail::any_policy& policy, const config& limits,
               function_ref<std::unique_ptr<const detail::any_policy>()> make_policy);

  static memory_use bytes_of(const shape& model, const detail::any_policy& policy, const config& limits);

 private:
  template <class Turn>
  token_range erase_span(sequence seq, token_range positions, const Turn& turn);
  // work(erasure) with the erasure that `turn` asks for.
  template <class Turn, class Work>
  auto with_erasure(sequence seq, token_range positions, const Turn& turn, Work work) const;
  // Makes an edit of a span, or none.
  // @return  entries of the page table that go
  template <class Edit>
  static token_range apply(Edit& edit);

  void expect_kv_lane(index_t layer, index_t kv_head) const;
  // The sequence, which is open; there is this KV lane.
  const detail::sequence_state& open_lane(sequence seq, index_t layer, index_t kv_head) const;
  void become(detail::sequence_state& copy, const detail::sequence_state& original);
  detail::sequence_state& state(index_t id) const { return core_->states[static_cast<std::size_t>(id)]; }

  // All tokens of a sequence are here.
  // @param call  for the sentence
  void expect_not_dealt(const char* call) const;
  // What a sequence, which is open, makes impossible, whatever there is room for.
  // @param i  the item's number, for the sentence
  void expect_passable(const step_item& item, index_t i) const;
  void plan_alone(view<const step_item> items, view<index_t> taken) const;
  void plan_item(const step_item& item) const;
  void take_positions(index_t i, const step_item& item);

  template <class, class>
  friend class grouped_kv_cache;
  friend class detail::layer_groups;
  friend struct inspection;  // of tests: it is defined nowhere else
};

/// Keys, values and their index for some sequences under one policy.
///
/// All memory is allocated by the constructor; `bytes` gives its size beforehand. Everything else is `any_kv_cache`.
///
/// @tparam Policy  what compose() makes: policy_of<mine> of a constant
/// @tparam T       storage type of keys and values: float, bfloat16, float16, float8, int8, scaled_int8, q8_0, q4_0,
///                 mxfp8; float8 and int8 with scales (config.key_scale, config.value_scale: one each, or one for each
///                 layer and KV head), the last three where rows are multiples of 32 wide
template <class Policy, class T = float>
class kv_cache : public any_kv_cache<T, decltype(detail::placement_of<Policy>())> {
  using base = any_kv_cache<T, decltype(detail::placement_of<Policy>())>;
  using policy_type = detail::any_policy_of<Policy>;

 public:
  /// @throws precondition_error for a shape, policy or config that cannot work; error(capacity) without memory
  kv_cache(const shape& model, const Policy& policy, const config& limits)
      : base(model, policy_type(policy), limits, [&] { return std::make_unique<const policy_type>(policy); }) {}

  using base::bytes;
  /// What a cache of this kind will hold at most, before anything is allocated.
  /// @throws precondition_error as the constructor, also for 2^60 bytes or more
  static memory_use bytes(const shape& model, const Policy& policy, const config& limits) {
    return base::bytes_of(model, policy_type(policy), limits);
  }

  const Policy& policy() const { return static_cast<const policy_type&>(this->core_->policy).value; }
};

template <class Policy>
kv_cache(shape, Policy, config) -> kv_cache<Policy, float>;

}  // namespace zoomr::inline v0

#include <zoomr/kv_cache.inl>

#define ZOOMR_HAS_CACHE
#include <zoomr/compiled.inl>
