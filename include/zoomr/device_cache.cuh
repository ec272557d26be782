// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of kv_cache.hpp: keys, values, summaries, choices and token ranges stay on the device; the host
// plans.
#pragma once

#include <zoomr/cache/device/checks.cuh>
#include <zoomr/cache/state/cache_base.hpp>
#include <zoomr/device_step.cuh>

#include <memory>   // std::make_unique, std::unique_ptr
#include <utility>  // std::move
#include <vector>   // std::vector

namespace zoomr::inline v0 {

/// The calls of `device_cache`, and of `any_device_cache`.
/// @tparam Launcher  by which its steps enqueue
template <class Launcher>
class basic_device_cache : public cache_base<detail::any_device_core<typename Launcher::storage>> {
  using T = typename Launcher::storage;
  using core_type = detail::any_device_core<T>;
  using base = cache_base<core_type>;

 public:
  using step_type = basic_device_step<Launcher>;

  /// True if `begin` will find tables to write: never waits.
  /// @throws error(device) if something that was enqueued before has failed
  /// @cost   1 to 3 queries of CUDA events where tables were on their way at the last call, otherwise none
  bool ready() const { return core_->uploads.ready(); }
  /// Waits until it is: until the device has come to the last copy of the step four before the next one.
  /// @throws error(device) if something that was enqueued before has failed
  void wait() { core_->uploads.wait(); }

  /// Begins a step for several sequences, each at most once: on the host alone.
  /// @param fixed  for a graph: what is enqueued covers any step without prompt tokens
  /// @throws error(capacity) if a sequence, its segments or the pool would overflow; nothing has changed
  /// @throws error(busy) unless `ready`; nothing has changed
  /// @throws error(device) as `ready` does
  step_type begin(view<const step_item> items, bool fixed = false) {
    core_->home.expect_current("begin");
    const auto check = [&](const step_item& item, index_t i) { expect_passable(item, i, fixed); };
    base::plan_step(items, check, [&] {
      for (const step_item& item : items) plan_item(item);
      core_->step.expect_room();
      expect_ready();
      core_->listed[detail::step_table::first_pass].clear();
      take_step_pages(items);
      core_->list_step();
    });
    return step_type(*core_, launcher_, fixed);
  }
  step_type begin(sequence seq, view<const token_id> ids, bool prompt_ends = false, bool fixed = false) {
    const step_item item{seq, ids, prompt_ends};
    return begin(view<const step_item>(&item, {1}), fixed);
  }

  /// How many tokens of each item a step would take that begins now with these items: as `kv_cache::plan`, on the host
  /// alone. None begins, and nothing changes.
  /// @param taken  [items]  out
  /// @throws as `begin`, but for what it needs pages, tables or pinned memory for
  /// @cost   O(ids): that of planning a step, twice
  void plan(view<const step_item> items, view<index_t> taken) const {
    const auto check = [this](const step_item& item, index_t i) { expect_passable(item, i); };
    base::plan_taken(items, taken, check, [this](const step_item& item) { plan_item(item); });
  }

  /// A new sequence that is what `from` is, as kv_cache::fork. Pages are shared until one of the sequences writes
  /// there: the upload of a step copies those that it will write. With the placement engine_pages nothing is copied:
  /// the engine keeps track of shared pages.
  /// @throws precondition_error while a step is in progress; error(capacity) if config.max_sequences are open; nothing
  ///         has changed
  /// @cost   2 launches, which copy the index and what a rollback needs; no keys or values
  sequence fork(sequence from, stream_ref stream) {
    core_->home.expect_current("fork");
    const detail::device_sequence& original = base::expect_unused(from);
    const sequence copy = base::open();
    become(core_->state(copy.id), copy.id, original, from.id, stream);
    return copy;
  }
  /// The same into a sequence that is open, as `kv_cache::fork`: what it was is closed, and its handle stays.
  /// @throws precondition_error while a step is in progress; nothing has changed
  /// @cost   as above; none if both are the same
  void fork(sequence from, sequence into, stream_ref stream) {
    core_->home.expect_current("fork");
    const detail::device_sequence& original = base::expect_unused(from);
    base::expect_open(into);
    if (!(from == into)) become(base::emptied(into), into.id, original, from.id, stream);
  }

