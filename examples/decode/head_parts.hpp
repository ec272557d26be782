// SPDX-License-Identifier: Apache-2.0
// Tensor parallel in attention: each rank's cache has some heads of every layer, and all ranks get what all heads
// answer. Or context parallel: each has all heads, and keeps some of the tokens; the caches exchange what they need.
// Weights are not divided: each rank computes everything else by itself.
//
// T = tokens of a pass, N = heads, D = head_dim
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/core/error.hpp>

#include <algorithm>    // std::max
#include <cstdint>      // std::int64_t
#include <cstring>      // std::memcpy
#include <functional>   // std::hash
#include <string>       // std::to_string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "config.hpp"
#include "input_error.hpp"

namespace decode {

using zoomr::index_t;

/// The query heads with which each rank begins: [ranks + 1]. KV heads are dealt out evenly. Where there are fewer than
/// ranks, several ranks have one, and deal out its query heads.
/// @throws input_error  if a rank would have none
inline std::vector<index_t> first_heads(const model_config& c, index_t ranks) {
  const auto kv_heads = static_cast<index_t>(c.kv_heads), heads = static_cast<index_t>(c.heads);
  const auto share = [](index_t part, index_t parts, index_t all) { return (part * all + parts - 1) / parts; };
  std::vector<index_t> first;
  for (index_t rank = 0; rank < ranks && ranks <= kv_heads; ++rank)
    first.push_back(share(rank, ranks, kv_heads) * (heads / kv_heads));
  for (index_t kv_head = 0; kv_head < kv_heads && ranks > kv_heads; ++kv_head) {
    const index_t its_ranks = share(kv_head + 1, kv_heads, ranks) - share(kv_head, kv_heads, ranks);
    if (its_ranks > heads / kv_heads)
      fail(ranks, " ranks cannot have a head each of ", kv_heads, " KV heads of ", heads / kv_heads, " query heads");
    for (index_t rank = 0; rank < its_ranks; ++rank)
      first.push_back(kv_head * (heads / kv_heads) + share(rank, its_ranks, heads / kv_heads));
  }
  first.push_back(heads);
  return first;
}

/// The heads of this rank among those of a model.
class head_parts {
 public:
  /// @param deal  more than 0: all heads are here, and tokens are dealt out, so many to one rank after the other
  /// @throws input_error  if there are more ranks than heads
  head_parts(const zoomr::rank_group& group, const model_config& c, index_t deal = 0)
      : group_(group),
        deal_(deal),
        first_(deal > 0 ? std::vector<index_t>{0, static_cast<index_t>(c.heads)} : first_heads(c, group.ranks())),
        kv_heads_(static_cast<index_t>(c.kv_heads)),
        head_dim_(static_cast<index_t>(c.head_dim)),
        in_group_(static_cast<index_t>(c.heads) / kv_heads_) {
    for (index_t rank = 0; deal == 0 && rank < group_.ranks(); ++rank) most_ = std::max(most_, heads_of(rank));
  }

  /// In a cache's config, which refers to this then.
  void set_in(zoomr::config& limits) const {
    if (deal_ > 0) {
      limits.token_ranks = {group_, deal_};
    } else {
      limits.ranks = {.group = group_, .first = zoomr::view<const index_t>(first_), .kv_heads = kv_heads_};
    }
  }
  index_t deal() const { return deal_; }
  /// Of the model's shape, or of some of its layers, what is here.
  zoomr::shape own(zoomr::shape whole) const {
    whole.heads = heads_of(group_.rank());
    whole.kv_heads = (whole.heads + in_group_ - 1) / in_group_;
    return whole;
  }

  index_t own_heads() const { return heads_of(group_.rank()); }
  /// What `gather` has sent.
  const zoomr::rank_statistics& sent_by_outputs() const { return sent_by_outputs_; }

