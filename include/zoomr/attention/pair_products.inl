// SPDX-License-Identifier: Apache-2.0
// Products in pairs of bfloat16: a number in the lower half of 32 bits, the next one in the upper half. Of a query with
// keys the two are dimensions. Sums are 16 partial ones, each of the pairs that are 16 apart, by a halving tree: the
// same for rows and for tiles.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

#if ZOOMR_PAIRS
using avx512::of_queries, avx512::store_products;

/// Number by number: sum + a[0] * b[0] + a[1] * b[1]; subnormal numbers count as zeros.
[[gnu::always_inline]] inline floats fused(words a, words b, floats sum) {
  asm("vdpbf16ps {%2, %1, %0|%0, %1, %2}" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
}
/// Numbers of bfloat16, 32 of them, two in each of 32 bits.
[[gnu::always_inline]] inline words pairs_at(const float* at) {
  using shorts = std::uint16_t __attribute__((vector_size(64)));
  const shorts a = from_memory<shorts>(at), b = from_memory<shorts>(at + simd);
  return reinterpret_cast<words>(__builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29,
                                                         31, 33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61,
                                                         63));
}

/// The same for `count` of them, a multiple of 32.
inline void pair_numbers(this_path, const float* from, float* to, index_t count) {
  for (index_t d = 0; d < count; d += 2 * simd) to_memory(reinterpret_cast<floats>(pairs_at(from + d)), to + d / 2);
}

/// As `dots`, of pairs of bfloat16: 16 partial sums, each of pairs of dimensions, by a halving tree.
/// @param queries  [Queries][dims]  numbers of bfloat16
/// @pre   dims is a multiple of 32
template <index_t Queries, index_t Rows>
[[gnu::always_inline]] inline void dots_of_pairs(const float* const* queries, const placed_rows<bfloat16>& rows,
                                                 const placed_rows<bfloat16>& ahead, index_t first, index_t dims,
                                                 float* out) {
  constexpr index_t products = Queries * Rows;
  floats sum[std::size_t{products}] = {};
  const bfloat16* row[std::size_t{Rows}];
  const bfloat16* next[std::size_t{Rows}];
#pragma GCC unroll 16
  for (index_t r = 0; r < Rows; ++r) row[r] = rows.row(first + r), next[r] = ahead.row(first + r);
  for (index_t d = 0; d < dims; d += 2 * simd) {
    words query[std::size_t{Queries}];
#pragma GCC unroll 4
    for (index_t q = 0; q < Queries; ++q) query[q] = pairs_at(queries[q] + d);
#pragma GCC unroll 16
    for (index_t r = 0; r < Rows; ++r) {
      const words key = from_memory<words>(row[r] + d);
      prefetch(next[r] + d);
#pragma GCC unroll 4
      for (index_t q = 0; q < Queries; ++q) sum[r * Queries + q] = fused(query[q], key, sum[r * Queries + q]);
    }
  }
  summed half_sums[std::size_t{products}];
#pragma GCC unroll 16
  for (index_t i = 0; i < products; ++i) half_sums[i] = halved(sum[i]);
#pragma GCC unroll 4
  for (index_t i = 0; i < products; i += sums_at_once) {
    const summed sums = halving_sums(half_sums + i);
    __builtin_memcpy(out + i, &sums, sizeof sums);
  }
}

/// As row_products, of queries in pairs.
template <index_t Queries>
[[gnu::noinline]] void row_products_of_pairs(const float* const* queries, const placed_rows<bfloat16>& rows,
                                             index_t count, const placed_rows<bfloat16>& ahead, index_t dims,
                                             float* out) {
  constexpr index_t block = (Queries < 4 ? 8 : accumulators) / Queries;  // rows
  for (index_t r = 0; r < count; r += block)
    dots_of_pairs<Queries, block>(queries, rows, ahead, r, dims, out + r * Queries);
}

/// part += what pair p of dimensions adds to the products.
template <index_t Queries>
[[gnu::always_inline]] inline void add_pair(const float* const* queries, const float* keys, index_t p,
                                            of_queries<Queries>& part) {
  const words key = from_memory<words>(keys + p * page_tokens);
#pragma GCC unroll 4
  for (index_t q = 0; q < Queries; ++q) {
    part.at[q][0] = fused(words{} + bits_as<std::uint32_t>(queries[q][p]), key, part.at[q][0]);
  }
}

/// The partial sums First, First + Apart, First + 2 Apart, ... of 16, added by a halving tree.
/// @param queries  [Queries][dims / 2]  pairs of bfloat16
/// @param keys     [dims / 2, page_tokens]  the same
/// @pre   dims is a multiple of 32
template <index_t Queries, index_t First, index_t Apart>
[[gnu::always_inline]] inline of_queries<Queries> tile_sums_of_pairs(const float* const* queries, const float* keys,
                                                                     index_t dims) {
  if constexpr (Apart < 4) {
    return tile_sums_of_pairs<Queries, First, 2 * Apart>(queries, keys, dims) +
           tile_sums_of_pairs<Queries, First + Apart, 2 * Apart>(queries, keys, dims);
  } else {
    of_queries<Queries> part[4];
    for (index_t p = First; p < dims / 2; p += 16) {
#pragma GCC unroll 4
      for (index_t i = 0; i < 4; ++i) add_pair<Queries>(queries, keys, p + 4 * i, part[i]);
    }
    return (part[0] + part[2]) + (part[1] + part[3]);
  }
}

/// As tile_products, of pairs.
template <index_t Queries>
[[gnu::noinline]] void tile_products_of_pairs(const float* const* queries, const float* keys, index_t dims,
                                              float* out) {
  store_products<Queries>(tile_sums_of_pairs<Queries, 0, 1>(queries, keys, dims), out);
}
#endif

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
