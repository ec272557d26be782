// SPDX-License-Identifier: Apache-2.0
// Products of queries with keys that are stored dimension by dimension: a vector holds those of several tokens, so that
// no sum goes across a vector.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

#if ZOOMR_PAIRS
template <index_t Queries>
[[gnu::always_inline]] inline void tile_products(const float* const* queries, const float* keys, index_t dims,
                                                 float* out) {
  avx512::tile_products<Queries>(queries, keys, dims, out);
}
#else
/// A number of each query, for the tokens of a vector.
template <index_t Queries>
struct of_queries {
  floats at[std::size_t{Queries}] = {};

  [[gnu::always_inline]] friend inline of_queries operator+(of_queries a, const of_queries& b) {
#pragma GCC unroll 4
    for (index_t q = 0; q < Queries; ++q) a.at[q] += b.at[q];
    return a;
  }
};

/// part += what dimension d adds to the products.
template <index_t Queries>
[[gnu::always_inline]] inline void add_dim(const float* const* queries, const float* keys, index_t d,
                                           of_queries<Queries>& part) {
  const floats key = kept(load(keys + d * page_tokens));
#pragma GCC unroll 4
  for (index_t q = 0; q < Queries; ++q) part.at[q] = fused(filled(queries[q][d]), key, part.at[q]);
}

/// The partial sums First, First + Apart, First + 2 Apart, ... of 32, added by the halving tree of math/dot.hpp.
/// @param keys  [dims, page_tokens]  of the vector's first token
/// @pre   dims is a multiple of simd_dims
template <index_t Queries, index_t First, index_t Apart>
[[gnu::always_inline]] inline of_queries<Queries> tile_sums(const float* const* queries, const float* keys,
                                                            index_t dims) {
  if constexpr (Apart < 8) {
    return tile_sums<Queries, First, 2 * Apart>(queries, keys, dims) +
           tile_sums<Queries, First + Apart, 2 * Apart>(queries, keys, dims);
  } else {
    of_queries<Queries> part[4];
    index_t d = First;
    for (; d + 24 < dims; d += 32) {
#pragma GCC unroll 4
      for (index_t i = 0; i < 4; ++i) add_dim<Queries>(queries, keys, d + 8 * i, part[i]);
    }
    if (d < dims) {
      add_dim<Queries>(queries, keys, d, part[0]);
      add_dim<Queries>(queries, keys, d + 8, part[1]);
    }
    return (part[0] + part[2]) + (part[1] + part[3]);
  }
}

/// out[t * Queries + q], for the tokens of a vector; four queries fill 32 registers.
template <index_t Queries>
[[gnu::noinline]] void tile_products(const float* const* queries, const float* keys, index_t dims, float* out) {
  of_queries<Queries> sums;
  if constexpr (Queries == 4 && simd == 8) {
    const auto first = tile_sums<2, 0, 1>(queries, keys, dims), last = tile_sums<2, 0, 1>(queries + 2, keys, dims);
    sums = {first.at[0], first.at[1], last.at[0], last.at[1]};
  } else {
    sums = tile_sums<Queries, 0, 1>(queries, keys, dims);
  }
  if constexpr (Queries == 1) {
    to_memory(sums.at[0], out);
  } else if constexpr (Queries == 2) {
    to_memory(interleaved<0>(sums.at[0], sums.at[1]), out);
    to_memory(interleaved<1>(sums.at[0], sums.at[1]), out + simd);
  } else {
#pragma GCC unroll 2
    for (index_t half = 0; half < 2; ++half) {
      const floats a = half == 0 ? interleaved<0>(sums.at[0], sums.at[1]) : interleaved<1>(sums.at[0], sums.at[1]);
      const floats b = half == 0 ? interleaved<0>(sums.at[2], sums.at[3]) : interleaved<1>(sums.at[2], sums.at[3]);
      to_memory(interleaved_pairs<0>(a, b), out + 2 * half * simd);
      to_memory(interleaved_pairs<1>(a, b), out + (2 * half + 1) * simd);
    }
  }
}
#endif

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
