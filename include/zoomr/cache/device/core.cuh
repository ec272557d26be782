// SPDX-License-Identifier: Apache-2.0
// L6. The host's half of a device cache: sequences, pages, where choices are, and the tables that steps upload. Nothing
// here waits for the device.
//
// `begin` lists the first pass in its table, `needs_second_pass` the second, `commit` moves sequences on and lists what
// the device needs before the next step (`step_table`). What is enqueued (launches.cuh) reads the arrays and the tables
// on the device. A page that is given back here is written only by what is enqueued later.
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>
#include <zoomr/cache/device/memory/page_tables.cuh>
#include <zoomr/cache/device/memory/planned_tokens.cuh>
#include <zoomr/cache/device/memory/sequence.cuh>
#include <zoomr/cache/device/memory/uploads.cuh>
#include <zoomr/cache/planning/voter_table.hpp>
#include <zoomr/cache/state/sequences.hpp>
#include <zoomr/cache/state/unreachable_pages.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/policy/any_policy_of.hpp>

#include <memory>    // std::make_unique, std::unique_ptr
#include <optional>  // std::optional
#include <utility>   // std::move

namespace zoomr::inline v0::detail {

/// What a cache has whatever its policy is, but the public calls. After construction nothing is allocated, and arrays
/// and `on_device` stay as they are: graphs hold copies of their addresses.
template <class T>
struct any_device_core {
 private:
  std::unique_ptr<const any_policy> kept_policy;

 public:
  const any_policy& policy = *kept_policy;
  config limits;
  cache_sizes sizes;
  voter_table voters;  // empty, unless some heads vote
  page_stock stock;
  table<device_sequence> states;  // [sequences]
  step_plan<device_item> step;    // in progress
  index_t prompt_tokens = 0;      // of the step in progress
  index_t decoding_tiles = 0;     // of its first pass: those before the prompts'

  step_table_values<table_lists> listed;      // of the step in progress
  step_table_values<device_table> on_device;  // where they go
  table_ring uploads;
  std::optional<side_stream> beside;  // for what the next layer will read, and the choices of voters
  constant_copies constants;          // tables of the engine's, as they were given to the constructor
  home_device home;

  any_device_core(const any_device_core&) = delete;
  any_device_core& operator=(const any_device_core&) = delete;
  virtual ~any_device_core() = default;

  /// What kernels of any policy know.
  virtual common_arrays<T>& common() = 0;

  device_sequence& state(index_t id) { return states[id]; }
  device_sequence& state_of(const planned_item& item) { return state(item.seq); }

  /// Gives back the pages after the committed tokens; those of an engine are forgotten.
  void trim(device_sequence& trimmed) {
    if (sizes.in_engine) {
      trim_table(limits.engine, trimmed);
    } else {
      trim_pages(trimmed.pages, trimmed.slots(), stock);
    }
    trimmed.known_pages = (std::min)(trimmed.known_pages, trimmed.pages.size());
  }

  /// Forgets a sequence that is closed.
  void clear(device_sequence& closing) { closing.forget_everything(policy.segment), trim(closing); }

  /// @throws error(rollback_depth) if what the sequence was at position `to` is no longer kept
  void expect_known(const device_sequence& sequence, index_t to) const {
    expect_rollback(policy, sequence, to, limits, sizes.records > 0 || sizes.voting.heard > 0,
                    !sizes.persists || sequence.reaches(to));
  }
  /// Forgets the tokens from position `to` on. Nothing is enqueued: what the device has of them is not read any more,
  /// and is overwritten when others take their places.
  void roll_back(device_sequence& going_back, index_t to) {
    expect_known(going_back, to);
    if (to < going_back.prompt_end) {
      going_back.choices.clear();
      going_back.dropped = false;
      going_back.reopen_prompt(to, limits.rollback_depth());
    }
    going_back.reopen_later_prompt(to, limits.rollback_depth());
    going_back.go_back(policy.segment, to, policy.evict.spacing());
    going_back.known_segments = (std::min)(going_back.known_segments, going_back.segment_count());
    while (!going_back.choices.empty() && going_back.choices.back().position >= to) going_back.choices.pop_back();
    trim(going_back);
  }

  /// Lists for a table the segments that the device does not have yet, or has pinned where they are not, or not where
  /// they are. It has them once the step is committed.
  void list_closings(step_table table, index_t id) {
    auto& closings = listed[table].closings;
    const device_sequence& sequence = state(id);
    const auto list = [&](index_t known) {
      ZOOMR_ASSERT(closings.size() < closings.capacity(), "a table has too few entries for closed segments");
      closings.push_back({id, known, sequence.segments[known], held(sequence)});
    };
    if (!(sequence.known_pins == sequence.pins)) sequence.each_other_pin(list);
    for (index_t known = sequence.known_segments; known < sequence.segment_count(); ++known) list(known);
  }

