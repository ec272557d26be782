// SPDX-License-Identifier: Apache-2.0
#include <support/oracles.hpp>
#include <zoomr/math/order.hpp>

#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/equal.h>
#include <thrust/execution_policy.h>
#include <thrust/fill.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

namespace zoomr_test::oracle {
namespace {

ZOOMR_HD votes_t key_of(votes_t score) { return score; }
ZOOMR_HD votes_t key_of(float score) { return zoomr::order_key(score); }

template <class Score>
struct eligible {
  const Score* row;
  ZOOMR_HD bool operator()(index_t id) const { return key_of(row[id]) != zoomr::not_eligible; }
};
template <class Score>
struct better {
  const Score* row;
  ZOOMR_HD bool operator()(index_t a, index_t b) const { return key_of(row[a]) > key_of(row[b]); }
};

template <class Score>
void best_of_rows(const Score* scores, index_t rows, index_t n, index_t k, index_t* ids, index_t* counts) {
  thrust::device_vector<index_t> order(static_cast<std::size_t>(n));
  thrust::fill_n(thrust::device, ids, std::int64_t{rows} * k, -1);
  for (index_t r = 0; r < rows; ++r) {
    const Score* const row = scores + std::int64_t{r} * n;
    const thrust::counting_iterator<index_t> first(0);
    const auto end = thrust::copy_if(thrust::device, first, first + n, order.begin(), eligible<Score>{row});
    thrust::stable_sort(thrust::device, order.begin(), end, better<Score>{row});
    const auto found = static_cast<index_t>(end - order.begin());
    const index_t taken = found < k ? found : k;
    thrust::sort(thrust::device, order.begin(), order.begin() + taken);
    thrust::copy_n(thrust::device, order.begin(), taken, ids + std::int64_t{r} * k);
    thrust::fill_n(thrust::device, counts + r, 1, taken);
  }
}

}  // namespace

void best_ids(const float* scores, index_t rows, index_t n, index_t k, index_t* ids, index_t* counts) {
  best_of_rows(scores, rows, n, k, ids, counts);
}
void best_ids(const votes_t* scores, index_t rows, index_t n, index_t k, index_t* ids, index_t* counts) {
  best_of_rows(scores, rows, n, k, ids, counts);
}

void exclusive_sums(const index_t* from, index_t count, index_t* to) {
  thrust::exclusive_scan(thrust::device, from, from + count, to);
}

bool same(const index_t* a, const index_t* b, index_t count) { return thrust::equal(thrust::device, a, a + count, b); }

}  // namespace zoomr_test::oracle
