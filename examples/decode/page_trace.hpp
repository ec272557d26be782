// SPDX-License-Identifier: Apache-2.0
// Which pages of details are read, pass by pass, and what each choice found best: what bench/analysis/tier_hits.cpp and
// bench/analysis/tier_ahead.cpp replay.
#pragma once

#include <zoomr/cache/trace.hpp>
#include <zoomr/paging/block_shape.hpp>
#include <zoomr/policy/segment.hpp>

#include <map>      // std::map
#include <ostream>  // std::ostream
#include <set>      // std::set
#include <utility>  // std::pair

namespace decode {

using zoomr::index_t;

/// Writes what each layer reads for a token after the prompt: a line "LAYER PAGE FIRST-LAST ..." of the pages of 16
/// tokens that any of its heads reads or, where blocks hold one KV head, a line "LAYER:HEAD PAGE FIRST-LAST ..." for
/// each. Before the first reading that a choice serves, "choice LAYER[:HEAD] ID ... | ID ...": the segments that it has
/// chosen, and the best of the others; and before those, "segment ID FIRST-LAST": the pages of a segment's details.
/// For one sequence that is never rolled back.
class page_trace {
 public:
  /// @param block  what moves between tiers
  /// @param per    what shares a choice
  page_trace(std::ostream& out, const zoomr::block_shape& block, zoomr::scope per);

  zoomr::attention_trace records;
  zoomr::choice_trace choices;

  /// Writes what has been recorded, and forgets it.
  /// @param segments  of the sequence, now
  void flush(zoomr::view<const zoomr::segment> segments);

 private:
  bool by_head() const { return block_.heads < block_.model.kv_heads; }
  index_t kv_head(const zoomr::attended_record& of) const { return of.head / block_.model.group(); }
  bool same_line(const zoomr::attended_record& a, const zoomr::attended_record& b) const;
  std::ostream& piece(const zoomr::attended_record& of);

  void write_choices(const zoomr::attended_record& of);
  void write(const zoomr::attended_record& of, const std::set<index_t>& pages);

  std::ostream& out_;
  zoomr::block_shape block_;
  zoomr::scope per_;
  index_t segments_ = 0;                                  // written
  std::map<index_t, zoomr::choice_record> latest_;        // by their rows
  std::map<std::pair<index_t, index_t>, index_t> shown_;  // by layer and head: where the choice was made
};

}  // namespace decode
