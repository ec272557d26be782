// SPDX-License-Identifier: Apache-2.0
// L4. Pages that were lately of use: each KV head gives up the page that has been among the better ones longest ago.
#pragma once

#include <zoomr/concepts.hpp>
#include <zoomr/math/dot.hpp>

namespace zoomr {
inline namespace v0 {

/// Keeps, for each layer and KV head, `tokens` tokens in pages of `every`, not counting a prompt that the zones pin:
/// those with the latest time stamps. Done after every `every` tokens from the end of the prompt, when a page is
/// complete.
///
/// Each query renews the stamps of the better `share` of the complete pages, rounded up, by an upper bound of their
/// logits (the box of a page's keys: sum over dimensions of max(q min, q max)); a page begins with the stamp of its
/// last token. A page's stamp is the latest that a query head of the KV head has given it. Of equal stamps, the later
/// page goes.
/// @cost    every `every` tokens: two comparisons for each dimension of each key held, query and head
/// @source  RaaS, arXiv:2502.11147. Differs: stamps are looked at when a page is complete, published at each token; one
///          set for each KV head.
struct lately_best_pages {
  using role = role::retainer;
  static constexpr const char* name = "lately_best_pages";
  static constexpr bool observes = true;
  static constexpr bool accumulates = true;
  static constexpr bool reads_keys = true;
  static constexpr bool while_decoding = true;

  index tokens = unlimited;  // of each lane, a multiple of `every`; unlimited: nothing is lost
  index every = 16;          // tokens of a page
  float share = 0.5f;        // of the pages whose stamps a query renews

  ZOOMR_HD constexpr index kept(index of) const { return tokens < of ? tokens : of; }
  ZOOMR_HD constexpr index observed(index of) const { return of; }
  ZOOMR_HD constexpr index safe(index of) const { return every < of ? every : of; }

  /// Pages of so many whose stamps a query renews: `share`, rounded up.
  ZOOMR_HD constexpr index renewed(index pages) const {
    const float wanted = share * static_cast<float>(pages);
    const auto whole = static_cast<index>(wanted);
    return static_cast<float>(whole) < wanted ? whole + 1 : whole;
  }

  /// received [tokens] holds the stamps: positions, as float (exact up to 2^24).
  void hear(const heard_query& heard, view<float> received) const {
    const index pages = (heard.keys.extent(0) - 1 - heard.pinned) / every;  // complete before this token
    const auto stamp = static_cast<float>(heard.position);
    for (index page = 0; page < pages; ++page) {
      const index first = heard.pinned + page * every;
      heard.work[page] =
          sum_over_dims(heard.query.size(), [&](float acc, index d) { return bound_term(acc, heard, first, d); });
    }
    const index better = renewed(pages);
    for (index page = 0; page < pages; ++page) {
      if (rank(heard.work, pages, page) >= better) continue;
      const index first = heard.pinned + page * every;
      for (index t = first; t < first + every; ++t) received[t] = stamp;
    }
    for (index t = heard.pinned + pages * every; t < heard.keys.extent(0); ++t) received[t] = stamp;
  }
  /// Adds one dimension of the most that any key of the page that begins at `first` can give; NaN if one of them is.
  ZOOMR_HD float bound_term(float acc, const heard_query& heard, index first, index d) const {
    float low = heard.keys(first, d);
    float high = low;
    for (index t = first + 1; t < first + every; ++t) {
      const float key = heard.keys(t, d);
      if (key < low || is_nan(key)) low = key;
      if (key > high || is_nan(key)) high = key;
    }
    return fused(heard.query[d], heard.query[d] < 0.0f ? low : high, acc);
  }
  /// How many pages are better: a higher bound, or the same and earlier; NaN is worst.
  ZOOMR_HD static index rank(view<const float> bounds, index pages, index page) {
    const tally own = sortable(bounds[page]);
    index better = 0;
    for (index other = 0; other < pages; ++other) {
      const tally bound = sortable(bounds[other]);
      better += bound > own || (bound == own && other < page) ? 1 : 0;
    }
    return better;
  }
  void rate(const lane_attention& seen, view<float> importance) const {
    for (index t = 0; t < seen.scored; ++t) importance[t] = seen.pooled(t, 1, false);
  }
  constexpr const char* problem() const {
    if (every < 1 || !(share >= 0.0f && share <= 1.0f)) {
      return "lately_best_pages: every must be at least 1, and share lie in [0, 1]";
    }
    if (tokens < every || (tokens != unlimited && tokens % every != 0)) {
      return "lately_best_pages: tokens must be a multiple of every: whole pages, at least one";
    }
    return nullptr;
  }
  static constexpr void each_field(auto& self, auto visit) {
    visit("tokens", self.tokens);
    visit("every", self.every);
    visit("share", self.share);
  }
  friend constexpr bool operator==(const lately_best_pages&, const lately_best_pages&) = default;
};

static_assert(retainer<lately_best_pages> && decoding_observer<lately_best_pages> &&
              hearing_observer<lately_best_pages>);

}  // namespace v0
}  // namespace zoomr
