// SPDX-License-Identifier: Apache-2.0
// Products of tokens with the rows of a matrix, in vectors: each in the order of zoomr::dot, so that a token gets the
// same bits whatever tokens are beside it. Sums wait in memory while some columns of a group of rows are read: of x no
// more is read at once than the first cache holds, however long rows are.
#if !ZOOMR_PAIRS  // of bfloat16: avx512 has all else
namespace decode {

/// Adds the products of x [Tokens, columns] with rows [Rows, columns] in columns [first, last), multiples of `lanes`,
/// to sums [Rows, Tokens, lanes].
/// @param ahead  numbers to the rows that are read next
template <index_t Tokens, index_t Rows, class T>
[[gnu::always_inline]] inline void add_products(zoomr::detail::ZOOMR_PATH::this_path, const float* x, const T* rows,
                                                std::int64_t columns, index_t first, index_t last, std::int64_t ahead,
                                                float* sums) {
  using namespace zoomr::detail::ZOOMR_PATH;
  constexpr index_t products = Rows * Tokens;
  constexpr index_t parts = products == 1 ? lanes / simd : 1;  // vectors of sums at once: one row is read but once
  for (index_t part = 0; part < lanes; part += parts * simd) {
    floats sum[std::size_t{products * parts}];
#pragma GCC unroll 16
    for (index_t i = 0; i < products * parts; ++i) sum[i] = load(sums + i / parts * lanes + i % parts * simd + part);
    for (index_t d = first + part; d < last; d += lanes) {
#pragma GCC unroll 8
      for (index_t p = 0; p < parts; ++p) {
        floats number[std::size_t{Tokens}];
#pragma GCC unroll 4
        for (index_t t = 0; t < Tokens; ++t) number[t] = kept(load(x + t * columns + d + p * simd));
#pragma GCC unroll 8
        for (index_t r = 0; r < Rows; ++r) {
          const floats weight = kept(load(rows + r * columns + d + p * simd));
          if (part == 0 && p == 0) prefetch(rows + r * columns + d + ahead);
#pragma GCC unroll 4
          for (index_t t = 0; t < Tokens; ++t) {
            floats& to = sum[(r * Tokens + t) * parts + p];
            to = fused(number[t], weight, to);
          }
        }
      }
    }
#pragma GCC unroll 16
    for (index_t i = 0; i < products * parts; ++i)
      to_memory(sum[i], sums + i / parts * lanes + i % parts * simd + part);
  }
}

/// y [Tokens, count] = x [Tokens, columns] · rows [count, columns], in rows of y `stride` numbers apart.
template <index_t Tokens, class T>
void multiply_tokens(zoomr::detail::ZOOMR_PATH::this_path path, const float* x, const T* rows, std::int64_t columns,
                     index_t count, float* y, std::int64_t stride) {
  constexpr index_t group = 16;                                         // rows
  const index_t stretch = Tokens == 1 && columns <= 4096 ? 4096 : 512;  // columns of x that stay in the first cache
  constexpr index_t block = Tokens == 1 ? 1 : zoomr::detail::ZOOMR_PATH::accumulators / 4;
  for (index_t from = 0; from < count; from += group) {
    const index_t here = count - from < group ? count - from : group;
    float sums[std::size_t{group * Tokens * lanes}] = {};
    for (index_t first = 0; first < columns; first += stretch) {
      const auto last = static_cast<index_t>(columns - first < stretch ? columns : first + stretch);
      const T* row = rows + from * columns;
      index_t r = 0;
      for (; r + block <= here; r += block)
        add_products<Tokens, block>(path, x, row + r * columns, columns, first, last, group * columns,
                                    sums + r * Tokens * lanes);
      for (; r < here; ++r)
        add_products<Tokens, 1>(path, x, row + r * columns, columns, first, last, 0, sums + r * Tokens * lanes);
    }
    for (index_t r = 0; r < here; ++r)
      for (index_t t = 0; t < Tokens; ++t)
        y[t * stride + from + r] = zoomr::halving_sum(sums + (r * Tokens + t) * lanes);
  }
}

/// The same for any number of tokens.
template <class T>
void multiply_rows(zoomr::detail::ZOOMR_PATH::this_path path, const float* x, index_t tokens, const T* rows,
                   std::int64_t columns, index_t count, float* y, std::int64_t stride) {
  index_t t = 0;
  for (; t + 4 <= tokens; t += 4)
    multiply_tokens<4>(path, x + t * columns, rows, columns, count, y + t * stride, stride);
  for (; t + 2 <= tokens; t += 2)
    multiply_tokens<2>(path, x + t * columns, rows, columns, count, y + t * stride, stride);
  if (t < tokens) multiply_tokens<1>(path, x + t * columns, rows, columns, count, y + t * stride, stride);
}

}  // namespace decode
#endif
