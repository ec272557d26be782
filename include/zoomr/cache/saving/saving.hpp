// SPDX-License-Identifier: Apache-2.0
// L6. Writes a sequence to a sink: what it is of, its tokens with keys and values, and what its policy remembers
// (docs/sequence_format.md). Nothing of the sequence changes; over tiers its pages come to the device one after the
// other.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/saving/saved_parts.hpp>
#include <zoomr/cache/saving/saved_rule.hpp>
#include <zoomr/cache/saving/section_writer.hpp>

#include <algorithm>  // std::min
#include <cstring>    // std::memcpy, std::strlen

namespace zoomr::inline v0::detail {

/// Writes a text as the bytes of a section.
class text_writer final : public text_taker {
 public:
  explicit text_writer(section_writer& out) : out_(out) {}
  void take(std::string_view piece) override { out_.put(piece.data(), static_cast<std::int64_t>(piece.size())); }

 private:
  section_writer& out_;
};

/// Writes one sequence.
template <class Pool>
class sequence_saver {
  using number = typename Pool::number;

 public:
  /// @pre  no step is in progress
  sequence_saver(cache_core<Pool>& core, sequence_state& state, byte_sink& sink)
      : core_(core), sizes_(core.sizes), state_(state), out_(sink), parts_(remembered_of(core.policy, sizes_, state)) {}

  /// @throws error(storage) if pages do not come; whatever the sink throws
  /// @cost   reads what the sequence holds once; allocates nothing
  void save() {
    out_.section([&] {
      model();
      policy();
      counts();
    });
    out_.section(text_bytes(), [&] {
      out_.put(state_.classes.data(), state_.tokens());
      later_prompts();
      moved_positions();
      kept();
      pages();
    });
    out_.section([&] {
      sums();
      prompted();
      noted();
      records();
      selections();
    });
    out_.finish();
  }

 private:
  void model() {
    const shape& m = sizes_.model;
    char name[16] = {};
    std::memcpy(name, storage_name<number>(), std::strlen(storage_name<number>()));
    for (const index_t each : {m.layers, m.heads, m.kv_heads, m.head_dim, m.value_width(), index_t{m.values_in_keys}}) {
      out_.put(each);
    }
    out_.put(name, 16);
    put_scales(core_.limits.key_scale);
    put_scales(core_.limits.value_scale);
    const saved_rule rule(core_.limits.logits, m);
    saved_rule::each(rule, [&](const auto& field) { out_.put(field); });
  }
  index_t scales(const storage_scale& scale) const {
    return scale.each.data() == nullptr ? 1 : sizes_.model.kv_lanes();
  }
  void put_scales(const storage_scale& scale) {
    out_.put(scales(scale));
    for (index_t i = 0; i < scales(scale); ++i) {
      out_.put(scale.at(i / sizes_.model.kv_heads, i % sizes_.model.kv_heads));
    }
  }

  void policy() {
    text_length length;
    core_.policy.write_text(length);
    out_.put(length.bytes);
    text_writer text(out_);
    core_.policy.write_text(text);
  }

  void counts() {
    saved_counts saved;
    saved.tokens = state_.tokens();
    saved.prompt_end = state_.prompt_end;
    saved.kept = state_.kept_each.committed;
    saved.compacted_end = state_.compacted_end;
    saved.rollback_floor = state_.rollback_floor;
    saved.observed_end = state_.observed_end;
    saved.freed_pages = state_.freed_pages;
    saved.evictions_from = state_.evictions_from;
    saved.unclassified = saved.tokens > 0 && (state_.unclassified || core_.limits.classes.size() == 0) ? 1 : 0;
    saved.stats = state_.stats;
    saved_counts::each(saved, [&](const auto& field) { out_.put(field); });
  }

  void later_prompts() {
    out_.put(static_cast<index_t>(state_.later_prompts.size()));
    for (const token_range& later : state_.later_prompts) {
      out_.put(later.first);
      out_.put(later.last == token_state::open_prompt ? -1 : later.last);
    }
  }

  void moved_positions() {
    out_.put(state_.moved.spans());
    for (const position_span& span : state_.moved.map().spans) {
      out_.put(span.first);
      out_.put(span.offset);
    }
  }

  // Counted beforehand: over tiers pages come once.
  byte_count text_bytes() {
    const shape& m = sizes_.model;
    byte_count bytes = state_.tokens() + 4 + static_cast<byte_count>(state_.later_prompts.size()) * 8;
    bytes += 4 + std::int64_t{8} * state_.moved.spans();
    bytes += std::int64_t{4} * m.kv_lanes() * state_.kept_each.committed;
    each_page([&](index_t, index_t rows) { bytes += 4 + m.kv_lanes() * saved_row_bytes<number>(m, rows); });
    return bytes;
  }
  // visit(page, rows) for each page that the file has.
  template <class Visit>
  void each_page(Visit visit) {
    for (index_t page = 0; page * page_tokens < state_.slots(); ++page) {
      if (holds_page(core_, state_, page)) visit(page, (std::min)(page_tokens, state_.slots() - page * page_tokens));
    }
  }
  void kept() {
    const index_t count = state_.kept_each.committed;
    for (index_t lane = 0; count > 0 && lane < sizes_.model.kv_lanes(); ++lane) {
      out_.put(state_.kept_positions(lane, count).data(), count);
    }
  }

