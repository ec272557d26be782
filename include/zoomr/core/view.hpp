// SPDX-License-Identifier: Apache-2.0
// L1. A view: a pointer, extents and strides, for host and device alike. It owns nothing.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/types.hpp>

#include <cstddef>           // std::size_t
#include <initializer_list>  // std::initializer_list
#include <string>            // std::string, std::to_string
#include <type_traits>       // std::is_convertible_v

namespace zoomr::inline v0 {

/// Extents of a `Rank`-dimensional array, outermost first: `{tokens, heads, head_dim}`.
template <int Rank>
struct extents {
  index_t at[std::size_t{Rank}];
};

/// Anything with the elements of a `view<T>` side by side: a vector, an array, a span.
template <class Container, class T>
concept contiguous_container = requires(Container& c) {
  static_cast<T*>(c.data());
  c.size();
};

namespace detail {
/// Numbers of a view of float that are not read as such: nothing is converted.
template <class T, class Given>
concept doubles_for_floats =
    std::is_convertible_v<const Given*, const double*> && std::is_convertible_v<const T*, const float*>;
/// Rows of an array in an array: its address is not that of a number.
template <class T, class Given>
concept rows_for_numbers = std::is_array_v<Given> &&
    std::is_same_v<std::remove_const_t<std::remove_all_extents_t<Given>>, std::remove_const_t<T>>;
template <class>
inline constexpr bool possible = false;
}  // namespace detail

/// `Rank`-dimensional array of `T` that is elsewhere; the last dimension is contiguous.
///
/// `v(i, j, k)` is an element, `v[i]` the view (or, of rank 1, the element) at `i`. A `view<T>` converts to
/// a `view<const T>`. Bounds are checked in debug builds.
///
/// Copying one copies no elements. A view that is const does not make its elements const. One that is
/// default-constructed has no elements and no data: optional arguments are left out in this way.
template <class T, int Rank = 1>
class view {
 public:
  constexpr view() = default;

  /// Row-major and dense: element (i, j, k) is at (i * J + j) * K + k. Offsets have 64 bits.
  ZOOMR_HD constexpr view(T* data, extents<Rank> shape) : data_(data) {
    std::int64_t stride = 1;
    for (int d = Rank - 1; d >= 0; --d) {
      extent_[d] = shape.at[d];
      stride_[d] = stride;
      stride *= shape.at[d];
    }
  }

  /// Row-major with a stride of its own, in elements, for each dimension; the last one must be 1.
  ZOOMR_HD constexpr view(T* data, extents<Rank> shape, const std::int64_t (&strides)[std::size_t{Rank}])
      : data_(data) {
    for (int d = 0; d < Rank; ++d) {
      extent_[d] = shape.at[d];
      stride_[d] = strides[d];
    }
  }

  template <class U>
  requires(!std::is_same_v<U, T> && std::is_convertible_v<U (*)[], T (*)[]>) ZOOMR_HD
      constexpr view(view<U, Rank> other)
      : data_(other.data()) {  // NOLINT: implicit, as T* to const T*
    for (int d = 0; d < Rank; ++d) {
      extent_[d] = other.extent(d);
      stride_[d] = other.stride(d);
    }
  }

  /// All of a vector, array or span, which must have fewer than 2^31 elements and outlive the view.
  template <contiguous_container<T> Container>
  requires(Rank == 1 && !std::is_same_v<std::remove_cvref_t<Container>, view>) constexpr view(Container&& c)
      : view(c.data(), {static_cast<index_t>(c.size())}) {}  // NOLINT: implicit

  // What follows compiles nowhere, and says why.
  template <class U>
  requires(Rank == 1 && std::is_arithmetic_v<U>) constexpr view(std::initializer_list<U>) {  // NOLINT: implicit
    static_assert(detail::possible<U>,
                  "view: it owns nothing, so it cannot be made of a list in braces: name a vector or an array");
  }
  template <class U, class... Strides>
  requires(detail::doubles_for_floats<T, U>) constexpr view(U*, extents<Rank>, const Strides&...) {
    static_assert(detail::possible<U>, "view: numbers are not converted, so an array of double is no view of float");
  }
  template <class U, class... Strides>
  requires(detail::rows_for_numbers<T, U>) constexpr view(U*, extents<Rank>, const Strides&...) {
    static_assert(detail::possible<U>,
                  "view: data is the address of the first number: of an array of arrays a, &a[0][0]");
  }