  /// With the placement engine_pages: the sequence's slots are in these pages from now on, as with `step_item::pages`
  /// in a step. For a sequence whose pages have moved: a step has room for few pages that are new to the device.
  /// @throws precondition_error while a step is in progress, if the table is too short, or names a page that there is
  ///         not; nothing has changed
  /// @cost   1 launch for each 512 pages
  void block_table(sequence seq, view<const index_t> pages, stream_ref stream) requires(Launcher::in_engine) {
    core_->home.expect_current("block_table");
    ZOOMR_EXPECTS(core_->sizes.in_engine,
                  "block_table: the pages are the cache's own: it is for the placement engine_pages");
    detail::device_sequence& state = base::expect_unused(seq);
    detail::take_table(core_->limits.engine, state, pages, "block_table: it",
                       [](const std::string& reason) { detail::raise_precondition(reason); });
    state.known_pages = static_cast<index_t>(state.pages.size());
    set_pages(*core_, seq.id, state.pages, stream);
  }

  /// Which tokens are pinned now: as kv_cache::pinned, on the host alone.
  /// @cost  O(segments); allocates the list
  std::vector<pinned_range> pinned(sequence seq) const {
    return detail::pinned_ranges(core_->policy, base::expect_open(seq));
  }

  /// Rows of a layer's selection: 1, or kv_heads or heads where each of these reads slots of its own.
  index_t rows_in_layer() const { return core_->sizes.layer_rows; }

  /// KV heads of a block that moves over tiers: all, or one where each reads tokens of its own; as kv_cache's.
  index_t block_heads() const requires(Launcher::may_be_tiered) {
    return core_->sizes.model.kv_heads / core_->sizes.page_parts;
  }
  /// Enqueues a copy of what the arena of a tiered placement has counted since the cache was made.
  /// @param to  pinned memory of the host, or CUDA may wait for the stream; what it is given is there after the copy
  /// @pre   no step is between its layers
  /// @cost  a copy of 64 bytes; nothing waits
  void read_tiers(arena_counts& to, stream_ref stream) const requires(Launcher::may_be_tiered) {
    ZOOMR_EXPECTS(core_->sizes.tiered, "read_tiers: the placement has no tiers");
    copy_anywhere(&to, core_->common().arena.counts, sizeof to, stream);
  }
  /// The same in the host's words, with bytes, as kv_cache::tiers gives it.
  /// @param read  what read_tiers has brought
  /// @cost  some sums on the host
  arena_statistics tiers(const arena_counts& read) const requires(Launcher::may_be_tiered) {
    return statistics_of(read, core_->sizes.block_numbers() * static_cast<byte_count>(sizeof(T)));
  }
  /// For tests and tools: where the table of the first or second pass is on the device.
  const detail::device_table& table(index_t pass) const { return core_->on_device[detail::table_for_pass(pass)]; }

 protected:
  basic_device_cache(std::unique_ptr<core_type> core, const Launcher& launcher) : launcher_(launcher) {
    core_ = std::move(core);
  }

  using base::core_;
  Launcher launcher_;

 private:
  void expect_ready() const {
    if (ready()) return;
    detail::raise(errc::busy, "the device has yet to copy the tables of a step " +
                                  std::to_string(detail::table_ring::steps) +
                                  " before this one: read what an earlier step gives, or call wait()");
  }

  void take_step_pages(view<const step_item> items) {
    if constexpr (Launcher::in_engine) {
      if (core_->sizes.in_engine) return take_engine_pages(*core_, items);
    }
    take_pages_to_write(*core_);
  }

  void plan_alone(view<const step_item> items, view<index_t> taken) const {
    base::plan_alone(items, taken, [this](const step_item& item) { plan_item(item); });
  }
  template <class...>
  friend class grouped_device_cache;
  friend class detail::layer_groups;

  // What a sequence, which is open, makes impossible, whatever there is room for.
  // @param i      the item's number, for the sentence
  // @param fixed  as of `begin`
  void expect_passable(const step_item& item, index_t i, bool fixed = false) const {
    const detail::device_sequence& stepped = core_->state(item.seq.id);
    if (!core_->sizes.in_engine) base::expect_no_table(item, i);
    detail::expect_item(stepped, item, core_->limits);
    ZOOMR_EXPECTS(!fixed || !(stepped.in_prompt() || item.prompt_begins),
                  "begin: a step for a graph takes no prompt tokens");
    ZOOMR_EXPECTS(item.positions.size() == 0, "begin: on a device model positions are positions");
    expect_beginning(core_->policy, core_->limits, stepped, item);
    expect_observed(core_->policy, stepped, item);
    if (item.spans.size() > 0) {
      ZOOMR_EXPECTS(!core_->policy.evict.observes,
                    "begin: an item names spans, but on a device the policy evicts tokens by attention, theirs too");
      detail::expect_spans(core_->policy, stepped, item, core_->limits.max_tokens);
    }
  }
  void become(detail::device_sequence& copy, index_t id, const detail::device_sequence& original, index_t from,
              stream_ref stream) {
    copy.become(original, core_->sizes.ring, id);
    if (!core_->sizes.in_engine) detail::share_pages(original.pages, core_->stock);
    launcher_.copy_sequence(*core_, from, id, stream);
  }

