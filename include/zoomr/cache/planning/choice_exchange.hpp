// SPDX-License-Identifier: Apache-2.0
// L6. What ranks tell each other in a choice.
//
// Where they divide heads, and all heads make the choice: votes that add up are integers: each rank sends what its
// heads have added, and adds up what all have sent. Others follow from numbers of each head, in the order of the heads:
// scores of the heads of one layer that are pooled, shares of the voters. Of these each rank sends its own, and does
// what one rank would do with all. A choice of one KV head or less needs nothing of other ranks.
//
// Where they divide tokens, and keys are scored: each sends the scores of the segments that begin in its slots.
#pragma once

#include <zoomr/cache/planning/rank_messages.hpp>
#include <zoomr/cache/planning/voter_table.hpp>

#include <algorithm>  // std::fill, std::max, std::max_element, std::min
#include <string>     // std::string
#include <utility>    // std::exchange
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// The exchange of one cache; without other ranks, or where no choice needs them, it holds nothing.
class choice_exchange {
 public:
  /// @param segments  of a choice, at most
  /// @param scorers   queries that score keys in one choice, at most
  choice_exchange(const shape& model, const any_policy& policy, const config& limits, index_t segments,
                  std::int64_t scorers)
      : divides_heads_(divides_heads(policy, limits)), gathers_scores_(gathers_scores(policy, limits)) {
    if (gathers_scores_) {
      const std::int64_t scores = most_scores(limits, segments, scorers);
      messages_ = rank_messages(limits.token_ranks.group, rank_configuration(model, policy, limits), (scores + 1) / 2);
      rows_ = buffer<float>(scores);
      counts_.resize(static_cast<std::size_t>(messages_.ranks()));
      firsts_.resize(static_cast<std::size_t>(model.kv_lanes()));
    }
    if (!divides_heads_) return;
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
  static byte_count bytes(const shape& model, const any_policy& policy, const config& limits, index_t segments,
                          std::int64_t scorers) {
    if (gathers_scores(policy, limits)) {
      const std::int64_t scores = most_scores(limits, segments, scorers);
      ZOOMR_EXPECTS(scores < unlimited,
                    "config: token_ranks would gather 2^31 scores or more in one choice: lower max_segments");
      return rank_messages::bytes(limits.token_ranks.group, (scores + 1) / 2) +
             bounded_product({scores, sizeof(float)}) +
             (limits.token_ranks.group.ranks() + model.kv_lanes()) * static_cast<byte_count>(sizeof(index_t));
    }
    if (!divides_heads(policy, limits)) return 0;
    const row_places places = places_of(model, policy, limits);
    return rank_messages::bytes(limits.ranks.group, message_words(places, segments)) +
           bounded_product({places.all, segments, sizeof(float)});
  }

  /// Choices depend on other ranks.
  bool used() const { return divides_heads_ || gathers_scores_; }
  /// Heads of other ranks take part.
  bool divides_heads() const { return divides_heads_; }
  /// Other ranks score the segments that begin in their slots.
  bool gathers_scores() const { return gathers_scores_; }
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

  /// How many scores each rank sends, for the caller to count.  [ranks]
  view<index_t> counts() {
    std::fill(counts_.begin(), counts_.end(), 0);
    return view<index_t>(counts_);
  }
  /// The first of those that this rank sends of each KV lane, likewise.  [KV lanes]
  view<index_t> firsts() { return view<index_t>(firsts_); }
  /// Room for those of this rank.
  view<float> scores() { return {rows_.data(), {static_cast<index_t>(rows_.size())}}; }
  /// Sends them, and takes those of the others.
  /// @param take  take(rank, scores)  for each rank; they are gone afterwards
  /// @pre   `counts` holds their numbers
  /// @throws as `add_up`
  template <class Take>
  void gather_scores(std::int64_t about, Take take) {
    const index_t words = float_words(*std::max_element(counts_.begin(), counts_.end()));
    const view<std::int64_t> to = messages_.message(words);
    std::fill(rows_.data() + counts_[static_cast<std::size_t>(messages_.rank())], rows_.data() + 2 * words, 0.0f);
    copy_floats(rows_.data(), to.data(), 2 * words);
    const view<const std::int64_t, 2> all = messages_.exchange(words, about);
    for (index_t rank = 0; rank < messages_.ranks(); ++rank) {
      copy_floats(all[rank].data(), rows_.data(), 2 * words);
      take(rank, view<const float>(scores()));
    }
  }

  /// All ranks are here: before anything changes that a choice will follow.
  /// @throws as `add_up`
  void meet(std::int64_t about) { messages_.exchange(0, about); }

  /// Of a choice that was due when nothing could be undone: what the step says at its end.
  void keep_failure(const char* sentence) { failure_ = sentence; }
  std::string take_failure() { return std::exchange(failure_, {}); }

 private:
  static bool gathers_scores(const any_policy& policy, const config& limits) {
    return !limits.token_ranks.alone() && policy.selects && policy.score.reads_keys;
  }
  // Of one rank in one choice; an even number.
  static std::int64_t most_scores(const config& limits, index_t segments, std::int64_t scorers) {
    const index_t own = (std::min)(segments, limits.token_ranks.share(limits.max_tokens));
    return bounded_product({2, (bounded_product({own, scorers}) + 1) / 2});
  }
  static bool divides_heads(const any_policy& policy, const config& limits) {
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
  bool divides_heads_ = false, gathers_scores_ = false;
  index_t segments_ = 0;  // of a row of `rows_`
  rank_messages messages_;
  row_places places_;
  std::vector<float> weights_;            // [rows]  of voters
  buffer<float> rows_;                    // [rows, segments], or scores
  std::vector<index_t> counts_, firsts_;  // [ranks]; [KV lanes]  of scores
};

}  // namespace zoomr::inline v0::detail
