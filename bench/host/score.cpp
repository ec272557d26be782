// SPDX-License-Identifier: Apache-2.0
// Scoring on the host: four query heads ask all segments of one KV lane, one thread.
//   host/score/segments:N   mean_dot over N mean keys of head_dim 128 (f32), in the contract's order of summation
// bytes_per_second: summaries, once for the four heads. Ceilings: of_read, of_fma (2 flops for each number and head).
// Checked: all scores against products in double; tolerance::reduction.
#include <zoomr/math/dot.hpp>
#include <zoomr/policy/score/mean_dot.hpp>

#include "../support/check.hpp"
#include "../support/host.hpp"
#include "../support/kernels.hpp"
#include "../support/noise.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

constexpr index_t head_dim = toy ? 16 : 128;
constexpr index_t group = 4;

struct scene {
  index_t segments;
  std::vector<float> summaries = noise(std::int64_t{segments} * head_dim, 1);  // [segments][head_dim]
  std::vector<float> queries = noise(group * head_dim, 2);
  std::vector<float> scores = std::vector<float>(static_cast<std::size_t>(group * segments));  // [heads][segments]

  const float* query(index_t head) const { return queries.data() + head * head_dim; }
  const float* summary(index_t segment) const { return summaries.data() + std::int64_t{segment} * head_dim; }

  void score() {
    for (index_t h = 0; h < group; ++h) {
      for (index_t s = 0; s < segments; ++s) {
        const float *asked = query(h), *mean = summary(s);
        scores[static_cast<std::size_t>(h * segments + s)] = sum_over_dims(
            head_dim, [=](float acc, index_t d) { return mean_dot{}.term(acc, asked[d], cells<1>{{mean[d]}}); });
      }
    }
    use(scores.back());
  }

  void expect_right() {
    score();
    comparison compared("scores");
    for (index_t h = 0; h < group; ++h) {
      for (index_t s = 0; s < segments; ++s) {
        double expected = 0, magnitudes = 0;
        for (index_t d = 0; d < head_dim; ++d) {
          const double product = static_cast<double>(query(h)[d]) * static_cast<double>(summary(s)[d]);
          expected += product, magnitudes += std::abs(product);
        }
        compared.close(static_cast<double>(scores[static_cast<std::size_t>(h * segments + s)]), expected,
                       tolerance::reduction(head_dim) * magnitudes);
      }
    }
    compared.expect_some();
  }
};

}  // namespace

void host::add_score() {
  for (const index_t segments : toy ? std::vector<index_t>{10} : std::vector<index_t>{341, 1365, 5461}) {
    const std::string name = "host/score/segments:" + std::to_string(segments);
    add_row(name, 20, [=](int iterations) {
      scene made{segments};
      check_once(name, [&] { made.expect_right(); });
      const double bytes = 4.0 * segments * head_dim;
      return against_ceilings(timed_on_host(iterations, [&] { made.score(); }), bytes,
                              2.0 * segments * head_dim * group, bytes < (16 << 20));
    });
  }
}

}  // namespace zoomr_bench
