// SPDX-License-Identifier: Apache-2.0
// L6. What the arrays of a host cache take (cache/host/core.hpp), before any of them is allocated.
#pragma once

#include <zoomr/attention/stretches.hpp>
#include <zoomr/cache/host/attending/cut_states.hpp>
#include <zoomr/cache/host/attending/half_queries.hpp>
#include <zoomr/cache/host/attending/state_exchange.hpp>
#include <zoomr/cache/host/attending/transformed_rows.hpp>
#include <zoomr/cache/host/choosing/chooser.hpp>
#include <zoomr/cache/host/eviction/eviction_room.hpp>
#include <zoomr/cache/host/summarizing.hpp>
#include <zoomr/cache/host/thread_memory.hpp>
#include <zoomr/cache/state/engine_tables.hpp>
#include <zoomr/cache/state/step_items.hpp>
#include <zoomr/paging/resident_keys.hpp>

#include <algorithm>  // std::min

namespace zoomr::inline v0::detail {

/// Sizes of a cache over a pool; each is a function of the model, the policy and the config.
template <class Pool>
struct core_sizing {
  using number = typename Pool::number;

  /// Capacity of memory and file; what the constructor will allocate.
  /// @throws  precondition_error for 2^60 bytes or more, or tiers that are too small
  static memory_use bytes(const shape& model, const any_policy& policy, const config& limits) {
    return bytes(sized(model, policy, limits), policy, limits);
  }
  /// The same from a layout that was made before. Tables of the config need not be there any more.
  static memory_use bytes(const layout& sizes, const any_policy& policy, const config& limits) {
    memory_use use = bytes_beside_pages(sizes, policy, limits);
    if constexpr (!Pool::owns_pages) {
      ZOOMR_EXPECTS(use.total() < too_many_bytes, "config: a cache of this shape would need 2^60 bytes or more");
      return use;
    } else {
      return with_pages(sizes, limits, use);
    }
  }

