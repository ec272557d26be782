// SPDX-License-Identifier: Apache-2.0
// L6. What the ranks of a model tell each other in a choice that all of its heads make.
//
// Votes that add up are integers: each rank sends what its heads have added, and adds up what all have sent. Others
// follow from numbers of each head, in the order of the heads: scores of the heads of one layer that are pooled, shares
// of the voters. Of these each rank sends its own, and does what one rank would do with all. A choice of one KV head or
// less needs nothing of other ranks.
#pragma once

#include <zoomr/cache/planning/rank_messages.hpp>
#include <zoomr/cache/planning/voter_table.hpp>

#include <algorithm>  // std::fill, std::max
#include <string>     // std::string
#include <utility>    // std::exchange
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// The exchange of one cache; without other ranks, or where no choice needs them, it holds nothing.
class head_exchange {
 public:
  /// @param segments  of a choice, at most
  head_exchange(const shape& model, const any_policy& policy, const config& limits, index_t segments)
      : used_(exchanges(policy, limits)) {
    if (!used_) return;
    places_ = places_of(model, policy, limits);
    messages_ =
        rank_messages(limits.ranks.group, rank_configuration(model, policy, limits), message_words(places_, segments));
    segments_ = segments;
    rows_ = buffer<float>(std::int64_t{places_.all} * segments);
    for (index_t layer = 0; policy.aggregate.queries > 0 && layer < limits.voters.extent(0); ++layer) {
      for (const float weight : limits.voters[layer]) {
        if (weight > 0.0f) weights_.push_back(weight);
      }
    }
  }
  static byte_count bytes(const shape& model, const any_policy& policy, const config& limits, index_t segments) {
    if (!exchanges(policy, limits)) return 0;
    const row_places places = places_of(model, policy, limits);
    return rank_messages::bytes(limits.ranks.group, message_words(places, segments)) +
           bounded_product({places.all, segments, sizeof(float)});
  }

  /// Choices depend on other ranks.
  bool used() const { return used_; }
  const rank_statistics& counted() const { return messages_.counted(); }
  /// The numbers of each head are gathered, rather than votes added up.
  bool gathers() const { return places_.all > 0; }
  /// Weights of all voters of the model, in ascending order.  [voters]
  view<const float> weights() const { return weights_; }

  /// Adds the votes of the other ranks' heads to those of this one's. The same segments are eligible on each.
  /// @param about  the same number on each rank, by which a rank that is elsewhere is found
  /// @throws error(ranks) if a rank does not answer, or is elsewhere
  void add_up(view<votes_t> votes, std::int64_t about) {
    const view<std::int64_t> own = messages_.message(votes.size());
    for (index_t id = 0; id < votes.size(); ++id) own[id] = votes[id] == not_eligible ? 0 : votes[id];
    const view<const std::int64_t, 2> all = messages_.exchange(votes.size(), about);
    for (index_t id = 0; id < votes.size(); ++id) {
      if (votes[id] == not_eligible) continue;
      votes[id] = 0;
      for (index_t rank = 0; rank < messages_.ranks(); ++rank) votes[id] += all(rank, id);
    }
  }

  /// The numbers of all heads of the row, in their order.  [heads, segments]  In memory of the exchange.
  /// @param own  [own heads, segments]
  /// @throws as `add_up`
  view<float, 2> gather(view<const float, 2> own, std::int64_t about) {
    const index_t segments = own.extent(1), each = float_words(segments), words = each * places_.most;
    const view<std::int64_t> to = messages_.message(words);
    std::fill(to.begin(), to.end(), 0);
    for (index_t row = 0; row < own.extent(0); ++row) copy_floats(own[row].data(), to.data() + row * each, segments);
    const view<const std::int64_t, 2> all = messages_.exchange(words, about);
    const view<float, 2> rows(rows_.data(), {places_.all, segments}, {segments_, 1});
    for (index_t rank = 0; rank < messages_.ranks(); ++rank) {
      const std::vector<index_t>& places = places_.on_rank[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < places.size(); ++i) {
        copy_floats(all[rank].data() + static_cast<index_t>(i) * each, rows[places[i]].data(), segments);
      }
    }
    return rows;
  }

  /// All ranks are here: before anything changes that a choice will follow.
  /// @throws as `add_up`
  void meet(std::int64_t about) { messages_.exchange(0, about); }

  /// Of a choice that was due when nothing could be undone: what the step says at its end.
  void keep_failure(const char* sentence) { failure_ = sentence; }
  std::string take_failure() { return std::exchange(failure_, {}); }

 private:
  static bool exchanges(const any_policy& policy, const config& limits) {
    return !limits.ranks.alone() && policy.selects && policy.aggregate.per < scope::kv_head;
  }
  // The rows of one choice whose numbers are gathered, in the order of the model's heads: the voters, or the heads of a
  // layer.
  struct row_places {
    std::vector<std::vector<index_t>> on_rank;  // [ranks][rows of the rank]  their places among all
    index_t all = 0, most = 0;                  // rows, and those of the rank that has most
  };
  // None where votes are added up.
  static row_places places_of(const shape& model, const any_policy& policy, const config& limits) {
    const bool of_voters = policy.aggregate.queries > 0;
    row_places places;
    if (policy.aggregate.counts && !of_voters) return places;
    const rank_heads& ranks = limits.ranks;
    places.on_rank.resize(static_cast<std::size_t>(ranks.group.ranks()));
    for (index_t layer = 0; layer < (of_voters ? limits.voters.extent(0) : 1); ++layer) {
      for (index_t rank = 0; rank < ranks.group.ranks(); ++rank) {
        std::vector<index_t>& own = places.on_rank[static_cast<std::size_t>(rank)];
        for (index_t head = ranks.first_of(rank, model.heads); head < ranks.first_of(rank + 1, model.heads); ++head) {
          if (!of_voters || limits.voters(layer, head) > 0.0f) own.push_back(places.all++);
        }
        places.most = (std::max)(places.most, static_cast<index_t>(own.size()));
      }
    }
    return places;
  }
  static std::int64_t message_words(const row_places& places, index_t segments) {
    return places.all > 0 ? std::int64_t{places.most} * float_words(segments) : segments;
  }

  std::string failure_;
  bool used_ = false;
  index_t segments_ = 0;  // of a row of `rows_`
  rank_messages messages_;
  row_places places_;
  std::vector<float> weights_;  // [rows]  of voters
  buffer<float> rows_;          // [rows, segments]
};

}  // namespace zoomr::inline v0::detail
