// SPDX-License-Identifier: Apache-2.0
// L6. Makes a sequence from a source: docs/sequence_format.md. What follows from tokens and keys is made again:
// segments by the cache's own segmenter, summaries by its own summarizer. So a sequence can be loaded under another
// policy too, where nothing is missing that this needs.
//
// Pages and tables fill up as their bytes come; nothing sees them before all is there and checked. If something fails,
// they go back as they came, so that the pool's next pages are the ones that they would have been.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/saving/loading_header.hpp>
#include <zoomr/cache/saving/loading_memory.hpp>
#include <zoomr/cache/saving/saving.hpp>
#include <zoomr/cache/state/engine_tables.hpp>

#include <algorithm>    // std::max, std::min, std::none_of
#include <cstring>      // std::memcpy
#include <string>       // std::to_string
#include <type_traits>  // std::is_base_of_v
#include <vector>       // std::vector

namespace zoomr::inline v0::detail {

/// Reads one sequence into the state of one that was just opened.
template <class Pool>
class sequence_loader {
  using number = typename Pool::number;

 public:
  /// @param table  the sequence's block table, where pages are an engine's
  sequence_loader(cache_core<Pool>& core, sequence_state& state, byte_source& source, view<const index_t> table)
      : core_(core), policy_(core.policy), sizes_(core.sizes), state_(state), table_(table), in_(source) {}

  /// @throws error(format), error(capacity), error(storage), or whatever the source throws; the state is then half made
  void load() {
    header_loader<Pool> header(core_, in_);
    header.load();
    counts_ = header.counted();
    same_ = header.same_policy();
    state_.rollback_floor = counts_.rollback_floor;
    state_.observed_end = counts_.observed_end;
    state_.unclassified = counts_.unclassified == 1;
    in_.begin("text");
    classes();
    if (same_) state_.evictions_from = counts_.evictions_from;
    freed_pages();
    kept();
    if constexpr (Pool::owns_pages) {
      take_pages();
    } else {
      take_table();
    }
    pages();
    in_.end();
    memory_loader<Pool> memory(core_, state_, in_, same_);
    memory.load();
    const index_t depth = core_.limits.rollback_depth();
    state_.rollback_floor = (std::max)({counts_.rollback_floor, counts_.tokens - depth, memory.known_from()});
    if (!policy_.evict.observes || !state_.in_first_prompt()) core_.summaries.make(core_.pool, state_, 0);
    statistics_of_tokens();
  }

 private:
  // The segmenter is fed as it was when they came.
  void classes() {
    token_class some[256];
    for (index_t first = 0; first < counts_.tokens; first += 256) {
      const index_t count = std::min<index_t>(256, counts_.tokens - first);
      in_.get(some, count);
      for (index_t t = 0; t < count; ++t) add(some[t], first + t);
    }
    later_prompts();
    moved_positions();
  }
  void later_prompts() {
    const auto count = in_.get<index_t>();
    in_.expect(count >= 0 && count <= counts_.tokens, "there are more later prompts than tokens");
    for (index_t i = 0; i < count; ++i) later_prompt();
  }
  // Each begins where the one before has ended, or later; the last may be still coming.
  void later_prompt() {
    token_range later;
    later.first = in_.get<index_t>();
    later.last = in_.get<index_t>();
    const index_t before = state_.last_prompt_end();
    if (later.last == -1) later.last = token_state::open_prompt;
    const bool ends = later.last <= counts_.tokens || later.last == token_state::open_prompt;
    in_.expect(before > 0 && later.first >= before && later.first < (std::min)(later.last, counts_.tokens) && ends,
               "a later prompt cannot be there");
    state_.later_prompts.push_back(later);
  }
  // Offsets that say nothing are not there, and positions do not descend.
  void moved_positions() {
    const auto count = in_.get<index_t>();
    in_.expect(count >= 0 && count <= counts_.tokens, "there are more spans of positions than tokens");
    if (count > 0 && policy_.evict.observes && core_.limits.logits.alibi_slopes.size() > 0) {
      refuse_file(
          "its model positions are not its positions, and this cache's policy evicts by attention under "
          "logits.alibi_slopes");
    }
    for (index_t i = 0; i < count; ++i) {
      position_span span;
      span.first = in_.get<index_t>();
      span.offset = in_.get<index_t>();
      const position_map before = state_.moved.map();
      const bool first = span.first >= (i == 0 ? 0 : before.spans[i - 1].first + 1) && span.first < counts_.tokens;
      const std::int64_t begin = std::int64_t{span.first} + span.offset;
      const index_t least = first && span.first > 0 ? before.at(span.first - 1) : 0;
      const bool changes = first && span.offset != before.offset_at(span.first);
      in_.expect(changes && begin >= least && begin <= most_model_position, "model positions cannot be so");
      state_.moved.add(span.first, static_cast<index_t>(begin));
    }
    in_.expect(count == 0 || state_.model_position(counts_.tokens - 1) <= most_model_position,
               "model positions cannot be so");
  }
  void add(token_class of_token, index_t position) {
    const bool prompt_ends = position + 1 == counts_.prompt_end;
    std::vector<std::byte>& fed = core_.step.segmenting.state;  // of the same size: nothing is allocated
    fed = state_.segmenting;
    closings closed;
    policy_.segment.feed(fed.data(), of_token, position, closed);
    if (prompt_ends) policy_.segment.end_of_prompt(fed.data(), position, closed);
    if (closed.count > sizes_.most_segments - state_.segment_count()) {
      no_room_to_load("the sequence has more than " + std::to_string(sizes_.most_segments) +
                      " segments: raise config.max_segments");
    }
    state_.add(policy_.segment, of_token, prompt_ends);
  }

