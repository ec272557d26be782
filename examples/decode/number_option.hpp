// SPDX-License-Identifier: Apache-2.0
// Options of a command line that are whole numbers.
#pragma once

#include <string>  // std::string

#include <CLI/CLI.hpp>

#include "numbers.hpp"

namespace decode {

/// For `transform` of an option: what is not a decimal number in [low, high] is refused before it is converted, so that
/// none wraps, is cut off, or is read as octal.
template <class Number>
CLI::Validator number_in(Number low, Number high) {
  const auto read = [low, high](std::string& text) {
    const auto value = whole_number<Number>(text, low, high);
    if (!value) return wrong_number(text, low, high);
    text = std::to_string(*value);
    return std::string();
  };
  return CLI::Validator(read, "in [" + std::to_string(low) + " - " + std::to_string(high) + "]");
}

/// Of random numbers: any of 64 bits.
inline CLI::Validator seed_number() { return number_in<std::uint64_t>(0, std::numeric_limits<std::uint64_t>::max()); }

}  // namespace decode
