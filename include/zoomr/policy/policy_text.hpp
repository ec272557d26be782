// SPDX-License-Identifier: Apache-2.0
// L5. A policy as text, by which caches compare their policies: two caches whose policies have the same text choose
// alike. One line for each component:
//
//   sentences longest=256 shortest_line=32
//   key_mean number=bfloat16
//
// The placement is left out: where details are changes nothing of a sequence. What a component does not declare (a
// name, a field in each_field) is not in the text.
#pragma once

#include <zoomr/policy/any_policy.hpp>
#include <zoomr/policy/concepts.hpp>

#include <charconv>      // std::to_chars
#include <string_view>   // std::string_view
#include <system_error>  // std::errc
#include <type_traits>   // std::is_enum_v, std::is_arithmetic_v, std::underlying_type_t, ...

namespace zoomr::inline v0::detail {

/// A number: whole ones as they are, others with as many digits as give the same bits back.
template <class Number>
void write_number(Number number, text_taker& out) {
  char digits[64];
  const std::to_chars_result written = std::to_chars(digits, digits + sizeof digits, number);
  out.take(std::string_view(digits, static_cast<std::size_t>(written.ptr - digits)));
}

/// The value of a field: an enumerator is its number; of a type that is no number, the bytes if equal values have equal
/// bytes.
template <class Value>
void write_value(const Value& value, text_taker& out) {
  if constexpr (std::is_same_v<Value, bool>) {
    out.take(value ? "true" : "false");
  } else if constexpr (std::is_enum_v<Value>) {
    write_number(static_cast<std::int64_t>(static_cast<std::underlying_type_t<Value>>(value)), out);
  } else if constexpr (std::is_arithmetic_v<Value>) {
    write_number(value, out);
  } else if constexpr (std::has_unique_object_representations_v<Value>) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
    for (std::size_t i = 0; i < sizeof value; ++i) {
      if (i > 0) out.take(".");
      write_number(static_cast<int>(bytes[i]), out);
    }
  } else {
    out.take("?");
  }
}

/// The type in which an index is kept, where it is not float: stored_as is no field.
template <class Component>
constexpr const char* index_number() {
  if constexpr (requires { requires index_storage<typename Component::number>; }) {
    return storage_name<typename Component::number>();
  }
  return nullptr;
}

/// One line.
template <class Component>
void write_component(const Component& part, text_taker& out) {
  out.take(name_of<Component>());
  if constexpr (index_number<Component>() != nullptr) {
    out.take(" number=");
    out.take(index_number<Component>());
  }
  if constexpr (weighing_aggregator<Component>) out.take(" weighted=true");
  each_field_of(part, [&](const char* option, const auto& value) {
    out.take(" ");
    out.take(option);
    out.take("=");
    write_value(value, out);
  });
  out.take("\n");
}

/// All components of a policy but its placement.
template <class Policy>
void write_policy(const Policy& policy, text_taker& out) {
  Policy::each_component(policy, [&](const auto& part) {
    using type = std::remove_cvref_t<decltype(part)>;
    if constexpr (!std::same_as<typename type::role, role::placement>) write_component(part, out);
  });
}

}  // namespace zoomr::inline v0::detail
