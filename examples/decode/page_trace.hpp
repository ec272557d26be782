// SPDX-License-Identifier: Apache-2.0
// Which pages of details are read, pass by pass, and what each choice found best: what bench/analysis/tier_hits.cpp and
// bench/analysis/tier_ahead.cpp replay.
#pragma once

#include <zoomr/cache/host/chooser.hpp>
#include <zoomr/cache/trace.hpp>
#include <zoomr/paging/block_shape.hpp>

#include <algorithm>  // std::min
#include <map>        // std::map
#include <ostream>    // std::ostream
#include <set>        // std::set
#include <utility>    // std::pair

namespace decode {

using zoomr::index_t;

/// Writes what each layer reads for a token after the prompt: a line "LAYER PAGE FIRST-LAST ..." of the pages of 16
/// tokens that any of its heads reads or, where blocks hold one KV head, a line "LAYER:HEAD PAGE FIRST-LAST ..." for
/// each. Before the first reading that a choice serves, "choice LAYER[:HEAD] ID ... | ID ...": the segments that it has
/// chosen, and the best of the others; and before those, "segment ID FIRST-LAST": the pages of a segment's details.
/// For one sequence that is never rolled back.
class page_trace {
 public:
  static constexpr index_t most_runners_up = 16;

  /// @param block  what moves between tiers
  /// @param per    what shares a choice
  page_trace(std::ostream& out, const zoomr::block_shape& block, zoomr::scope per)
      : out_(out), block_(block), per_(per) {
    out_ << "pages " << block.model.layers << " layers " << block.bytes<float>() << " bytes\n";
  }

  zoomr::attention_trace records;
  zoomr::choice_trace choices;

  /// Writes what has been recorded, and forgets it.
  /// @param segments  of the sequence, now
  void flush(zoomr::view<const zoomr::segment> segments) {
    for (; segments_ < segments.size(); ++segments_) {
      const zoomr::segment& s = segments[segments_];
      if (s.begin == s.split) continue;
      out_ << "segment " << segments_ << ' ' << s.begin / zoomr::page_tokens << '-'
           << (s.split - 1) / zoomr::page_tokens << '\n';
    }
    for (zoomr::choice_record& made : choices) latest_[made.row] = std::move(made);
    choices.clear();
    std::set<index_t> pages;
    for (std::size_t i = 0; i < records.size(); ++i) {
      for (const index_t position : records[i].positions) pages.insert(position / zoomr::page_tokens);
      if (i + 1 < records.size() && same_line(records[i], records[i + 1])) continue;
      write_choices(records[i]);
      write(records[i], pages);
      pages.clear();
    }
    records.clear();
  }

 private:
  bool by_head() const { return block_.heads < block_.model.kv_heads; }
  index_t kv_head(const zoomr::attended_record& of) const { return of.head / block_.model.group(); }
  bool same_line(const zoomr::attended_record& a, const zoomr::attended_record& b) const {
    const bool same_pass = a.position == b.position && a.layer == b.layer && a.second_pass == b.second_pass;
    return same_pass && (!by_head() || kv_head(a) == kv_head(b));
  }
  std::ostream& piece(const zoomr::attended_record& of) {
    out_ << of.layer;
    if (by_head()) out_ << ':' << kv_head(of);
    return out_;
  }

  // Of the rows that the line's heads read: where they are shared, the first head's.
  void write_choices(const zoomr::attended_record& of) {
    const index_t first = by_head() ? kv_head(of) * block_.model.group() : 0;
    const index_t last = first + (per_ == zoomr::scope::head ? block_.model.group() : 1);
    for (index_t head = first; head < last; ++head) {
      const auto made = latest_.find(zoomr::detail::row_for(block_.model, per_, of.layer, head).row);
      if (made == latest_.end()) continue;
      const zoomr::choice_record& one = made->second;
      const bool serves = per_ != zoomr::scope::sequence || of.second_pass || one.position < of.position;
      index_t& shown = shown_.try_emplace({of.layer, head}, -1).first->second;
      if (!serves || shown == one.position) continue;
      shown = one.position;
      if (one.chosen.empty() && one.runners_up.empty()) continue;
      out_ << "choice ";
      piece(of);
      for (const index_t id : one.chosen) out_ << ' ' << id;
      out_ << " |";
      const std::size_t others = std::min<std::size_t>(one.runners_up.size(), most_runners_up);
      for (std::size_t i = 0; i < others; ++i) out_ << ' ' << one.runners_up[i];
      out_ << '\n';
    }
  }
  void write(const zoomr::attended_record& of, const std::set<index_t>& pages) {
    piece(of);
    for (auto at = pages.begin(); at != pages.end();) {
      const index_t first = *at;
      index_t last = first;
      while (++at != pages.end() && *at == last + 1) ++last;
      out_ << ' ' << first;
      if (last > first) out_ << '-' << last;
    }
    out_ << '\n';
  }

  std::ostream& out_;
  zoomr::block_shape block_;
  zoomr::scope per_;
  index_t segments_ = 0;                                  // written
  std::map<index_t, zoomr::choice_record> latest_;        // by their rows
  std::map<std::pair<index_t, index_t>, index_t> shown_;  // by layer and head: where the choice was made
};

}  // namespace decode
