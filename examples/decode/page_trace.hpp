// SPDX-License-Identifier: Apache-2.0
// Which pages of details are read, pass by pass: what bench/tier_hits.cpp replays.
#pragma once

#include <zoomr/cache/trace.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/tier/page_pool.hpp>

#include <ostream>  // std::ostream
#include <set>      // std::set

namespace decode {

/// Writes a line for each layer that a token passes after the prompt, "LAYER PAGE FIRST-LAST ...": the pages of 16
/// tokens that any of its heads reads. For one sequence.
class page_trace {
 public:
  /// @param block_bytes  of a page in one layer
  page_trace(std::ostream& out, const zoomr::shape& model, zoomr::byte_count block_bytes) : out_(out) {
    out_ << "pages " << model.layers << " layers " << block_bytes << " bytes\n";
  }

  zoomr::attention_trace records;

  /// Writes what has been recorded, and forgets it.
  void flush() {
    std::set<zoomr::index> pages;
    for (std::size_t i = 0; i < records.size(); ++i) {
      for (const zoomr::index position : records[i].positions) pages.insert(position / zoomr::page_tokens);
      if (i + 1 < records.size() && same_pass(records[i], records[i + 1])) continue;
      write(records[i].layer, pages);
      pages.clear();
    }
    records.clear();
  }

 private:
  static bool same_pass(const zoomr::attended_record& a, const zoomr::attended_record& b) {
    return a.position == b.position && a.layer == b.layer && a.second_pass == b.second_pass;
  }
  void write(zoomr::index layer, const std::set<zoomr::index>& pages) {
    out_ << layer;
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
};

}  // namespace decode
