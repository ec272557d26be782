// SPDX-License-Identifier: Apache-2.0
// attend_run in vectors: four queries share each number that is loaded and widened. Logits and weights of a block of
// queries are stored as [tokens][queries], so that a vector holds those of all, whatever the number of tokens.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

#if ZOOMR_PAIRS
// Pairs of bfloat16: a number of one token, and in the upper half of its 32 bits that of the next.

/// The numbers at `first` and `second`, a vector of them; without a `second`, zeros.
[[gnu::always_inline]] inline words load_pairs(const bfloat16* first, const bfloat16* second) {
  const words upper = second == nullptr ? words{} : widened(&second->bits) << 16;
  return widened(&first->bits) | upper;
}
/// The same for twice as many dimensions.
[[gnu::always_inline]] inline void load_pairs(const bfloat16* first, const bfloat16* second, words* out) {
  using shorts = std::uint16_t __attribute__((vector_size(64)));
  const shorts a = from_memory<shorts>(first);
  const shorts b = second == nullptr ? shorts{} : from_memory<shorts>(second);
  out[0] =
      reinterpret_cast<words>(__builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8,
                                                      40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47));
  out[1] = reinterpret_cast<words>(__builtin_shufflevector(a, b, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54,
                                                           23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30,
                                                           62, 31, 63));
}
/// Lane i: v[i] and v[i + By], rounded to bfloat16.
template <index_t By>
[[gnu::always_inline]] inline words paired(floats v) {
  const words bits = reinterpret_cast<words>(v);
  const words rounded = nans(v) != 0 ? bits | 0x400000u : bits + 0x7fffu + ((bits >> 16) & 1u);
  const auto upper = reinterpret_cast<words>(rotated<By>(reinterpret_cast<floats>(rounded)));
  return (rounded >> 16) | (upper & 0xffff0000u);
}
#endif

/// Values are multiplied in pairs of tokens, as weights are then.
template <class Run>
inline constexpr bool in_pairs = ZOOMR_PAIRS != 0 &&
                                 (std::is_same_v<Run, page_run<bfloat16>> || std::is_same_v<Run, paired_tile>);

/// What is multiplied for one token, or for two.
template <class Run>
using factors = std::conditional_t<in_pairs<Run>, words, floats>;

[[gnu::always_inline]] inline void spread(float weight, floats& out) { out = kept(filled(weight)); }
[[gnu::always_inline]] inline void spread(float weights, words& out) {
  out = words{} + bits_as<std::uint32_t>(weights);
}

/// Values of token t, from dimension d on.
/// @param ahead  values that will be read next: prefetched
template <index_t Vectors, class Run>
[[gnu::always_inline]] inline void load_values(const Run& run, const Run& ahead, index_t t, index_t width, index_t d,
                                               floats* out) {
  using T = typename Run::number;
  const index_t from = in_blocks<T> ? d : 0;  // numbers of a block cannot be counted from the middle of it
  const T* const row = run.values + run.value_place(t, width) + (d - from);
  const T* const next = ahead.values + ahead.value_place(t, width) + (d - from);
#pragma GCC unroll 8
  for (index_t v = 0; v < Vectors; ++v) {
    out[v] = kept(load_at(row, from + v * simd));
    if (v * simd * static_cast<index_t>(sizeof(T)) % 64 == 0) prefetch(next + stored_size<T>(from + v * simd));
  }
}

#if ZOOMR_PAIRS
// Those of tokens t and t + 1.
template <index_t Vectors>
[[gnu::always_inline]] inline void load_values(const page_run<bfloat16>& run, const page_run<bfloat16>& ahead,
                                               index_t t, index_t, index_t d, words* out) {
  const bfloat16* const first = run.values + run.value_places[t] + d;
  const bfloat16* const second = t + 1 < run.tokens ? run.values + run.value_places[t + 1] + d : nullptr;
  const bfloat16* const next = ahead.values + ahead.value_places[t] + d;
  const bfloat16* const next_but_one = ahead.values + ahead.value_places[t + 1] + d;
  constexpr index_t even = Vectors / 2 * 2;
#pragma GCC unroll 4
  for (index_t v = 0; v < even; v += 2) {
    load_pairs(first + v * simd, second == nullptr ? nullptr : second + v * simd, out + v);
    prefetch(next + v * simd);
    prefetch(next_but_one + v * simd);
  }
  if constexpr (even < Vectors) {
    out[even] = load_pairs(first + even * simd, second == nullptr ? nullptr : second + even * simd);
  }
}
template <index_t Vectors>
[[gnu::always_inline]] inline void load_values(const paired_tile& tile, const paired_tile&, index_t t, index_t width,
                                               index_t d, words* out) {
#pragma GCC unroll 8
  for (index_t v = 0; v < Vectors; ++v) {
    out[v] = from_memory<words>(tile.values + std::int64_t{t / 2} * width + d + v * simd);
    if (t + 1 == tile.tokens) out[v] &= 0xffffu;  // a query that does not see the next token
  }
}
#endif

