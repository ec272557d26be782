// SPDX-License-Identifier: Apache-2.0
#include "product.hpp"

#include <algorithm>  // std::clamp, std::min
#include <cstdint>    // std::int64_t, std::uint32_t
#include <variant>    // std::visit
#include <vector>     // std::vector

#include <cblas.h>

#include <zoomr/math/products.hpp>

namespace decode {
namespace {

constexpr std::size_t some = 64;            // tokens up to which short rows are read for each, not widened
constexpr std::size_t read_piece = 64;      // rows that a thread takes at once, to read them,
constexpr std::size_t widened_piece = 128;  // or to widen them: x is laid out anew for each piece
constexpr std::size_t short_x = 1024;       // for one token rows this short share the steps in which sums are added up;
constexpr std::size_t long_x = 4096;        // longer ones share what is read of x, which leaves the first cache
constexpr std::size_t together = 8;         // rows that do

/// What a finite number means. to_float has branches for a float16, of which compilers make no vectors.
inline float value_of(float number) { return number; }
inline float value_of(zoomr::bfloat16 number) { return zoomr::to_float(number); }
inline float value_of(zoomr::float16 number) {  // exponents of a float are 112 larger
  const std::uint32_t bits = (number.bits & 0x8000u) << 16 | (number.bits & 0x7fffu) << 13;
  return zoomr::bits_as<float>(bits) * 0x1p112f;
}

/// Products of x [columns] with `Rows` rows, each in the order of zoomr::dot, whatever `Rows`.
template <std::size_t Rows, class T>
inline void dots(const float* x, const T* rows, std::size_t columns, float* y) {
  constexpr std::size_t lanes = zoomr::partial_sums;
  float sums[Rows][lanes] = {};
  std::size_t d = 0;
  for (; d + lanes <= columns; d += lanes)
    for (std::size_t r = 0; r < Rows; ++r)
      for (std::size_t l = 0; l < lanes; ++l)
        sums[r][l] = zoomr::fused(x[d + l], value_of(rows[r * columns + d + l]), sums[r][l]);
  for (std::size_t r = 0; r < Rows; ++r) {
    for (std::size_t l = 0; d + l < columns; ++l)
      sums[r][l] = zoomr::fused(x[d + l], value_of(rows[r * columns + d + l]), sums[r][l]);
    y[r] = zoomr::halving_sum(sums[r]);
  }
}

/// What some rows of a matrix are multiplied by, and where to: x [tokens, columns], y [tokens, stride]; rows [,
/// columns].
struct job {
  const float* x;
  std::size_t tokens, columns;
  float* y;
  std::size_t stride;

  template <std::size_t Rows, class T>
  std::size_t dots_of(const T* rows, std::size_t first, std::size_t last) const {
    for (; first + Rows <= last; first += Rows)
      for (std::size_t t = 0; t < tokens; ++t)
        dots<Rows>(x + t * columns, rows + first * columns, columns, y + t * stride + first);
    return first;
  }

  // Each row is read once for all tokens: their second reading finds it in a cache.
  template <class T>
  void read_rows(const T* rows, std::size_t first, std::size_t last) const {
    if (columns <= short_x || tokens > 1) {
      using zoomr::index_t;
      const auto count = static_cast<index_t>(tokens), wanted = static_cast<index_t>(last - first);
      return zoomr::detail::products(zoomr::fastest_cpu_path(), {x, {count, static_cast<index_t>(columns)}},
                                     rows + first * columns, static_cast<std::int64_t>(columns),
                                     {y + first, {count, wanted}, {static_cast<std::int64_t>(stride), 1}});
    }
    zoomr::detail::on_fastest_path([&] {
      if (columns > long_x) first = dots_of<together>(rows, first, last);
      dots_of<1>(rows, first, last);
    });
  }

  template <class T>
  void multiply_rows(const T* rows, std::size_t first, std::size_t last) const {
    const float* wide = nullptr;
    if constexpr (std::is_same_v<T, float>) {
      wide = rows + first * columns;
    } else {
      thread_local std::vector<float> memory;
      const std::size_t size = (last - first) * columns;
      if (memory.size() < size) memory.resize(size);
      for (std::size_t r = first; r < last; ++r)
        zoomr::detail::widen(zoomr::fastest_cpu_path(), rows + r * columns, 1.0f,
                             {memory.data() + (r - first) * columns, {static_cast<zoomr::index_t>(columns)}});
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
  const bool reads = tokens <= (w.columns <= short_x ? some : tokens_alike);
  const std::size_t piece = reads ? read_piece : widened_piece, pieces = (w.rows + piece - 1) / piece;
  const bool worth = static_cast<std::int64_t>(tokens * w.rows * w.columns) >= threads.worth();
  const auto multiply_piece = [&](const auto* rows, std::size_t first) {
    const std::size_t last = std::min(first + piece, w.rows);
    if (reads)
      work.read_rows(rows, first, last);
    else
      work.multiply_rows(rows, first, last);
  };
  const auto multiply_all = [&](const auto& numbers) {
    zoomr::detail::for_each_piece(
        worth ? threads : zoomr::executor{}, static_cast<zoomr::index_t>(pieces),
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
