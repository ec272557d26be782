// SPDX-License-Identifier: Apache-2.0
// L6. What a cache owns, and the changes that commit and rollback make to one sequence.
#pragma once

#include <zoomr/cache/chooser.hpp>
#include <zoomr/cache/evicting.hpp>
#include <zoomr/cache/observation.hpp>
#include <zoomr/cache/retention_room.hpp>
#include <zoomr/cache/sequences.hpp>
#include <zoomr/cache/tier_slots.hpp>
#include <zoomr/cache/trace.hpp>
#include <zoomr/math/attention_state.hpp>
#include <zoomr/tier/page_pool.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

namespace zoomr {
inline namespace v0 {

/// The memory of a cache. Not a public type: kv_cache and step share one.
template <class Policy, class T>
struct cache_core {
  using state_type = sequence_state<Policy>;
  using pool_type = pool_of<decltype(Policy::store), T>;
  using lane_type = typename pool_type::lane_type;

  Policy policy;
  config limits;
  layout<Policy> sizes;
  pool_type pool;
  std::vector<state_type> states;  // [sequences]
  chooser<Policy> choice;
  observation observed;
  retention_room<Policy> room;
  query_memory drafts;                 // [step tokens after the prompt]  as after each token
  query_memory noting;                 // [step tokens after the prompt]  queries that retention will observe
  query_memory remembering;            // [step tokens in prompts]  the same, of the last ones of each prompt's chunk
  query_memory asking;                 // [sequences]  queries of the token that makes a choice
  std::vector<planned_token> table;    // [step_tokens]
  std::vector<planned_item> items;     // [sequences]  of the step in progress
  std::vector<selection> pending;      // [sequences]  choices not yet committed
  std::vector<run> runs;               // of one query
  std::vector<run> joined;             // of the query heads of one KV head
  std::vector<attention_state> heads;  // [step_tokens, heads] in the prompt; [group] of one token
  std::vector<std::string> failures;   // [sequences]  why an item has failed
  std::vector<float> cue_keys;         // [longest cue, head_dim]  for a summarizer that sees all keys at once
  std::vector<float> cue_work;         // [longest cue]
  std::vector<index> cue_order;        // [longest cue]
  std::vector<float> cue_made;         // [head_dim, rows]
  attention_trace* trace = nullptr;    // the caller's, if attention is to be recorded
  step_layers layers;                  // of the pass in progress
  bool stepping = false;

  cache_core(const shape& model, const Policy& with, const config& given)
      : policy(with),
        limits(given),
        sizes(model, with, given),
        pool(make_pool(model, with, given)),
        choice(sizes, with),
        observed(model, sizes.kept > 0 ? given.tokens : 0, reads_keys(), given),
        room(sizes, given),
        drafts(model, sizes.query_parts, layout<Policy>::draft_records(given)),
        noting(model, sizes.noted > 0 ? 1 : 0, layout<Policy>::draft_records(given)),
        remembering(model, 1, sizes.provisional_queries(given)),
        asking(model, sizes.asking_parts(with), given.sequences),
        table(static_cast<std::size_t>(given.step_tokens)),
        runs(most_runs(sizes)),
        joined(most_runs(sizes) * static_cast<std::size_t>(model.group())),
        heads(static_cast<std::size_t>(given.step_tokens) * static_cast<std::size_t>(model.heads)),
        cue_keys(static_cast<std::size_t>(longest_cue(with, given)) * static_cast<std::size_t>(model.head_dim)),
        cue_work(static_cast<std::size_t>(longest_cue(with, given))),
        cue_order(cue_work.size()),
        cue_made(cue_work.empty() ? 0 : static_cast<std::size_t>(sizes.segment_summary())),
        layers(model.layers) {
    states.reserve(static_cast<std::size_t>(given.sequences));
    pending.reserve(static_cast<std::size_t>(given.sequences));
    items.reserve(static_cast<std::size_t>(given.sequences));
    failures.resize(static_cast<std::size_t>(given.sequences));
    room.take_spare(sizes, pool);
    for (index s = 0; s < given.sequences; ++s) {
      states.emplace_back(sizes, given);
      pending.emplace_back(persists() ? sizes.selection_rows : 0, sizes.most_segments);
    }
  }

  bool persists() const { return Policy::selects && layout<Policy>::persists(policy); }

  /// Capacity of each tier; what the constructor will allocate.
  static memory_use bytes(const shape& model, const Policy& with, const config& given) {
    const layout<Policy> sizes(model, with, given);
    const index pages = retention_room<Policy>::pool_pages(sizes, given);
    memory_use use;
    use.summaries = bounded_product({given.sequences, sizes.summary_bytes(sizes.most_segments)});
    use.metadata = bounded_product({given.sequences, state_type::metadata_capacity(sizes, given)}) +
                   pages * static_cast<byte_count>(sizeof(index)) + retention_room<Policy>::bytes(sizes, given);
    use.workspace = chooser<Policy>::bytes(sizes) +
                    observation::bytes(model, sizes.kept > 0 ? given.tokens : 0, reads_keys()) +
                    query_memory::bytes(model, sizes.query_parts + (sizes.noted > 0 ? 1 : 0),
                                        layout<Policy>::draft_records(given)) +
                    query_memory::bytes(model, 1, sizes.provisional_queries(given)) + step_layers::bytes(model.layers) +
                    query_memory::bytes(model, sizes.asking_parts(with), given.sequences) +
                    given.step_tokens * static_cast<byte_count>(sizeof(planned_token)) +
                    bounded_product({given.step_tokens, model.heads, sizeof(attention_state)}) +
                    static_cast<byte_count>(most_runs(sizes) * sizeof(run)) * (1 + model.group()) +
                    bounded_product({longest_cue(with, given), model.head_dim + byte_count{2}, sizeof(float)}) +
                    bounded_product({longest_cue(with, given) > 0 ? sizes.segment_summary() : 0, sizeof(float)}) +
                    bounded_product({sizes.asking_parts(with), given.sequences, sizes.selection_rows,
                                     sizes.most_segments + static_cast<byte_count>(sizeof(selection_row))});
    use.details = bounded_product({pages, pool_type::page_bytes(model)});
    ZOOMR_EXPECTS(use.total() < too_many_bytes, "config: a cache of this shape would need 2^60 bytes or more");
    if constexpr (tiered_store<decltype(Policy::store)>) {
      use.file = given.tiers.file > 0 ? use.details : 0;
      use.details = 0;
      const tier_slots tiers = slots_of_tiers<pool_type>(sizes.blocks, pages, given.tiers, use.total());
      use.details = tiers.device * sizes.blocks.template bytes<T>();
      use.host = tiers.host * sizes.blocks.template bytes<T>() + tiers.tables;
    }
    return use;
  }

  /// Does part of an item's work, unless it has failed before.
  /// @return  false if it has failed
  template <class Work>
  bool may_fail(planned_item& item, Work work) {
    if constexpr (tiered_store<decltype(Policy::store)>) {
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

  /// Starts bringing what some KV heads of a layer hold in some slots to the device, as much as half of it can hold.
  void expect_soon(const state_type& state, index layer, run kv_heads, run slots) {
    each_piece(state, layer, kv_heads, slots, [](auto& in, index piece, index page) { in.prefetch(piece, page); });
  }
  /// Says that what is on the device of it will be read soon, so that others go first.
  void touch(const state_type& state, index layer, run kv_heads, run slots) {
    each_piece(state, layer, kv_heads, slots, [](auto& in, index piece, index page) { in.touch(piece, page); });
  }

  state_type& state_of(const planned_item& item) { return states[static_cast<std::size_t>(item.seq)]; }

  lane_type lane(const state_type& state, index layer, index kv_head) {
    return pool.lane(layer, kv_head, view<const index>(state.pages));
  }

  /// The zones of a query at `position`.
  zone_bounds zone_at(const state_type& state, index position, index open_begin) const {
    const index prompt_end = state.in_prompt() ? position + 1 : state.prompt_end;
    return {policy.zone.front(position, prompt_end), policy.zone.back(position, prompt_end, open_begin), position + 1};
  }

  /// Gives back the pages behind the committed tokens.
  void trim_pages(state_type& state) { zoomr::trim_pages(state.pages, state.slots(), pool); }

  /// Forgets what a step has left behind the committed tokens.
  void forget_provisional(state_type& state) {
    state.keeping = 0;
    trim_pages(state);
  }

  /// Commits the first `count` tokens of an item to tokens, segments and segmenter.
  /// @return the number of segments before
  index commit_tokens(state_type& state, const planned_item& item, index count) {
    const index segments_before = state.segment_count();
    zoomr::commit_tokens(policy, state, view<const planned_token>(table).slice(item.planned, item.planned + count),
                         item.prompt_ends, limits.undo());
    if constexpr (tiered_store<decltype(Policy::store)>) {
      for (index page = state.slot_end(item.first) / page_tokens; (page + 1) * page_tokens <= state.slots(); ++page) {
        pool.write_back(state.pages[static_cast<std::size_t>(page)]);
      }
    }
    return segments_before;
  }

  /// Makes the summaries of the segments from `first` on, from the keys of their cues as they are stored.
  void summarize(state_type& state, index first) {
    if constexpr (Policy::selects) {
      for (index l = 0; l < sizes.model.lanes(); ++l) {
        const lane_type at = lane(state, l / sizes.model.kv_heads, l % sizes.model.kv_heads);
        const slot_map slots = state.slots_of(l);
        for (index id = first; id < static_cast<index>(state.segments.size()); ++id) {
          const segment& s = state.segments[static_cast<std::size_t>(id)];
          auto* out = state.summaries.data() + (std::int64_t{l} * sizes.most_segments + id) * sizes.segment_summary();
          summarize_lane(at, {slots.slot_of(s.cue_begin), slots.slot_of(s.cue_end)}, out);
        }
      }
    }
  }

  /// Gives back pages that no query can reach any more: for policies that never choose details.
  void evict(state_type& state) {
    if (policy.store.evicts) evict_unreachable(policy, limits.undo(), state, pool);
  }

  /// Everything as it was when `to` tokens were committed. The caller has checked that it can be done.
  void roll_back(state_type& state, index to) {
    if (to < state.prompt_end) {  // nothing has been chosen or summed
      state.log.clear();
      state.undo_floor = std::max(0, to - limits.undo());
      state.observed_end = std::min(state.observed_end, to);
    }
    state.go_back(policy.segment, to);
    if (persists()) {
      state.log.restore(to, state.in_force, level::summary);
    } else {
      state.in_force.clear();
    }
    trim_pages(state);
  }

  memory_use bytes_in_use(const state_type& state) const {
    memory_use use;
    for (const index page : state.pages) use.details += page >= 0 ? pool_type::page_bytes(sizes.model) : 0;
    use.summaries = sizes.summary_bytes(Policy::selects ? static_cast<index>(state.segments.size()) : 0);
    use.metadata = state.metadata_bytes(sizes);
    return use;
  }

 private:
  // visit(pool, piece, page) for what some KV heads hold in some slots; not at all if nothing moves.
  template <class Visit>
  void each_piece(const state_type& state, index layer, run kv_heads, run slots, Visit visit) {
    if constexpr (tiered_store<decltype(Policy::store)>) {
      const index last = pool.piece_of(layer, kv_heads.last - 1);
      for (index page = slots.first / page_tokens; page * page_tokens < slots.last; ++page) {
        const index id = state.pages[static_cast<std::size_t>(page)];
        for (index piece = pool.piece_of(layer, kv_heads.first); piece <= last; ++piece) visit(pool, piece, id);
      }
    }
  }
  static pool_type make_pool(const shape& model, const Policy& with, const config& given) {
    const layout<Policy> made(model, with, given);
    const index pages = retention_room<Policy>::pool_pages(made, given);
    if constexpr (tiered_store<decltype(Policy::store)>) {
      const memory_use use = bytes(model, with, given);
      const tier_slots tiers = slots_of_tiers<pool_type>(made.blocks, pages, given.tiers, use.total() - use.details);
      return pool_type(made.blocks, pages, tiers.device, tiers.host, given.tiers.file > 0 ? given.tiers.path : "");
    } else {
      return pool_type(model, pages);
    }
  }
  static index longest_cue(const Policy& with, const config& given) {
    if (!block_summarizer<decltype(Policy::summarize)>) return 0;
    return std::min<index>(with.segment.longest, given.tokens);
  }
  static constexpr bool reads_keys() {
    if constexpr (decltype(Policy::retain)::observes) return decltype(Policy::retain)::reads_keys;
    return false;
  }
  static std::size_t most_runs(const layout<Policy>& sizes) {
    return 2 * static_cast<std::size_t>(sizes.most_segments) + 2;
  }

  // out: [head_dim, rows]
  void summarize_lane(const lane_type& at, run cue, typename layout<Policy>::number* out) {
    using summary = typename decltype(Policy::summarize)::summary;
    constexpr index rows = summary::rows;
    const auto keep = [&](index d, index r, float value) {
      out[d * rows + r] = stored_number<summary, typename layout<Policy>::number>(r, value);
    };
    if constexpr (block_summarizer<decltype(Policy::summarize)>) {
      const view<float, 2> keys(cue_keys.data(), {cue.size(), sizes.model.head_dim});
      for (index t = 0; t < cue.size(); ++t) {
        for (index d = 0; d < sizes.model.head_dim; ++d) keys(t, d) = limits.key_of(at.key(cue.first + t)[d]);
      }
      const view<float, 2> made(cue_made.data(), {sizes.model.head_dim, rows});
      std::fill(cue_made.begin(), cue_made.end(), not_a_number);
      if (cue.size() > 0) {
        policy.summarize.make(keys, view<index>(cue_order).slice(0, cue.size()),
                              view<float>(cue_work).slice(0, cue.size()), made);
      }
      for (index d = 0; d < sizes.model.head_dim; ++d) {
        for (index r = 0; r < rows; ++r) keep(d, r, made(d, r));
      }
    } else {
      for (index d = 0; d < sizes.model.head_dim; ++d) {
        cells<rows> c = policy.summarize.open();
        for (index slot = cue.first; slot < cue.last; ++slot) policy.summarize.fold(c, limits.key_of(at.key(slot)[d]));
        policy.summarize.close(c, cue.size());
        for (index r = 0; r < rows; ++r) keep(d, r, c.row[r]);
      }
    }
  }
};

}  // namespace v0
}  // namespace zoomr
