// SPDX-License-Identifier: Apache-2.0
// Products, exponentials, widening and narrowing in vectors.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

/// What sums across vectors are made in: as many of them at a time.
inline constexpr index_t sums_at_once = simd < 8 ? 4 : 8;
using summed = float __attribute__((vector_size(ZOOMR_SIMD < 8 ? 16 : 32)));

/// One step of the halving tree for a vector of 16: the upper half is added to the lower.
[[gnu::always_inline]] inline summed halved(floats v) {
#if ZOOMR_SIMD == 16
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  return v;
#endif
}

/// Lane i: the sum of v[i] by a halving tree.
[[gnu::always_inline]] inline summed halving_sums(const summed* v) {
#if ZOOMR_SIMD > 4
  summed four[4];  // [v[i], v[i + 4]]: four sums of each
#pragma GCC unroll 4
  for (index_t i = 0; i < 4; ++i) {
    four[i] = __builtin_shufflevector(v[i], v[i + 4], 0, 1, 2, 3, 8, 9, 10, 11) +
              __builtin_shufflevector(v[i], v[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  summed two[2];  // [v[2 i], v[2 i + 1], v[2 i + 4], v[2 i + 5]]: two sums of each
#pragma GCC unroll 2
  for (index_t i = 0; i < 2; ++i) {
    two[i] = __builtin_shufflevector(four[2 * i], four[2 * i + 1], 0, 1, 8, 9, 4, 5, 12, 13) +
             __builtin_shufflevector(four[2 * i], four[2 * i + 1], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  return __builtin_shufflevector(two[0], two[1], 0, 2, 8, 10, 4, 6, 12, 14) +
         __builtin_shufflevector(two[0], two[1], 1, 3, 9, 11, 5, 7, 13, 15);
#else
  summed two[2];  // [v[2 i], v[2 i + 1]]: two sums of each
#pragma GCC unroll 2
  for (index_t i = 0; i < 2; ++i) {
    two[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 1, 4, 5) +
             __builtin_shufflevector(v[2 * i], v[2 * i + 1], 2, 3, 6, 7);
  }
  return __builtin_shufflevector(two[0], two[1], 0, 2, 4, 6) + __builtin_shufflevector(two[0], two[1], 1, 3, 5, 7);
#endif
}

/// out[i]: the sum of v[i] by a halving tree.
template <std::size_t Count>
[[gnu::always_inline]] inline void store_sums(const summed (&v)[Count], float* out) {
  static_assert(Count % sums_at_once == 0);
#pragma GCC unroll 4
  for (index_t i = 0; i < static_cast<index_t>(Count); i += sums_at_once) {
    const summed sums = halving_sums(v + i);
    __builtin_memcpy(out + i, &sums, sizeof sums);
  }
}

/// Products of `Queries` queries with `Rows` rows, in the contract's order: out[r * Stride + q], zeros between.
///
/// Half of the registers hold one accumulator for each product. The partial sums that one vector cannot hold
/// are made one vector after the other.
/// @param queries  [Queries][dims]
/// @param rows     at least one; where there are fewer than `Rows` the last stands for the others
/// @param ahead    rows that will be read next: prefetched, line by line
/// @param first    of the rows of either
/// @pre   dims is a multiple of simd_dims
template <index_t Queries, index_t Rows, index_t Stride, class T>
[[gnu::always_inline]] inline void dots(const float* const* queries, const placed_rows<T>& rows,
                                        const placed_rows<T>& ahead, index_t first, index_t dims, float* out) {
  constexpr index_t products = Queries * Rows;
  constexpr index_t parts = 32 / simd;
  floats sum[std::size_t{parts}][std::size_t{products}];
  const T* row[std::size_t{Rows}];
  const T* next[std::size_t{Rows}];
#pragma GCC unroll 16
  for (index_t r = 0; r < Rows; ++r) {
    row[r] = rows.row(first + r);
    next[r] = ahead.row(first + r);
  }
#if ZOOMR_SIMD > 4
#pragma GCC unroll 4
  for (index_t part = 0; part < parts; ++part) {
    floats(&of_part)[std::size_t{products}] = sum[part];
#else  // too many to unroll: the sums go to memory
  for (index_t r = 0; r < Rows; ++r) {
    for (index_t d = 0; d < dims; d += 64 / static_cast<index_t>(sizeof(T))) prefetch(next[r] + stored_size<T>(d));
  }
  for (index_t part = 0; part < parts; ++part) {
    floats of_part[std::size_t{products}];
#endif
#pragma GCC unroll 16
    for (index_t i = 0; i < products; ++i) of_part[i] = floats{};
    std::int64_t block = 0;  // where it begins in a row: counted, since a product for each load is slow
    for (index_t d = part * simd; d < dims; d += 32, block += block_size<T>) {
      const std::int64_t at = in_blocks<T> ? block : d - part * simd;
      floats query[std::size_t{Queries}];
#pragma GCC unroll 4
      for (index_t q = 0; q < Queries; ++q) query[q] = kept(load(queries[q] + d));
#pragma GCC unroll 16
      for (index_t r = 0; r < Rows; ++r) {
        const floats number = kept(load_at(row[r] + at, part * simd));
        if (simd > 4 && part * simd * static_cast<index_t>(sizeof(T)) % 64 == 0) {
          prefetch(next[r] + at + stored_size<T>(part * simd));
        }
#pragma GCC unroll 4
        for (index_t q = 0; q < Queries; ++q) {
          of_part[r * Queries + q] = fused(query[q], number, of_part[r * Queries + q]);
        }
      }
    }
#if ZOOMR_SIMD == 4
#pragma GCC unroll 16
    for (index_t i = 0; i < products; ++i) sum[part][i] = of_part[i];
#endif
  }
  summed half_sums[std::size_t{Rows * Stride}] = {};
#pragma GCC unroll 16
  for (index_t i = 0; i < products; ++i) {
    summed& half = half_sums[i / Queries * Stride + i % Queries];
    if constexpr (parts == 8) {
#pragma GCC unroll 4
      for (index_t part = 0; part < 4; ++part) sum[part][i] += sum[part + 4][i];
    }
    if constexpr (parts == 2) {
      half = halved(sum[0][i] + sum[1][i]);
    } else {
      half = halved((sum[0][i] + sum[2][i]) + (sum[1][i] + sum[3][i]));
    }
  }
  store_sums(half_sums, out);
}

/// Rows whose products with so many queries are made together.
template <index_t Queries>
inline constexpr index_t rows_together = (Queries < 4 ? 8 : accumulators) / Queries;

/// Floats that `row_products` may write for `rows` rows: whole blocks of products.
template <index_t Queries>
constexpr index_t row_products_size(index_t rows) {
  return rows * Queries + accumulators;
}

/// Products of `Queries` queries with any number of rows: out[r * Stride + q], zeros between. Attention and scores
/// share it, since it takes the compiler long.
/// @param ahead  rows that will be read next: prefetched, line by line
/// @param out    [row_products_size<Stride>(count)]
template <index_t Queries, index_t Stride = Queries, class T>
[[gnu::noinline]] void row_products(const float* const* queries, const placed_rows<T>& rows, index_t count,
                                    const placed_rows<T>& ahead, index_t dims, float* out) {
  constexpr index_t block = rows_together<Stride>;
  for (index_t r = 0; r < count; r += block) {
    dots<Queries, block, Stride>(queries, rows, ahead, r, dims, out + r * Stride);
  }
}

/// @param queries, out  [Queries]  rows of the whole
template <index_t Queries, class T>
void products_of(view<const float, 2> queries, const T* rows, std::int64_t stride, view<float, 2> out) {
  constexpr index_t block_rows = 16;         // rows
  constexpr index_t ahead = 2 * block_rows;  // rows between those that are read and those that are prefetched
  const index_t dims = queries.extent(1);
  const index_t count = out.extent(1);
  const float* query[std::size_t{Queries}];
  for (index_t q = 0; q < Queries; ++q) query[q] = queries.data() + q * queries.stride(0);
  float block[std::size_t{row_products_size<Queries>(block_rows)}];
  const row_places whole(stride, block_rows), last(stride, (count - 1) % block_rows + 1);
  const auto placed = [&](index_t r) -> placed_rows<T> {
    return {rows + r * stride, count - r < block_rows ? last.at : whole.at};
  };
  for (index_t r = 0; r < count; r += block_rows) {
    const index_t rows_here = count - r < block_rows ? count - r : block_rows;
    row_products<Queries>(query, placed(r), rows_here, placed(r + ahead < count ? r + ahead : r), dims, block);
    for (index_t q = 0; q < Queries; ++q) {
      float* const row = out.data() + q * out.stride(0) + r;
      for (index_t i = 0; i < rows_here; ++i) row[i] = block[i * Queries + q];
    }
  }
}

template <class T>
void products(this_path, view<const float, 2> queries, const T* rows, std::int64_t stride, view<float, 2> out) {
  const index_t count = queries.extent(0);
  index_t q = 0;
  for (; q + 4 <= count; q += 4) products_of<4>(queries.slice(q, q + 4), rows, stride, out.slice(q, q + 4));
  if (q + 2 <= count) {
    products_of<2>(queries.slice(q, q + 2), rows, stride, out.slice(q, q + 2));
    q += 2;
  }
  if (q < count) products_of<1>(queries.slice(q, q + 1), rows, stride, out.slice(q, q + 1));
}

// They return how many they have done: whole vectors.
inline index_t exponentials(this_path, float* x, index_t count, float from) {
  index_t i = 0;
  for (; i + simd <= count; i += simd) to_memory(exponential(load(x + i) - from), x + i);
  return i;
}

template <class T>
index_t widen(this_path, const T* from, float scale, float* to, index_t count) {
  const floats times = filled(scale), nothing = filled(-0.0f);
  index_t i = 0;
  for (; i + simd <= count; i += simd) to_memory(fused(load_at(from, i), times, nothing), to + i);
  return i;
}

template <class T>
index_t narrow(this_path, const float* from, float scale, T* to, index_t count) {
  index_t i = 0;
  if constexpr (requires(floats v) { store(v, to); }) {
    for (; i + simd <= count; i += simd) store(load(from + i) / scale, to + i);
  }
  return i;
}

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
