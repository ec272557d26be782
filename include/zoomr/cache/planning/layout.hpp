// SPDX-License-Identifier: Apache-2.0
// L6. How many of everything a cache keeps, computed once from the model's shape, the policy and the config. Host and
// device take their sizes from here. Sizes that could overflow are `bounded_product`s, so that they are refused rather
// than wrapped.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/cache/planning/anchor_table.hpp>
#include <zoomr/cache/planning/choice_exchange.hpp>
#include <zoomr/cache/planning/donor_table.hpp>
#include <zoomr/cache/tokens/query_memory.hpp>
#include <zoomr/cache/tokens/question_queries.hpp>
#include <zoomr/cache/tokens/selection.hpp>
#include <zoomr/paging/block_shape.hpp>
#include <zoomr/policy/any_policy.hpp>

#include <algorithm>  // std::max, std::min

namespace zoomr::inline v0::detail {

/// Pages that a layer's window has passed go back to the pool, unless a selector may want summaries made of their keys.
inline bool frees_passed_pages(const any_policy& policy, const config& sizes) {
  return sizes.logits.window > 0 && !policy.selects;
}

/// Pages go back that no zone reaches any more: the placement frees them, and no window has its own rule.
inline bool frees_unreachable_pages(const any_policy& policy, const config& sizes) {
  return sizes.logits.window == 0 && policy.placement.frees_unreachable;
}

/// Tokens that the pool has room for: config.pool_tokens, or what all sequences can have at once. Where pages go that a
/// window has passed, a sequence has what the window sees, what may be rolled back, and its part of a step, with a page
/// that is cut at either end of each; where slots are dealt out, a rank's share and an open segment instead of a
/// window, and where keys are scored the rest of a segment for each deal.
inline index_t pool_tokens(const any_policy& policy, const config& sizes) {
  if (sizes.pool_tokens > 0) return sizes.pool();
  std::int64_t stay = unlimited;  // of a sequence, at most
  if (frees_passed_pages(policy, sizes)) {
    stay = sizes.logits.window;
  } else if (!sizes.token_ranks.alone()) {
    const std::int64_t share = sizes.token_ranks.share(sizes.max_tokens);
    const std::int64_t longest = policy.selects ? policy.segment.longest : 0;
    stay = share + longest;
    if (policy.score.reads_keys) stay += (share / sizes.token_ranks.deal + 1) * (longest + page_tokens);
  }
  const std::int64_t pages = (stay + sizes.rollback_depth()) / page_tokens + 4;
  const std::int64_t tokens = (sizes.max_sequences * pages + pages_for(sizes.max_batched_tokens)) * page_tokens;
  return static_cast<index_t>(std::min<std::int64_t>(tokens, sizes.pool()));
}

/// Segments that spans may add where there are none, or none shorter than a page, unless config.max_segments says how
/// many segments there may be.
inline constexpr index_t most_span_segments = 16;

/// Segments of a sequence, at most: after an edit too, which has the tokens behind it segmented again.
inline index_t segments_of(const any_policy& policy, const config& sizes) {
  const index_t most = sizes.most_segments();
  if (policy.segment.splits && policy.segment.shortest <= 1) return most;
  if (sizes.max_segments > 0) return most;
  const index_t whole = policy.segment.splits ? sizes.max_tokens / policy.segment.shortest : 0;
  return (std::min)(sizes.max_tokens, whole + most_span_segments);
}

/// Sizes that follow from a model, a policy and a config: computed once, so that `bytes` and the allocations
/// cannot disagree. A policy that does not need something has 0 of it.
struct layout {
  shape model;
  shape stored;  // the same with those layers alone that store keys and values
  index_t most_segments = 0;
  index_t summary_rows = 0;
  index_t index_lanes = 0;        // KV lanes that have summaries, or whose keys a choice scores
  index_t selection_rows = 0;     // of a selection
  index_t query_parts = 0;        // 1 for sums of queries
  index_t records = 1;            // of query memory
  index_t draft_choices = 0;      // tokens of a step whose choices later layers read
  index_t kept = 0;               // tokens that a KV lane keeps, at most; 0: none is ever evicted
  index_t noted = 0;              // queries remembered until tokens are evicted again; 0: that is only after the prompt
  index_t remembered = 0;         // last queries of a prompt that is still coming, for its end; where a choice reads
                                  // several, last queries at any time; 0: none
  index_t heard = 0;              // last queries by which a choice is made, at most; 0: those of the token alone
  index_t voters = 0;             // heads whose queries these are
  index_t question = 0;           // tokens of a question farther back that score, turned; 0: none does
  byte_count question_bytes = 0;  // of their queries, of a sequence
  index_t key_lanes = 0;          // KV lanes of voters whose keys are kept beside the pages
  bool rounded_keys = false;      // these are rounded to blocks of q8_0
  index_t carried = 0;            // tokens whose attention adds up, of each query head; 0: it does not
  std::int64_t log_words = 0;
  std::int64_t log_entry_words = 0;  // of the log, at most
  index_t rounded_cells = 0;         // numbers of a summary that the host keeps in 8 bits too; 0: it does not
  std::size_t number_bytes = 0;      // of one number of a summary
  std::size_t scale_bytes = 0;       // of a summary, after its numbers
  std::size_t state_bytes = 0;       // of a segmenter's state
  bool eviction_may_fail = false;    // a commit that evicts tokens can fail on the way: these move to spare pages
  block_shape blocks;                // of tiers
  index_t table_pages = 0;           // entries of a sequence's page table, at most: of an engine, its own pages
  index_t most_slots = 0;            // of a sequence, up to the end of a page of 16
  index_t window = 0;                // logit_rule::window
  index_t pool = 0;                  // tokens that it has room for, but for spare pages
  index_t most_deals = 0;            // of a sequence's slots, over all ranks; 0: they are not dealt out
  byte_count exchange_bytes = 0;     // of what ranks tell each other

