// SPDX-License-Identifier: Apache-2.0
// Which pages of details are read, pass by pass: what bench/tier_hits.cpp replays.
#pragma once

#include <zoomr/cache/trace.hpp>
#include <zoomr/tier/block_shape.hpp>

#include <ostream>  // std::ostream
#include <set>      // std::set

namespace decode {

/// Writes what each layer reads for a token after the prompt: a line "LAYER PAGE FIRST-LAST ..." of the pages of 16
/// tokens that any of its heads reads or, where blocks hold one KV head, a line "LAYER:HEAD PAGE FIRST-LAST ..." for
/// each. For one sequence.
class page_trace {
 public:
  /// @param block  what moves between tiers
  page_trace(std::ostream& out, const zoomr::block_shape& block) : out_(out), block_(block) {
    out_ << "pages " << block.model.layers << " layers " << block.bytes<float>() << " bytes\n";
  }

  zoomr::attention_trace records;

  /// Writes what has been recorded, and forgets it.
  void flush() {
    std::set<zoomr::index> pages;
    for (std::size_t i = 0; i < records.size(); ++i) {
      for (const zoomr::index position : records[i].positions) pages.insert(position / zoomr::page_tokens);
      if (i + 1 < records.size() && same_line(records[i], records[i + 1])) continue;
      write(records[i], pages);
      pages.clear();
    }
    records.clear();
  }

 private:
  bool by_head() const { return block_.heads < block_.model.kv_heads; }
  zoomr::index kv_head(const zoomr::attended_record& of) const { return of.head / block_.model.group(); }
  bool same_line(const zoomr::attended_record& a, const zoomr::attended_record& b) const {
    const bool same_pass = a.position == b.position && a.layer == b.layer && a.second_pass == b.second_pass;
    return same_pass && (!by_head() || kv_head(a) == kv_head(b));
  }
  void write(const zoomr::attended_record& of, const std::set<zoomr::index>& pages) {
    out_ << of.layer;
    if (by_head()) out_ << ':' << kv_head(of);
    for (auto at = pages.begin(); at != pages.end();) {
      const zoomr::index first = *at;
      zoomr::index last = first;
      while (++at != pages.end() && *at == last + 1) ++last;
      out_ << ' ' << first;
      if (last > first) out_ << '-' << last;
    }
    out_ << '\n';
  }

  std::ostream& out_;
  zoomr::block_shape block_;
};

}  // namespace decode
