// SPDX-License-Identifier: Apache-2.0
// remember_kernel: one layer's queries are added to the running sums of their sequences; only where a policy asks with
// such a sum.
//   choose/POLICY/context:N/remember/cold, /warm   a block for each of 8 sequences; 32 heads of 128 dimensions
// Ceiling: its launch (nothing/cold); bytes are not counted.
// Checked: the sums of the first and the last sequence, exactly: the sum before plus the query.
#pragma once

#include "../support/check.hpp"
#include "../support/choosing.hpp"

namespace zoomr_bench {

struct remember {
  static constexpr const char* name = "remember";
  template <class Policy>
  static constexpr bool needed = decltype(Policy::query)::sums;

  template <class Choosing>
  static void enqueue(const Choosing& made) {
    zoomr::launch({dim3(static_cast<unsigned>(Choosing::batch)), dim3(zoomr::detail::plain_threads)}, the_stream(),
                  zoomr::detail::remember_kernel<zoomr::bfloat16, zoomr::bfloat16>, made.arrays(), 0, made.queries());
  }

  template <class Choosing>
  static double bytes(const Choosing&) {
    return 0;
  }

  template <class Choosing>
  static void expect_right(const Choosing& made) {
    comparison compared("sums of queries");
    for (const index_t t : {0, Choosing::batch - 1}) {
      const auto token = made.token(t);
      const auto before = made.sums(token, token.position - 1), after = made.sums(token, token.position);
      for (std::size_t i = 0; i < after.size(); ++i) {
        const auto row = static_cast<index_t>(i);
        const float query = made.query(t, row / head_dim, row % head_dim);
        const float expected = token.sums == 1 ? query : before[i] + query;
        compared.close(static_cast<double>(after[i]), static_cast<double>(expected), tolerance::exact);
      }
    }
    compared.expect_some();
  }
};

}  // namespace zoomr_bench
