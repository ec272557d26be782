// SPDX-License-Identifier: Apache-2.0
// L6. What the ranks of a model tell each other in a choice that all of its heads make.
//
// Votes that add up are integers: each rank sends what its heads have added, and adds up what all have sent. Others
// follow from numbers of each head, in the order of the heads: scores of the heads of one layer that are pooled, shares
// of the voters. Of these each rank sends its own, and does what one rank would do with all. A choice of one KV head or
// less needs nothing of other ranks.
//
//   message:  how many came before | configuration | what it is about | sum of what follows | numbers
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/cache/planning/voter_table.hpp>
#include <zoomr/core/buffer.hpp>
#include <zoomr/core/error.hpp>
#include <zoomr/policy/any_policy.hpp>

#include <algorithm>    // std::fill, std::max
#include <bit>          // std::bit_cast
#include <cstring>      // std::memcpy
#include <string>       // std::string, std::to_string
#include <string_view>  // std::string_view
#include <utility>      // std::exchange
#include <vector>       // std::vector

namespace zoomr::inline v0::detail {

/// FNV-1a over numbers.
class number_hash {
 public:
  constexpr void add(std::int64_t number) {
    state_ = (state_ ^ static_cast<std::uint64_t>(number)) * 0x100000001b3u;
    state_ ^= state_ >> 29;  // low bits depend on high ones
  }
  void add(float number) { add(std::int64_t{std::bit_cast<std::int32_t>(number)}); }
  constexpr std::int64_t value() const { return static_cast<std::int64_t>(state_); }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

/// The exchange of one cache; without other ranks, or where no choice needs them, it holds nothing.
class head_exchange {
 public:
  /// @param segments  of a choice, at most
  head_exchange(const shape& model, const any_policy& policy, const config& limits, index_t segments)
      : group_(limits.ranks.group), used_(exchanges(policy, limits)) {
    if (!used_) return;
    places_ = places_of(model, policy, limits);
    configuration_ = configuration(model, policy, limits);
    const std::int64_t words = message_words(places_, segments);
    segments_ = segments;
    rows_ = buffer<float>(std::int64_t{places_.all} * segments);
    for (index_t layer = 0; policy.aggregate.queries > 0 && layer < limits.voters.extent(0); ++layer) {
      for (const float weight : limits.voters[layer]) {
        if (weight > 0.0f) weights_.push_back(weight);
      }
    }
    sent_ = buffer<std::int64_t>(words);
    received_ = buffer<std::int64_t>(words * group_.ranks());
  }
  static byte_count bytes(const shape& model, const any_policy& policy, const config& limits, index_t segments) {
    if (!exchanges(policy, limits)) return 0;
    const row_places places = places_of(model, policy, limits);
    return bounded_product(
               {message_words(places, segments), std::int64_t{limits.ranks.group.ranks()} + 1, sizeof(std::int64_t)}) +
           bounded_product({places.all, segments, sizeof(float)});
  }

  /// Choices depend on other ranks.
  bool used() const { return used_; }
  const rank_statistics& counted() const { return counted_; }
  /// The numbers of each head are gathered, rather than votes added up.
  bool gathers() const { return places_.all > 0; }
  /// Weights of all voters of the model, in ascending order.  [voters]
  view<const float> weights() const { return weights_; }

  /// Adds the votes of the other ranks' heads to those of this one's. The same segments are eligible on each.
  /// @param about  the same number on each rank, by which a rank that is elsewhere is found
  /// @throws error(ranks) if a rank does not answer, or is elsewhere
  void add_up(view<votes_t> votes, std::int64_t about) {
    const view<std::int64_t> own = message(votes.size());
    for (index_t id = 0; id < votes.size(); ++id) own[id] = votes[id] == not_eligible ? 0 : votes[id];
    const view<const std::int64_t, 2> all = exchange(votes.size(), about);
    for (index_t id = 0; id < votes.size(); ++id) {
      if (votes[id] == not_eligible) continue;
      votes[id] = 0;
      for (index_t rank = 0; rank < group_.ranks(); ++rank) votes[id] += all(rank, id);
    }
  }

  /// The numbers of all heads of the row, in their order.  [heads, segments]  In memory of the exchange.
  /// @param own  [own heads, segments]
  /// @throws as `add_up`
  view<float, 2> gather(view<const float, 2> own, std::int64_t about) {
    const index_t segments = own.extent(1), each = (segments + 1) / 2, words = each * places_.most;
    const view<std::int64_t> to = message(words);
    std::fill(to.begin(), to.end(), 0);
    for (index_t row = 0; row < own.extent(0); ++row) copy(own[row].data(), to.data() + row * each, segments);
    const view<const std::int64_t, 2> all = exchange(words, about);
    const view<float, 2> rows(rows_.data(), {places_.all, segments}, {segments_, 1});
    for (index_t rank = 0; rank < group_.ranks(); ++rank) {
      const std::vector<index_t>& places = places_.on_rank[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < places.size(); ++i) {
        copy(all[rank].data() + static_cast<index_t>(i) * each, rows[places[i]].data(), segments);
      }
    }
    return rows;
  }

