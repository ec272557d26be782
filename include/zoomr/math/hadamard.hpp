// SPDX-License-Identifier: Apache-2.0
// L2. The Walsh-Hadamard transform of rows, which spreads what is large in one dimension over many: so numbers that are
// rounded in blocks lose less. It is a rotation, so products of rows that are both transformed stay what they were.
// @source  fast Walsh-Hadamard transform; before rounding keys and values: QuaRot (arXiv 2404.00456)
#pragma once

#include <zoomr/core/view.hpp>

#include <cmath>  // std::sqrt

namespace zoomr::inline v0 {

/// The largest power of two that divides `numbers`, which are more than 0: how wide the pieces of a row are that are
/// transformed.
constexpr index_t hadamard_width(index_t numbers) { return numbers & -numbers; }

/// Transforms each piece of `width` numbers of a row, in place. The transform is its own inverse, but for rounding; a
/// number that is not finite spreads over its piece.
/// @param width  a power of two that divides the row's size; 1 changes nothing
/// @cost  log2(width) additions a number, one multiplication
inline void hadamard_transform(view<float> row, index_t width) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(width));
  for (index_t piece = 0; piece < row.size(); piece += width) {
    float* const numbers = row.data() + piece;
    for (index_t half = 1; half < width; half *= 2) {
      for (index_t first = 0; first < width; first += 2 * half) {
        for (index_t i = first; i < first + half; ++i) {
          const float a = numbers[i], b = numbers[i + half];
          numbers[i] = a + b;
          numbers[i + half] = a - b;
        }
      }
    }
    for (index_t i = 0; i < width; ++i) numbers[i] *= scale;
  }
}

}  // namespace zoomr::inline v0