  // Everything but details: what the arrays of `cache_core` hold, one term for each.
  static memory_use bytes_beside_pages(const layout& sizes, const any_policy& policy, const config& limits) {
    const shape& model = sizes.model;
    const index_t pages = sizes.pool_pages();
    memory_use use;
    use.summaries = bounded_product({limits.max_sequences, sizes.summary_bytes(sizes.most_segments)}) +
                    resident_keys<number>::bytes(sizes.key_lanes, model.head_dim, pages, sizes.rounded_keys);
    use.metadata = bounded_product({limits.max_sequences, sequence_state::metadata_capacity(sizes, limits)}) +
                   page_stock::bytes(Pool::owns_pages ? pages : 0) + eviction_room::bytes(sizes, limits) +
                   (Pool::owns_pages ? sizes.table_pages * static_cast<byte_count>(sizeof(index_t)) : 0);
    const index_t threads = most_threads(limits);
    use.workspace =
        chooser::most_at_once(policy, threads) * chooser::bytes(sizes, policy) +
        bounded_product({threads, thread_memory<number>::bytes(sizes, policy, observed_tokens(sizes, limits))}) +
        static_cast<byte_count>(counts_size(model, limits) * sizeof(head_counts)) +
        bounded_product(
            {limits.max_sequences, rounded_index::bytes(sizes.index_lanes, sizes.rounded_cells, sizes.most_segments)}) +
        segment_summarizer::bytes(sizes, policy, limits) + step_plan<planned_item>::bytes(model, limits) +
        query_memory::bytes(model, sizes.query_parts, layout::draft_records(limits)) +
        query_memory::bytes(sizes.asked_heads(), sizes.notes_queries() ? 1 : 0, layout::draft_records(limits)) +
        bounded_product({sizes.voters, sizes.most_segments, sizeof(float)}) + sizes.exchange_bytes +
        query_memory::bytes(sizes.asked_heads(), sizes.question > 0 ? 1 : 0, sizes.question) +
        limits.rotary.frequencies.size() * static_cast<byte_count>(sizeof(float)) +
        state_exchange::bytes(model, limits) +
        query_memory::bytes(sizes.asked_heads(), 1, sizes.pending_queries(limits)) +
        query_memory::bytes(model, layout::asking_parts(policy), limits.max_sequences) +
        stretch_sums::bytes(model, limits.max_batched_tokens, limits.max_tokens) +
        cut_states::bytes(sizes, limits, threads) + detail::half_queries::bytes(model, limits) +
        transformed_rows<number>::bytes(model, limits, transforms(limits)) +
        bounded_product({(policy.persists() ? limits.max_sequences : 0) + sizes.draft_choices, sizes.selection_rows,
                         selection::row_bytes(sizes.most_segments, sizes.rounded_cells > 0)});
    return use;
  }
  // A tiered pool gives its pages what the other arrays leave of the bytes of memory.
  static Pool make_pool(const layout& sizes, const any_policy& policy, const config& limits) {
    if constexpr (Pool::owns_pages) {
      return Pool::make(sizes.blocks, sizes.pool_pages(), limits.tiers,
                        bytes_beside_pages(sizes, policy, limits).total());
    } else {
      return Pool(sizes.stored, limits.engine);
    }
  }
  static constexpr sentence_on_types widths_in_blocks{
      "config: a row of ", block_types{}, " is blocks of 32 numbers: head_dim and value_dim must be multiples of 32"};
  static layout sized(const shape& model, const any_policy& policy, const config& limits) {
    ZOOMR_EXPECTS(!Pool::may_fail || !policy.selects || !policy.score.reads_keys || policy.aggregate.queries > 0,
                  "a policy that scores by the keys of all KV heads reads them at each choice: not over tiers, where "
                  "only the keys of heads that vote are kept at hand");
    if constexpr (in_blocks<number>) {
      ZOOMR_EXPECTS(model.head_dim % numbers_in_block == 0 && model.value_width() % numbers_in_block == 0,
                    widths_in_blocks.text);
    }
    ZOOMR_EXPECTS(!Pool::may_fail || (limits.ranks.alone() && limits.token_ranks.alone()),
                  "config: ranks over tiers: a page that does not come would fail on one rank alone");
    for (const rank_group* group : {&limits.ranks.group, &limits.token_ranks.group}) {
      ZOOMR_EXPECTS(group->ranks() == 1 || group->gathers(),
                    "config: ranks of host caches need a communicator with all_gather: this one is for devices");
    }
    ZOOMR_EXPECTS(Pool::owns_pages || limits.token_ranks.alone(),
                  "config: token_ranks take pages from a cache's own pool: not over an engine's pages");
    ZOOMR_EXPECTS(limits.token_ranks.alone() || state_exchange::message_words(model, limits) < unlimited,
                  "config: token_ranks would send messages of 2^31 words or more: lower max_batched_tokens");
    if (limits.voter_keys != voter_storage::as_cache) expect_rounded_keys(model);
    if (const rotary_embedding& rotary = limits.rotary; rotary.frequencies.size() > 0)
      key_rotation(rotary.frequencies, 0, rotary.which, rotary.first).expect_fits(model.head_dim);
    if constexpr (Pool::owns_pages) {
      const layout sizes(model, policy, limits, Pool::may_fail);
      ZOOMR_EXPECTS(
          sizes.key_lanes == 0 || sizes.stored == model,
          "config: donors do not go with keys of voters that are kept beside the pages: over tiers, or as q8_0");
      return sizes;
    } else {
      const char* const problem = limits.engine.problem(donor_table::stored_shape(model, limits.donors), sizeof(number),
                                                        in_blocks<number> ? numbers_in_block : 1);
      ZOOMR_EXPECTS(problem == nullptr, problem);
      return layout::without_pages(model, policy, limits);
    }
  }
  static void expect_rounded_keys(const shape& model) {
    ZOOMR_EXPECTS(Pool::owns_pages,
                  "config: voter_keys = q8_0 goes by the pages of a pool: not over an engine's pages");
    ZOOMR_EXPECTS(sizeof(number) > 1 && !in_blocks<number>,
                  "config: voter_keys = q8_0 is for caches whose numbers have 16 bits or more");
    ZOOMR_EXPECTS(model.head_dim % numbers_in_block == 0,
                  "config: voter_keys = q8_0 are blocks of 32 numbers: head_dim must be a multiple of 32");
  }
  static memory_use with_pages(const layout& sizes, const config& limits, memory_use use) {
    const index_t pages = sizes.pool_pages();
    const byte_count others = use.total();
    use.details = bounded_product({pages, Pool::page_bytes(sizes.stored)});
    ZOOMR_EXPECTS(use.total() < too_many_bytes, "config: a cache of this shape would need 2^60 bytes or more");
    const pool_bytes pool = Pool::bytes(sizes.blocks, pages, limits.tiers, others);
    use.details = pool.memory;
    use.metadata += pool.tables;
    use.file = pool.file;
    return use;
  }
  static bool transforms(const config& limits) { return transformed_rows<number>::used(limits, Pool::owns_pages); }
  // Slots that `observed` must have room for; 0 where no KV lane ever evicts.
  static index_t observed_tokens(const layout& sizes, const config& limits) {
    return sizes.kept > 0 ? limits.max_tokens : 0;
  }
  // Over tiers the pool serves one thread.
  static index_t most_threads(const config& limits) { return Pool::may_fail ? 1 : limits.threads.threads(); }
  static std::size_t counts_size(const shape& model, const config& limits) {
    return static_cast<std::size_t>((std::min)(limits.max_draft_tokens, limits.max_batched_tokens)) *
           static_cast<std::size_t>(model.heads);
  }
};

}  // namespace zoomr::inline v0::detail
