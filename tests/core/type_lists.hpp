// SPDX-License-Identifier: Apache-2.0
// Lists of storage types as doctest takes them, in TEST_CASE_TEMPLATE_APPLY.
#pragma once

#include <zoomr/core/storage_types.hpp>

#include <concepts>     // std::same_as
#include <tuple>        // std::tuple
#include <type_traits>  // std::conditional_t

namespace unit {

template <class... T>
std::tuple<T...> tuple_of(zoomr::type_list<T...>);
/// A list as doctest takes it.
template <class List>
using as_tuple = decltype(tuple_of(List{}));

template <class T, class... Types>
inline constexpr bool is_among = (std::same_as<T, Types> || ...);

/// The types of a list but these.
template <class... Left, class... T>
constexpr auto without(zoomr::type_list<T...>) {
  using zoomr::type_list;
  return (type_list<>{} + ... + std::conditional_t<is_among<T, Left...>, type_list<>, type_list<T>>{});
}

template <class... T>
constexpr auto without_scales(zoomr::type_list<T...>) {
  using zoomr::type_list;
  return (type_list<>{} + ... + std::conditional_t<zoomr::scales_rows<T>, type_list<>, type_list<T>>{});
}

/// Numbers whose rows have no scales: all of them, and those that are not floats.
using plain_types = decltype(without_scales(zoomr::number_types{}));
using narrow_types = decltype(without<float>(plain_types{}));

}  // namespace unit