  /// Of fewer segments a choice scores all from floats.
  static constexpr index_t least_rounded_segments = 256;

  layout() = default;
  /// @param pages_may_fail  pages of the pool may fail to come
  /// @pre    expect_possible(model_shape, policy, sizes) has let them pass
  layout(const shape& model_shape, const any_policy& policy, const config& sizes, bool pages_may_fail = false)
      : model(model_shape),
        stored(donor_table::stored_shape(model_shape, sizes.donors)),
        number_bytes(policy.summarize.number_bytes),
        scale_bytes(policy.summarize.scale_bytes),
        state_bytes(policy.segment.state_bytes),
        eviction_may_fail(policy.evict.observes && pages_may_fail),
        table_pages(pages_for(sizes.max_tokens)),
        most_slots(table_pages * page_tokens),
        window(sizes.logits.window),
        pool(pool_tokens(policy, sizes)) {
    most_segments = segments_of(policy, sizes);
    index_lanes = anchor_table::index_lanes(stored, policy, sizes.anchors);
    if (policy.evict.observes) size_eviction(policy, sizes);
    if (policy.selects) size_selection(policy, sizes);
    if (!sizes.token_ranks.alone()) most_deals = most_slots / sizes.token_ranks.deal + 1;
    exchange_bytes =
        choice_exchange::bytes(model, policy, sizes, most_segments, std::int64_t{heard + question} * voters);
    rounded_keys = heard > 0 && sizes.voter_keys == voter_storage::q8_0;
    if (heard > 0 && (pages_may_fail || rounded_keys))
      key_lanes = voter_table::count_kv_lanes(model, sizes.own_voters(model.heads));
    blocks = {stored, kv_heads_share_slots(policy) ? model.kv_heads : 1};
  }

