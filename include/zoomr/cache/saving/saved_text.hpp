// SPDX-License-Identifier: Apache-2.0
// L6. The second section of a saved sequence: its tokens, with keys and values. What follows from these is not saved:
// segments are made again by the cache's own segmenter while the classes of tokens come.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/saving/saved_head.hpp>
#include <zoomr/cache/saving/saved_parts.hpp>
#include <zoomr/cache/state/engine_tables.hpp>

#include <algorithm>    // std::copy_n, std::min, std::none_of
#include <cstring>      // std::memcpy
#include <string>       // std::string, std::to_string
#include <type_traits>  // std::is_base_of_v
#include <vector>       // std::vector

namespace zoomr::inline v0::detail {

/// @tparam Archive  section_writer or section_reader
template <class Pool, class Archive>
class saved_text {
  using number = typename Pool::number;
  static constexpr bool reads = Archive::reads;

 public:
  /// @param table  to read: the sequence's block table, where pages are an engine's
  saved_text(cache_core<Pool>& core, sequence_state& state, Archive& archive, view<const index_t> table)
      : core_(core), policy_(core.policy), sizes_(core.sizes), state_(state), archive_(archive), table_(table) {}

  /// @throws error(format) if it is damaged; error(capacity) if it has no room; error(storage) if pages do not come;
  ///         whatever the archive throws
  void section(const saved_counts& counts, bool same_policy) {
    archive_.section("text", [&] {
      classes(counts);
      later_prompts();
      if constexpr (reads) take_pins();
      moved_positions();
      if constexpr (reads) take_over(counts, same_policy);
      kept();
      if constexpr (reads) take_pages();
      pages();
    });
  }

 private:
  void classes(const saved_counts& counts) {
    token_class chunk[256];
    for (index_t first = 0; first < counts.tokens; first += 256) {
      const index_t count = std::min<index_t>(256, counts.tokens - first);
      if constexpr (!reads) std::copy_n(state_.classes.data() + first, count, chunk);
      archive_.numbers(chunk, count);
      for (index_t t = 0; reads && t < count; ++t) {
        const token_class before = first + t > 0 ? state_.classes.back() : token_class::plain;
        archive_.expect(chunk[t] == cut_between(before, chunk[t]), "classes of tokens cannot be so");
        add(chunk[t], first + t + 1 == counts.prompt_end);
      }
    }
  }
  // The segmenter is fed as it was when the token came.
  void add(token_class of_token, bool prompt_ends) {
    std::vector<std::byte>& fed = core_.step.segmenting.state;  // of the same size: nothing is allocated
    fed = state_.segmenting;
    closings closed;
    policy_.segment.feed(fed.data(), of_token, state_.tokens(), closed);
    if (prompt_ends) policy_.segment.end_of_prompt(fed.data(), state_.tokens(), closed);
    if (closed.count > sizes_.most_segments - state_.segment_count()) {
      no_room_to_load("the sequence has more than " + std::to_string(sizes_.most_segments) +
                      " segments: raise config.max_segments");
    }
    state_.add(policy_.segment, of_token, prompt_ends);
  }

  // Each begins where the one before has ended, or later; the last may be still coming.
  void later_prompts() {
    const index_t tokens = state_.tokens();
    auto count = static_cast<index_t>(state_.later_prompts.size());
    archive_.number(count);
    archive_.expect(count >= 0 && count <= tokens, "there are more later prompts than tokens");
    for (index_t i = 0; i < count; ++i) {
      token_range later;
      if constexpr (!reads) later = state_.later_prompts[static_cast<std::size_t>(i)];
      if (later.last == token_state::open_prompt) later.last = -1;
      archive_.number(later.first);
      archive_.number(later.last);
      if constexpr (!reads) continue;
      if (later.last == -1) later.last = token_state::open_prompt;
      const index_t before = state_.last_prompt_end();
      const bool ends = later.last <= tokens || later.last == token_state::open_prompt;
      archive_.expect(before > 0 && later.first >= before && later.first < (std::min)(later.last, tokens) && ends,
                      "a later prompt cannot be there");
      state_.later_prompts.push_back(later);
    }
  }

