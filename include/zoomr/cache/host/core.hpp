// SPDX-License-Identifier: Apache-2.0
// L6. What a cache owns.
#pragma once

#include <zoomr/cache/host/chooser.hpp>
#include <zoomr/cache/host/eviction_room.hpp>
#include <zoomr/cache/host/observation.hpp>
#include <zoomr/cache/host/summarizing.hpp>
#include <zoomr/cache/state/page_eviction.hpp>
#include <zoomr/cache/state/step_items.hpp>
#include <zoomr/cache/trace.hpp>
#include <zoomr/math/attention_state.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

namespace zoomr {
inline namespace v0 {
namespace detail {

/// The memory of a cache. Not a public type: kv_cache and step share one.
template <class Policy, class T>
struct cache_core {
  using state_type = sequence_state<Policy>;
  using pool_type = pool_of<decltype(Policy::placement), T>;
  using kv_lane_type = typename pool_type::kv_lane_type;

  Policy policy;
  config limits;
  layout<Policy> sizes;
  pool_type pool;
  std::vector<state_type> states;  // [max_sequences]
  chooser<Policy> choice;
  observation observed;
  segment_summarizer<Policy> summaries;
  eviction_room<Policy> room;
  step_plan<planned_item> step;        // in progress
  query_memory drafts;                 // [step's tokens after the prompt]  as after each token
  query_memory noting;                 // [step's tokens after the prompt]  queries that eviction will observe
  query_memory remembering;            // [step's prompt tokens]  the same, of the last ones of each prompt's chunk
  query_memory asking;                 // [max_sequences]  queries of the token that makes a choice
  std::vector<selection> pending;      // [max_sequences]  choices not yet committed
  std::vector<token_range> ranges;     // of one query
  std::vector<token_range> joined;     // of the query heads of one KV head
  std::vector<attention_state> heads;  // [max_batched_tokens, heads] in the prompt; [group] of one token
  std::vector<std::string> failures;   // [max_sequences]  why an item has failed
  attention_trace* trace = nullptr;    // the caller's, if attention is to be recorded

  cache_core(const shape& model, const Policy& with, const config& given)
      : policy(with),
        limits(given),
        sizes(model, with, given),
        pool(make_pool(sizes, with, given)),
        choice(sizes, with),
        observed(model, observed_tokens(sizes, given), reads_keys(), given),
        summaries(sizes, with, given),
        room(sizes, given),
        step(model, given),
        drafts(model, sizes.query_parts, layout<Policy>::draft_records(given)),
        noting(model, sizes.noted > 0 ? 1 : 0, layout<Policy>::draft_records(given)),
        remembering(model, 1, sizes.pending_queries(given)),
        asking(model, sizes.asking_parts(with), given.max_sequences),
        ranges(most_ranges(sizes)),
        joined(most_ranges(sizes) * static_cast<std::size_t>(model.group())),
        heads(static_cast<std::size_t>(given.max_batched_tokens) * static_cast<std::size_t>(model.heads)),
        failures(static_cast<std::size_t>(given.max_sequences)) {
    states.reserve(static_cast<std::size_t>(given.max_sequences));
    pending.reserve(static_cast<std::size_t>(given.max_sequences));
    room.take_spare(sizes, pool);
    for (index_t s = 0; s < given.max_sequences; ++s) {
      states.emplace_back(sizes, given);
      pending.emplace_back(persists() ? sizes.selection_rows : 0, sizes.most_segments);
    }
  }

  bool persists() const { return layout<Policy>::persists(policy); }

  /// Capacity of each tier; what the constructor will allocate.
  static memory_use bytes(const shape& model, const Policy& with, const config& given) {
    const layout<Policy> sizes(model, with, given);
    const index_t pages = eviction_room<Policy>::pool_pages(sizes, given);
    memory_use use = bytes_beside_pages(sizes, with, given);
    const byte_count others = use.total();
    use.details = bounded_product({pages, pool_type::page_bytes(model)});
    ZOOMR_EXPECTS(use.total() < too_many_bytes, "config: a cache of this shape would need 2^60 bytes or more");
    const pool_bytes made = pool_type::bytes(sizes.blocks, pages, given.tiers, others);
    use.details = made.device;
    use.host = made.host;
    use.file = made.file;
    return use;
  }

  /// Does part of an item's work, unless it has failed before.
  /// @return  false if it has failed
  template <class Work>
  bool may_fail(planned_item& item, Work work) {
    if constexpr (pool_type::may_fail) {
      if (item.failed) return false;
      try {
        work();
      } catch (const error& fault) {
        if (fault.code() != errc::storage) throw;
        failures[static_cast<std::size_t>(item.seq)] = fault.what();
        item.failed = true;
      }
      return !item.failed;
    } else {
      work();
      return true;
    }
  }

  state_type& state_of(const planned_item& item) { return states[static_cast<std::size_t>(item.seq)]; }

  kv_lane_type kv_lane(const state_type& state, index_t layer, index_t kv_head) {
    return pool.kv_lane(layer, kv_head, view<const index_t>(state.pages));
  }

  /// The zones of a query at `position`.
  zone_bounds zone_at(const state_type& state, index_t position, index_t open_begin) const {
    const index_t prompt_end = state.in_prompt() ? position + 1 : state.prompt_end;
    return {policy.zone.front(position, prompt_end), policy.zone.back(position, prompt_end, open_begin), position + 1};
  }

  /// Gives back the pages behind the committed tokens.
  void trim_pages(state_type& state) { detail::trim_pages(state.pages, state.slots(), pool); }

  /// Forgets what a step has left behind the committed tokens.
  void forget_pending(state_type& state) {
    state.kept_each.pending = 0;
    trim_pages(state);
  }

  /// Everything as it was when `to` tokens were committed. The caller has checked that it can be done.
  void roll_back(state_type& state, index_t to) {
    if (to < state.prompt_end) {  // nothing has been chosen or summed
      state.log.clear();
      state.reopen_prompt(to, limits.rollback_depth());
    }
    state.go_back(policy.segment, to);
    if (persists()) {
      state.log.restore(to, state.active_selection, level::summary);
    } else {
      state.active_selection.clear();
    }
    trim_pages(state);
  }

  memory_use bytes_in_use(const state_type& state) const {
    memory_use use;
    for (const index_t page : state.pages) use.details += page >= 0 ? pool_type::page_bytes(sizes.model) : 0;
    use.summaries = sizes.summary_bytes(state.segment_count());
    use.metadata = state.metadata_bytes(sizes);
    return use;
  }

 private:
  static memory_use bytes_beside_pages(const layout<Policy>& sizes, const Policy& with, const config& given) {
    const shape& model = sizes.model;
    const index_t pages = eviction_room<Policy>::pool_pages(sizes, given);
    memory_use use;
    use.summaries = bounded_product({given.max_sequences, sizes.summary_bytes(sizes.most_segments)});
    use.metadata = bounded_product({given.max_sequences, state_type::metadata_capacity(sizes, given)}) +
                   pages * static_cast<byte_count>(sizeof(index_t)) + eviction_room<Policy>::bytes(sizes, given);
    use.workspace =
        chooser<Policy>::bytes(sizes, with) + observation::bytes(model, observed_tokens(sizes, given), reads_keys()) +
        segment_summarizer<Policy>::bytes(sizes, with, given) + step_plan<planned_item>::bytes(model, given) +
        query_memory::bytes(model, sizes.query_parts + (sizes.noted > 0 ? 1 : 0),
                            layout<Policy>::draft_records(given)) +
        query_memory::bytes(model, 1, sizes.pending_queries(given)) +
        query_memory::bytes(model, sizes.asking_parts(with), given.max_sequences) +
        bounded_product({given.max_batched_tokens, model.heads, sizeof(attention_state)}) +
        static_cast<byte_count>(most_ranges(sizes) * sizeof(token_range)) * (1 + model.group()) +
        bounded_product({sizes.asking_parts(with), given.max_sequences, sizes.selection_rows,
                         sizes.most_segments + static_cast<byte_count>(sizeof(selection_row))});
    return use;
  }
  static pool_type make_pool(const layout<Policy>& sizes, const Policy& with, const config& given) {
    const index_t pages = eviction_room<Policy>::pool_pages(sizes, given);
    return pool_type::make(sizes.blocks, pages, given.tiers, bytes_beside_pages(sizes, with, given).total());
  }
  static index_t observed_tokens(const layout<Policy>& sizes, const config& given) {
    return sizes.kept > 0 ? given.max_tokens : 0;
  }
  static constexpr bool reads_keys() {
    if constexpr (decltype(Policy::evict)::observes) return decltype(Policy::evict)::reads_keys;
    return false;
  }
  static std::size_t most_ranges(const layout<Policy>& sizes) {
    return 2 * static_cast<std::size_t>(sizes.most_segments) + 2;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