  void plan_item(const step_item& item) const {
    const auto& stepped = core_->state(item.seq.id);
    const detail::device_sizes& sizes = core_->sizes;
    detail::device_item& planned = core_->step.add(core_->policy, stepped, stepped.last_choice(), item, core_->limits,
                                                   sizes.segments, sizes.remembered);
    if (sizes.persists) planned.place = stepped.next_place(sizes.ring, item.seq.id);
  }
};

/// Keys, values and their index for some sequences under one policy, on the device.
///
/// The same policies, steps and selections as `kv_cache`; every selection is identical to the host's. The caller brings
/// the device memory; nothing is allocated, and nothing waited for, after construction but by `wait`. The host may be
/// ahead of the device by some steps, whose tables wait in pinned memory until they are copied: `begin` checks that
/// those of the step four before are, and refuses if they are not. An engine that reads the logits of each step before
/// it begins the next one is never refused; one that enqueues the chunks of a prompt, or steps, one after the other
/// calls `ready` or `wait`.
///
/// Whoever destroys a cache has waited for its steps, since their memory is the caller's; the cache's own pinned memory
/// is waited for.
///
/// Tokens are evicted as on the host, each KV lane the same ones; an evictor needs `rate` and, if it updates
/// importance itself, `update_importance` for the device (policy/evict/rating.cuh).
///
/// Tokens of a draft, and of a prompt's chunk, read keys and values together, up to 16 / Group of them. Where there are
/// no drafts, a config.max_draft_tokens of 1 saves the joining of their ranges, and memory for it.
///
/// With the placement `tiered<>` all pages are in pinned memory of the host, and `config.tiers.device` bytes on the
/// device hold everything else and an arena of blocks. What a layer reads is brought there first, by the device alone;
/// what has no room is read where it is (cache/device/tiers/fetching.cuh). Unless the placement's `prefetch` is off,
/// blocks that the next layer will certainly read come while one is attended, on a stream of the cache's own that forks
/// from the caller's and joins it (cache/device/tiers/ahead.cuh). The arena has an order of replacement of its own: the
/// placement's `replacement` and `transfers` are a host cache's.
///
/// With the placement engine_pages pages are an engine's, in memory of the device that `config.engine` names: a page
/// has a power of 2 of tokens, keys and values have the same strides, and rows are aligned to 16 bytes.
///
/// Details of every other placement are on the device.
/// @tparam T        storage type of keys and values
/// @tparam HeadDim  64, 96, 128, 192, 256 or 576, as a rule
/// @tparam Group    query heads of a KV head
/// @tparam Values   values_apart<Width>, where values may be narrower than keys; values_in_keys<Width>: a value is the
///                  first numbers of its key (MLA). It must agree with the model's shape
/// @tparam Ranks    several_ranks, where config.ranks are to choose together (core/ranks/nccl_ranks.hpp); else there is
///                  no code for it
template <class Policy, class T, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>,
          class Ranks = one_rank>
class device_cache : public basic_device_cache<detail::device_launcher<Policy, T, HeadDim, Group, Values, Ranks>> {
  using launcher_type = detail::device_launcher<Policy, T, HeadDim, Group, Values, Ranks>;
  using base = basic_device_cache<launcher_type>;
  using core_type = detail::device_core<Policy, T>;
  using placement_type = decltype(Policy::placement);
  using policy_type = detail::any_policy_of<Policy>;
  using checks = detail::device_checks<Policy, T, HeadDim, Group, Values, Ranks>;
  static constexpr bool evicts_tokens = decltype(Policy::evict)::observes;
  static_assert(!scales_rows<T>, "device_cache: rows with scales of their own are for the host's cache");
  static_assert(!in_blocks<T>, "device_cache: rows in blocks are for the host's cache");
  static_assert(!evicts_tokens || device_observer<decltype(Policy::evict)>,
                "device_cache: an evictor that observes needs `rate(evictor, seen, importance, block)` for the device "
                "(policy/evict/rating.cuh)");
  static_assert(!evicts_tokens || !importance_updater<decltype(Policy::evict)> ||
                    device_importance_updater<decltype(Policy::evict)>,
                "device_cache: an evictor that updates importance needs `update_importance(evictor, observed, "
                "received, block)` for the "
                "device (policy/evict/rating.cuh)");
  static_assert(detail::check_choices<Policy>());
  static constexpr bool tiered = tiered_placement<placement_type>;

