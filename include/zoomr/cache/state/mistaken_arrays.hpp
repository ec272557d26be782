// SPDX-License-Identifier: Apache-2.0
// L6. What a compiler says where the layers of a step are given something else than views of three dimensions.
#pragma once

#include <zoomr/core/storage.hpp>
#include <zoomr/core/view.hpp>

#include <type_traits>  // std::is_convertible_v

namespace zoomr::inline v0::detail {

template <class Array>
concept readable_rows = std::is_convertible_v<Array, view<const float, 3>> ||
    std::is_convertible_v<Array, view<const bfloat16, 3>> || std::is_convertible_v<Array, view<const float16, 3>>;
template <class Array>
concept writable_rows = std::is_convertible_v<Array, view<float, 3>> ||
    std::is_convertible_v<Array, view<bfloat16, 3>> || std::is_convertible_v<Array, view<float16, 3>>;
template <class>
inline constexpr bool are_views = false;

/// Overloads beside those of a step, which no call with views finds: each is refused with a sentence.
struct mistaken_arrays {
  template <class Keys, class... Values>
  requires(!readable_rows<Keys> || !(readable_rows<Values> && ...)) void append(index_t, Keys&&, Values&&...) {
    static_assert(are_views<Keys>,
                  "append: keys and values are views of three dimensions, as view<const float, 3>(data, {tokens, "
                  "kv_heads, head_dim})");
  }
  template <class Queries, class Out, class... More>
  requires(!readable_rows<Queries> || !writable_rows<Out>) void attend(index_t, Queries&&, Out&&, More&&...) {
    static_assert(are_views<Queries>,
                  "attend: queries and outputs are views of three dimensions, as view<const float, 3>(data, {tokens, "
                  "heads, head_dim}) and view<float, 3>(data, {tokens, heads, value_width})");
  }
  template <class Queries>
  requires(!readable_rows<Queries>) void observe(index_t, Queries&&) {
    static_assert(are_views<Queries>,
                  "observe: queries are a view of three dimensions, as view<const float, 3>(data, {tokens, heads, "
                  "head_dim})");
  }
};

}  // namespace zoomr::inline v0::detail
