// SPDX-License-Identifier: Apache-2.0
// A long context that no model has computed: token ids that close segments as policies expect, with random keys and
// values, written to a cache directly.
#pragma once

#include <zoomr/kv_cache.hpp>

#include <algorithm>   // std::min, std::ranges::copy
#include <functional>  // std::function
#include <vector>      // std::vector

#include "random_model.hpp"

namespace decode::speed {

using zoomr::index_t;

/// What a text looks like. Sentences have 24 tokens. For policies of thoughts a short prompt is followed by thoughts
/// with summaries; for others all of the context is the prompt.
struct text {
  index_t context = 0;
  bool thoughts = false;
  index_t vocab = 0;

  static constexpr index_t sentence = 24, thought = 400, summary = 30;          // tokens; a summary's markers included
  static constexpr token_id delimiter = 1, summary_begin = 2, summary_end = 4;  // the next id also ends a sentence
  static constexpr token_id plain = 6;                                          // the first of those without a class

  index_t prompt() const { return thoughts ? std::min<index_t>(512, (context + 3) / 4) : context; }

  /// While thoughts are written nothing ends a sentence: no choice is made that nobody attends under.
  token_id at(index_t position) const {
    const bool written = position >= prompt() && position < context;
    const index_t of_pair = thoughts && position >= prompt() ? (position - prompt()) % (thought + summary) : 0;
    token_id id = 0;
    if (of_pair == thought) id = summary_begin;
    if (of_pair == thought + summary - 1) id = summary_end;
    if (!written && (position + 1) % sentence == 0) id += delimiter;
    if (id > 0) return id;
    return plain + static_cast<token_id>(random_bits(static_cast<std::uint64_t>(position)) %
                                         static_cast<std::uint32_t>(vocab - plain));
  }

  /// [vocab]
  static std::vector<zoomr::token_class> classes(std::size_t vocab) {
    std::vector<zoomr::token_class> of(vocab, zoomr::token_class::plain);
    const zoomr::token_class first[] = {
        zoomr::token_class::plain,         zoomr::token_class::delimiter,
        zoomr::token_class::summary_begin, zoomr::token_class::summary_begin | zoomr::token_class::delimiter,
        zoomr::token_class::summary_end,   zoomr::token_class::summary_end | zoomr::token_class::delimiter};
    std::ranges::copy(first, of.begin());
    return of;
  }
};

/// Writes contexts. Its memory is one chunk's, and is allocated at once.
class context_writer {
 public:
  static constexpr index_t chunk = 256;  // tokens of a prompt that are written together, at most

  explicit context_writer(const zoomr::shape& model)
      : model_(model), keys_(size(model.kv_heads)), values_(keys_.size()), queries_(size(model.heads)), out_(queries_) {
    fill_random(queries_.data(), queries_.size(), 0);
  }

  /// Writes the context to an empty sequence.
  /// @param choosing  the policy chooses at each token: then it must attend from each that is not the prompt's
  /// @param passed    called with the number of tokens written so far
  template <class Placement>
  void write(zoomr::any_kv_cache<float, Placement>& cache, zoomr::sequence seq, const text& says, bool choosing,
             const std::function<void(index_t)>& passed) {
    for (index_t first = 0; first < says.context;) {
      const index_t left = says.prompt() - first;
      index_t count = 1;
      if (left > 0) count = left <= chunk ? left : std::min(chunk, left - chunk / 2);  // the last is never short
      ids_.clear();
      for (index_t t = 0; t < count; ++t) ids_.push_back(says.at(first + t));
      auto step = cache.begin(seq, ids_, left == count);
      for (index_t layer = 0; layer < model_.layers; ++layer) {
        make_rows(first, count, layer);
        step.append(layer, rows<const float>(keys_, count, model_.kv_heads),
                    rows<const float>(values_, count, model_.kv_heads));
        const auto queries = rows<const float>(queries_, count, model_.heads);
        if (left > 0)
          step.observe(layer, queries);
        else if (choosing)
          step.attend(layer, queries, rows<float>(out_, count, model_.heads));
      }
      step.commit(count);
      first += count;
      passed(first);
    }
  }

 private:
  std::size_t size(index_t heads) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(heads) *
           static_cast<std::size_t>(model_.head_dim);
  }
  template <class T>
  zoomr::view<T, 3> rows(std::vector<float>& of, index_t count, index_t heads) const {
    return {of.data(), {count, heads, model_.head_dim}};
  }
  void make_rows(index_t first, index_t count, index_t layer) {
    const auto each = static_cast<std::uint64_t>(model_.kv_heads) * static_cast<std::uint64_t>(model_.head_dim);
    const std::uint64_t of_layer = static_cast<std::uint64_t>(layer) << 36;
    const std::uint64_t from = of_layer + static_cast<std::uint64_t>(first) * 2 * each;
    const auto numbers = static_cast<std::size_t>(count) * static_cast<std::size_t>(each);
    fill_random(keys_.data(), numbers, from);
    fill_random(values_.data(), numbers, from + numbers);
  }

  zoomr::shape model_;
  std::vector<float> keys_, values_;  // [chunk, kv_heads, head_dim]
  std::vector<float> queries_, out_;  // [chunk, heads, head_dim]
  std::vector<token_id> ids_;         // [chunk]
};

/// Segments that a policy makes of a text of so many tokens: counted with a cache of one small head.
template <class Policy>
index_t segments_of(const Policy& policy, text says, index_t tokens, index_t layers,
                    const std::vector<zoomr::token_class>& classes) {
  says.context = tokens;
  const zoomr::shape small{layers, 1, 1, 8};
  zoomr::kv_cache cache(small, policy, {.max_tokens = tokens, .max_segments = tokens, .classes = classes});
  const zoomr::sequence seq = cache.open();
  context_writer(small).write(cache, seq, says, policy.refresh.each_token(), [](index_t) {});
  return cache.segments(seq).size();
}

}  // namespace decode::speed
