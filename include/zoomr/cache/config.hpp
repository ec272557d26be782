// SPDX-License-Identifier: Apache-2.0
// L6. How large a cache is: everything that decides its memory, beside the model's shape and the policy.
#pragma once

#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/cache/layer_anchors.hpp>
#include <zoomr/cache/logit_rule.hpp>
#include <zoomr/cache/rank_heads.hpp>
#include <zoomr/cache/rank_tokens.hpp>
#include <zoomr/core/executor.hpp>
#include <zoomr/core/storage.hpp>
#include <zoomr/paging/engine_memory.hpp>
#include <zoomr/paging/tiers/tier_frames.hpp>

#include <cmath>        // std::sqrt
#include <concepts>     // std::derived_from
#include <span>         // std::ranges::enable_borrowed_range
#include <type_traits>  // std::is_lvalue_reference_v, std::remove_cvref_t

namespace zoomr::inline v0 {

/// The class of each token id, from 0 on, in a table that is elsewhere and outlives the cache: a std::vector,
/// std::array or std::span, or a view. A table that would be gone before the cache is there does not compile.
struct class_table : view<const token_class> {
  constexpr class_table() = default;
  constexpr class_table(view<const token_class> classes) : view(classes) {}  // NOLINT: implicit, as a view is made
  template <contiguous_container<const token_class> Table>
  requires(!std::derived_from<std::remove_cvref_t<Table>, view<const token_class>>) constexpr class_table(Table&& table)
      : view(table) {  // NOLINT: implicit
    static_assert(
        std::is_lvalue_reference_v<Table> || std::ranges::enable_borrowed_range<std::remove_cvref_t<Table>>,
        "config: classes are not copied and must outlive the cache, so they cannot be a temporary: name them");
  }
};

/// What stored keys, or values, are multiplied by: one number, or one for each layer and KV head in a table that is
/// elsewhere and outlives the cache.
struct storage_scale {
  float all = 1.0f;
  view<const float, 2> each = {};  // [layers, kv_heads]; empty: `all` is meant

  constexpr storage_scale(float one = 1.0f) : all(one) {}               // NOLINT: implicit, as a number is a scale
  constexpr storage_scale(view<const float, 2> table) : each(table) {}  // NOLINT: implicit

  constexpr float at(index_t layer, index_t kv_head) const { return each.data() ? each(layer, kv_head) : all; }

  constexpr bool positive_and_finite() const {
    bool all_are = all > 0.0f && all < infinity;
    for (index_t layer = 0; layer < each.extent(0); ++layer) {
      for (index_t head = 0; head < each.extent(1); ++head) {
        all_are = all_are && each(layer, head) > 0.0f && each(layer, head) < infinity;
      }
    }
    return all_are;
  }
};

/// In what the keys that voters read are kept.
enum class voter_storage : std::uint8_t {
  as_cache,  // as the cache stores them: in its pages, over tiers in a copy beside the pages
  q8_0,      // in a copy that is rounded to blocks of 32 numbers with 8 bits: 34 bytes for 32 numbers
};

/// Capacities, all fixed at construction, the scales of what is stored, and what the model does to its logits.
///
/// A cache of `T` stores key / key_scale and value / value_scale as `T`, and whatever reads a key or a value
/// (attention, summaries, eviction, the audit) sees what is stored times the scale. A scale that is a power of two
/// adds no rounding of its own. Good for int8 is the largest magnitude that comes, divided by 127: with a scale of 1 it
/// keeps whole numbers only; for float8 the same, divided by 448, if numbers come that are larger or mostly below 2^-6.
/// Rows of scaled_int8, and blocks, have scales of their own, on top of these.
struct config {
  index_t max_sequences = 1;         // open at the same time
  index_t max_tokens = 4096;         // longest sequence
  index_t pool_tokens = 0;           // of all sequences together; 0: max_sequences * max_tokens, less under a window
  index_t max_segments = 0;          // of one sequence; 0: max_tokens / 4 + 8. Without segments, and of pages, fewer
  index_t max_batched_tokens = 512;  // most tokens of all sequences in one step: the prefill chunk
  index_t max_draft_tokens = 16;     // most tokens of one sequence in one step after its prompt
  index_t rollback_tokens = 0;       // how far before its longest a sequence can always be rolled back
  index_t min_sparse_context = 0;    // shorter contexts attend everything: the crossover of the machine; 0: off
  storage_scale key_scale = 1.0f;    // what is stored of a key is key / key_scale
  storage_scale value_scale = 1.0f;  // and of a value, value / value_scale; not read where values are in keys
  logit_rule logits = {};     // scale, soft cap, sinks, ALiBi and window of the model: none but 1 / sqrt(head_dim)
  tier_bytes tiers = {};      // of a tiered placement
  engine_memory engine = {};  // of the placement engine_pages, which has no pool of its own
  view<const float, 2> voters = {};  // [layers, heads]  weights of heads, where the policy's aggregator reads them
  float voters_unsure = infinity;    // bits: above it a posterior of these heads is unsure; infinity: none is
  float voters_none = -infinity;     // logit of its class "none of these segments"; -infinity: there is no such class
  float voters_none_slope = 0.0f;    // taken off it for each e-fold of the segments that can be chosen
  voter_storage voter_keys = voter_storage::as_cache;  // in what a choice reads the keys of these; q8_0: on the host
  rotary_embedding rotary = {};  // of the layers of these: a question that is named before a long text scores from the
                                 // prompt's end (head_posterior); on the host
  layer_anchors anchors = {};    // layers that read what an earlier layer has chosen: on the host
  view<const index_t> donors = {};  // [layers]  whose keys and values each layer attends: its own, or those of an
                                    // earlier layer that has some; empty: its own. On the host; the table may go
  bool transform_blocks = true;     // q8_0 and q4_0 in the cache's own pages: after a Walsh-Hadamard transform
  bool half_queries = false;        // queries and outputs may have 16 bits on the host: room to widen them
  bool audit = false;               // measure what share of its attention each query captures: slow
  class_table classes = {};         // [vocabulary] of each token id; kept alive by the caller
  executor threads = {};            // that may work on a call of a host cache; kept alive by the caller
  rank_heads ranks = {};            // that share the model's heads, and choose together; `voters` are of all heads then
  rank_tokens token_ranks = {};     // that divide the tokens of each sequence: of a host cache with pages of its own

