// SPDX-License-Identifier: Apache-2.0
// L4. Pages that were lately of use: each KV head evicts the page that has been among the better ones longest ago.
#pragma once

#include <zoomr/math/dot.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Keeps, for each layer and KV head, `tokens` tokens in pages of `every`, not counting a prompt that the zones pin:
/// those with the latest time stamps. Done after every `every` tokens from the end of the prompt, when a page is
/// complete.
///
/// Each query renews the stamps of the better `share` of the complete pages, rounded up, by an upper bound of their
/// logits (the box of a page's keys: sum over dimensions of max(q min, q max)); a page begins with the stamp of its
/// last token. A page's stamp is the latest that a query head of the KV head has given it. Of equal stamps, the later
/// page goes. A scale and a soft cap of the model change no order of bounds; a bias by distance is not in them, since
/// what counts is what a page holds. The stamps are what tokens have "received": so they are kept from one time to the
/// next, and move with their tokens, like sums of attention.
/// @cost    every `every` tokens: two comparisons for each dimension of each key held, query and head
/// @source  RaaS, arXiv:2502.11147. Differs: stamps are looked at when a page is complete, published at each token; one
///          set for each KV head.
struct recently_attended_pages {
  using role = role::evictor;
  static constexpr const char* name = "recently_attended_pages";
  static constexpr bool observes = true;
  static constexpr bool accumulates = true;
  static constexpr bool reads_keys = true;
  static constexpr bool while_decoding = true;

  index_t tokens = unlimited;  // of each KV lane, a multiple of `every`; unlimited: nothing is lost
  index_t every = 16;          // tokens of a page
  float share = 0.5f;          // of the pages whose stamps a query renews

  ZOOMR_HD constexpr index_t kept(index_t total) const { return tokens < total ? tokens : total; }
  ZOOMR_HD constexpr index_t observed(index_t total) const { return total; }
  ZOOMR_HD constexpr index_t safe(index_t total) const { return every < total ? every : total; }

  /// Pages of so many whose stamps a query renews: `share`, rounded up.
  ZOOMR_HD constexpr index_t renewed(index_t pages) const {
    const float wanted = share * static_cast<float>(pages);
    const auto whole = static_cast<index_t>(wanted);
    return static_cast<float>(whole) < wanted ? whole + 1 : whole;
  }

  /// received [tokens] holds the stamps: positions, as float (exact up to 2^24).
  void update_importance(const observed_query& observed, view<float> received) const {
    const index_t pages = (observed.keys.extent(0) - 1 - observed.pinned) / every;  // complete before this token
    const auto stamp = static_cast<float>(observed.position);
    for (index_t page = 0; page < pages; ++page) {
      const index_t first = observed.pinned + page * every;
      observed.work[page] = sum_over_dims(observed.query.size(),
                                          [&](float acc, index_t d) { return bound_term(acc, observed, first, d); });
    }
    const index_t better = renewed(pages);
    for (index_t page = 0; page < pages; ++page) {
      if (rank(observed.work, pages, page) >= better) continue;
      const index_t first = observed.pinned + page * every;
      for (index_t t = first; t < first + every; ++t) received[t] = stamp;
    }
    for (index_t t = observed.pinned + pages * every; t < observed.keys.extent(0); ++t) received[t] = stamp;
  }
  /// Adds one dimension of the most that any key of the page that begins at `first` can give; NaN if one of them is.
  ZOOMR_HD float bound_term(float acc, const observed_query& observed, index_t first, index_t d) const {
    float low = observed.keys(first, d);
    float high = low;
    for (index_t t = first + 1; t < first + every; ++t) {
      const float key = observed.keys(t, d);
      if (key < low || is_nan(key)) low = key;
      if (key > high || is_nan(key)) high = key;
    }
    return fused(observed.query[d], observed.query[d] < 0.0f ? low : high, acc);
  }
  /// How many pages are better: a higher bound, or the same and earlier; NaN is worst.
  ZOOMR_HD static index_t rank(view<const float> bounds, index_t pages, index_t page) {
    const votes_t own = order_key(bounds[page]);
    index_t better = 0;
    for (index_t other = 0; other < pages; ++other) {
      const votes_t bound = order_key(bounds[other]);
      better += bound > own || (bound == own && other < page) ? 1 : 0;
    }
    return better;
  }
  /// Importance: the latest stamp of the group's heads.
  void rate(const kv_lane_attention& seen, view<float> importance) const {
    for (index_t t = 0; t < seen.scored; ++t) importance[t] = seen.pooled(t, 1, false);
  }
  constexpr const char* problem() const {
    if (every < 1 || !(share >= 0.0f && share <= 1.0f)) {
      return "recently_attended_pages: every must be at least 1, and share lie in [0, 1]";
    }
    if (tokens < every || (tokens != unlimited && tokens % every != 0)) {
      return "recently_attended_pages: tokens must be a multiple of every: whole pages, at least one";
    }
    return nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("tokens", self.tokens);
    visit("every", self.every);
    visit("share", self.share);
  }
  friend constexpr bool operator==(const recently_attended_pages&, const recently_attended_pages&) = default;
};

static_assert(evictor<recently_attended_pages> && decoding_observer<recently_attended_pages> &&
              importance_updater<recently_attended_pages>);

}  // namespace zoomr::inline v0
