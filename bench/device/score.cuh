// SPDX-License-Identifier: Apache-2.0
// score_segments: the heads of each KV head ask all segments.
//   choose/POLICY/context:N/score/cold, /warm   a row for each KV head of each sequence; shapes as in choose.cu
// bytes_per_second: summaries, once for the heads of a group. Ceiling: of_copy; arithmetic is a multiply-add for each
// number and head.
// Checked: the first head of the first sequence and the last head of the last one, all segments, against products in
// double with the summaries that the device has; tolerance::reduction.
#pragma once

#include "../../tests/support/score_kernel.cuh"
#include "../support/check.hpp"
#include "../support/choosing.hpp"

namespace zoomr_bench {

struct score {
  static constexpr const char* name = "score";
  template <class Choosing>
  static void enqueue(const Choosing& made) {
    using summary = typename Choosing::arrays_type::number;
    const auto& a = made.arrays();
    const zoomr::detail::rows_to_score<zoomr::bfloat16, zoomr::bfloat16, summary> rows{
        a, a.summaries, 0, made.queries(), Choosing::batch * Choosing::kv_heads, a.scales};
    zoomr_test::score_segments<Choosing::group, head_dim>(made.policy.query, made.policy.score, rows,
                                                          a.sizes.score_blocks(), the_stream());
  }

  template <class Choosing>
  static double bytes(const Choosing& made) {
    using number = typename Choosing::arrays_type::number;
    constexpr auto each = static_cast<double>(sizeof(number));
    constexpr double of_scale = zoomr::scales_summaries<number> ? sizeof(float) : 0;
    return Choosing::batch * Choosing::kv_heads * made.segments() *
           (each * static_cast<double>(made.arrays().sizes.summary_numbers) + of_scale);
  }

  template <class Choosing>
  static void expect_right(const Choosing& made) {
    expect_head(made, 0, 0);
    expect_head(made, Choosing::batch - 1, Choosing::heads - 1);
  }

 private:
  template <class Choosing>
  static void expect_head(const Choosing& made, index_t t, index_t head) {
    using policy_type = typename Choosing::policy_type;
    constexpr index_t rows = decltype(policy_type::score)::summary::rows;
    const auto token = made.token(t);
    std::vector<double> asked;
    const std::vector<float> sums =
        made.arrays().sizes.records > 0 ? made.sums(token, token.position) : std::vector<float>();
    for (index_t d = 0; d < head_dim; ++d) {
      const auto own = static_cast<double>(made.query(t, head, d));
      const double sum = sums.empty() ? own : static_cast<double>(sums[static_cast<std::size_t>(head * head_dim + d)]);
      asked.push_back(decltype(policy_type::query)::sums ? sum / token.sums : own);
    }
    const auto& a = made.arrays();
    const auto summaries = made.on_host(a.summaries + a.summaries_at(token.sequence, head / Choosing::group),
                                        std::int64_t{token.segments} * head_dim * rows);
    std::vector<float> scales(static_cast<std::size_t>(token.segments), 1.0f);
    if constexpr (zoomr::scales_summaries<typename Choosing::arrays_type::number>) {
      scales = made.on_host(a.scales + a.scales_at(token.sequence, head / Choosing::group), token.segments);
    }
    const std::vector<float> got = made.scores(t, head, head + 1, token.segments);
    comparison compared("scores");
    for (index_t s = 0; s < token.segments; ++s) {
      double expected = 0, magnitudes = 0;
      for (index_t d = 0; d < head_dim; ++d) {
        const auto at =
            static_cast<std::size_t>((std::int64_t{s} * head_dim + zoomr::summary_place(head_dim, d)) * rows);
        double product = asked[static_cast<std::size_t>(d)] * static_cast<double>(zoomr::to_float(summaries[at]));
        if constexpr (rows == 2) {  // a box: the most that a key of it can give
          product = std::max(
              product, asked[static_cast<std::size_t>(d)] * static_cast<double>(zoomr::to_float(summaries[at + 1])));
        }
        expected += product, magnitudes += std::abs(product);
      }
      const auto scale = static_cast<double>(scales[static_cast<std::size_t>(s)]);
      compared.close(static_cast<double>(got[static_cast<std::size_t>(s)]), expected * scale,
                     tolerance::reduction(head_dim) * magnitudes * scale);
    }
    compared.expect_some();
  }
};

}  // namespace zoomr_bench