 public:
  /// Device memory that a cache of this kind needs.
  /// @param splits  blocks that may share the tokens of one KV head; 0: 64 for one sequence of 8 KV heads, fewer for
  ///                more, at least 4. Each takes 128 tokens of head_dim 128 in 16 bits, or more
  /// @throws precondition_error as the constructor, also for 2^60 bytes or more
  static byte_count bytes(const shape& model, const Policy& policy, const config& limits, index_t splits = 0) {
    return allocated(0, [&] { return checks::bytes(model, policy_type(policy), limits, splits); });
  }

  /// Pinned memory of the host that a cache with a tiered placement needs: all pages of its pool; 0 for
  /// others.
  static byte_count host_bytes(const shape& model, const Policy& policy, const config& limits) {
    return checks::host_bytes(model, policy_type(policy), limits);
  }

  /// @param memory   bytes(...) bytes on the device, aligned to 256; the caller's
  /// @param details  host_bytes(...) bytes of pinned memory that the device can read and write, aligned to 256; the
  ///                 caller's. nullptr unless the placement is tiered
  /// @param plan     how their pages come; it changes no result
  /// @throws precondition_error for a shape, policy or config that cannot work; error(capacity) without memory for the
  /// host's tables. The device that is current is the cache's: every later call that begins a step or enqueues is
  /// refused while another one is
  device_cache(const shape& model, const Policy& policy, const config& limits, void* memory, stream_ref stream,
               index_t splits = 0, void* details = nullptr, transfer_plan plan = {})
      : base(make_core(model, policy, limits, memory, stream, splits, details, plan), {}) {}

  /// Loads the kernels of steps and forks on the cache's device, where CUDA would load each with its first launch, also
  /// in a step. `any_device_cache` does it of itself.
  /// @tparam Number  what queries are
  /// @throws error(device) if one cannot be loaded
  /// @cost   once for each kernel and device: to copy its code there
  template <class Number>
  void load_kernels() const {
    this->core_->home.expect_current("load_kernels");
    launcher_type{}.enqueue(*this->core_, detail::step_table::first_pass, 0, 0, false,
                            [](const auto& launches) { launches.template load<Number>(); });
  }

  /// For tests and tools: where everything is on the device.
  const detail::device_arrays<Policy, T>& arrays() const { return static_cast<const core_type&>(*this->core_).arrays; }

 private:
  template <class, class>
  friend class any_device_cache;
  // For a cache that goes on under another type.
  std::unique_ptr<detail::any_device_core<T>> release() && { return std::move(this->core_); }

  static std::unique_ptr<core_type> make_core(const shape& model, const Policy& policy, const config& limits,
                                              void* memory, stream_ref stream, index_t splits, void* details,
                                              transfer_plan plan) {
    static_cast<void>(bytes(model, policy, limits, splits));
    detail::expect_classes(policy_type(policy), limits);
    const auto aligned = [](void* at) { return at != nullptr && reinterpret_cast<std::uintptr_t>(at) % 256 == 0; };
    ZOOMR_EXPECTS(aligned(memory), "device_cache: memory must be aligned to 256 bytes");
    ZOOMR_EXPECTS(tiered ? aligned(details) : details == nullptr,
                  "device_cache: details are the pinned memory of a tiered placement, aligned to 256 bytes");
    ZOOMR_EXPECTS(plan.fetch_blocks >= 1, "device_cache: a transfer_plan has at least one block that fetches");
    return allocated(0, [&] {
      auto core = std::make_unique<core_type>(model, policy, limits, splits, memory, stream, details);
      copy_logits(*core, stream);
      if constexpr (detail::hears_voters<Policy>) copy_voters(*core, stream), copy_gathered(*core, limits, stream);
      if constexpr (detail::weighs_heads<Policy>) copy_head_weights(*core, stream);
      core->arrays.arena.plan = plan;
      return core;
    });
  }
};

}  // namespace zoomr::inline v0
