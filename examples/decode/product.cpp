// SPDX-License-Identifier: Apache-2.0
#include "product.hpp"

#include <algorithm>  // std::clamp, std::min
#include <cstdint>    // std::int64_t
#include <variant>    // std::visit
#include <vector>     // std::vector

#include <cblas.h>

#include <zoomr/math/products.hpp>

namespace decode {

using zoomr::index_t;

constexpr index_t lanes = zoomr::partial_sums;

}  // namespace decode

#define ZOOMR_EACH_CPU_PATH "product.inl"
#include <zoomr/core/each_cpu_path.inl>

namespace decode {
namespace {

constexpr std::size_t short_row = 1024;     // columns: four tokens of so many stay in the first cache
constexpr std::size_t read_piece = 64;      // rows that a thread takes at once, to read them,
constexpr std::size_t widened_piece = 128;  // or to widen them: x is laid out anew for each piece

/// What some rows of a matrix are multiplied by, and where to: x [tokens, columns], y [tokens, stride]; rows [,
/// columns].
struct job {
  const float* x;
  std::size_t tokens, columns;
  float* y;
  std::size_t stride;

  // Each row is read once for all tokens: their second reading finds it in a cache.
  template <class T>
  void read_rows(const T* rows, std::size_t first, std::size_t last) const {
    const auto count = static_cast<index_t>(tokens), row_count = static_cast<index_t>(last - first);
    const auto row_size = static_cast<std::int64_t>(columns), row_of_y = static_cast<std::int64_t>(stride);
    const T* from = rows + first * columns;
    const auto in_vectors = [&](auto path) {
      multiply_rows(path, x, count, from, row_size, row_count, y + first, row_of_y);
    };
    const bool in_stretches = columns > short_row && columns % lanes == 0;
    if (in_stretches && zoomr::detail::dispatch(zoomr::fastest_cpu_path(), in_vectors)) return;
    zoomr::detail::products(zoomr::fastest_cpu_path(), {x, {count, static_cast<index_t>(columns)}}, from, row_size,
                            {y + first, {count, row_count}, {row_of_y, 1}});
  }

  template <class T>
  void widen_rows(const T* rows, std::size_t first, std::size_t last) const {
    const float* wide = nullptr;
    if constexpr (std::is_same_v<T, float>) {
      wide = rows + first * columns;
    } else {
      thread_local std::vector<float> memory;
      const std::size_t size = (last - first) * columns;
      if (memory.size() < size) memory.resize(size);
      for (std::size_t r = first; r < last; ++r)
        zoomr::detail::widen(zoomr::fastest_cpu_path(), rows + r * columns, 1.0f,
                             {memory.data() + (r - first) * columns, {static_cast<index_t>(columns)}});
      wide = memory.data();
    }
    const auto k = static_cast<int>(columns);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(tokens), static_cast<int>(last - first), k,
                1.0f, x, k, wide, k, 0.0f, y + first, static_cast<int>(stride));
  }
};

}  // namespace

void multiply(const float* x, std::size_t tokens, const matrix& w, const zoomr::executor& threads, float* y) {
  if (tokens == 0 || w.empty()) return;
  usual_threads();  // OpenBLAS itself takes one
  const job work{x, tokens, w.columns, y, w.rows};
  const bool reads = tokens <= tokens_alike;
  const std::size_t piece = reads ? read_piece : widened_piece, pieces = (w.rows + piece - 1) / piece;
  const bool worth = static_cast<std::int64_t>(tokens * w.rows * w.columns) >= threads.worth();
  const auto multiply_piece = [&](const auto* rows, std::size_t first) {
    const std::size_t last = std::min(first + piece, w.rows);
    if (reads)
      work.read_rows(rows, first, last);
    else
      work.widen_rows(rows, first, last);
  };
  const auto multiply_all = [&](const auto& numbers) {
    zoomr::detail::for_each_piece(
        worth ? threads : zoomr::executor{}, static_cast<index_t>(pieces),
        [&](zoomr::index_t i, zoomr::index_t) { multiply_piece(numbers.data(), static_cast<std::size_t>(i) * piece); });
  };
  std::visit(multiply_all, w.numbers);
}

zoomr::index_t usual_threads() {
  static const int usual = [] {
    const int taken = openblas_get_num_threads();
    openblas_set_num_threads(1);
    return std::clamp(taken, 1, int{zoomr::executor::most_threads});
  }();
  return usual;
}

}  // namespace decode
