// SPDX-License-Identifier: Apache-2.0
// L1. A vector that is counted as everything here is: by index_t, not by std::size_t.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/types.hpp>

#include <concepts>  // std::integral
#include <cstddef>   // std::size_t
#include <vector>    // std::vector

namespace zoomr::inline v0 {

/// As std::vector, of fewer than 2^31 elements; what is not here is its own. Indices are any integers, and are checked
/// in debug builds; a size is an index_t.
template <class T>
class table : public std::vector<T> {
  using base = std::vector<T>;

 public:
  table() = default;
  explicit table(std::int64_t count) : base(static_cast<std::size_t>(count)) {}

  index_t size() const { return static_cast<index_t>(base::size()); }
  void reserve(std::int64_t count) { base::reserve(static_cast<std::size_t>(count)); }
  void resize(std::int64_t count) { base::resize(static_cast<std::size_t>(count)); }

  T& operator[](std::integral auto i) { return base::operator[](place(static_cast<std::size_t>(i))); }
  const T& operator[](std::integral auto i) const { return base::operator[](place(static_cast<std::size_t>(i))); }

 private:
  std::size_t place(std::size_t i) const {
    ZOOMR_ASSERT(i < base::size(), "index out of range of a table");
    return i;
  }
};

}  // namespace zoomr::inline v0
