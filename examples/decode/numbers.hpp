// SPDX-License-Identifier: Apache-2.0
// Numbers of a command line: decimal, whole, within limits. Nothing wraps and nothing is rounded.
#pragma once

#include <algorithm>    // std::min
#include <charconv>     // std::from_chars
#include <cstdint>      // std::uint64_t
#include <limits>       // std::numeric_limits
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <type_traits>  // std::type_identity_t

#include "input_error.hpp"

namespace decode {

/// @return  nothing unless `text` is a whole number in [low, high]
template <class Number>
std::optional<Number> whole_number(std::string_view text, std::type_identity_t<Number> low,
                                   std::type_identity_t<Number> high) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) return std::nullopt;
  return value;
}

/// "must be a whole number between LOW and HIGH, but is TEXT"
template <class Number>
std::string wrong_number(std::string_view text, Number low, Number high) {
  return "must be a whole number between " + std::to_string(low) + " and " + std::to_string(high) + ", but is " +
         shown(text);
}

/// Bytes: "1048576", "1MiB", "1M" or "1MB", each the same; K, M, G, T and P are powers of 1,024, in either case.
/// @return  nothing unless it is such a number, 1 or more, that 63 bits hold
inline std::optional<std::int64_t> size_in_bytes(std::string_view text) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string unit;
  for (const char c : text.substr(digits)) unit += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  int shift = 0;
  if (unit != "" && unit != "b") {
    const std::size_t power = std::string_view("kmgtp").find(unit[0]);
    const std::string rest = unit.substr(1);
    if (power == std::string_view::npos || (rest != "" && rest != "b" && rest != "i" && rest != "ib"))
      return std::nullopt;
    shift = 10 * static_cast<int>(power + 1);
  }
  const auto count = whole_number<std::int64_t>(text.substr(0, digits), 1, most >> shift);
  return count ? std::optional(*count << shift) : std::nullopt;
}

}  // namespace decode
