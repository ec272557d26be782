// SPDX-License-Identifier: Apache-2.0
// Products of queries with keys that are stored dimension by dimension: a vector holds those of several tokens, so that
// no sum goes across a vector.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

#if ZOOMR_PAIRS
using avx512::tile_products, avx512::tile_vectors;
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

/// The same of the products; four queries fill 32 registers, two of two vectors 16.
template <index_t Queries>
[[gnu::noinline]] void tile_products(const float* const* queries, const float* keys, index_t dims, float* out) {
  of_queries<Queries> sums;
  if constexpr (Queries == 4 && simd == 8) {
    const auto first = tile_sums<2, 0, 1>(queries, keys, dims), last = tile_sums<2, 0, 1>(queries + 2, keys, dims);
    for (index_t v = 0; v < tile_vectors; ++v) {
      for (index_t q = 0; q < 2; ++q) sums.at[q][v] = first.at[q][v], sums.at[q + 2][v] = last.at[q][v];
    }
  } else {
    sums = tile_sums<Queries, 0, 1>(queries, keys, dims);
  }
  store_products<Queries>(sums, out);
}
#endif

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