  static held_slots held(const device_sequence& sequence) {
    return {sequence.kept_each.committed, sequence.compacted_end};
  }

  /// Slots that each KV lane will keep when the prompt has ended that an item ends; 0: all.
  index_t kept_of_prompt(const planned_item& item) const {
    if (sizes.kept == 0 || !item.prompt_ends) return 0;
    const device_sequence& sequence = states[item.seq];
    const index_t end = item.first + item.tokens, kept = kept_after_prompt(policy, sequence, end);
    return kept < sequence.slot_end(end) ? kept : 0;
  }

  /// The queries of this chunk of a prompt count: the policy adds up attention, or the prompt ends here.
  bool observes(const planned_item& item) const {
    const bool pinned = policy.zone.prompt && states[item.seq].in_first_prompt();
    return kept_of_prompt(item) > 0 || (item.prompt && sizes.carried > 0 && !pinned);
  }

  /// Adds a token to the table of a pass.
  /// @param row  of the queries
  void list_token(step_table table, const device_item& item, index_t position, index_t row) {
    auto& tokens = listed[table].tokens;
    const planned_token& known = step.token(item, position);
    device_token token = token_for(*this, item, known, position, table == step_table::second_pass);
    token.row = row;
    const bool for_itself = sizes.selects && !sizes.persists && known.action == refresh_action::choose;
    if (for_itself && !token.dense) token.chooses = static_cast<index_t>(tokens.size());
    tokens.push_back(token);
  }
  /// Makes query tiles of the last `tokens` tokens of a table, which are of one sequence.
  void list_tiles(step_table table, index_t tokens) {
    const auto end = static_cast<index_t>(listed[table].tokens.size());
    for (index_t left = tokens, shared = 0; left > 0; left -= shared) {
      shared = (std::min)(left, sizes.tile_tokens());
      listed[table].tiles.push_back({end - left, shared});
    }
  }

  /// Fills the first pass's table: tokens after the prompt come first, so that grids may cover them alone; `row` is the
  /// place of each among the queries. Listed too are the segments that the sequences' last steps have closed, and the
  /// pages of all these tokens.
  void list_step() {
    prompt_tokens = 0;
    for (const bool prompt : {false, true}) {
      for (const device_item& item : step.items) {
        if (item.prompt != prompt) continue;
        for (index_t i = 0; i < item.tokens; ++i) {
          list_token(step_table::first_pass, item, item.first + i, item.packed + i);
        }
        list_tiles(step_table::first_pass, item.tokens);
        prompt_tokens += prompt ? item.tokens : 0;
      }
      if (!prompt) decoding_tiles = listed[step_table::first_pass].counts().tiles;
    }
    for (device_item& item : step.items) {
      list_closings(step_table::first_pass, item.seq);
      list_pages(*this, item);
    }
  }

  /// Makes the first `accepted` tokens of an item part of its sequence. What a prompt has closed, or an item that was
  /// passed whole, is listed in the last table, with what the choice after it needs: any other step closes at most
  /// three segments, so that the next one's table has room for all.
  void commit_item(device_item& item, index_t accepted) {
    device_sequence& sequence = state(item.seq);
    if (accepted == 0) return;
    sequence.know_segments();
    sequence.known_pages = item.pages;
    commit_tokens(policy.segment, sequence, item, step.first_tokens(item, accepted), limits.rollback_depth());
    if (item.prompt || sizes.voting.heard > 0) {
      sequence.remember_queries(item.first, item.observed || !item.prompt, sizes.remembered);
    }
    free_pages(policy, limits, sequence, sizes.in_engine ? nullptr : &stock);
    item.due =
        due_eviction(policy, limits, sizes.kept, sizes.noted, sizes.carried > 0, sequence, sequence.sums, item.prompt);
    if (item.prompt || item.goes_on() || item.due.kept > 0) {
      list_closings(step_table::commit, item.seq);
      sequence.know_segments();
    }
    const bool at_commit = item.chooses_at_commit(accepted, sizes.voting.heard > 0);
    if (!at_commit && (!item.chooses || accepted < item.tokens)) return;
    if (at_commit) listed[step_table::commit].tokens.push_back(choice_at_commit(*this, item));
    sequence.activate({item.first + accepted - 1, item.place}, sizes.ring);
  }

