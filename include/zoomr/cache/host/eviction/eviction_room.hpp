// SPDX-License-Identifier: Apache-2.0
// L6. Evicting tokens when pages may fail to come: what is kept moves to free pages, and what was
// before stays until the commit cannot fail any more.
//
// A commit that evicts calls `begin`, moves each KV lane to `pages()`, then `swap_sums` and `give_pages`; `finish` ends
// it, or `undo` if pages did not come. One commit at a time, for one sequence.
#pragma once

#include <zoomr/cache/host/sequence_state.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/paging/page_pool.hpp>

#include <utility>  // std::swap
#include <vector>   // std::vector

namespace zoomr::inline v0::detail {

/// Pages and tables for the one commit that is being made; empty where none can fail, since tokens move in place.
/// There are spare pages for as many tokens as a KV lane ever keeps; all KV lanes move to the same ones, each to its
/// own part of them.
class eviction_room {
 public:
  eviction_room(const layout& sizes, const config& limits) : used_(sizes.eviction_may_fail) {
    spare_.reserve(sizes.spare_pages());
    if (!used_) return;
    replaced_.reserve(pages_for(limits.max_tokens));
    kept_.reserve(static_cast<std::size_t>(sizes.stored.kv_lanes()) * static_cast<std::size_t>(sizes.kept));
  }
  static byte_count bytes(const layout& sizes, const config& limits) {
    if (!sizes.eviction_may_fail) return 0;
    const byte_count indices =
        std::int64_t{sizes.stored.kv_lanes()} * sizes.kept + sizes.spare_pages() + pages_for(limits.max_tokens);
    return indices * static_cast<byte_count>(sizeof(index_t));
  }
  /// Once, when the cache is made: `layout::pool_pages` counts these pages beside those of sequences.
  void take_spare(const layout& sizes, page_stock& stock) {
    for (index_t count = sizes.spare_pages(); count > 0; --count) spare_.push_back(stock.take());
  }

  /// Where a KV lane's tokens move to.
  view<const index_t> pages() const { return view<const index_t>(spare_); }

  /// Before anything changes: copies what an eviction overwrites.
  /// @cost  copies the lists of kept positions of all KV lanes
  void begin(const sequence_state& state) {
    if (!used_) return;
    begun_ = true;
    kept_.assign(state.kept.begin(), state.kept.end());
    kept_each_ = state.kept_each.committed;
    compacted_end_ = state.compacted_end;
    observed_end_ = state.observed_end;
  }
  /// The sums that were received in this commit are the sequence's from now on.
  void swap_sums(sequence_state& state) {
    state.received.commit();
    swapped_ = !swapped_;
  }
  /// The sequence has the first `count` spare pages from now on.
  void give_pages(sequence_state& state, index_t count) {
    if (!used_) return;
    replaced_.assign(state.pages.begin(), state.pages.end());
    state.pages.assign(spare_.begin(), spare_.begin() + count);
    held_ = count;
  }

  /// After a commit: what was replaced goes back to the stock, and the spare pages that the sequence has got are
  /// replaced by others.
  void finish(page_stock& stock) {
    for (const index_t page : replaced_) stock.give_back(page);
    for (index_t i = 0; i < held_; ++i) spare_[i] = stock.take();
    forget();
  }
  /// After a commit that has failed: the sequence has the pages, sums and lists that it had at `begin`. Does nothing
  /// without `begin`.
  void undo(sequence_state& state, page_stock& stock) {
    if (!begun_) return;
    if (swapped_) state.received.commit();
    if (!replaced_.empty()) state.pages.assign(replaced_.begin(), replaced_.end());
    std::copy(kept_.begin(), kept_.end(), state.kept.begin());
    state.kept_each.committed = kept_each_;
    state.compacted_end = compacted_end_;
    state.observed_end = observed_end_;
    for (index_t& page : spare_) {  // what they held is no longer needed
      stock.give_back(page);
      page = stock.take();
    }
    forget();
  }

 private:
  void forget() {
    replaced_.clear();
    held_ = 0;
    begun_ = swapped_ = false;
  }

  bool used_;
  table<index_t> spare_;       // [spare_pages]
  table<index_t> replaced_;    // pages of the sequence before
  std::vector<index_t> kept_;  // [KV lanes, most_kept]  its positions before
  index_t held_ = 0;           // spare pages that the sequence has now
  index_t kept_each_ = 0;
  index_t compacted_end_ = 0;
  index_t observed_end_ = 0;
  bool begun_ = false;
  bool swapped_ = false;
};

}  // namespace zoomr::inline v0::detail
