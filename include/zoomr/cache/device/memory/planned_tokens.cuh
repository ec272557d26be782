// SPDX-License-Identifier: Apache-2.0
// L6. The tokens of a step's tables, as the host plans them. A core is a device_core.
#pragma once

#include <zoomr/cache/device/memory/sequence.cuh>
#include <zoomr/cache/device/memory/table.cuh>
#include <zoomr/cache/planning/plan.hpp>

#include <algorithm>  // std::max

namespace zoomr::inline v0::detail {

/// One token of an item. The first pass sets where a choice goes that stays active; the second reads it there.
///
/// In a second pass for another group of layers, a choice for the tokens after it is made once more: as on the host by
/// the queries of the second pass, and the token itself reads what was active before.
template <class Core>
device_token token_for(Core& core, const device_item& item, const planned_token& known, index_t position,
                       bool second_pass) {
  const device_sequence& sequence = core.state(item.seq);
  const index_t prompt_end = sequence.in_first_prompt() ? position + 1 : sequence.prompt_end;
  const index_t generated_from = item.prompt ? position + 1 : sequence.last_prompt_end();
  const bool last = position == item.last();
  device_token token;
  token.sequence = item.seq;
  token.position = position;
  token.slot = sequence.slot_end(position);
  token.held = Core::held(sequence);
  token.segments = sequence.segment_count();
  token.sums = position + 1 - (std::max)(known.asks_from, generated_from);
  if (sequence.heard > 0) token.scoring = sequence.scoring_queries(position);
  token.reads = sequence.active_place();
  token.zone = zone_in(item, position, [&](index_t at) {
    return zones_of_query(core.policy.zone, core.limits.logits.window, at, prompt_end, item.open_begin);
  });
  token.prompt = item.prompt;
  token.noted = item.chooses_at_commit(item.tokens, false) && last;
  token.dense = item.prompt || position < core.limits.min_sparse_context || known.action == refresh_action::everything;
  const bool chosen = second_pass && !chooses_for_next_tokens(core.policy);
  if (chosen && item.chooses) token.reads = item.place;
  if (!chosen && !item.prompt && item.chooses && last) token.chooses = item.place;
  return token;
}

/// The last token that was committed of an item whose commit makes its choice: at the end of a prompt, or where it has
/// waited. Scored are the segments of after the item, on what is left after eviction. Its queries are stored by
/// sequence (common_arrays::choice_queries), so that this is its row.
/// @pre  the item is committed, and the choice that was active still is
template <class Core>
device_token choice_at_commit(Core& core, const device_item& item) {
  device_sequence& sequence = core.state(item.seq);
  const index_t position = sequence.tokens() - 1;
  const index_t open_begin = core.policy.segment.open_begin(sequence.segmenting.data());
  device_token token;
  token.sequence = token.row = item.seq;
  token.position = position;
  token.slot = sequence.slot_end(position);
  token.held = Core::held(sequence);
  token.segments = sequence.segment_count();
  if (!item.prompt)
    token.sums = position + 1 - (std::max)(core.step.token(item, position).asks_from, sequence.last_prompt_end());
  if (sequence.heard > 0) token.scoring = sequence.scoring_queries(position);
  token.reads = sequence.active_place();
  token.chooses = item.place;
  token.zone = zones_of_query(core.policy.zone, core.limits.logits.window, position, sequence.prompt_end, open_begin);
  token.prompt = item.prompt;
  return token;
}

}  // namespace zoomr::inline v0::detail