/// out[q][d, d + Vectors * simd) += weights[t][q] * values[t][d ...], t ascending.
template <index_t Queries, index_t Stride, index_t Vectors, class Run>
[[gnu::always_inline]] inline void add_values(const float* weights, const Run& run, const Run& ahead, index_t width,
                                              float* const* out, index_t d) {
  floats sum[std::size_t{Queries * Vectors}];
#pragma GCC unroll 4
  for (index_t q = 0; q < Queries; ++q) {
#pragma GCC unroll 8
    for (index_t v = 0; v < Vectors; ++v) sum[q * Vectors + v] = load(out[q] + d + v * simd);
  }
  for (index_t t = 0; t < run.tokens; t += in_pairs<Run> ? 2 : 1) {
    factors<Run> value[std::size_t{Vectors}];
    load_values<Vectors>(run, ahead, t, width, d, value);
#pragma GCC unroll 4
    for (index_t q = 0; q < Queries; ++q) {
      factors<Run> weight;
      spread(weights[t * Stride + q], weight);
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

template <index_t Queries>
inline constexpr index_t weights_of = row_products_size<Queries>(page_tokens);

/// state.sum += weights[t], t ascending; four queries next to each other, and those of several blocks.
template <index_t Queries, index_t Blocks>
[[gnu::always_inline]] inline void add_weights(const float (*weights)[std::size_t{weights_of<Queries>}], index_t tokens,
                                               const run_query* queries) {
  if constexpr (Queries == 4) {
    using four = float __attribute__((vector_size(16)));
    four sum[std::size_t{Blocks}];
#pragma GCC unroll 4
    for (index_t b = 0; b < Blocks; ++b) {
      const run_query* const four_queries = queries + 4 * b;
      sum[b] = four{four_queries[0].state->sum, four_queries[1].state->sum, four_queries[2].state->sum,
                    four_queries[3].state->sum};
    }
    for (index_t t = 0; t < tokens; ++t) {
#pragma GCC unroll 4
      for (index_t b = 0; b < Blocks; ++b) sum[b] += from_memory<four>(weights[b] + 4 * t);
    }
#pragma GCC unroll 4
    for (index_t b = 0; b < Blocks; ++b) {
      for (index_t q = 0; q < 4; ++q) queries[4 * b + q].state->sum = sum[b][q];
    }
  } else {
    for (index_t q = 0; q < Blocks * Queries; ++q) {
      float sum = queries[q].state->sum;
      for (index_t t = 0; t < tokens; ++t) sum += weights[q / Queries][t * Queries + q % Queries];
      queries[q].state->sum = sum;
    }
  }
}

#if ZOOMR_PAIRS
using avx512::change_scaled, avx512::weigh;
#else
/// Seldom, and long.
[[gnu::noinline]] inline void raise(attention_state& state, float logit, index_t value_width) {
  state.raise(logit, value_width);
}

/// The logits of some blocks of queries become weights, and the states are raised. Each step waits for the one before:
/// those of several blocks wait together. It does not depend on the run, and is compiled once for all.
/// @param logits  [Blocks][page_tokens][Queries]  of `tokens` tokens, unscaled; aligned to a vector
template <index_t Queries, index_t Blocks>
[[gnu::noinline]] void weigh(float (*logits)[std::size_t{weights_of<Queries>}], index_t tokens, index_t value_width,
                             float scale, const run_query* queries) {
  floats largest[std::size_t{Blocks}];
  floats from[std::size_t{Blocks}];
#pragma GCC unroll 4
  for (index_t b = 0; b < Blocks; ++b) {
    // Vectors are whole: after the last token they hold what does not count.
    for (index_t i = tokens * Queries; i % simd != 0; ++i) logits[b][i] = -infinity;
    largest[b] = filled(-infinity);
  }
  for (index_t i = 0; i < tokens * Queries; i += simd) {
#pragma GCC unroll 4
    for (index_t b = 0; b < Blocks; ++b) {
      const floats scaled = load(logits[b] + i) * scale;
      to_memory(scaled, logits[b] + i);
      largest[b] = larger(largest[b], scaled);
    }
  }
#pragma GCC unroll 4
  for (index_t b = 0; b < Blocks; ++b) {
    if constexpr (simd > 8) largest[b] = larger(largest[b], rotated<simd / 2>(largest[b]));
    if constexpr (Queries <= 4 && simd >= 8) largest[b] = larger(largest[b], rotated<4>(largest[b]));
    if constexpr (Queries <= 2) largest[b] = larger(largest[b], rotated<2>(largest[b]));
    if constexpr (Queries == 1) largest[b] = larger(largest[b], rotated<1>(largest[b]));
  }
#pragma GCC unroll 4
  for (index_t b = 0; b < Blocks; ++b) {
    floats raised = largest[b];
#pragma GCC unroll 4
    for (index_t q = 0; q < Queries; ++q) {
      attention_state& state = *queries[b * Queries + q].state;
      if (!(largest[b][q] <= state.max)) raise(state, largest[b][q], value_width);
      raised[q] = state.max;
    }
    raised = repeated<Queries>(raised);
    from[b] = raised == -infinity ? floats{} : raised;
  }
  for (index_t i = 0; i < tokens * Queries; i += simd) {
#pragma GCC unroll 4
    for (index_t b = 0; b < Blocks; ++b) to_memory(exponential(load(logits[b] + i) - from[b]), logits[b] + i);
  }
  add_weights<Queries, Blocks>(logits, tokens, queries);
}

/// Logits that go through a hook.
template <index_t Queries, class Hook>
[[gnu::always_inline]] inline void change_scaled(float* logits, index_t tokens, float scale, const hooked<Hook>& call) {
  for (index_t i = 0; i < tokens * Queries; i += simd) to_memory(load(logits + i) * scale, logits + i);
  change(call.hook, run_logits{logits, tokens, Queries, call.first_slot, call.first_query});
}
#endif

/// Products of a block of queries, in pairs or not, with the keys of a run: out[t * Stride + q].
template <index_t Queries, index_t Stride, class T>
[[gnu::always_inline]] inline void products_with(const page_run<T>& run, const page_run<T>& ahead,
                                                 const run_query* queries, index_t dims, float* out) {
  const float* query[std::size_t{Queries}];
  for (index_t q = 0; q < Queries; ++q) query[q] = queries[q].query;
  const placed_rows<T> rows{run.keys, run.places}, next{ahead.keys, ahead.places};
#if ZOOMR_PAIRS
  if (in_pairs<page_run<T>> && queries->pairs)
    return row_products_of_pairs<Queries, Stride>(query, rows, run.tokens, next, dims, out);
#endif
  row_products<Queries, Stride>(query, rows, run.tokens, next, dims, out);
}

template <index_t Queries, index_t Stride>
[[gnu::always_inline]] inline void products_with(const page_tile& tile, const page_tile&, const run_query* queries,
                                                 index_t dims, float* out) {
  const float* query[std::size_t{Queries}];
  for (index_t q = 0; q < Queries; ++q) query[q] = queries[q].query;
#if ZOOMR_PAIRS
  if (queries->pairs) {
    for (index_t q = 0; q < Queries; ++q) query[q] += dims;
    return tile_products_of_pairs<Queries>(query, tile.key_pairs, dims, out);
  }
#endif
  for (index_t t = 0; t < tile.tokens; t += simd * tile_vectors)
    tile_products<Queries>(query, tile.keys + t, dims, out + t * Queries);
}

template <index_t Queries>
[[gnu::always_inline]] inline void multiply(float* numbers, float factor) {
#pragma GCC unroll 4
  for (index_t q = 0; q < Queries; ++q) numbers[q] *= factor;
}

/// From queries to weights, of some blocks of queries.
/// @param queries  [Blocks][Stride]
/// @param weights  [Blocks][weights_of<Stride>]  out, aligned to a vector
template <index_t Queries, index_t Stride, index_t Blocks, class Run, class Hook>
[[gnu::flatten]] void weigh_blocks(const Run& run, const Run& ahead, const run_query* queries, kv_widths widths,
                                   float scale, hooked<Hook> call, float (*weights)[std::size_t{weights_of<Stride>}]) {
  using T = typename Run::number;
  if constexpr (!std::is_base_of_v<page_tile, Run>) {
    constexpr index_t line = 64 / static_cast<index_t>(sizeof(T));
    for (index_t t = run.tokens; t < ahead.tokens; ++t) {  // more than the loops below prefetch
      for (index_t d = 0; d < widths.key; d += line) prefetch(ahead.keys + ahead.places[t] + stored_size<T>(d));
      for (index_t d = 0; d < widths.value; d += line)
        prefetch(ahead.values + ahead.value_places[t] + stored_size<T>(d));
    }
  }
  for (index_t b = 0; b < Blocks; ++b) {
    products_with<Queries, Stride>(run, b == 0 ? ahead : run, queries + b * Stride, widths.key, weights[b]);
    if (run.has_scales()) {
      for (index_t t = 0; t < run.tokens; ++t) multiply<Stride>(weights[b] + t * Stride, run.key_scale(t, widths));
    }
  }
  if constexpr (has_hook<Hook>) {
    for (index_t b = 0; b < Blocks; ++b) {
      change_scaled<Stride>(weights[b], run.tokens, scale, call.from(b * Stride));
    }
    scale = 1.0f;
  }
  weigh<Stride, Blocks>(weights, run.tokens, widths.value, scale, queries);
  for (index_t b = 0; b < Blocks; ++b) {
    if (run.has_scales()) {
      for (index_t t = 0; t < run.tokens; ++t) multiply<Stride>(weights[b] + t * Stride, run.value_scale(t, widths));
    }
#if ZOOMR_PAIRS
    if constexpr (in_pairs<Run>) {  // weights of two tokens are where that of the first was
      for (index_t i = 0; i < run.tokens * Stride; i += simd) {
        to_memory(reinterpret_cast<floats>(paired<Stride>(load(weights[b] + i))), weights[b] + i);
      }
    }
#endif
  }
}

/// From weights to outputs.
template <index_t Queries, index_t Stride, class Run>
[[gnu::flatten]] void add_block(const Run& run, const Run& ahead, const run_query* queries, index_t width,
                                const float* weights) {
  constexpr index_t vectors = accumulators / Stride < 8 ? accumulators / Stride : 8;
  float* out[std::size_t{Queries}];
  for (index_t q = 0; q < Queries; ++q) out[q] = queries[q].state->out;
  index_t d = 0;
  for (; d + vectors * simd <= width; d += vectors * simd) {
    add_values<Queries, Stride, vectors>(weights, run, ahead, width, out, d);
  }
  if constexpr (vectors > 2) {
    constexpr index_t half = vectors / 2;
    if (d + half * simd <= width)
      add_values<Queries, Stride, half>(weights, run, ahead, width, out, d), d += half * simd;
  }
  for (; d < width; d += simd) add_values<Queries, Stride, 1>(weights, run, ahead, width, out, d);
}

/// Blocks of `Queries` queries, which begin `Stride` apart. Those between have states, but no logits and no output.
template <index_t Queries, index_t Stride = Queries, index_t Blocks = 1, class Run, class Hook>
void attend_block(const Run& run, const Run& ahead, const run_query* queries, kv_widths widths, float scale,
                  hooked<Hook> call) {
  alignas(floats) float weights[std::size_t{Blocks}][std::size_t{weights_of<Stride>}];
  weigh_blocks<Queries, Stride, Blocks>(run, ahead, queries, widths, scale, call, weights);
  for (index_t b = 0; b < Blocks; ++b) {
    add_block<Queries, Stride>(run, b == 0 ? ahead : run, queries + b * Stride, widths.value, weights[b]);
  }
}

// The first block of queries brings the next run near the processor. Of four blocks all read the keys before any reads
// the values, so that either stay in the first cache.
template <class Run, class Hook>
void attend_run(this_path, const Run& run, const Run& ahead, const run_query* queries, index_t count, kv_widths widths,
                float scale, hooked<Hook> call) {
#if ZOOMR_PAIRS
  if constexpr (in_pairs<Run>) {  // those of a block are all in pairs, or none
    index_t alike = 0;
    while (alike < count && queries[alike].pairs == queries->pairs) ++alike;
    if (alike < count) {
      attend_run(this_path{}, run, ahead, queries, alike, widths, scale, call);
      return attend_run(this_path{}, run, ahead, queries + alike, count - alike, widths, scale, call.from(alike));
    }
  }
#endif
  index_t q = 0;
  for (; q + 16 <= count; q += 16) {
    attend_block<4, 4, 4>(run, q == 0 ? ahead : run, queries + q, widths, scale, call.from(q));
  }
  for (; q + 4 <= count; q += 4) attend_block<4>(run, q == 0 ? ahead : run, queries + q, widths, scale, call.from(q));
  if constexpr (!has_hook<Hook>) {
    if (q + 3 == count) {  // two and one would read and widen twice: a fourth has weights of 0
      constexpr bool is_tile = std::is_base_of_v<page_tile, Run>;  // that multiplies it; its logits may be NaN
      float zeros[std::size_t{is_tile ? shape::most_head_dim : 1}] = {};
      attention_state nobody{infinity, 0.0f, zeros};
      const run_query four[] = {
          queries[q], queries[q + 1], queries[q + 2], {queries[q].query, &nobody, queries[q].pairs}};
      return attend_block < is_tile ? 4 : 3, 4 > (run, q == 0 ? ahead : run, four, widths, scale, call.from(q));
    }
  }
  if (q + 2 <= count) {
    attend_block<2>(run, q == 0 ? ahead : run, queries + q, widths, scale, call.from(q));
    q += 2;
  }
  if (q < count) attend_block<1>(run, q == 0 ? ahead : run, queries + q, widths, scale, call.from(q));
}

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
