// SPDX-License-Identifier: Apache-2.0
// L5. A scorer behind its interface, with the summaries that it reads: the host's scores of all heads of one KV head.
// Scores that are products are made by the library's own kernel; others by the scorer's `term`, dimension by dimension.
// Either way a score has the contract's order of summation, and the same bits on every path of the processor.
#pragma once

#include <zoomr/math/products.hpp>
#include <zoomr/policy/any_policy.hpp>
#include <zoomr/policy/concepts.hpp>

#include <cstring>  // std::memcpy

namespace zoomr::inline v0::detail {

template <class Scorer, class Summarizer>
class any_scorer_of final : public any_scorer {
 public:
  explicit any_scorer_of(const Scorer& scorer) : scorer_(scorer) {
    reads_keys = key_scorer<Scorer>;
    linear = linear_scorer<Scorer> && std::same_as<number, float>;
  }
  float score_keys([[maybe_unused]] view<float> logits) const override {
    if constexpr (key_scorer<Scorer>) {
      float result = 0.0f;
      on_fastest_path([&] { result = scorer_.score(logits); });
      return result;
    }
    return not_a_number;
  }
  void weigh([[maybe_unused]] view<const float> query, [[maybe_unused]] view<float> weights) const override {
    if constexpr (linear_scorer<Scorer>) {
      for (index_t d = 0; d < query.size(); ++d) {
        for (index_t r = 0; r < rows; ++r) weights[d * rows + r] = scorer_.weight(query[d], r);
      }
    }
  }
  void score(view<const float, 2> queries, const std::byte* summaries, view<const votes_t> votes,
             view<float, 2> scores) const override {
    if constexpr (rows == 0) return;
    const auto* const numbers = reinterpret_cast<const number*>(summaries);
    const index_t dims = queries.extent(1);
    const index_t stride = dims * rows + (scaled ? static_cast<index_t>(sizeof(float) / sizeof(number)) : 0);
    if constexpr (rows == 1 && product_scorer<Scorer>) {
      products(fastest_cpu_path(), queries, numbers, stride, scores);
      if constexpr (scaled) {
        const number* summary = numbers;
        for (index_t id = 0; id < votes.size(); ++id, summary += stride) {
          const float scale = scale_of(summary, dims);
          for (index_t head = 0; head < queries.extent(0); ++head) {
            scores(head, id) = fused(scores(head, id), scale, -0.0f);
          }
        }
      }
    } else if constexpr (rows > 0) {
      on_fastest_path([&] {
        // Some summaries at a time, for all heads: they are read from memory once.
        for (index_t first = 0; first < votes.size(); first += block) {
          const index_t last = votes.size() - first < block ? votes.size() : first + block;
          for (index_t head = 0; head < queries.extent(0); ++head) {
            const number* summary = numbers + first * std::int64_t{stride};
            for (index_t id = first; id < last; ++id, summary += stride) {
              if (votes[id] != not_eligible) scores(head, id) = score_of(queries[head].data(), summary, dims);
            }
          }
        }
      });
    }
  }

 private:
  using number = summary_number<Summarizer>;
  static constexpr index_t rows = Summarizer::summary::rows;
  static constexpr bool scaled = scales_summaries<number>;
  static constexpr bool scales_numbers = scaled && !homogeneous_scorer<Scorer>;  // or else scores
  static constexpr index_t block = 16;                                           // summaries that a cache holds

  static float scale_of(const number* summary, index_t dims) {
    float scale;
    std::memcpy(&scale, summary + dims * rows, sizeof scale);
    return scale;
  }

  // query: [dims]; summary: [dims, rows]. Pointers, since the compiler cannot see that a view's stride is 1.
  float score_of(const float* query, const number* summary, index_t dims) const {
    [[maybe_unused]] float scale = 1.0f;
    if constexpr (scaled) scale = scale_of(summary, dims);
    const auto term = [&](auto acc, index_t d) {
      cells<rows> c;
      for (index_t r = 0; r < rows; ++r) {
        c.row[r] = to_float(summary[d * rows + r]);
        if constexpr (scales_numbers) c.row[r] = fused(c.row[r], scale, -0.0f);
      }
      return scorer_.term(acc, query[d], c);
    };
    float score;
    if constexpr (several_sums_scorer<Scorer>) {
      score = scorer_.finish(several_sums_over_dims<score_sums<Scorer::sums>>(dims, term));
    } else {
      score = sum_over_dims(dims, term);
    }
    return scaled && !scales_numbers ? fused(score, scale, -0.0f) : score;
  }

  Scorer scorer_;
};

}  // namespace zoomr::inline v0::detail