  /// All ranks are here: before anything changes that a choice will follow.
  /// @throws as `add_up`
  void meet(std::int64_t about) {
    message(0);
    exchange(0, about);
  }

  /// Of a choice that was due when nothing could be undone: what the step says at its end.
  void keep_failure(const char* sentence) { failure_ = sentence; }
  std::string take_failure() { return std::exchange(failure_, {}); }

 private:
  static constexpr index_t head_words = 4;

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
    return head_words + (places.all > 0 ? std::int64_t{places.most} * ((segments + 1) / 2) : segments);
  }
  // What all ranks must have alike.
  static std::int64_t configuration(const shape& model, const any_policy& policy, const config& limits) {
    struct text_hash final : text_taker {
      void take(std::string_view piece) override {
        for (const char c : piece) hash.add(std::int64_t{c});
      }
      number_hash hash;
    } text;
    policy.write_text(text);
    number_hash& hash = text.hash;
    for (const index_t number : {model.layers, model.head_dim, model.value_width(), limits.ranks.kv_heads,
                                 limits.max_tokens, limits.most_segments(), limits.min_sparse_context})
      hash.add(std::int64_t{number});
    for (index_t rank = 0; rank <= limits.ranks.group.ranks(); ++rank)
      hash.add(std::int64_t{limits.ranks.first_of(rank, model.heads)});
    for (const index_t anchor : limits.anchors.layers) hash.add(std::int64_t{anchor});
    for (const float number : {limits.logits.scale, limits.logits.soft_cap, limits.voters_unsure, limits.voters_none,
                               limits.voters_none_slope})
      hash.add(number);
    for (index_t layer = 0; layer < limits.voters.extent(0); ++layer) {
      for (const float weight : limits.voters[layer]) hash.add(weight);
    }
    return hash.value();
  }

  // Numbers as they are, two in a word.
  static void copy(const float* from, std::int64_t* to, index_t count) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  }
  static void copy(const std::int64_t* from, float* to, index_t count) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
  }

  view<std::int64_t> message(index_t words) { return {sent_.data() + head_words, {words}}; }
  static std::int64_t sum_of(view<const std::int64_t> numbers) {
    number_hash sum;
    for (const std::int64_t number : numbers) sum.add(number);
    return sum.value();
  }

  // Sends what `message` was filled with.
  // @return  [ranks, words]
  view<const std::int64_t, 2> exchange(index_t words, std::int64_t about) {
    const index_t each = head_words + words;
    const view<std::int64_t> sent(sent_.data(), {each});
    sent[0] = exchanged_++, sent[1] = configuration_, sent[2] = about, sent[3] = sum_of(message(words));
    const view<std::int64_t, 2> all(received_.data(), {group_.ranks(), each});
    const index_t others = group_.ranks() - 1;
    counted_.messages += others;
    counted_.bytes += byte_count{others} * each * byte_count{sizeof(std::int64_t)};
    const index_t silent = group_.all_gather(sent, all);
    if (silent >= 0) refuse(silent, " has not answered in time, or has sent a message of another length");
    for (index_t rank = 0; rank < group_.ranks(); ++rank) {
      if (all(rank, 1) != configuration_) refuse(rank, " has another policy, config or shape");
      if (all(rank, 0) != sent[0] || all(rank, 2) != about) {
        refuse(rank, " is at another step: each rank passes the same items in the same order");
      }
      if (all(rank, 3) != sum_of(all[rank].slice(head_words, each)))
        refuse(rank, " has sent a message that came damaged");
    }
    return {received_.data() + head_words, {group_.ranks(), words}, {each, 1}};
  }
  [[noreturn]] static void refuse(index_t rank, const char* what) {
    raise(errc::ranks, "ranks: rank " + std::to_string(rank) + what);
  }

  std::string failure_;
  rank_group group_;
  bool used_ = false;
  index_t segments_ = 0;  // of a row of `rows_`
  std::int64_t configuration_ = 0;
  std::int64_t exchanged_ = 0;
  rank_statistics counted_;
  row_places places_;
  std::vector<float> weights_;            // [rows]  of voters
  buffer<std::int64_t> sent_, received_;  // a message; [ranks, words]
  buffer<float> rows_;                    // [rows, segments]
};

}  // namespace zoomr::inline v0::detail
