// SPDX-License-Identifier: Apache-2.0
// What full attention answers, for some adjacent tokens at a time: keys and values of the tokens before them stream
// from the trace once for all. It is made once for all policies.
#pragma once

#include <utility>  // std::pair
#include <vector>   // std::vector

#include "trace.hpp"

namespace replay {

/// Full attention of some tokens, in all layers. B = tokens, H = query heads
struct exact_answers {
  token_range tokens;
  index_t top_keys = 0;  // K: how many top keys are kept of a query
  zoomr::shape model;
  std::vector<float> out;    // [layers, B, H, value width]
  std::vector<float> lse;    // [layers, B, H]  ln of the sum of exp(logit)
  std::vector<index_t> top;  // [layers, B, H, K]  positions of the keys with the largest logits, ascending

  std::size_t query(index_t layer, index_t position, index_t head) const {
    return (static_cast<std::size_t>(layer) * static_cast<std::size_t>(tokens.size()) +
            static_cast<std::size_t>(position - tokens.first)) *
               static_cast<std::size_t>(model.heads) +
           static_cast<std::size_t>(head);
  }
  /// How many of a query's K places are filled: a token sees no more keys than there are.
  index_t top_count(index_t position) const { return position + 1 < top_keys ? position + 1 : top_keys; }
};

/// For one thread.
class reference {
 public:
  /// @param most_tokens  that are asked for at once
  /// @param top_keys     kept of each query head
  reference(trace& from, index_t most_tokens, index_t top_keys);

  /// @param rows  of the tokens
  /// @throws decode::input_error  a number that cannot be read, or logits that are too large
  const exact_answers& attend(const token_rows& rows);

  /// Bytes of working memory, answers included.
  static std::int64_t bytes(const trace_facts& facts, index_t most_tokens, index_t top_keys);

 private:
  using ranked = std::pair<float, index_t>;  // logit, position

  void begin(const token_rows::layer& layer, index_t tokens);
  void add(index_t first, index_t count, const float* keys, const float* values, token_range queries);
  void add_row(std::size_t row, index_t seen, index_t first, float* logits, index_t count);
  void keep(std::size_t row, index_t first, const float* logits, index_t count);
  void finish(index_t layer, token_range tokens);

  static index_t keys_at_once(const zoomr::shape& model);

  trace& from_;
  exact_answers answers_;
  std::vector<float> queries_;            // [KV heads, B, group, head_dim]
  std::vector<float> keys_, values_;      // of some tokens of the prefix
  std::vector<float> logits_;             // [B, group, keys]
  std::vector<float> sums_;               // [KV heads, B, group, value width]
  std::vector<float> largest_;            // [KV heads, B, group]
  std::vector<double> weights_;           // [KV heads, B, group]
  std::vector<std::vector<ranked>> top_;  // [KV heads, B, group]  heaps, the worst first
};

}  // namespace replay