  // Of its own policy: what had become unreachable, as far as a rollback could go back.
  void freed_pages() {
    state_.freed_pages = counts_.freed_pages;
    if (counts_.freed_pages == 0) return;
    const index_t window = core_.limits.logits.window;
    const index_t reached = (std::min)(counts_.rollback_floor, counts_.tokens);
    const index_t end = window > 0 ? pages_passed(window, state_, counts_.tokens)
                                   : unreachable_end(policy_, counts_.tokens - reached, state_) / page_tokens;
    in_.expect(counts_.freed_pages <= end, "pages were freed that can be reached");
  }

  void kept() {
    const index_t count = counts_.kept;
    const index_t lanes = sizes_.model.kv_lanes();
    if (count > sizes_.kept) {
      no_room_to_load("each KV lane keeps " + std::to_string(count) + " tokens, there is room for " +
                      std::to_string(sizes_.kept));
    }
    state_.kept_each.committed = count;
    state_.compacted_end = counts_.compacted_end;
    const index_t pinned = state_.pinned(policy_.zone);
    in_.expect(count == 0 || count >= pinned, "a pinned prompt is not kept");
    for (index_t lane = 0; count > 0 && lane < lanes; ++lane) {
      const view<index_t> positions = state_.kept_positions(lane, count);
      in_.get(positions.data(), count);
      bool ascending = positions[0] >= 0 && positions[count - 1] < counts_.compacted_end;
      for (index_t i = 1; i < count; ++i) ascending = ascending && positions[i - 1] < positions[i];
      in_.expect(ascending, "the positions of a KV lane do not ascend");
      in_.expect(pinned == 0 || positions[pinned - 1] == pinned - 1, "a pinned prompt is not kept");
    }
    const index_t last_time = last_eviction_time(policy_, state_);
    in_.expect(count == 0 || counts_.compacted_end <= last_time, "tokens were evicted between two evictions");
  }

  void take_pages() {
    const index_t count = pages_for(state_.slots());
    index_t needed = count;
    each_freed_page(policy_, core_.limits.logits.window, state_, [&](index_t) { --needed; });
    if (needed > core_.pool.free_pages()) {
      no_room_to_load("the sequence needs " + std::to_string(needed) + " pages of " + std::to_string(page_tokens) +
                      " tokens, " + std::to_string(core_.pool.free_pages()) + " are free; raise config.pool_tokens");
    }
    const auto take_until = [&](index_t page) {
      while (static_cast<index_t>(state_.pages.size()) < page) state_.pages.push_back(core_.pool.take());
    };
    each_freed_page(policy_, core_.limits.logits.window, state_, [&](index_t page) {
      take_until(page);
      state_.pages.push_back(-1);
    });
    take_until(count);
  }