  static constexpr index_t most_tokens = 1 << 30;

  /// Never more than a sequence has.
  constexpr index_t rollback_depth() const { return rollback_tokens < max_tokens ? rollback_tokens : max_tokens; }
  constexpr index_t pool() const {
    if (pool_tokens > 0) return pool_tokens;
    const std::int64_t tokens = std::int64_t{max_sequences} * pages_for(max_tokens) * page_tokens;
    return tokens < unlimited ? static_cast<index_t>(tokens) : unlimited;
  }
  constexpr index_t most_segments() const {
    if (max_segments > 0) return max_segments < max_tokens ? max_segments : max_tokens;
    return max_tokens / 4 + 8;
  }

  /// The weights of this rank's voters.  [layers, heads]
  view<const float, 2> own_voters(index_t heads) const {
    if (ranks.alone() || voters.data() == nullptr) return voters;
    return {
        voters.data() + ranks.first_of(ranks.group.rank(), heads), {voters.extent(0), heads}, {voters.stride(0), 1}};
  }

  /// What a query's product with stored keys is multiplied by to become a logit.
  float logit_scale(index_t layer, index_t kv_head, index_t head_dim) const {
    if (logits.scale > 0.0f) return key_scale.at(layer, kv_head) * logits.scale;
    return key_scale.at(layer, kv_head) / std::sqrt(static_cast<float>(head_dim));
  }

  /// nullptr, or a sentence: what is wrong.
  constexpr const char* problem() const {
    if (max_sequences < 1 || max_tokens < 1 || max_batched_tokens < 1 || max_draft_tokens < 1) {
      return "config: max_sequences, max_tokens, max_batched_tokens and max_draft_tokens must be at least 1";
    }
    if (max_tokens > most_tokens || max_sequences > most_tokens) return "config: more than 2^30 tokens or sequences";
    if (pool_tokens < 0 || max_segments < 0 || rollback_tokens < 0 || min_sparse_context < 0) {
      return "config: no field can be negative";
    }
    if (threads.threads() < 1 || threads.threads() > executor::most_threads) return "config: threads must be 1 to 1024";
    if (!key_scale.positive_and_finite() || !value_scale.positive_and_finite()) {
      return "config: key_scale and value_scale must be positive and finite";
    }
    for (index_t layer = 0; layer < voters.extent(0); ++layer) {
      for (const float weight : voters[layer]) {
        if (!(weight >= 0.0f && weight < infinity)) return "config: weights of voters must be finite and at least 0";
      }
    }
    if (!(voters_unsure >= 0.0f)) return "config: voters_unsure must be at least 0 bits";
    if (!(voters_none < infinity)) return "config: voters_none must be a finite logit, or -infinity";
    if (!(voters_none_slope >= 0.0f && voters_none_slope < infinity)) {
      return "config: voters_none_slope must be finite and at least 0";
    }
    return logits.problem();
  }
};

}  // namespace zoomr::inline v0
