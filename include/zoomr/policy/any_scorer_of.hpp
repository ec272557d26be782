// SPDX-License-Identifier: Apache-2.0
// L5. A scorer behind its interface, with the summaries that it reads: the host's scores of all heads of one KV head.
// Scores that are products are made by the library's own kernel; others by the scorer's `term`, dimension by dimension.
// Either way a score has the contract's order of summation, and the same bits on every path of the processor.
#pragma once

#include <zoomr/math/products.hpp>
#include <zoomr/policy/any_policy.hpp>
#include <zoomr/policy/concepts.hpp>

namespace zoomr {
inline namespace v0 {
namespace detail {

template <class Scorer, class Summarizer>
class any_scorer_of final : public any_scorer {
 public:
  explicit any_scorer_of(const Scorer& of) : of_(of) {}
  void score(view<const float, 2> asked, const std::byte* summaries, view<const votes_t> votes,
             view<float, 2> scores) const override {
    const auto* const all = reinterpret_cast<const number*>(summaries);
    if constexpr (rows == 1 && product_scorer<Scorer>) {
      products(fastest_cpu_path(), asked, all, asked.extent(1), scores);
    } else if constexpr (rows > 0) {
      on_fastest_path([&] {
        const index_t dims = asked.extent(1);
        for (index_t head = 0; head < asked.extent(0); ++head) {
          const number* summary = all;
          for (index_t id = 0; id < votes.size(); ++id, summary += dims * rows) {
            if (votes[id] != not_eligible) scores(head, id) = score_of(asked[head].data(), summary, dims);
          }
        }
      });
    }
  }

 private:
  using number = summary_number<Summarizer>;
  static constexpr index_t rows = Summarizer::summary::rows;

  // asked: [dims]; summary: [dims, rows]. Pointers, since the stride of a view is not known to be 1.
  float score_of(const float* asked, const number* summary, index_t dims) const {
    const auto term = [&](auto acc, index_t d) {
      cells<rows> c;
      for (index_t r = 0; r < rows; ++r) c.row[r] = to_float(summary[d * rows + r]);
      return of_.term(acc, asked[d], c);
    };
    if constexpr (several_sums_scorer<Scorer>) {
      return of_.finish(several_sums_over_dims<score_sums<Scorer::sums>>(dims, term));
    } else {
      return sum_over_dims(dims, term);
    }
  }

  Scorer of_;
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