  /// Element (0, 0, ...); extents and strides are in elements, by dimension, outermost first.
  ZOOMR_HD constexpr T* data() const { return data_; }
  ZOOMR_HD constexpr index_t extent(int d) const { return extent_[d]; }
  ZOOMR_HD constexpr std::int64_t stride(int d) const { return stride_[d]; }
  ZOOMR_HD constexpr index_t size() const requires(Rank == 1) { return extent_[0]; }
  ZOOMR_HD constexpr T* begin() const requires(Rank == 1) { return data_; }
  ZOOMR_HD constexpr T* end() const requires(Rank == 1) { return data_ + extent_[0]; }

  template <class... Indices>
  requires(sizeof...(Indices) == Rank) ZOOMR_HD constexpr T& operator()(Indices... indices) const {
    const index_t at[] = {static_cast<index_t>(indices)...};
    std::int64_t offset = 0;
    for (int d = 0; d < Rank; ++d) {
      ZOOMR_ASSERT(at[d] >= 0 && at[d] < extent_[d], "index out of range of a view");
      offset += at[d] * stride_[d];
    }
    return data_[offset];
  }

  ZOOMR_HD constexpr decltype(auto) operator[](index_t i) const {
    ZOOMR_ASSERT(i >= 0 && i < extent_[0], "index out of range of a view");
    if constexpr (Rank == 1) {
      return (data_[i]);
    } else {
      return rest(i);
    }
  }

  /// Elements [first, last) of the outermost dimension, counted from 0 there.
  ZOOMR_HD constexpr view slice(index_t first, index_t last) const {
    ZOOMR_ASSERT(0 <= first && first <= last && last <= extent_[0], "slice out of range of a view");
    view part = *this;
    part.data_ += first * stride_[0];
    part.extent_[0] = last - first;
    return part;
  }

  /// True if the extents are these and elements of the last dimension are side by side.
  ZOOMR_HD constexpr bool has_shape(extents<Rank> shape) const {
    for (int d = 0; d < Rank; ++d) {
      if (extent_[d] != shape.at[d]) return false;
    }
    return stride_[Rank - 1] == 1;
  }

 private:
  ZOOMR_HD constexpr view<T, Rank - 1> rest(index_t i) const requires(Rank > 1) {
    extents<Rank - 1> shape{};
    std::int64_t strides[std::size_t{Rank - 1}] = {};
    for (int d = 1; d < Rank; ++d) {
      shape.at[d - 1] = extent_[d];
      strides[d - 1] = stride_[d];
    }
    return {data_ + i * stride_[0], shape, strides};
  }

  T* data_ = nullptr;
  index_t extent_[std::size_t{Rank}] = {};
  std::int64_t stride_[std::size_t{Rank}] = {};
};

namespace detail {
inline std::string extents_text(const index_t* extents, int rank) {
  std::string text = "[";
  for (int d = 0; d < rank; ++d) text += (d > 0 ? ", " : "") + std::to_string(extents[d]);
  return text + "]";
}
[[noreturn]] inline void refuse_extents(const char* what, const index_t* found, const index_t* expected, int rank) {
  const std::string shape = extents_text(found, rank), wanted_shape = extents_text(expected, rank);
  raise_precondition(std::string(what) + " " + shape + ", wanted " + wanted_shape +
                     (shape == wanted_shape ? " with a last dimension that has no gaps" : ""));
}
}  // namespace detail

/// The extents in words, for the sentences of errors: "[4, 2, 8]"
template <int Rank>
std::string shape_text(const extents<Rank>& shape) {
  return detail::extents_text(shape.at, Rank);
}

/// Checks what a caller gives: "append: keys are [3, 2, 8], wanted [4, 2, 8]".
/// @param what  the call and what was given: "append: keys are"
/// @throws precondition_error for other extents, or if the last dimension has gaps
template <class T, int Rank>
void expect_extents(const char* what, const view<T, Rank>& array, const extents<Rank>& expected) {
  if (array.has_shape(expected)) return;
  extents<Rank> found{};
  for (int d = 0; d < Rank; ++d) found.at[d] = array.extent(d);
  detail::refuse_extents(what, found.at, expected.at, Rank);
}

}  // namespace zoomr::inline v0