  // As `take_tables` does it before a step.
  void take_table() {
    const bool has_gaps = counts_.freed_pages > 0 && core_.limits.logits.window == 0;
    if (has_gaps) no_room_to_load("pages of the sequence were freed: an engine's table has no gaps");
    detail::take_table(core_.limits.engine, state_, table_, "load: the block table",
                       [](const std::string& why) { raise(errc::capacity, why); });
  }

  void pages() {
    const shape& m = sizes_.model;
    for (index_t page = 0; page * page_tokens < state_.slots(); ++page) {
      if (!holds_page(core_, state_, page)) continue;
      const index_t rows = (std::min)(page_tokens, state_.slots() - page * page_tokens);
      in_.expect(in_.get<index_t>() == page, "another page comes");
      for (index_t lane = 0; lane < m.kv_lanes(); ++lane) {
        const auto to = core_.kv_lane(state_, lane / m.kv_heads, lane % m.kv_heads);
        const auto key = [&](index_t slot) { return to.writable_key(slot); };
        each_saved_row(m, to, page * page_tokens, key,
                       [&](auto row, index_t width, std::int64_t stride, bool together) {
                         get_rows(row, width, stride, rows, together);
                       });
        for (index_t t = 0; sizes_.key_lanes > 0 && t < rows; ++t) {
          const index_t slot = page * page_tokens + t;
          core_.keep_key(lane / m.kv_heads, lane % m.kv_heads, to.pages, slot, to.key(slot));
        }
      }
      if constexpr (Pool::may_fail) {
        if (rows == page_tokens) core_.pool.write_back(state_.pages[static_cast<std::size_t>(page)]);
      }
    }
  }
  // Of a page, as each_saved_row visits them.
  template <class Row>
  void get_rows(Row row, index_t width, [[maybe_unused]] std::int64_t stride, index_t rows, bool together) {
    const index_t at_once = together ? rows : 1;
    for (index_t t = 0; t < rows; t += at_once) get_numbers(row(t), at_once * stored_size<number>(width));
    if constexpr (scales_rows<number>) {
      number* const first = row(0);  // they are side by side
      for (index_t t = 0; t < rows; ++t) {
        const auto scale = in_.template get<float>();
        std::memcpy(static_cast<void*>(scale_of(first + t * stride, t, stride)), &scale, sizeof scale);
      }
    }
  }

  void get_numbers(number* first, std::int64_t count) {
    in_.get(first, count);
    if constexpr (std::is_base_of_v<int8, number>) {
      const bool stored = std::none_of(first, first + count, [](const number& value) { return value.bits == -128; });
      in_.expect(stored, "-128 is no number of int8");
    }
  }

  // What another policy has cost says nothing of this one.
  void statistics_of_tokens() {
    state_.stats = same_ ? counts_.stats : statistics{};
    if (same_) return;
    state_.stats.prompt_tokens = state_.prompt_tokens();
    state_.stats.tokens = counts_.tokens - state_.stats.prompt_tokens;
  }

  cache_core<Pool>& core_;
  const any_policy& policy_;
  const layout& sizes_;
  sequence_state& state_;
  view<const index_t> table_;
  section_reader in_;
  saved_counts counts_;
  bool same_ = false;
};

/// A new sequence, which is what another was when it was saved.
/// @param table  its block table, where pages are an engine's
/// @pre  no step is in progress
template <class Pool>
sequence load_sequence(cache_core<Pool>& core, byte_source& source, view<const index_t> table) {
  return open_sequence_as(
      core, [&](sequence_state& state, index_t) { sequence_loader<Pool>(core, state, source, table).load(); });
}

/// @pre  no step is in progress
template <class Pool>
void save_sequence(cache_core<Pool>& core, sequence_state& state, byte_sink& sink) {
  sequence_saver<Pool>(core, state, sink).save();
}

}  // namespace zoomr::inline v0::detail
