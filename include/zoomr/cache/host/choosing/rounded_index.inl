// SPDX-License-Identifier: Apache-2.0
// Scores of blocks of segments, in integers of 32 bits: exact, so that every path has the same ones.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

#if ZOOMR_SIMD > 4
/// Numbers of `simd` segments, two of each, in 16 bits.
using number_pairs = short __attribute__((vector_size(4 * ZOOMR_SIMD)));

[[gnu::always_inline]] inline number_pairs widened_pairs(const int8* at) {
#if defined(__clang__)
  using narrow = std::int8_t __attribute__((vector_size(2 * ZOOMR_SIMD)));
  return __builtin_convertvector(from_memory<narrow>(at), number_pairs);
#else
  using chars = char __attribute__((vector_size(2 * ZOOMR_SIMD)));
#if ZOOMR_SIMD == 16
  return __builtin_ia32_pmovsxbw512_mask(from_memory<chars>(at), number_pairs{}, 0xffffffffu);
#else
  return __builtin_ia32_pmovsxbw256(from_memory<chars>(at));
#endif
#endif
}
/// The sum of the two products of each segment.
[[gnu::always_inline]] inline ints products_of_pairs(number_pairs a, number_pairs b) {
#if ZOOMR_SIMD == 8
  return __builtin_ia32_pmaddwd256(a, b);
#elif defined(__clang__)
  return __builtin_ia32_pmaddwd512(a, b);
#else
  return __builtin_ia32_pmaddwd512_mask(a, b, ints{}, static_cast<unsigned short>(-1));
#endif
}
[[gnu::always_inline]] inline ints larger(ints a, ints b) { return a > b ? a : b; }

/// As `score_blocks_plainly`.
inline void score_blocks(this_path, const int8* rows, index_t blocks, index_t pairs, const std::int32_t* weights,
                         const std::int32_t* offsets, index_t heads, std::int32_t* scores, std::int32_t* largest) {
  constexpr index_t parts = block_segments / simd;
  for (index_t block = 0; block < blocks; ++block, rows += 2 * block_segments * pairs, scores += block_segments) {
    ints best[parts] = {};
    for (index_t h = 0; h < heads; ++h) {
      ints sum[parts], other[parts];
#pragma GCC unroll 2
      for (index_t part = 0; part < parts; ++part) sum[part] = offsets[h] - ints{}, other[part] = ints{};
      const std::int32_t* const weight = weights + h * pairs;
      const int8* at = rows;
      for (index_t pair = 0; pair < pairs; pair += 2, at += 4 * block_segments) {  // an even number
        const auto first = reinterpret_cast<number_pairs>(weight[pair] - ints{});
        const auto second = reinterpret_cast<number_pairs>(weight[pair + 1] - ints{});
        if (h == 0) prefetch(at + 4096);
#pragma GCC unroll 2
        for (index_t part = 0; part < parts; ++part) {
          sum[part] += products_of_pairs(widened_pairs(at + 2 * part * simd), first);
          other[part] += products_of_pairs(widened_pairs(at + 2 * (block_segments + part * simd)), second);
        }
      }
#pragma GCC unroll 2
      for (index_t part = 0; part < parts; ++part) {
        sum[part] += other[part];
        best[part] = h == 0 ? sum[part] : larger(best[part], sum[part]);
      }
    }
#pragma GCC unroll 2
    for (index_t part = 0; part < parts; ++part) __builtin_memcpy(scores + part * simd, &best[part], sizeof(ints));
    ints all = larger(best[0], best[parts - 1]);
#if ZOOMR_SIMD == 16
    all = larger(all, __builtin_shufflevector(all, all, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    all = larger(all, __builtin_shufflevector(all, all, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    all = larger(all, __builtin_shufflevector(all, all, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
#else
    all = larger(all, __builtin_shufflevector(all, all, 4, 5, 6, 7, 0, 1, 2, 3));
    all = larger(all, __builtin_shufflevector(all, all, 2, 3, 0, 1, 6, 7, 4, 5));
#endif
    largest[block] = all[0] > all[1] ? all[0] : all[1];
  }
}
#else
inline void score_blocks(this_path, const int8* rows, index_t blocks, index_t pairs, const std::int32_t* weights,
                         const std::int32_t* offsets, index_t heads, std::int32_t* scores, std::int32_t* largest) {
  score_blocks_plainly(rows, blocks, pairs, weights, offsets, heads, scores, largest);
}
#endif

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
