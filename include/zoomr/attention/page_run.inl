// SPDX-License-Identifier: Apache-2.0
// attend_run in vectors: four queries share each number that is loaded and widened. Logits and weights of a block of
// queries lie as [tokens][queries], so that a vector holds those of all, whatever the number of tokens.
namespace zoomr {
inline namespace v0 {
namespace detail {
namespace ZOOMR_PATH {

/// out[q][d, d + Vectors * simd) += weights[t][q] * values[t][d ...], t ascending.
/// @param ahead  values that will be read next: they are asked for
template <index_t Queries, index_t Vectors, class Run>
[[gnu::always_inline]] inline void add_values(const float* weights, const Run& run, const Run& ahead, index_t dims,
                                              float* const* out, index_t d) {
  using T = typename Run::number;
  floats sum[std::size_t{Queries * Vectors}];
#pragma GCC unroll 4
  for (index_t q = 0; q < Queries; ++q) {
#pragma GCC unroll 8
    for (index_t v = 0; v < Vectors; ++v) sum[q * Vectors + v] = load(out[q] + d + v * simd);
  }
  for (index_t t = 0; t < run.tokens; ++t) {
    const T* const row = run.values + std::int64_t{t} * dims + d;
    const T* const next = ahead.values + std::int64_t{t < ahead.tokens ? t : ahead.tokens - 1} * dims + d;
    floats value[std::size_t{Vectors}];
#pragma GCC unroll 8
    for (index_t v = 0; v < Vectors; ++v) {
      value[v] = kept(load(row + v * simd));
      if (v * simd * static_cast<index_t>(sizeof(T)) % 64 == 0) prefetch(next + v * simd);
    }
#pragma GCC unroll 4
    for (index_t q = 0; q < Queries; ++q) {
      const floats weight = kept(filled(weights[t * Queries + q]));
#pragma GCC unroll 8
      for (index_t v = 0; v < Vectors; ++v) sum[q * Vectors + v] = fused(weight, value[v], sum[q * Vectors + v]);
    }
  }
#pragma GCC unroll 4
  for (index_t q = 0; q < Queries; ++q) {
#pragma GCC unroll 8
    for (index_t v = 0; v < Vectors; ++v) to_memory(sum[q * Vectors + v], out[q] + d + v * simd);
  }
}

/// state.sum += weights[t], t ascending; four queries next to each other.
template <index_t Queries>
[[gnu::always_inline]] inline void add_weights(const float* weights, index_t tokens, const run_query* queries) {
  if constexpr (Queries == 4) {
    using four = float __attribute__((vector_size(16)));
    four sum = {queries[0].state->sum, queries[1].state->sum, queries[2].state->sum, queries[3].state->sum};
    for (index_t t = 0; t < tokens; ++t) sum += from_memory<four>(weights + 4 * t);
    for (index_t q = 0; q < 4; ++q) queries[q].state->sum = sum[q];
  } else {
    for (index_t q = 0; q < Queries; ++q) {
      float sum = queries[q].state->sum;
      for (index_t t = 0; t < tokens; ++t) sum += weights[t * Queries + q];
      queries[q].state->sum = sum;
    }
  }
}

/// The logits become weights, and the states are raised.
/// @param logits  [page_tokens][Queries]  of run.tokens tokens, unscaled; aligned to a vector
template <index_t Queries>
[[gnu::always_inline]] inline void weigh(float* logits, index_t tokens, index_t dims, float scale,
                                         const run_query* queries) {
  // Vectors are whole: behind the last token they hold what does not count.
  for (index_t i = tokens * Queries; i % simd != 0; ++i) logits[i] = -infinity;
  floats largest = filled(-infinity);
  for (index_t i = 0; i < tokens * Queries; i += simd) {
    const floats scaled = load(logits + i) * scale;
    to_memory(scaled, logits + i);
    largest = larger(largest, scaled);
  }
  if constexpr (simd > 8) largest = larger(largest, rotated<simd / 2>(largest));
  if constexpr (Queries <= 4 && simd >= 8) largest = larger(largest, rotated<4>(largest));
  if constexpr (Queries <= 2) largest = larger(largest, rotated<2>(largest));
  if constexpr (Queries == 1) largest = larger(largest, rotated<1>(largest));
  floats raised = largest;
#pragma GCC unroll 4
  for (index_t q = 0; q < Queries; ++q) {
    attention_state& state = *queries[q].state;
    state.raise(largest[q], dims);
    raised[q] = state.max;
  }
  largest = repeated<Queries>(raised);
  for (index_t i = 0; i < tokens * Queries; i += simd) {
    to_memory(largest == -infinity ? floats{} : exponential(load(logits + i) - largest), logits + i);
  }
  add_weights<Queries>(logits, tokens, queries);
}

template <index_t Queries>
inline constexpr index_t weights_of = row_products_size<Queries>(page_tokens);

template <index_t Queries, class T>
[[gnu::always_inline]] inline void products_with(const page_run<T>& run, const page_run<T>& ahead,
                                                 const float* const* queries, index_t dims, float* out) {
  row_products<Queries>(queries, run.keys, run.tokens, dims, ahead.keys, ahead.tokens, out);
}

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
    if (d < dims) add_dim<Queries>(queries, keys, d, part[0]), add_dim<Queries>(queries, keys, d + 8, part[1]);
    return (part[0] + part[2]) + (part[1] + part[3]);
  }
}

/// out[t * Queries + q], for the tokens of a vector; four queries fill 32 registers.
template <index_t Queries>
[[gnu::noinline]] void tile_products(const float* const* queries, const float* keys, index_t dims, float* out) {
  of_queries<Queries> made;
  if constexpr (Queries == 4 && simd == 8) {
    const auto first = tile_sums<2, 0, 1>(queries, keys, dims), last = tile_sums<2, 0, 1>(queries + 2, keys, dims);
    made = {first.at[0], first.at[1], last.at[0], last.at[1]};
  } else {
    made = tile_sums<Queries, 0, 1>(queries, keys, dims);
  }
  if constexpr (Queries == 1) {
    to_memory(made.at[0], out);
  } else if constexpr (Queries == 2) {
    to_memory(interleaved<0>(made.at[0], made.at[1]), out);
    to_memory(interleaved<1>(made.at[0], made.at[1]), out + simd);
  } else {
#pragma GCC unroll 2
    for (index_t half = 0; half < 2; ++half) {
      const floats a = half == 0 ? interleaved<0>(made.at[0], made.at[1]) : interleaved<1>(made.at[0], made.at[1]);
      const floats b = half == 0 ? interleaved<0>(made.at[2], made.at[3]) : interleaved<1>(made.at[2], made.at[3]);
      to_memory(interleaved_pairs<0>(a, b), out + 2 * half * simd);
      to_memory(interleaved_pairs<1>(a, b), out + (2 * half + 1) * simd);
    }
  }
}

template <index_t Queries>
[[gnu::always_inline]] inline void products_with(const page_tile& tile, const page_tile&, const float* const* queries,
                                                 index_t dims, float* out) {
  for (index_t t = 0; t < tile.tokens; t += simd)
    tile_products<Queries>(queries, tile.keys + t, dims, out + t * Queries);
}

/// From queries to weights.
/// @param weights  [weights_of<Queries>]  out, aligned to a vector
template <index_t Queries, class Run>
[[gnu::flatten]] void weigh_block(const Run& run, const Run& ahead, const run_query* queries, index_t dims, float scale,
                                  float* weights) {
  using T = typename Run::number;
  const float* query[std::size_t{Queries}];
  for (index_t q = 0; q < Queries; ++q) query[q] = queries[q].query;
  for (index_t t = run.tokens; t < ahead.tokens; ++t) {  // more than the loops below ask for
    for (index_t d = 0; d < dims; d += 64 / static_cast<index_t>(sizeof(T))) {
      prefetch(ahead.keys + std::int64_t{t} * dims + d);
      prefetch(ahead.values + std::int64_t{t} * dims + d);
    }
  }
  products_with<Queries>(run, ahead, query, dims, weights);
  weigh<Queries>(weights, run.tokens, dims, scale, queries);
}

/// From weights to outputs.
template <index_t Queries, class Run>
[[gnu::flatten]] void add_block(const Run& run, const Run& ahead, const run_query* queries, index_t dims,
                                const float* weights) {
  constexpr index_t vectors = accumulators / Queries < 8 ? accumulators / Queries : 8;
  float* out[std::size_t{Queries}];
  for (index_t q = 0; q < Queries; ++q) out[q] = queries[q].state->out;
  index_t d = 0;
  for (; d + vectors * simd <= dims; d += vectors * simd) {
    add_values<Queries, vectors>(weights, run, ahead, dims, out, d);
  }
  for (; d < dims; d += simd) add_values<Queries, 1>(weights, run, ahead, dims, out, d);
}

template <index_t Queries, class Run>
void attend_block(const Run& run, const Run& ahead, const run_query* queries, index_t dims, float scale) {
  alignas(floats) float weights[std::size_t{weights_of<Queries>}];
  weigh_block<Queries>(run, ahead, queries, dims, scale, weights);
  add_block<Queries>(run, ahead, queries, dims, weights);
}

// The first block of queries brings the next run near the processor. Of four blocks all read the keys before any reads
// the values, so that either stay in the first cache.
template <class Run>
void attend_run(const Run& run, const Run& ahead, const run_query* queries, index_t count, index_t dims, float scale) {
  index_t q = 0;
  for (; q + 16 <= count; q += 16) {
    alignas(floats) float weights[4][std::size_t{weights_of<4>}];
    for (index_t i = 0; i < 4; ++i) {
      weigh_block<4>(run, q + i == 0 ? ahead : run, queries + q + 4 * i, dims, scale, weights[i]);
    }
    for (index_t i = 0; i < 4; ++i) {
      add_block<4>(run, q + i == 0 ? ahead : run, queries + q + 4 * i, dims, weights[i]);
    }
  }
  for (; q + 4 <= count; q += 4) attend_block<4>(run, q == 0 ? ahead : run, queries + q, dims, scale);
  if (q + 2 <= count) attend_block<2>(run, q == 0 ? ahead : run, queries + q, dims, scale), q += 2;
  if (q < count) attend_block<1>(run, q == 0 ? ahead : run, queries + q, dims, scale);
}

}  // namespace ZOOMR_PATH
}  // namespace detail
}  // namespace v0
}  // namespace zoomr