  // Of another policy's file more may be pinned than this one keeps.
  void take_pins() {
    state_.renew_pins(policy_.segment);
    const index_t most = core_.limits.max_tokens;
    if (!state_.marked || !evicts_by_attention(policy_, most)) return;
    const std::int64_t stay = never_evicted(policy_, state_, most);
    if (stay <= policy_.evict.kept(most)) return;
    refuse_file("with its pinned spans " + std::to_string(stay) +
                " tokens could never be evicted, but each KV lane keeps " + std::to_string(policy_.evict.kept(most)));
  }

  // An offset equal to the one before is not saved, and positions do not descend.
  void moved_positions() {
    const index_t tokens = state_.tokens();
    index_t count = state_.moved.spans();
    archive_.number(count);
    archive_.expect(count >= 0 && count <= tokens, "there are more spans of positions than tokens");
    if (reads && count > 0 && policy_.evict.observes && core_.limits.logits.alibi_slopes.size() > 0) {
      refuse_file(
          "its model positions are not its positions, and this cache's policy evicts by attention under "
          "logits.alibi_slopes");
    }
    for (index_t i = 0; i < count; ++i) {
      position_span span;
      if constexpr (!reads) span = state_.moved.map().spans[i];
      archive_.number(span.first);
      archive_.number(span.offset);
      if constexpr (reads) add_span(span);
    }
    archive_.expect(count == 0 || state_.model_position(tokens - 1) <= most_model_position,
                    "model positions cannot be so");
  }
  void add_span(position_span span) {
    const position_map before = state_.moved.map();
    const index_t spans = before.spans.size();
    const bool first =
        span.first >= (spans == 0 ? 0 : before.spans[spans - 1].first + 1) && span.first < state_.tokens();
    const std::int64_t begin = std::int64_t{span.first} + span.offset;
    const index_t least = first && span.first > 0 ? before.at(span.first - 1) : 0;
    const bool changes = first && span.offset != before.offset_at(span.first);
    archive_.expect(changes && begin >= least && begin <= most_model_position, "model positions cannot be so");
    state_.moved.add(span.first, static_cast<index_t>(begin));
  }

  // Pages before it had become unreachable, as far as a rollback could go back.
  index_t reachable_page(const saved_counts& counts) const {
    const index_t window = core_.limits.logits.window;
    if (window > 0) return pages_passed(window, state_, counts.tokens);
    const index_t floor = (std::min)(counts.rollback_floor, counts.tokens);
    return unreachable_end(policy_, counts.tokens - floor, state_) / page_tokens;
  }
  // What does not follow from the tokens themselves.
  void take_over(const saved_counts& counts, bool same_policy) {
    archive_.expect(counts.freed_pages == 0 || counts.freed_pages <= reachable_page(counts),
                    "pages were freed that can be reached");
    if (counts.kept > sizes_.kept) {
      no_room_to_load("each KV lane keeps " + std::to_string(counts.kept) + " tokens, there is room for " +
                      std::to_string(sizes_.kept));
    }
    state_.rollback_floor = counts.rollback_floor;
    state_.observed_end = counts.observed_end;
    state_.unclassified = counts.unclassified == 1;
    if (same_policy) state_.evictions_from = counts.evictions_from;
    state_.freed_pages = counts.freed_pages;
    state_.kept_each.committed = counts.kept;
    state_.compacted_end = counts.compacted_end;
  }

  void kept() {
    const index_t count = state_.kept_each.committed;
    if (count == 0) return;
    const index_t pinned = state_.pinned(policy_.zone);
    archive_.expect(count >= pinned, "a pinned prompt is not kept");
    for (index_t lane = 0; lane < sizes_.stored.kv_lanes(); ++lane) {
      const view<index_t> positions = state_.kept_positions(lane, count);
      archive_.numbers(positions.data(), count);
      if constexpr (!reads) continue;
      bool ascending = positions[0] >= 0 && positions[count - 1] < state_.compacted_end;
      for (index_t i = 1; i < count; ++i) ascending = ascending && positions[i - 1] < positions[i];
      archive_.expect(ascending, "the positions of a KV lane do not ascend");
      archive_.expect(pinned == 0 || positions[pinned - 1] == pinned - 1, "a pinned prompt is not kept");
    }
    archive_.expect(state_.compacted_end <= last_eviction_time(policy_, state_),
                    "tokens were evicted between two evictions");
  }

