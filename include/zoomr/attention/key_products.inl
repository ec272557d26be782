// SPDX-License-Identifier: Apache-2.0
// Products of queries with the keys of a page. Of a tile keys are stored dimension by dimension: a vector holds those
// of several tokens, so that no sum goes across a vector. In pairs of bfloat16 a number is in the lower half of 32
// bits, the next dimension's in the upper half: sums are 16 partial ones, each of the pairs that are 16 apart, by a
// halving tree, the same for rows and for tiles.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

#if ZOOMR_PAIRS
using avx512::of_queries, avx512::store_products, avx512::tile_products, avx512::tile_vectors;

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
template <index_t Queries, index_t Rows, index_t Stride>
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
  summed half_sums[std::size_t{Rows * Stride}] = {};
#pragma GCC unroll 16
  for (index_t i = 0; i < products; ++i) half_sums[i / Queries * Stride + i % Queries] = halved(sum[i]);
  store_sums(half_sums, out);
}

/// As row_products, of queries in pairs.
template <index_t Queries, index_t Stride>
[[gnu::noinline]] void row_products_of_pairs(const float* const* queries, const placed_rows<bfloat16>& rows,
                                             index_t count, const placed_rows<bfloat16>& ahead, index_t dims,
                                             float* out) {
  constexpr index_t block = rows_together<Stride>;
  for (index_t r = 0; r < count; r += block)
    dots_of_pairs<Queries, block, Stride>(queries, rows, ahead, r, dims, out + r * Stride);
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
#else
/// Vectors of tokens that are multiplied together, and partial sums that are added up at a time: of two queries on AVX2
/// both halves of a page, since two keys and two numbers of queries are loaded for four products then.
inline constexpr index_t tile_vectors = simd == 8 ? 2 : 1;
inline constexpr index_t sums_together = simd == 8 ? 2 : 4;

/// A number of each query, for the tokens of some vectors.
template <index_t Queries>
struct of_queries {
  floats at[std::size_t{Queries}][std::size_t{tile_vectors}] = {};

  [[gnu::always_inline]] friend inline of_queries operator+(of_queries a, const of_queries& b) {
#pragma GCC unroll 4
    for (index_t q = 0; q < Queries; ++q) {
#pragma GCC unroll 2
      for (index_t v = 0; v < tile_vectors; ++v) a.at[q][v] += b.at[q][v];
    }
    return a;
  }
};

/// part += what dimension d adds to the products.
template <index_t Queries>
[[gnu::always_inline]] inline void add_dim(const float* const* queries, const float* keys, index_t d,
                                           of_queries<Queries>& part) {
  floats key[std::size_t{tile_vectors}];
#pragma GCC unroll 2
  for (index_t v = 0; v < tile_vectors; ++v) key[v] = kept(load(keys + d * page_tokens + v * simd));
#pragma GCC unroll 4
  for (index_t q = 0; q < Queries; ++q) {
    const floats number = filled(queries[q][d]);
#pragma GCC unroll 2
    for (index_t v = 0; v < tile_vectors; ++v) part.at[q][v] = fused(number, key[v], part.at[q][v]);
  }
}

/// The partial sums First, First + Apart, First + 2 Apart, ... of 32, added by the halving tree of math/dot.hpp.
/// @param keys  [dims, page_tokens]  of the first vector's first token
/// @pre   dims is a multiple of simd_dims
template <index_t Queries, index_t First, index_t Apart>
[[gnu::always_inline]] inline of_queries<Queries> tile_sums(const float* const* queries, const float* keys,
                                                            index_t dims) {
  constexpr index_t sums = sums_together, apart = 32 / sums;
  if constexpr (Apart < apart) {
    return tile_sums<Queries, First, 2 * Apart>(queries, keys, dims) +
           tile_sums<Queries, First + Apart, 2 * Apart>(queries, keys, dims);
  } else {
    of_queries<Queries> part[std::size_t{sums}];
    index_t d = First;
    for (; d + 32 - apart < dims; d += 32) {
#pragma GCC unroll 4
      for (index_t i = 0; i < sums; ++i) add_dim<Queries>(queries, keys, d + apart * i, part[i]);
    }
    if (d < dims) {
#pragma GCC unroll 2
      for (index_t i = 0; i < sums / 2; ++i) add_dim<Queries>(queries, keys, d + apart * i, part[i]);
    }
    if constexpr (sums == 2) return part[0] + part[1];
    return (part[0] + part[2]) + (part[1] + part[3]);
  }
}

/// out[t * Queries + q], for the tokens of some vectors.
template <index_t Queries>
[[gnu::always_inline]] inline void store_products(const of_queries<Queries>& sums, float* out) {
#pragma GCC unroll 2
  for (index_t v = 0; v < tile_vectors; ++v, out += simd * Queries) {
    if constexpr (Queries == 1) {
      to_memory(sums.at[0][v], out);
    } else if constexpr (Queries == 2) {
      to_memory(interleaved<0>(sums.at[0][v], sums.at[1][v]), out);
      to_memory(interleaved<1>(sums.at[0][v], sums.at[1][v]), out + simd);
    } else {
#pragma GCC unroll 2
      for (index_t half = 0; half < 2; ++half) {
        const auto both = [&](index_t q) {
          return half == 0 ? interleaved<0>(sums.at[q][v], sums.at[q + 1][v])
                           : interleaved<1>(sums.at[q][v], sums.at[q + 1][v]);
        };
        const floats a = both(0), b = both(2);
        to_memory(interleaved_pairs<0>(a, b), out + 2 * half * simd);
        to_memory(interleaved_pairs<1>(a, b), out + (2 * half + 1) * simd);
      }
    }
  }
}

/// Four queries fill 32 registers, two of two vectors 16.
template <index_t Queries>
[[gnu::noinline]] void tile_sums(const float* const* queries, const float* keys, index_t dims,
                                 of_queries<Queries>& sums) {
  sums = tile_sums<Queries, 0, 1>(queries, keys, dims);
}

/// The products, as store_products stores them.
template <index_t Queries>
[[gnu::always_inline]] inline void tile_products(const float* const* queries, const float* keys, index_t dims,
                                                 float* out) {
  if constexpr (Queries == 4 && simd == 8) {
    of_queries<2> two[2];
    for (index_t i = 0; i < 2; ++i) tile_sums<2>(queries + 2 * i, keys, dims, two[i]);
    of_queries<4> sums;
#pragma GCC unroll 4
    for (index_t q = 0; q < 4; ++q) {
#pragma GCC unroll 2
      for (index_t v = 0; v < tile_vectors; ++v) sums.at[q][v] = two[q / 2].at[q % 2][v];
    }
    store_products<4>(sums, out);
  } else {
    of_queries<Queries> sums;
    tile_sums<Queries>(queries, keys, dims, sums);
    store_products<Queries>(sums, out);
  }
}
#endif

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
