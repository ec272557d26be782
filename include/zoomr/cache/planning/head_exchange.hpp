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
    configuration_ = configuration(model, policy, limits);
    if (gathers_rows(policy)) {
      segments_ = segments;
      sort_rows(model, policy, limits);
      rows_ = buffer<float>(std::int64_t{count_of(places_)} * segments);
    }
    const std::int64_t words = message_words(model, policy, limits, segments);
    sent_ = buffer<std::int64_t>(words);
    received_ = buffer<std::int64_t>(words * group_.ranks());
  }
  static byte_count bytes(const shape& model, const any_policy& policy, const config& limits, index_t segments) {
    if (!exchanges(policy, limits)) return 0;
    const std::int64_t words = message_words(model, policy, limits, segments);
    const std::int64_t rows = gathers_rows(policy) ? all_rows(model, policy, limits) : 0;
    return bounded_product({words, std::int64_t{limits.ranks.group.ranks()} + 1, sizeof(std::int64_t)}) +
           bounded_product({rows, segments, sizeof(float)});
  }

  /// Choices depend on other ranks.
  bool used() const { return used_; }
  /// The numbers of each head are gathered, rather than votes added up.
  bool gathers() const { return !places_.empty(); }
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
    const index_t segments = own.extent(1), each = (segments + 1) / 2, words = each * most_rows_;
    const view<std::int64_t> to = message(words);
    std::fill(to.begin(), to.end(), 0);
    for (index_t row = 0; row < own.extent(0); ++row) copy(own[row].data(), to.data() + row * each, segments);
    const view<const std::int64_t, 2> all = exchange(words, about);
    const view<float, 2> rows(rows_.data(), {count_of(places_), segments}, {segments_, 1});
    for (index_t rank = 0; rank < group_.ranks(); ++rank) {
      const std::vector<index_t>& places = places_[static_cast<std::size_t>(rank)];
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
  static bool gathers_rows(const any_policy& policy) {
    return policy.aggregate.queries > 0 || !policy.aggregate.counts;
  }
  // visit(rank, weight) for each row of one choice, in the order of the model's heads: the voters, or the heads of a
  // layer.
  template <class Visit>
  static void each_row(const shape& model, const any_policy& policy, const config& limits, Visit visit) {
    const rank_heads& ranks = limits.ranks;
    const bool of_voters = policy.aggregate.queries > 0;
    const index_t layers = of_voters ? limits.voters.extent(0) : 1;
    for (index_t layer = 0; layer < layers; ++layer) {
      for (index_t rank = 0; rank < ranks.group.ranks(); ++rank) {
        for (index_t head = ranks.first_of(rank, model.heads); head < ranks.first_of(rank + 1, model.heads); ++head) {
          if (!of_voters || limits.voters(layer, head) > 0.0f)
            visit(rank, of_voters ? limits.voters(layer, head) : 1.0f);
        }
      }
    }
  }
  static index_t all_rows(const shape& model, const any_policy& policy, const config& limits) {
    index_t rows = 0;
    each_row(model, policy, limits, [&](index_t, float) { ++rows; });
    return rows;
  }
  static index_t most_rows(const shape& model, const any_policy& policy, const config& limits) {
    index_t most = 0;
    for (index_t rank = 0; rank < limits.ranks.group.ranks(); ++rank) {
      index_t rows = 0;
      each_row(model, policy, limits, [&](index_t of_rank, float) { rows += of_rank == rank ? 1 : 0; });
      most = (std::max)(most, rows);
    }
    return most;
  }
  static std::int64_t message_words(const shape& model, const any_policy& policy, const config& limits,
                                    index_t segments) {
    if (!gathers_rows(policy)) return std::int64_t{head_words} + segments;
    return head_words + std::int64_t{most_rows(model, policy, limits)} * ((segments + 1) / 2);
  }
  static index_t count_of(const std::vector<std::vector<index_t>>& places) {
    std::size_t rows = 0;
    for (const std::vector<index_t>& each : places) rows += each.size();
    return static_cast<index_t>(rows);
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
    for (const float number : {limits.logits.scale, limits.logits.soft_cap, limits.voters_unsure, limits.voters_none,
                               limits.voters_none_slope})
      hash.add(number);
    for (index_t layer = 0; layer < limits.voters.extent(0); ++layer) {
      for (const float weight : limits.voters[layer]) hash.add(weight);
    }
    return hash.value();
  }

  void sort_rows(const shape& model, const any_policy& policy, const config& limits) {
    places_.resize(static_cast<std::size_t>(group_.ranks()));
    index_t place = 0;
    each_row(model, policy, limits, [&](index_t rank, float weight) {
      places_[static_cast<std::size_t>(rank)].push_back(place++);
      weights_.push_back(weight);
    });
    most_rows_ = most_rows(model, policy, limits);
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
  index_t segments_ = 0;   // of a row of `rows_`
  index_t most_rows_ = 0;  // of a rank
  std::int64_t configuration_ = 0;
  std::int64_t exchanged_ = 0;
  std::vector<std::vector<index_t>> places_;  // [ranks][rows of the rank]  among those of all
  std::vector<float> weights_;                // [rows]  of voters
  buffer<std::int64_t> sent_, received_;      // a message; [ranks, words]
  buffer<float> rows_;                        // [rows, segments]
};

}  // namespace zoomr::inline v0::detail
