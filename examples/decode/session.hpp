// SPDX-License-Identifier: Apache-2.0
// A model and a cache at work: prompts in chunks, then one token after the other, for one or several sequences
// in lock step. This is all that an engine must do to run a policy.
//
// B = sequences, V = vocab
#pragma once

#include <zoomr/kv_cache.hpp>

#include <algorithm>  // std::max, std::min
#include <span>       // std::span
#include <vector>     // std::vector

#include "model.hpp"

namespace decode {

using zoomr::index;

template <class Policy>
class session {
 public:
  /// @param classes  [vocab]  must outlive the session
  session(model& net, const Policy& policy, index sequences, index tokens, std::span<const zoomr::token_class> classes)
      : net_(net), chunk_(chunk_for(policy)), cache_(shape_of(net), policy, limits(sequences, tokens, classes)) {
    for (index s = 0; s < sequences; ++s) sequences_.push_back(cache_.open());
    logits_.resize(static_cast<std::size_t>(sequences) * net.config().vocab);
  }

  static zoomr::shape shape_of(const model& net) {
    const auto& c = net.config();
    return {static_cast<index>(c.layers), static_cast<index>(c.heads), static_cast<index>(c.kv_heads),
            static_cast<index>(c.head_dim)};
  }

  /// Passes the prompt of sequence `s`, chunk by chunk; then `logits(s)` are those of its last token.
  /// @param passed  called with the number of tokens passed so far
  template <class Passed>
  void prompt(index s, std::span<const token_id> ids, Passed passed) {
    for (std::size_t first = 0; first < ids.size();) {
      const std::size_t left = ids.size() - first;
      // the last chunk is never short: retention observes the last tokens of the prompt
      const std::size_t count = left <= chunk_ ? left : std::min(chunk_, left - chunk_ / 2);
      const zoomr::step_item item{at(s), ids.subspan(first, count), count == left};
      pass({&item, 1}, s);
      first += count;
      passed(first);
    }
  }
  void prompt(index s, std::span<const token_id> ids) {
    prompt(s, ids, [](std::size_t) {});
  }

  /// Passes one token for each sequence; then `logits` are theirs.
  /// @param next  [B]
  void advance(std::span<const token_id> next) {
    std::vector<zoomr::step_item> items;
    for (index s = 0; s < static_cast<index>(sequences_.size()); ++s) {
      items.push_back({at(s), next.subspan(static_cast<std::size_t>(s), 1), false});
    }
    pass(items, 0);
  }

  /// [V]  of the last token passed in sequence `s`
  std::span<const float> logits(index s) const {
    const std::size_t vocab = net_.config().vocab;
    return std::span(logits_).subspan(static_cast<std::size_t>(s) * vocab, vocab);
  }

  zoomr::kv_cache<Policy>& cache() { return cache_; }
  zoomr::sequence at(index s) const { return sequences_[static_cast<std::size_t>(s)]; }

 private:
  static std::size_t chunk_for(const Policy& policy) {
    if constexpr (requires { policy.retain.queries; }) {
      return std::max<std::size_t>(256, 2 * static_cast<std::size_t>(policy.retain.queries));
    }
    return 256;
  }

  zoomr::config limits(index sequences, index tokens, std::span<const zoomr::token_class> classes) const {
    const auto step_tokens = std::max(static_cast<index>(chunk_), sequences);
    return {.sequences = sequences,
            .tokens = tokens,
            .segments = tokens,
            .step_tokens = step_tokens,
            .draft_tokens = 1,
            .classes = classes};
  }

  // One step: a first pass for all items, a second for those whose selection has just changed, then commit.
  // The logits of each item's last token go to rows `first_row`, `first_row` + 1, ...
  void pass(std::span<const zoomr::step_item> items, index first_row) {
    auto step = cache_.begin(zoomr::view<const zoomr::step_item>(items));
    std::vector<index> accepted;
    for (index i = 0; i < step.items(); ++i) accepted.push_back(step.tokens(i));
    bool second = false;
    do {
      ids_.clear(), positions_.clear(), rows_.clear();
      for (index i = 0; i < step.items(); ++i) {
        if (!step.active(i)) continue;
        const auto& ids = items[static_cast<std::size_t>(i)].ids;
        for (index t = second ? ids.size() - 1 : 0; t < ids.size(); ++t) {
          ids_.push_back(ids[t]);
          positions_.push_back(step.position(i) + static_cast<index>(positions_.size()) - step.packed(i));
        }
        rows_.push_back(static_cast<index>(ids_.size()) - 1);
      }
      const auto vocab = static_cast<index>(net_.config().vocab);
      rows_logits_.resize(rows_.size() * net_.config().vocab);
      net_.forward(step, ids_, positions_, rows_, {rows_logits_.data(), {static_cast<index>(rows_.size()), vocab}});
      const float* row = rows_logits_.data();
      for (index i = 0; i < step.items(); ++i) {
        if (!step.active(i)) continue;
        std::copy_n(row, vocab, &logits_[static_cast<std::size_t>(first_row + i) * net_.config().vocab]);
        row += vocab;
      }
      second = true;
    } while (step.again(accepted));
    step.commit(accepted);
  }

  model& net_;
  std::size_t chunk_;  // tokens of a prompt that pass together
  zoomr::kv_cache<Policy> cache_;
  std::vector<zoomr::sequence> sequences_;   // [B]
  std::vector<float> logits_, rows_logits_;  // [B, V]; [rows of a pass, V]
  std::vector<token_id> ids_;                // [tokens of a pass]
  std::vector<index> positions_, rows_;
};

}  // namespace decode
