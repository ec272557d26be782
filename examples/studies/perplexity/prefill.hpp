// SPDX-License-Identifier: Apache-2.0
// A prompt passed densely once, and given to the cache of each policy from memory: keys and values of all its tokens,
// and the queries of the last ones, which retention observes, or of all, where attention adds up since the first token.
// This is what an engine with its own prefill kernel does. Layers with a sliding window attend to what is in it.
//
// P = tokens of the prompt, V = vocab, G = kv_heads, N = heads, D = head_dim
#pragma once

#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/kv_cache.hpp>

#include <algorithm>   // std::min
#include <cstddef>     // std::size_t
#include <cstdint>     // std::uint8_t
#include <functional>  // std::function
#include <span>        // std::span
#include <vector>      // std::vector

#include "../../decode/session.hpp"

namespace decode::perplexity {

class prefill {
 public:
  /// Tokens that pass together; the last chunk has at least half as many, or it is the whole prompt.
  static constexpr std::size_t chunk = 256;

  /// Whose queries are kept: of the last chunk's tokens, or of all.
  enum class kept_queries : std::uint8_t { last, all };

  /// @param ids     [P]  P >= 1
  /// @param passed  called with the number of tokens passed so far
  /// @param known   of the same model, with the same queries kept: the chunks that both prompts begin with are copied
  ///                from it, with the bits that they would have
  prefill(model& net, std::span<const token_id> ids, const std::function<void(std::size_t)>& passed,
          kept_queries kept = kept_queries::last, const prefill* known = nullptr);

  std::size_t tokens() const { return ids_.size(); }
  /// How many tokens of another prompt it would copy.
  std::size_t tokens_alike_with(std::span<const token_id> ids) const;
  /// [V]  of the prompt's last token
  std::span<const float> logits() const { return logits_; }

  /// [P, G, D]
  zoomr::view<const float, 3> keys(index_t layer) const {
    return rows(layers_[static_cast<std::size_t>(layer)].keys, 0, ids_.size());
  }
  /// [tokens, N, D]  of the last ones, whose queries are kept
  zoomr::view<const float, 3> last_queries(index_t layer) const {
    const layer_memory& memory = layers_[static_cast<std::size_t>(layer)];
    const index_t row = shape_.heads * shape_.head_dim;
    return queries(memory, 0, memory.queries.size() / static_cast<std::size_t>(row));
  }
  /// Of query times key.
  float scale() const { return scale_; }
  /// The softmax of one query over the tokens up to its own: that of the token `back` before the last.
  /// @param weights  [P - back]  out
  /// @pre   the query is kept
  void attend_from(index_t layer, index_t head, index_t back, std::span<float> weights) const;

  /// Gives the prompt to an empty sequence, as if it had been passed there.
  /// @param cache  of all layers
  void replay(zoomr::any_kv_cache<>& cache, zoomr::sequence seq) const { replay_with(cache, seq, {}); }
  void replay(zoomr::grouped_kv_cache<>& cache, zoomr::sequence seq) const { replay_with(cache, seq, {}); }
  /// The same, with spans of the prompt.
  template <class Cache>
  void replay_with(Cache& cache, zoomr::sequence seq, std::span<const zoomr::token_span> spans) const;

  /// Gives some of the tokens to a cache of some of the model's layers, in one step: of a prompt queries are observed,
  /// those of other tokens attend.
  /// @param item   of these tokens; its ids are set here
  /// @param first  of these tokens
  /// @pre   the queries of all tokens are kept
  void give(zoomr::any_kv_cache<>& cache, zoomr::step_item item, std::size_t first, std::size_t count, bool of_prompt,
            std::span<const index_t> layers) const;

 private:
  struct layer_memory {
    std::vector<float> keys, values;  // [P, G, D]
    std::vector<float> queries;       // [tokens of the last chunk, or P, N, D]
  };

  struct own_step;

  // Causal attention of one query head over all tokens that its layer lets it see, as two matrix products.
  // queries, out [tokens, N, D]; the first token of the chunk has the position `first`
  // window: tokens that a query sees; 0: all before it
  void attend_head(const layer_memory& memory, std::size_t window, index_t head, std::size_t first,
                   zoomr::view<const float, 3> queries, zoomr::view<float, 3> out, std::vector<float>& weights);

  layer_memory& of(index_t layer) { return layers_[static_cast<std::size_t>(layer)]; }

  // [count, G, D]  from token `first` on
  zoomr::view<const float, 3> rows(const std::vector<float>& all, std::size_t first, std::size_t count) const;

  // [count, N, D]  from token `first` of those that are kept on
  zoomr::view<const float, 3> queries(const layer_memory& memory, std::size_t first, std::size_t count) const;

  // Tokens of the next chunk; `left` are not passed.
  static std::size_t chunk_of(std::size_t left) { return left <= chunk ? left : std::min(chunk, left - chunk / 2); }
  template <class Visit>
  void each_chunk(Visit visit) const;
  void copy_first(const prefill& known, std::size_t tokens);

  zoomr::shape shape_;
  kept_queries kept_;
  std::vector<std::size_t> windows_;  // [layers]  0: none
  float scale_;                       // of query times key
  std::vector<token_id> ids_;         // [P]
  std::vector<layer_memory> layers_;
  std::vector<float> logits_;  // [V]
  zoomr::executor threads_;
  std::vector<std::vector<float>> weights_;  // [threads]  of one head in one chunk; only while the prompt passes
};

}  // namespace decode::perplexity
