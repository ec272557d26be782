// SPDX-License-Identifier: Apache-2.0
// L6. Messages between the ranks of a group. Each carries what both ends must have alike, so that a rank which is gone,
// elsewhere or another one is named.
//
//   message:  how many came before | configuration | what it is about | sum of what follows | numbers
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/core/buffer.hpp>
#include <zoomr/core/error.hpp>
#include <zoomr/policy/any_policy.hpp>

#include <bit>          // std::bit_cast
#include <cstring>      // std::memcpy
#include <string>       // std::to_string
#include <string_view>  // std::string_view

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

/// What all ranks must have alike.
inline std::int64_t rank_configuration(const shape& model, const any_policy& policy, const config& limits) {
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
  if (!limits.token_ranks.alone()) {
    for (const index_t number : {model.kv_heads, limits.token_ranks.deal, limits.rollback_depth()})
      hash.add(std::int64_t{number});
  }
  for (const view<const index_t>& layers : {limits.anchors.layers, limits.donors}) {
    for (const index_t layer : layers) hash.add(std::int64_t{layer});
  }
  for (const float number : {limits.logits.scale, limits.logits.soft_cap, limits.voters_unsure, limits.voters_none,
                             limits.voters_none_slope})
    hash.add(number);
  for (index_t layer = 0; layer < limits.voters.extent(0); ++layer) {
    for (const float weight : limits.voters[layer]) hash.add(weight);
  }
  return hash.value();
}

/// Checks that slots can be dealt out to ranks.
/// @throws precondition_error if the policy, or something else in the config, needs all of them in one place
[[gnu::cold, gnu::noinline]] inline void expect_dealt(const any_policy& policy, const config& limits) {
  ZOOMR_EXPECTS(limits.ranks.alone(), "config: ranks divide heads, token_ranks tokens: not both");
  ZOOMR_EXPECTS(!policy.evict.observes,
                "config: token_ranks are for policies that evict nothing: by attention to all tokens this one does");
  ZOOMR_EXPECTS(!policy.selects || !policy.adds_scores_of_keys(),
                "config: token_ranks are for policies that score summaries, or keys by the last queries of voters: "
                "this one scores keys by each token's own query");
  ZOOMR_EXPECTS(!limits.audit, "config: audit reads all keys, and token_ranks divide them");
}

/// Words of so many floats, two in each.
constexpr index_t float_words(index_t floats) { return (floats + 1) / 2; }
/// Numbers as they are.
inline void copy_floats(const float* from, std::int64_t* to, index_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}
inline void copy_floats(const std::int64_t* from, float* to, index_t count) {
  std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
}

class rank_messages {
 public:
  rank_messages() = default;
  /// @param words  numbers of a message, at most
  rank_messages(const rank_group& group, std::int64_t configuration, std::int64_t words)
      : group_(group),
        configuration_(configuration),
        sent_(head_words + words),
        received_((head_words + words) * group.ranks()) {}
  static byte_count bytes(const rank_group& group, std::int64_t words) {
    return bounded_product({head_words + words, std::int64_t{group.ranks()} + 1, sizeof(std::int64_t)});
  }

  index_t rank() const { return group_.rank(); }
  index_t ranks() const { return group_.ranks(); }
  const rank_statistics& counted() const { return counted_; }

  /// Room for the numbers of the next message.
  view<std::int64_t> message(index_t words) { return {sent_.data() + head_words, {words}}; }
  /// Sends what `message` was filled with.
  /// @param about  the same number on each rank, by which a rank that is elsewhere is found
  /// @return  [ranks, words]
  /// @throws error(ranks) if a rank does not answer, or is elsewhere
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

 private:
  static constexpr index_t head_words = 4;

  static std::int64_t sum_of(view<const std::int64_t> numbers) {
    number_hash sum;
    for (const std::int64_t number : numbers) sum.add(number);
    return sum.value();
  }
  [[noreturn]] static void refuse(index_t rank, const char* what) {
    raise(errc::ranks, "ranks: rank " + std::to_string(rank) + what);
  }

  rank_group group_;
  std::int64_t configuration_ = 0;
  std::int64_t exchanged_ = 0;
  rank_statistics counted_;
  buffer<std::int64_t> sent_, received_;  // a message; [ranks, words]
};

}  // namespace zoomr::inline v0::detail