  void take_pages() {
    if constexpr (Pool::owns_pages) {
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
    } else {  // as `take_tables` does it before a step
      const bool has_gaps = state_.freed_pages > 0 && core_.limits.logits.window == 0;
      if (has_gaps) no_room_to_load("pages of the sequence were freed: an engine's table has no gaps");
      take_table(core_.limits.engine, state_, table_, "load: the block table",
                 [](const std::string& reason) { raise(errc::capacity, reason); });
    }
  }

  // Page by page, since that is how much of it is in memory at once. What was given back, or can be, is not there.
  void pages() {
    const shape& m = sizes_.stored;
    for (index_t page = 0; page * page_tokens < state_.slots(); ++page) {
      if (!holds(page)) continue;
      const index_t first = page * page_tokens, rows = (std::min)(page_tokens, state_.slots() - first);
      index_t found = page;
      archive_.number(found);
      archive_.expect(found == page, "another page comes");
      for (index_t lane = 0; lane < m.kv_lanes(); ++lane) {
        const index_t layer = core_.donors.layer_of(lane / m.kv_heads), kv_head = lane % m.kv_heads;
        const auto kv_lane = core_.kv_lane(state_, layer, kv_head);
        lane_rows(kv_lane, first, rows);
        for (index_t slot = first; reads && sizes_.key_lanes > 0 && slot < first + rows; ++slot) {
          core_.keep_key(layer, kv_head, kv_lane.pages, slot, kv_lane.key(slot));
        }
      }
      if constexpr (reads && Pool::may_fail) {
        if (rows == page_tokens) core_.pool.write_back(state_.pages[static_cast<std::size_t>(page)]);
      }
    }
  }
  bool holds(index_t page) {
    if (core_.limits.logits.window > 0) return page >= state_.freed_pages;
    return core_.kv_lane(state_, 0, 0).holds(page * page_tokens);
  }

  // Of one KV lane in a page: keys, then values unless they are in keys.
  template <class Lane>
  void lane_rows(const Lane& kv_lane, index_t first, index_t count) {
    const auto key = [&](index_t t) {
      if constexpr (reads) {
        return kv_lane.writable_key(first + t);
      } else {
        return kv_lane.key(first + t);
      }
    };
    const kv_rows& rows = kv_lane.rows;
    numbers(key, count, rows.key_width, rows.key_stride, keys_side_by_side(kv_lane));
    if (sizes_.model.values_in_keys) return;
    numbers([&](index_t t) { return kv_lane.value_of(key(t), first + t); }, count, rows.value_width, rows.value_stride,
            values_side_by_side(kv_lane));
  }
  // The rows of some tokens; then their scales, where they have any: such rows are side by side. Over tiers a page
  // comes when `row` is called, once.
  // @param row     row(token)
  // @param stride  as `scale_of` has it
  template <class Row>
  void numbers(Row row, index_t tokens, index_t width, [[maybe_unused]] std::int64_t stride, bool side_by_side) {
    const index_t at_once = side_by_side ? tokens : 1;
    for (index_t t = 0; t < tokens; t += at_once) {
      const auto place = archive_.counting() ? nullptr : row(t);
      const std::int64_t count = at_once * stored_size<number>(width);
      archive_.numbers(place, count);
      if constexpr (reads && std::is_base_of_v<int8, number>) {
        const bool stored = std::none_of(place, place + count, [](const number& value) { return value.bits == -128; });
        archive_.expect(stored, "-128 is no number of int8");
      }
    }
    if constexpr (scales_rows<number>) {
      const auto first = archive_.counting() ? nullptr : row(0);
      for (index_t t = 0; t < tokens; ++t) {
        float scale = 0.0f;
        if (!reads && first != nullptr) scale = row_scale(first + t * stride, t, stride);
        archive_.number(scale);
        if constexpr (reads)
          std::memcpy(static_cast<void*>(scale_of(first + t * stride, t, stride)), &scale, sizeof scale);
      }
    }
  }

  cache_core<Pool>& core_;
  const any_policy& policy_;
  const layout& sizes_;
  sequence_state& state_;
  Archive& archive_;
  view<const index_t> table_;
};

}  // namespace zoomr::inline v0::detail
