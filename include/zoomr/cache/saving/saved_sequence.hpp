// SPDX-License-Identifier: Apache-2.0
// L6. A sequence as bytes: docs/sequence_format.md. Three sections, each described once: the same functions write it to
// a sink, and read it from a source with the checks that this needs.
//
// Saving changes nothing of the sequence; over tiers its pages come to memory one after the other. While one is loaded,
// pages and tables fill up as their bytes come; nothing sees them before all is there and checked. What follows from
// tokens and keys is made again: segments and summaries. So a sequence can be loaded under another policy too, where
// nothing is missing that this needs. If something fails, pages go back as they came, so that the pool's next pages are
// the ones that they would have been.
#pragma once

#include <zoomr/cache/saving/saved_head.hpp>
#include <zoomr/cache/saving/saved_memory.hpp>
#include <zoomr/cache/saving/saved_text.hpp>
#include <zoomr/cache/saving/section_reader.hpp>
#include <zoomr/cache/saving/section_writer.hpp>

#include <algorithm>  // std::max

namespace zoomr::inline v0::detail {

/// @param sink  nullptr: bytes are only counted, and no page is read
/// @return  the bytes
/// @pre     no step is in progress
/// @throws  error(storage) if pages do not come; whatever the sink throws
/// @cost    reads what the sequence holds once; allocates nothing
template <class Pool>
byte_count save_sequence(cache_core<Pool>& core, sequence_state& state, byte_sink* sink) {
  section_writer out(sink);
  saved_head<Pool, section_writer> head(core, state, out);
  head.section();
  saved_text<Pool, section_writer>(core, state, out, {}).section(head.counts(), true);
  saved_memory<Pool, section_writer>(core, state, out).section(true);
  out.finish();
  return out.bytes();
}

/// Reads one sequence into the state of one that was just opened.
/// @throws error(format), error(capacity), error(storage), or whatever the source throws; the state is then half made
template <class Pool>
void load_state(cache_core<Pool>& core, sequence_state& state, byte_source& source, view<const index_t> table) {
  section_reader in(source);
  saved_head<Pool, section_reader> head(core, state, in);
  head.section();
  const saved_counts& counts = head.counts();
  saved_text<Pool, section_reader>(core, state, in, table).section(counts, head.same_policy());
  saved_memory<Pool, section_reader> memory(core, state, in);
  memory.section(head.same_policy());
  state.rollback_floor =
      (std::max)({counts.rollback_floor, counts.tokens - core.limits.rollback_depth(), memory.known_from()});
  if (!core.policy.evict.observes || !state.in_first_prompt()) core.summaries.make(core.pool, state, 0);
  state.stats = head.same_policy() ? counts.stats : statistics{};
  if (head.same_policy()) return;  // costs of another policy are not this one's
  state.stats.prompt_tokens = state.prompt_tokens();
  state.stats.tokens = counts.tokens - state.stats.prompt_tokens;
}

/// A new sequence, which is what another was when it was saved.
/// @param table  its block table, where pages are an engine's
/// @pre  no step is in progress
template <class Pool>
sequence load_sequence(cache_core<Pool>& core, byte_source& source, view<const index_t> table) {
  return open_sequence_as(core, [&](sequence_state& state, index_t) { load_state(core, state, source, table); });
}

}  // namespace zoomr::inline v0::detail