 protected:
  any_device_core(const shape& model, std::unique_ptr<const any_policy>&& owned, const config& settings,
                  const cache_sizes& cache)
      : kept_policy(std::move(owned)),
        limits(settings),
        sizes(cache),
        voters(model, policy.aggregate.asks_voters() ? settings.own_voters(model.heads) : view<const float, 2>{}, 0,
               {settings.voters_unsure, {settings.voters_none, settings.voters_none_slope}}, settings.voters),
        stock(sizes.in_engine ? 0 : sizes.pages),
        step(model, settings, policy.segment),
        listed{{table_lists(sizes.most_listed()), table_lists(sizes.most_listed()), table_lists(sizes.most_listed())}},
        uploads(sizes) {
    if (model.values_in_keys) limits.value_scale = limits.key_scale;
    limits.ranks.first = {};  // the caller's table may go
    states.reserve(settings.max_sequences);
    for (index_t s = 0; s < settings.max_sequences; ++s) {
      states.emplace_back(policy, settings.max_tokens, sizes.sequence_pages, sizes.segments);
      states.back().choices.reserve(static_cast<std::size_t>(sizes.ring) + 1);
      states.back().heard = sizes.voting.heard;
    }
  }
};

/// The same, and what is of the policy.
template <class Policy, class T>
struct device_core final : any_device_core<T> {
  const Policy& kernel_policy = static_cast<const any_policy_of<Policy>&>(this->policy).value;  // as kernels receive it
  device_arrays<Policy, T> arrays;
  gathered_shares gathered;  // empty, unless ranks' heads vote together
  using any_device_core<T>::sizes, any_device_core<T>::limits;

  /// Carves `memory`, and enqueues on `stream` the clearing of what must be zero before the first step: `arrived`,
  /// `scored`, and the tables of an arena. Nothing else on the device is cleared.
  device_core(const shape& model, const Policy& value, const config& settings, index_t splits, void* memory,
              stream_ref stream, void* details)
      : device_core(model, std::make_unique<const any_policy_of<Policy>>(value), settings, splits) {
    carver block(memory);
    carve(arrays, block, sizes, this->on_device);
    gathered.carve(block, sizes);
    if (sizes.tiered) {
      arrays.pool = static_cast<T*>(details);
      arrays.arena.clear(stream);
      if (prefetches(this->policy, model)) this->beside.emplace();
    }
    if (sizes.in_engine) copy_engine_layers(*this, stream);
    arrays.clear_counters(stream);
    if constexpr (hears_voters<Policy>) {
      if (!this->beside) this->beside.emplace();
      arrays.voting.gate = this->voters.gate();
      arrays.voting.forget_masses(0, sizes.sequences, stream);
    }
  }

  common_arrays<T>& common() override { return arrays; }

  /// Device memory that such a cache needs.
  static byte_count bytes_of(const cache_sizes& cache) {
    carver count;
    device_arrays<Policy, T> uncarved;
    step_table_values<device_table> uncarved_tables;
    carve(uncarved, count, cache, uncarved_tables);
    gathered_shares().carve(count, cache);
    return count.used();
  }

  /// @throws precondition_error if a tier is too small
  static cache_sizes sized(const shape& model, const any_policy& policy, const config& limits, index_t splits) {
    using placement = decltype(Policy::placement);
    constexpr pages_in place = tiered_placement<placement>         ? pages_in::tiers
                               : pool_of<placement, T>::owns_pages ? pages_in::pool
                                                                   : pages_in::engine;
    cache_sizes result(model, policy, limits, splits, place);
    if (result.tiered) {
      const byte_count beside_arena = bytes_of(result) + device_arena<T>::tables * carver::alignment;
      result.size_arena(limits.tiers, beside_arena, result.arena_page_bytes(sizeof(T), device_arena<T>::frame_bytes));
    }
    return result;
  }

  /// What a layer will read comes while the one before is attended.
  static bool prefetches(const any_policy& policy, const shape& model) {
    return policy.placement.prefetch && model.layers > 1;
  }

  /// Keys and values of a layer, by slot of the pool.
  paged_layer<T> layer(index_t layer) const {
    if (!sizes.in_engine) return arrays.layer(layer);
    const engine_memory& engine = limits.engine;
    void* const values = sizes.model.values_in_keys ? engine.keys[layer] : engine.values[layer];
    return sizes.pages_at(static_cast<T*>(engine.keys[layer]), static_cast<T*>(values));
  }

 private:
  device_core(const shape& model, std::unique_ptr<const any_policy>&& owned, const config& settings, index_t splits)
      : any_device_core<T>(model, std::move(owned), settings, sized(model, *owned, settings, splits)) {}

  // The tables come first in memory; the arrays name that of the first pass until a pass names its own.
  static void carve(device_arrays<Policy, T>& arrays, carver& from, const cache_sizes& cache,
                    step_table_values<device_table>& tables) {
    for (device_table& table : tables.values) table = carve_table(from, cache);
    arrays.carve(from, cache);
    arrays.table = tables[step_table::first_pass];
  }
};

}  // namespace zoomr::inline v0::detail
