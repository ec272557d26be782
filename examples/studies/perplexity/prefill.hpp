// SPDX-License-Identifier: Apache-2.0
// A prompt passed densely once, and given to the cache of each policy from memory: keys and values of all its tokens,
// and the queries of the last ones, which retention observes. This is what an engine with its own prefill kernel does.
//
// P = tokens of the prompt, V = vocab, G = kv_heads, N = heads, D = head_dim
#pragma once

#include <zoomr/kv_cache.hpp>

#include <cstddef>     // std::size_t
#include <functional>  // std::function
#include <span>        // std::span
#include <vector>      // std::vector

#include "../../decode/session.hpp"

namespace decode::perplexity {

class prefill {
 public:
  /// Tokens that pass together; the last chunk has at least half as many, or it is the whole prompt.
  static constexpr std::size_t chunk = 256;

  /// @param ids     [P]  P >= 1
  /// @param passed  called with the number of tokens passed so far
  prefill(model& net, std::span<const token_id> ids, const std::function<void(std::size_t)>& passed);

  std::size_t tokens() const { return ids_.size(); }
  /// [V]  of the prompt's last token
  std::span<const float> logits() const { return logits_; }

  /// Gives the prompt to an empty sequence, as if it had been passed there.
  void replay(zoomr::any_kv_cache<>& cache, zoomr::sequence seq) const;

 private:
  struct layer_memory {
    std::vector<float> keys, values;  // [P, G, D]
    std::vector<float> queries;       // [tokens of the last chunk, N, D]
  };

  struct own_step;

  // Causal attention of one query head over all tokens so far, as two matrix products.
  // queries, out [tokens, N, D]; the first token of the chunk has the position `first`
  void attend_head(const layer_memory& memory, index_t head, std::size_t first, zoomr::view<const float, 3> queries,
                   zoomr::view<float, 3> out, std::vector<float>& weights);

  layer_memory& of(index_t layer) { return layers_[static_cast<std::size_t>(layer)]; }

  // [count, G, D]  from token `first` on
  zoomr::view<const float, 3> rows(const std::vector<float>& all, std::size_t first, std::size_t count) const;

  template <class Visit>
  void each_chunk(Visit visit) const;

  zoomr::shape shape_;
  std::vector<token_id> ids_;  // [P]
  std::vector<layer_memory> layers_;
  std::vector<float> logits_;  // [V]
  zoomr::executor threads_;
  std::vector<std::vector<float>> weights_;  // [threads]  of one head in one chunk; only while the prompt passes
};

}  // namespace decode::perplexity
