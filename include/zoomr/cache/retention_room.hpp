// SPDX-License-Identifier: Apache-2.0
// L6. Giving tokens up when pages may fail to come: what is kept moves to pages that belong to nobody, and what was
// before stays until the commit cannot fail any more.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/cache/sequence_state.hpp>
#include <zoomr/store/placement.hpp>

#include <utility>  // std::swap
#include <vector>   // std::vector

namespace zoomr {
inline namespace v0 {

/// Whether a commit that gives tokens up can fail on the way. Elsewhere tokens move in place.
template <class Policy>
inline constexpr bool retention_may_fail = decltype(Policy::retain)::observes&& tiered_store<decltype(Policy::store)>;

/// Pages and tables for the one commit that is being made; empty where none can fail.
template <class Policy>
class retention_room {
 public:
  using state_type = sequence_state<Policy>;

  retention_room(const layout<Policy>& sizes, const config& given) {
    spare_.reserve(static_cast<std::size_t>(spare_pages(sizes)));
    if (!retention_may_fail<Policy>) return;
    replaced_.reserve(static_cast<std::size_t>(pages_for(given.tokens)));
    kept_.reserve(static_cast<std::size_t>(sizes.model.lanes()) * static_cast<std::size_t>(sizes.kept));
  }
  static byte_count bytes(const layout<Policy>& sizes, const config& given) {
    if (!retention_may_fail<Policy>) return 0;
    const byte_count indices =
        std::int64_t{sizes.model.lanes()} * sizes.kept + spare_pages(sizes) + pages_for(given.tokens);
    return indices * static_cast<byte_count>(sizeof(index));
  }
  /// Pages that a pool has beyond those of sequences.
  static index spare_pages(const layout<Policy>& sizes) {
    return retention_may_fail<Policy> ? pages_for(sizes.kept) : 0;
  }
  static index pool_pages(const layout<Policy>& sizes, const config& given) {
    return pages_for(given.pool()) + spare_pages(sizes);
  }
  template <class Stock>
  void take_spare(const layout<Policy>& sizes, Stock& stock) {
    for (index count = spare_pages(sizes); count > 0; --count) spare_.push_back(stock.take());
  }

  /// Where a lane's tokens move to.
  view<const index> pages() const { return view<const index>(spare_); }

  /// Before anything changes.
  void begin(const state_type& state) {
    if (!retention_may_fail<Policy>) return;
    begun_ = true;
    kept_.assign(state.kept.begin(), state.kept.end());
    kept_each_ = state.kept_each, compacted_end_ = state.compacted_end, observed_end_ = state.observed_end;
  }
  /// The sums that were received in this commit are the sequence's from now on.
  void swap_sums(state_type& state) {
    std::swap(state.received, state.receiving);
    swapped_ = !swapped_;
  }
  /// The sequence has the first `count` spare pages from now on.
  void give_pages(state_type& state, index count) {
    if (!retention_may_fail<Policy>) return;
    replaced_.assign(state.pages.begin(), state.pages.end());
    state.pages.assign(spare_.begin(), spare_.begin() + count);
    given_ = static_cast<std::size_t>(count);
  }

  /// After a commit: what was replaced goes back to the stock.
  template <class Stock>
  void finish(Stock& stock) {
    for (const index page : replaced_) stock.give_back(page);
    for (std::size_t i = 0; i < given_; ++i) spare_[i] = stock.take();
    forget();
  }
  /// After a commit that has failed: the sequence is what it was.
  template <class Stock>
  void undo(state_type& state, Stock& stock) {
    if (!begun_) return;
    if (swapped_) std::swap(state.received, state.receiving);
    if (!replaced_.empty()) state.pages.assign(replaced_.begin(), replaced_.end());
    std::copy(kept_.begin(), kept_.end(), state.kept.begin());
    state.kept_each = kept_each_, state.compacted_end = compacted_end_, state.observed_end = observed_end_;
    for (index& page : spare_) stock.give_back(page), page = stock.take();  // nothing is known of them
    forget();
  }

 private:
  void forget() {
    replaced_.clear();
    given_ = 0;
    begun_ = swapped_ = false;
  }

  std::vector<index> spare_;     // [spare_pages]
  std::vector<index> replaced_;  // pages of the sequence before
  std::vector<index> kept_;      // [lanes, most_kept]  its positions before
  std::size_t given_ = 0;        // spare pages that the sequence has now
  index kept_each_ = 0;
  index compacted_end_ = 0;
  index observed_end_ = 0;
  bool begun_ = false;
  bool swapped_ = false;
};

}  // namespace v0
}  // namespace zoomr