  /// Queries of each token after the prompt are kept until it is committed.
  bool notes_queries() const { return noted > 0 || heard > 0; }
  /// Whose queries are remembered of a token: of all heads in all layers, or where a choice reads several queries those
  /// of the voters alone, side by side as in one layer.
  shape asked_heads() const { return heard > 0 ? shape{1, voters, voters, model.head_dim} : model; }
  /// Something is remembered of the queries of the last tokens, for choices.
  bool has_records() const { return query_parts > 0 || heard > 0; }

  /// All KV heads of a layer read the same slots: none chooses alone, and none keeps tokens of its own. Then they move
  /// between tiers as one block, and ranges are resolved once for all of them.
  bool kv_heads_share_slots(const any_policy& policy) const {
    const bool choose_together = policy.aggregate.per == scope::sequence || policy.aggregate.per == scope::layer;
    return kept == 0 && (!policy.selects || choose_together);
  }

  /// The same for a cache with the placement engine_pages.
  static layout without_pages(const shape& model_shape, const any_policy& policy, const config& sizes) {
    layout result(model_shape, policy, sizes);
    result.table_pages = sizes.engine.pages_for(sizes.max_tokens);
    return result;
  }

  /// Pages that a pool has beyond those of sequences: room for one sequence that evicts
  /// (cache/host/eviction/eviction_room.hpp).
  index_t spare_pages() const { return eviction_may_fail ? pages_for(kept) : 0; }
  index_t pool_pages() const { return pages_for(pool) + spare_pages(); }

  /// Rows of a selection that `per` share: one for the sequence, each layer, KV lane or query head of a layer.
  index_t rows_of(scope per) const {
    switch (per) {
      case scope::sequence:
        return 1;
      case scope::layer:
        return model.layers;
      case scope::kv_head:
        return model.kv_lanes();
      case scope::head:
        return model.layers * model.heads;
    }
    return 0;
  }

  /// Records of query memory for the tokens of one step after their prompts.
  static index_t draft_records(const config& sizes) {
    return static_cast<index_t>(
        std::min<std::int64_t>(sizes.max_batched_tokens, std::int64_t{sizes.max_sequences} * sizes.max_draft_tokens));
  }
  /// Arrays [layers, heads, head_dim] that are kept of the token that makes a choice which stays active: its queries.
  /// Where heads vote theirs are remembered anyway.
  static index_t asking_parts(const any_policy& policy) {
    return policy.persists() && policy.aggregate.queries == 0 ? 1 : 0;
  }
  /// Queries of the prompts' chunks in one step that are remembered until it is committed.
  index_t pending_queries(const config& sizes) const {
    return static_cast<index_t>(
        std::min<std::int64_t>(sizes.max_batched_tokens, std::int64_t{sizes.max_sequences} * remembered));
  }
  /// What eviction keeps of one sequence, whose prompt may still be coming: carried sums, committed and pending, and
  /// remembered queries.
  byte_count observing_bytes(bool in_prompt) const {
    const auto sums = std::int64_t{2} * stored.layers * model.heads * carried;
    return sums * static_cast<byte_count>(sizeof(float)) + query_memory::bytes(model, noted > 0 ? 1 : 0, noted) +
           query_memory::bytes(asked_heads(), 1, in_prompt || heard > 0 ? remembered : 0) + question_bytes;
  }

  std::int64_t segment_summary() const { return std::int64_t{model.head_dim} * summary_rows; }  // numbers of a KV lane
  /// The index of one KV lane: [segments] of [head_dim, rows] and a scale, if they have one.
  byte_count kv_lane_summary_bytes(index_t segments) const {
    const byte_count numbers = segment_summary() * static_cast<byte_count>(number_bytes);
    return bounded_product({segments, numbers > 0 ? numbers + static_cast<byte_count>(scale_bytes) : 0});
  }
  byte_count summary_bytes(index_t segments) const {
    return bounded_product({kv_lane_summary_bytes(segments), index_lanes});
  }

