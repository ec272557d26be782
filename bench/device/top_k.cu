// SPDX-License-Identifier: Apache-2.0
// launch_top_k: the best k of each row of floats, ascending ids.
//   top_k/rows:R/n:N/k:K/cold, /warm
// bytes_per_second: scores, once. Ceiling: of_copy; a short row is bound by its launch (nothing/cold).
// Checked: ids and counts of all rows against Thrust's sort of them where they lie, exactly.
#include "../../tests/support/oracles.hpp"
#include "../../tests/support/row_top_k.cuh"
#include "../support/check.hpp"
#include "../support/device_time.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

struct scene {
  index_t lists, n, k;
  device_buffer<float> scores{std::int64_t{lists} * n};
  device_buffer<index_t> ids{std::int64_t{lists} * k};
  device_buffer<index_t> counts{lists};

  void enqueue() const {
    zoomr_test::launch_top_k(view<const float, 2>(scores.data(), {lists, n}), view<index_t, 2>(ids.data(), {lists, k}),
                             view<index_t>(counts.data(), {lists}), the_stream());
  }

  void expect_right() const {
    enqueue();
    wait();  // Thrust's work is on another stream
    const device_buffer<index_t> best{ids.size()}, best_counts{lists};
    zoomr_test::oracle::best_ids(scores.data(), lists, n, k, best.data(), best_counts.data());
    expect_same("ids", ids, best), expect_same("counts", counts, best_counts);
  }
  static void expect_same(const char* what, const device_buffer<index_t>& got, const device_buffer<index_t>& expected) {
    const std::vector<index_t> a = got.values(), b = expected.values();
    comparison compared(what);
    for (std::size_t i = 0; i < a.size(); ++i) compared.same(a[i], b[i]);
    compared.expect_some();
  }
};

void add_lists(index_t lists, index_t n, index_t k, l2 state) {
  const std::string place =
      "top_k/rows:" + std::to_string(lists) + "/n:" + std::to_string(n) + "/k:" + std::to_string(k) + "/";
  add_row(place + name_of(state), 50, [=](int iterations) {
    const scene made{lists, n, k};
    fill_with_noise(made.scores.data(), made.scores.size(), 11);
    check_once(place, [&] { made.expect_right(); });
    return reading(timed(state, iterations, [&] { made.enqueue(); }), 4.0 * lists * n);
  });
}

}  // namespace

void device::add_top_k() {
  for (const index_t lists : toy ? std::vector<index_t>{2} : std::vector<index_t>{8, 64}) {
    for (const index_t n : toy ? std::vector<index_t>{64} : std::vector<index_t>{64, 256, 1024, 4096, 16384, 65536}) {
      for (const index_t k : toy ? std::vector<index_t>{16} : std::vector<index_t>{16, 64, 256}) {
        if (k > n) continue;
        for (const l2 state : {l2::cold, l2::warm}) add_lists(lists, n, k, state);
      }
    }
  }
}

}  // namespace zoomr_bench
