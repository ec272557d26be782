// SPDX-License-Identifier: Apache-2.0
// L1. Every storage type, in one list: what names them, in sentences, programs and tests, reads it here.
#pragma once

#include <zoomr/core/block_rows.hpp>

#include <cstddef>      // std::size_t
#include <type_traits>  // std::conditional_t

namespace zoomr::inline v0 {

template <class... T>
struct type_list {};

template <class... A, class... B>
constexpr type_list<A..., B...> operator+(type_list<A...>, type_list<B...>) {
  return {};
}

/// Calls `visit.template operator()<T>()` for each type of a list.
template <class... T, class Visit>
constexpr void for_each_type(type_list<T...>, Visit&& visit) {
  (visit.template operator()<T>(), ...);
}

/// In which keys and values may be stored.
using storage_types = type_list<float, bfloat16, float16, float8, int8, scaled_int8, q8_0, q4_0, mxfp8>;

namespace detail {

template <bool Blocks, class... T>
constexpr auto stored_in_blocks(type_list<T...>) {
  return (type_list<>{} + ... + std::conditional_t<in_blocks<T> == Blocks, type_list<T>, type_list<>>{});
}

}  // namespace detail

/// Those whose rows are numbers, one after the other, and those whose rows are blocks.
using number_types = decltype(detail::stored_in_blocks<false>(storage_types{}));
using block_types = decltype(detail::stored_in_blocks<true>(storage_types{}));

namespace detail {

/// A sentence that names types: "... q8_0, q4_0 or mxfp8 ...", put together when it is compiled.
struct sentence_on_types {
  char text[256] = {};

  template <class... T>
  constexpr sentence_on_types(const char* before, type_list<T...>, const char* after) {
    std::size_t end = 0, named = 0;
    const auto add = [&](const char* piece) {
      while (*piece != '\0') text[end++] = *piece++;
    };
    const auto add_name = [&](const char* name) {
      if (named > 0) add(named + 1 < sizeof...(T) ? ", " : " or ");
      add(name);
      ++named;
    };
    add(before);
    (add_name(storage_name<T>()), ...);
    add(after);
  }
};

}  // namespace detail

}  // namespace zoomr::inline v0
