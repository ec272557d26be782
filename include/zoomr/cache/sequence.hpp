// SPDX-License-Identifier: Apache-2.0
// L6. How an engine names sequences, and their parts of a step.
#pragma once

#include <zoomr/core/token_range.hpp>
#include <zoomr/core/view.hpp>

#include <cstdint>  // std::uint32_t

namespace zoomr::inline v0 {

/// A sequence of a cache, from `kv_cache::open`. After `close` it is refused, also where its id is another's by then.
struct sequence {
  index_t id = -1;
  std::uint32_t generation = 0;  // of the sequences with this id
  friend constexpr bool operator==(sequence, sequence) = default;
};

/// What a span of tokens is to the policy.
enum class span_role : std::uint8_t {
  pinned,    ///< attended by all later queries, never chosen, dropped or evicted
  question,  ///< the same until a later prompt that has a question ends; of a prompt only
};

/// Some tokens of a step's item that an engine names: a system message, the tools, what the user asks.
struct token_span {
  token_range ids;  // of step_item::ids: 0 is the first one
  span_role role = span_role::pinned;
};

/// Some tokens of a sequence that are pinned now, whoever named them: what `kv_cache::pinned` lists.
struct pinned_range {
  token_range tokens;  // positions
  span_role role = span_role::pinned;
  friend constexpr bool operator==(const pinned_range&, const pinned_range&) = default;
};

/// One sequence's part of a step. Before the end of the prompt all ids are prompt, and the flag means that the prompt
/// ends with them; afterwards they are one token, or a draft of which a prefix may be accepted; or a later prompt
/// begins with them, such as the next message of a conversation.
struct step_item {
  sequence seq;
  view<const token_id> ids;
  bool prompt_ends = false;
  /// The block table of the sequence, with the placement engine_pages: pages of its slots, those of this step's tokens
  /// with them; more may come after. It is copied. Empty: the pages that it has, if none is added or replaced.
  view<const index_t> pages = {};
  /// After the prompt: a later one begins with these ids, and goes on until a step with `prompt_ends`.
  bool prompt_begins = false;
  /// The model positions of the ids, where an engine has its own: none before the one before it. Empty: they follow the
  /// last token's.
  view<const index_t> positions = {};
  /// After the prompt: the step takes all ids, for engines whose batches are cut before a step begins. Where a draft
  /// would end, segments and choices wait for the commit (docs/engine.md). Without this flag the item is a draft as any
  /// other.
  bool whole = false;
  /// Spans of the ids, ascending and disjoint. Where one begins and where it ends a segment ends too; spans that touch
  /// and have the same role are one. What they name beyond the ids that the step takes is named again with those.
  view<const token_span> spans = {};
};

/// What some query heads of one token read in one layer, as `step::list_slots` passes it on.
struct slots_read {
  index_t item = 0;
  index_t token = 0;  // packed: its row in queries and outputs
  index_t kv_head = 0;
  token_range heads;              // query heads, of that KV head
  view<const token_range> slots;  // ascending and disjoint
};

}  // namespace zoomr::inline v0
