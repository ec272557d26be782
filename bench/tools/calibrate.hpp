// SPDX-License-Identifier: Apache-2.0
// From which context on does a policy pay on this machine?
//
//   limits.min_sparse_context = calibrate<bfloat16>(model, policy, limits, ids).min_sparse_context;
#pragma once

#include <zoomr/kv_cache.hpp>

#include <algorithm>  // std::max, std::min, std::nth_element
#include <chrono>     // std::chrono::steady_clock
#include <vector>     // std::vector

namespace zoomr::inline v0 {

/// Seconds that a token takes in one layer that chooses, after a context of so many tokens: `attend`, and its share of
/// `begin` and `commit`.
struct crossover_row {
  index_t tokens = 0;
  double sparse = 0;  // under the policy
  double dense = 0;   // attending to everything
};

/// What `calibrate` has measured.
struct crossover {
  index_t min_sparse_context = 0;   // the least context from which on the policy was faster, by 2 % at least, at all
                                    // that were measured; config.max_tokens + 1 if at none
  std::vector<crossover_row> rows;  // ascending
};

namespace detail {

/// A cache that is measured: one layer that chooses, after those that the policy leaves dense.
template <class Policy, class T>
class calibrated_cache {
 public:
  calibrated_cache(const shape& model, const Policy& policy, config limits, index_t min_sparse_context)
      : model_(model), cache_(model, policy, calibration_config(limits, min_sparse_context)) {}

  /// Forgets what there was, and takes a prompt of `count` tokens of `text`, over and over.
  void prompt(index_t count, view<const token_id> text, std::vector<float>& numbers) {
    if (open_) cache_.close(seq_);
    seq_ = cache_.open();
    open_ = true;
    text_ = text;
    numbers_ = numbers.data();
    for (at_ = 0; at_ < count;) pass((std::min)(chunk, count - at_), count);
  }
  /// @return  seconds of the next `count` tokens, without their attention in dense layers
  double decode(index_t count) {
    dense_seconds_ = 0;
    const double all = seconds([&] {
      for (index_t i = 0; i < count; ++i) pass(1, 0);
    });
    return all - dense_seconds_;
  }

  static constexpr index_t chunk = 256;

 private:
  static config calibration_config(config limits, index_t min_sparse_context) {
    limits.max_sequences = 1;
    limits.pool_tokens = 0;
    limits.max_batched_tokens = chunk;
    limits.min_sparse_context = min_sparse_context;
    limits.audit = false;
    return limits;
  }

  template <class Work>
  static double seconds(Work work) {
    const auto from = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  }

  // Keys and queries of each token are others, so that choices change.
  void pass(index_t count, index_t prompt_end) {
    ids_.clear();
    for (index_t t = at_; t < at_ + count; ++t) ids_.push_back(text_[t % text_.size()]);
    const float* const from = numbers_ + at_ % chunk;
    out_.resize(static_cast<std::size_t>(count * model_.heads * model_.value_width()));
    auto step = cache_.begin(seq_, view<const token_id>(ids_), at_ + count == prompt_end);
    do {
      const view<const float, 3> keys(from, {{step.tokens(), model_.kv_heads, model_.head_dim}});
      const extents<3> heads{{step.tokens(), model_.heads, model_.head_dim}};
      const view<const float, 3> queries(from, heads);
      for (index_t layer = 0; layer < model_.layers; ++layer) {
        step.append(layer, keys, keys);
        if (prompt_end > 0) {
          step.observe(layer, queries);
          continue;
        }
        const double took = seconds([&] { step.attend(layer, queries, view<float, 3>(out_.data(), heads)); });
        if (layer + 1 < model_.layers) dense_seconds_ += took;
      }
    } while (step.needs_second_pass(step.taken(0)));
    step.commit();
    at_ += count;
  }

  shape model_;
  kv_cache<Policy, T> cache_;
  sequence seq_;
  bool open_ = false;
  index_t at_ = 0;
  view<const token_id> text_;
  const float* numbers_ = nullptr;
  double dense_seconds_ = 0;
  std::vector<token_id> ids_;
  std::vector<float> out_;
};

}  // namespace detail

/// Measures, on this machine and with the threads of `limits`, a policy against attending to everything, in turn, at
/// growing contexts: 128 tokens, 192, 256, 384 and so on, until the policy takes less than half of the time or
/// `limits.max_tokens` is reached. Everything that was measured comes back, so that a caller can decide otherwise.
///
/// @tparam T     storage type
/// @param model  its layers do not matter: one that chooses is measured
/// @param text   token ids as they will come: how long segments are decides what a choice costs; used over and over
/// @throws precondition_error without a text, or for what a cache would refuse; error(capacity) without memory
/// @cost   two caches of one sequence and, for the policy's dense layers and one more, some seconds
template <class T = float, class Policy>
crossover calibrate(const shape& model, const Policy& policy, const config& limits, view<const token_id> text) {
  ZOOMR_EXPECTS(text.size() > 0, "calibrate: the text is empty");
  constexpr index_t rounds = 9, tokens = 24;  // medians of so many turns of so many tokens
  shape measured = model;
  measured.layers = (std::min)(model.layers, policy.zone.dense_layers + 1);
  using cache_type = detail::calibrated_cache<Policy, T>;
  cache_type sparse(measured, policy, limits, 0), dense(measured, policy, limits, config::most_tokens);
  std::vector<float> numbers(
      static_cast<std::size_t>(cache_type::chunk * (measured.heads * measured.head_dim + index_t{1})));
  std::uint32_t state = 1;
  for (float& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<float>(static_cast<std::int32_t>(state) >> 8) / float{1 << 23};
  }
  crossover result{limits.max_tokens + 1, {}};
  bool clear = false;
  for (index_t size = 128; !clear && size <= limits.max_tokens - rounds * tokens;
       size = (size & (size - 1)) == 0 ? size / 2 * 3 : size / 3 * 4) {
    sparse.prompt(size, text, numbers);
    dense.prompt(size, text, numbers);
    std::vector<double> sparse_times, dense_times;
    for (index_t round = 0; round < rounds; ++round) {
      sparse_times.push_back(sparse.decode(tokens) / tokens);
      dense_times.push_back(dense.decode(tokens) / tokens);
    }
    std::nth_element(sparse_times.begin(), sparse_times.begin() + rounds / 2, sparse_times.end());
    std::nth_element(dense_times.begin(), dense_times.begin() + rounds / 2, dense_times.end());
    result.rows.push_back({size, sparse_times[rounds / 2], dense_times[rounds / 2]});
    clear = result.rows.back().sparse < 0.5 * result.rows.back().dense;
  }
  for (auto row = result.rows.rbegin(); row != result.rows.rend() && row->sparse < 0.98 * row->dense; ++row) {
    result.min_sparse_context = row->tokens;
  }
  return result;
}

}  // namespace zoomr::inline v0