  /// Before each pass, so that a rank which passes other tokens is found.
  void begin(zoomr::view<const token_id> ids) {
    pass_ = static_cast<std::int64_t>(std::hash<std::string_view>{}(
        {reinterpret_cast<const char*>(ids.data()), static_cast<std::size_t>(ids.size()) * sizeof(token_id)}));
  }
  /// What is here of [T, N, D], or of [T, KV heads, D].
  template <class Number>
  zoomr::view<Number, 3> own_heads(zoomr::view<Number, 3> all) const {
    return part(all, first(group_.rank()), heads_of(group_.rank()));
  }
  template <class Number>
  zoomr::view<Number, 3> own_kv_heads(zoomr::view<Number, 3> all) const {
    const index_t kv_head = first(group_.rank()) / in_group_;
    return part(all, kv_head, (heads_of(group_.rank()) + in_group_ - 1) / in_group_);
  }
  /// Fills in what the other ranks' heads have answered.
  /// @param out  [T, N, D]  with those of this rank
  /// @throws zoomr::error(ranks)
  /// @cost  one message to each other rank, of 8 + 4 · T · D · heads bytes, with the heads of the rank that has most;
  /// of
  ///        8 bytes, where all heads are here
  void gather(index_t layer, zoomr::view<float, 3> out) {
    const index_t tokens = deal_ > 0 ? 0 : out.extent(0), row = most_ * head_dim_ / 2, words = 1 + tokens * row;
    sent_.assign(static_cast<std::size_t>(words), 0);
    received_.resize(static_cast<std::size_t>(words * group_.ranks()));
    sent_[0] = pass_ + layer;
    const auto bytes = [&](index_t rank) {
      return static_cast<std::size_t>(heads_of(rank) * head_dim_) * sizeof(float);
    };
    for (index_t t = 0; t < tokens; ++t)
      std::memcpy(&sent_[static_cast<std::size_t>(1 + t * row)], own_heads(out)[t].data(), bytes(group_.rank()));
    const zoomr::view<std::int64_t, 2> all(received_.data(), {group_.ranks(), words});
    sent_by_outputs_.messages += group_.ranks() - 1;
    sent_by_outputs_.bytes += zoomr::byte_count{group_.ranks() - 1} * words * zoomr::byte_count{sizeof(std::int64_t)};
    const index_t silent = group_.all_gather(zoomr::view<const std::int64_t>(sent_), all);
    if (silent >= 0) refuse(silent, " has not answered in time, or passes another number of tokens");
    for (index_t rank = 0; rank < group_.ranks(); ++rank) {
      if (all(rank, 0) != sent_[0]) refuse(rank, " passes other tokens");
      for (index_t t = 0; t < tokens; ++t)
        std::memcpy(part(out, first(rank), heads_of(rank))[t].data(), &all(rank, 1 + t * row), bytes(rank));
    }
  }

 private:
  index_t first(index_t rank) const { return deal_ > 0 ? 0 : first_[static_cast<std::size_t>(rank)]; }
  index_t heads_of(index_t rank) const { return deal_ > 0 ? first_.back() : first(rank + 1) - first(rank); }
  template <class Number>
  static zoomr::view<Number, 3> part(zoomr::view<Number, 3> all, index_t head, index_t heads) {
    return {
        all.data() + head * all.stride(1), {all.extent(0), heads, all.extent(2)}, {all.stride(0), all.stride(1), 1}};
  }
  [[noreturn]] static void refuse(index_t rank, const char* what) {
    throw zoomr::error(zoomr::errc::ranks, "ranks: rank " + std::to_string(rank) + what);
  }

  zoomr::rank_group group_;
  index_t deal_;
  std::vector<index_t> first_;  // [ranks + 1], or [2]
  index_t kv_heads_, head_dim_, in_group_;
  index_t most_ = 0;  // heads of a rank
  std::int64_t pass_ = 0;
  zoomr::rank_statistics sent_by_outputs_;
  std::vector<std::int64_t> sent_, received_;  // [words]; [ranks, words]
};

}  // namespace decode
