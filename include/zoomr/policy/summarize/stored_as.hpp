// SPDX-License-Identifier: Apache-2.0
// L4. An index of half the bytes, or a quarter. What a summarizer makes is a float until it is written (`stored_number`
// in policy/summary.hpp); scorers read it as a float again, so that neither depends on it.
#pragma once

#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// What another summarizer makes, kept as `Number`; made by `stored_as`.
template <class Number, summarizer Inner>
struct stored_summaries : Inner {
  static_assert(index_storage<Number>,
                "stored_as: summaries are kept as float, which is the default, as bfloat16, float16, float8 or int8");
  using number = Number;

  friend constexpr bool operator==(const stored_summaries&, const stored_summaries&) = default;
};

/// The same summaries in 16 bits, for half the memory of the index and half the bytes that a choice reads; or in 8,
/// for a quarter and 4 bytes each, their scales. A mean is rounded to the nearest number, which shifts scores by up to
/// 2^-9 (bfloat16), 2^-12 (float16) or 2^-4 (float8) of the sum of the sizes of their terms, or by a 127th (int8) of
/// the summary's largest number for each dimension of the query; a box is rounded outwards, so that its bound stays
/// one. A float16 beyond 65504 is infinite. With float8 a number may be shifted by 2^-17 of its summary's largest, if
/// that is more than 2^-4 of its own. Of 8 bits a summary with an infinity ranks last, as one with NaN does.
/// @code  compose(sentences{}, stored_as<bfloat16>(key_mean{}), mean_dot{}, ...)  @endcode
template <class Number, summarizer Inner>
constexpr stored_summaries<Number, Inner> stored_as(Inner inner) {
  return {inner};
}

static_assert(sizeof(bfloat16) == 2 && sizeof(float16) == 2 && sizeof(float8) == 1 && sizeof(int8) == 1);

}  // namespace zoomr::inline v0