 private:
  // An evictor that keeps as many tokens as there can be evicts nothing, and nothing is kept for it. With a pinned
  // prompt there is no other bound than the longest sequence. Queries of a prompt are remembered for a rollback too: at
  // the prompt's end those of the last `observed` tokens must be there, wherever that will be.
  void size_eviction(const any_policy& policy, const config& sizes) {
    const any_evictor& evict = policy.evict;
    const index_t most = evict.kept(sizes.max_tokens);
    kept = most >= sizes.max_tokens ? 0 : policy.zone.prompt ? sizes.max_tokens : most;
    if (kept == 0) return;
    if (evict.while_decoding) noted = evict.observed(std::min<index_t>(evict.every, sizes.max_tokens));
    if (evict.accumulates) {
      carried = sizes.max_tokens;
    } else {
      const auto last = std::int64_t{evict.observed(sizes.max_tokens)} + sizes.rollback_depth();
      remembered = static_cast<index_t>(std::min<std::int64_t>(last, sizes.max_tokens));
    }
  }

  // The log drops its older half when it is full (`selection_log::make_room`). Half of twice (rollback_depth + 2)
  // entries are enough for one choice at each token that can be rolled back, and the one before them.
  void size_selection(const any_policy& policy, const config& sizes) {
    summary_rows = policy.summarize.rows;
    if (policy.shortlists() && most_segments >= least_rounded_segments) {
      rounded_cells = static_cast<index_t>(segment_summary());
    }
    selection_rows = rows_of(policy.aggregate.per);
    query_parts = policy.query.sums ? 1 : 0;
    records = sizes.rollback_depth() + 1;
    if (policy.aggregate.queries > 0) size_voting(policy, sizes);
    if (!policy.persists()) {
      const bool drafts = anchor_table::used(policy, sizes.anchors) && sizes.max_draft_tokens > 1;
      draft_choices = drafts ? draft_records(sizes) : 0;
      return;
    }
    log_entry_words = selection_log::entry_words(selection_rows, most_exceptions(policy));
    log_words = bounded_product({2, std::int64_t{sizes.rollback_depth()} + 2, log_entry_words}) +
                std::int64_t{4} * sizes.max_tokens;
  }

  // Where a choice reads several queries, those that a rollback leaves must be there. No such policy evicts by
  // attention, which would matter here too.
  void size_voting(const any_policy& policy, const config& sizes) {
    heard = (std::min)((std::max)(policy.aggregate.queries, policy.aggregate.question), sizes.max_tokens);
    voters = voter_table::count(sizes.own_voters(model.heads));
    remembered =
        static_cast<index_t>(std::min<std::int64_t>(std::int64_t{heard} + sizes.rollback_depth(), sizes.max_tokens));
    if (sizes.rotary.frequencies.size() > 0 && policy.aggregate.question > 0)
      question = (std::min)(zones::unnamed_question, policy.zone.question);
    question_bytes = question_queries::bytes(asked_heads(), question, sizes.rollback_depth());
  }

  // Segments of a row, at most, that are not at the level of a summary: those that are chosen, and where only
  // candidates' summaries are attended those that are dropped, which may be all.
  index_t most_exceptions(const any_policy& policy) const {
    const bool others_too = policy.zone.summaries == summaries_attended::candidates;
    return others_too ? most_segments : (std::min)(most_segments, policy.select.most_segments);
  }
};

/// True if tokens are evicted after the token at `position`, which is not of the prompt: every `evict.every` tokens,
/// counted from `token_state::evictions_from`. It depends on positions alone, so that drafts do not change it.
inline bool evicts_after(const any_policy& policy, const config& limits, index_t from, index_t position) {
  if (!policy.evict.while_decoding) return false;
  const bool evicts = policy.evict.kept(limits.max_tokens) < limits.max_tokens;
  return evicts && (position + 1 - from) % policy.evict.every == 0;
}

/// The first position whose query an evictor that does not accumulate observes at the end of a prompt [begin, end): of
/// its last ones, none before its begin.
inline index_t observed_from(const any_policy& policy, index_t begin, index_t end) {
  return (std::max)(begin, end - policy.evict.observed(end));
}

}  // namespace zoomr::inline v0::detail
