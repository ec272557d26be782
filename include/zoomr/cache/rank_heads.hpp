// SPDX-License-Identifier: Apache-2.0
// L6. Which heads of the model each rank has: tensor parallel.
#pragma once

#include <zoomr/core/ranks/rank_group.hpp>
#include <zoomr/core/shape.hpp>

namespace zoomr::inline v0 {

/// What a cache has told other ranks since it was made, for all sequences. A message counts once for each rank that it
/// is sent to, whether it comes or not.
struct rank_statistics {
  std::int64_t messages = 0;
  byte_count bytes = 0;
};

/// The heads of a model that several ranks share. A rank's cache has the shape of its own heads; ranks choose as one
/// cache with all heads would, bit for bit.
///
/// The ranks of a KV head that several have (more ranks than KV heads) hold its keys each, and share out its query
/// heads; that is for policies whose heads choose for a layer or for the sequence, and that evict nothing.
struct rank_heads {
  rank_group group = {};
  view<const index_t> first = {};  // [ranks + 1]  of the model, ascending: rank r has the query heads from first[r] to
                                   // first[r + 1]; empty: each rank has as many as this one
  index_t kv_heads = 0;            // of the model; 0: no KV head is on several ranks

  constexpr bool alone() const { return group.ranks() == 1; }
  /// The first query head of a rank; of rank `ranks()` how many there are.
  /// @param own  those of this rank
  constexpr index_t first_of(index_t rank, index_t own) const { return first.size() > 0 ? first[rank] : rank * own; }
  constexpr index_t all(index_t own) const { return first_of(group.ranks(), own); }

  /// nullptr, or a sentence: what is wrong for a rank of this shape.
  constexpr const char* problem(const shape& model) const {
    if (group.ranks() < 1 || group.ranks() > rank_group::most_ranks) return "config: ranks must be 1 to 1024";
    if (group.rank() < 0 || group.rank() >= group.ranks())
      return "config: the communicator's rank is none of its ranks";
    if (first.size() == 0) return nullptr;
    if (first.size() != group.ranks() + 1) return "config: ranks.first has one number more than there are ranks";
    for (index_t r = 0; r < group.ranks(); ++r) {
      if (first[0] != 0 || first[r + 1] <= first[r])
        return "config: ranks.first ascends from 0: each rank has some heads";
    }
    if (first[group.rank() + 1] - first[group.rank()] != model.heads) {
      return "config: ranks.first says another number of heads for this rank than the shape";
    }
    return nullptr;
  }
  /// Query heads of some KV head are on several ranks.
  constexpr bool splits_kv_heads(const shape& model) const {
    if (kv_heads == 0) return false;
    const index_t group_heads = all(model.heads) / kv_heads;
    for (index_t r = 1; r < group.ranks(); ++r) {
      if (first_of(r, model.heads) % group_heads != 0) return true;
    }
    return false;
  }
};

}  // namespace zoomr::inline v0
