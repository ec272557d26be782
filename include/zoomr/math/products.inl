// SPDX-License-Identifier: Apache-2.0
// Products, exponentials, widening and narrowing in vectors.
namespace zoomr {
inline namespace v0 {
namespace detail {
namespace ZOOMR_PATH {

/// @param queries, out  [Queries]  rows of the whole
template <index_t Queries, class T>
void products_of(view<const float, 2> queries, const T* rows, view<float, 2> out) {
  constexpr index_t together = 16;         // rows
  constexpr index_t ahead = 2 * together;  // rows between those that are read and those that are asked for
  const index_t dims = queries.extent(1);
  const index_t count = out.extent(1);
  const float* query[std::size_t{Queries}];
  for (index_t q = 0; q < Queries; ++q) query[q] = queries.data() + q * queries.stride(0);
  float made[std::size_t{row_products_size<Queries>(together)}];
  for (index_t r = 0; r < count; r += together) {
    const index_t here = count - r < together ? count - r : together;
    const index_t next = r + ahead < count ? r + ahead : r;
    row_products<Queries>(query, rows + std::int64_t{r} * dims, here, dims, rows + std::int64_t{next} * dims,
                          count - next, made);
    for (index_t q = 0; q < Queries; ++q) {
      float* const row = out.data() + q * out.stride(0) + r;
      for (index_t i = 0; i < here; ++i) row[i] = made[i * Queries + q];
    }
  }
}

template <class T>
void products(view<const float, 2> queries, const T* rows, view<float, 2> out) {
  const index_t count = queries.extent(0);
  index_t q = 0;
  for (; q + 4 <= count; q += 4) products_of<4>(queries.slice(q, q + 4), rows, out.slice(q, q + 4));
  if (q + 2 <= count) products_of<2>(queries.slice(q, q + 2), rows, out.slice(q, q + 2)), q += 2;
  if (q < count) products_of<1>(queries.slice(q, q + 1), rows, out.slice(q, q + 1));
}

// They return how many they have done: whole vectors.
inline index_t exponentials(float* x, index_t count, float from) {
  index_t i = 0;
  for (; i + simd <= count; i += simd) to_memory(exponential(load(x + i) - from), x + i);
  return i;
}

template <class T>
index_t widen(const T* from, float* to, index_t count) {
  index_t i = 0;
  for (; i + simd <= count; i += simd) to_memory(load(from + i), to + i);
  return i;
}

template <class T>
index_t narrow(const float* from, float scale, T* to, index_t count) {
  index_t i = 0;
  if constexpr (requires(floats v) { store(v, to); }) {
    for (; i + simd <= count; i += simd) store(load(from + i) / scale, to + i);
  }
  return i;
}

}  // namespace ZOOMR_PATH
}  // namespace detail
}  // namespace v0
}  // namespace zoomr
