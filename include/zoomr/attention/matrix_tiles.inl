// SPDX-License-Identifier: Apache-2.0
// What tiles leave to vectors: queries and weights in two parts of bfloat16, and the softmax between two products.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

/// x = upper + lower, but for 2^-16 of it. What is infinite or NaN is all in `upper`.
/// @return  what was left for `lower`, before it was rounded
[[gnu::always_inline]] inline floats split(floats x, bfloat16* upper, bfloat16* lower) {
  const words bits = reinterpret_cast<words>(x);
  const ints size = reinterpret_cast<ints>(bits) & 0x7fffffff;
  const words rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  // The largest numbers would be rounded to infinity.
  const words kept_bits = size < 0x7f7f8000 ? rounded : nans(x) != 0 ? bits | 0x400000u : bits;
  const auto first = reinterpret_cast<floats>(kept_bits & 0xffff0000u);
  const floats rest = size < 0x7f800000 ? x - first : floats{};
  store(first, upper);
  store(rest, lower);
  return rest;
}

#if ZOOMR_TILES && !ZOOMR_PAIRS
/// The same for a row.
/// @param from  [dims]
/// @return  false if its lower parts are all zeros: these are numbers of bfloat16
inline bool split_row(this_path, const float* from, index_t dims, bfloat16* upper, bfloat16* lower) {
  words left{};
  for (index_t d = 0; d < dims; d += simd) {
    left |= reinterpret_cast<words>(split(load(from + d), upper + d, lower + d));
  }
  std::uint32_t all = 0;
  for (index_t i = 0; i < simd; ++i) all |= left[i];
  return all != 0;
}

[[gnu::always_inline]] inline void multiply_row(float* row, const float* factors) {
#pragma GCC unroll 2
  for (index_t t = 0; t < page_tokens; t += simd) to_memory(load(row + t) * load(factors + t), row + t);
}

/// From products of queries with the keys of a page to weights, in parts; the states are raised.
/// @param logits   [queries, page_tokens]  unscaled; overwritten
/// @param parts    of the page's numbers
/// @param weights  [parts, tile_rows, 2 page_tokens]  out: of one part, upper and lower weights in a row; of two, upper
/// ones twice, and lower ones twice
template <class Hook>
void weigh_rows(this_path, float* logits, const page_tile& page, const run_query* queries, index_t count,
                index_t value_width, float scale, hooked<Hook> call, index_t parts, bfloat16* weights) {
  for (index_t q = 0; q < count; ++q) {
    float* const row = logits + q * page_tokens;
    if (page.has_scales()) multiply_row(row, page.key_scales);
    if constexpr (has_hook<Hook>) {
      weigh_changed<1>(row, page_tokens, value_width, scale, queries + q, call.from(q));
    } else {
      weigh<1>(row, page_tokens, value_width, scale, queries + q);
    }
    if (page.has_scales()) multiply_row(row, page.value_scales);
    bfloat16* const upper = weights + q * 2 * page_tokens;
    bfloat16* const lower = parts == 2 ? upper + tile_rows * 2 * page_tokens : upper + page_tokens;
#pragma GCC unroll 2
    for (index_t t = 0; t < page_tokens; t += simd) {
      const floats weight = load(row + t);
      split(weight, upper + t, lower + t);
      if (parts == 2) split(weight, upper + page_tokens + t, lower + page_tokens + t);
    }
  }
}
#endif

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