  // Page by page, since that is how much of it is in memory at once.
  void pages() {
    const shape& m = sizes_.model;
    each_page([&](index_t page, index_t rows) {
      out_.put(page);
      for (index_t lane = 0; lane < m.kv_lanes(); ++lane) {
        const auto from = core_.kv_lane(state_, lane / m.kv_heads, lane % m.kv_heads);
        const auto key = [&](index_t slot) -> const number* { return from.key(slot); };
        each_saved_row(m, from, page * page_tokens, key,
                       [&](auto row, index_t width, std::int64_t stride, bool together) {
                         put_rows(row, width, stride, rows, together);
                       });
      }
    });
  }
  // Of a page, as each_saved_row visits them.
  template <class Row>
  void put_rows(Row row, index_t width, [[maybe_unused]] std::int64_t stride, index_t rows, bool together) {
    const index_t at_once = together ? rows : 1;
    for (index_t t = 0; t < rows; t += at_once) out_.put(row(t), at_once * stored_size<number>(width));
    if constexpr (scales_rows<number>) {
      const number* const first = row(0);  // they are side by side
      for (index_t t = 0; t < rows; ++t) out_.put(row_scale(first + t * stride, t, stride));
    }
  }

  void sums() {
    out_.put(parts_.summed);
    const index_t rows = parts_.summed > 0 ? sizes_.model.layers * sizes_.model.heads : 0;
    for (index_t row = 0; row < rows; ++row) {
      out_.put(state_.received.committed.data() + std::int64_t{row} * sizes_.carried, parts_.summed);
    }
  }

  // Whose queries they are comes before them: of all heads, or of the voters named.
  void prompted() {
    out_.put(sizes_.voters);
    for (index_t layer = 0; sizes_.voters > 0 && layer < sizes_.model.layers; ++layer) {
      core_.voters.each_in(layer, [&](index_t, index_t head) { out_.put(layer * sizes_.model.heads + head); });
    }
    queries(state_.last_queries, parts_.prompted, query_memory::elements(sizes_.asked_heads(), 1));
  }
  void noted() { queries(state_.noted, parts_.noted, query_memory::elements(sizes_.model, 1)); }
  void queries(query_memory& memory, token_range positions, std::int64_t each) {
    out_.put(positions.first);
    out_.put(positions.size());
    for (index_t p = positions.first; p < positions.last; ++p) out_.put(memory.at(p, 0, 0).data(), each);
  }

  void records() {
    const token_range positions = parts_.records;
    const std::int64_t each = query_memory::elements(sizes_.model, 1);
    out_.put(positions.first);
    out_.put(saved_record_parts(sizes_, state_, positions));
    for (index_t p = positions.first; p < positions.last; ++p) {
      index_t part = p < state_.last_prompt_end() ? sizes_.query_parts : 0;
      for (; part < sizes_.query_parts; ++part) out_.put(state_.queries.at(p, part, 0).data(), each);
    }
  }

  // The log; or where none is kept, since each choice serves its own token only, the last choice in the same form.
  void selections() {
    const view<const index_t> words = state_.log.words();
    out_.put(index_t{state_.log.dropped() ? 1 : 0});
    if (!core_.policy.selects || core_.policy.persists()) {
      out_.put(words.data(), words.size());
    } else {
      put_active();
    }
  }
  static index_t exceptions(const selection_row& row) {
    index_t count = 0;
    for (const level at : row.levels) count += at != level::summary ? 1 : 0;
    return count;
  }
  void put_active() {
    index_t words = 2;
    for (index_t r = 0; r < state_.active_selection.rows(); ++r) {
      const selection_row& row = state_.active_selection.row(r);
      const index_t levels = exceptions(row);
      for (const index_t each : {row.levels.size(), row.cut_segment, row.cut_tokens, levels}) out_.put(each);
      for (index_t id = 0; id < row.levels.size(); ++id) {
        if (row.levels[id] != level::summary) out_.put(id * 4 + static_cast<index_t>(row.levels[id]));
      }
      words += 4 + levels;
    }
    out_.put(index_t{-1});
    out_.put(words);
  }

  cache_core<Pool>& core_;
  const layout& sizes_;
  sequence_state& state_;
  section_writer out_;
  remembered_parts parts_;
};

}  // namespace zoomr::inline v0::detail
