// SPDX-License-Identifier: Apache-2.0
// A command line as one would type it.
#pragma once

#include <algorithm>    // std::all_of
#include <string>       // std::string
#include <string_view>  // std::string_view

namespace decode {

/// With quotes where a shell needs them.
inline std::string as_typed(int argc, const char* const* argv) {
  std::string out;
  for (int i = 0; i < argc; ++i) {
    const std::string word = argv[i];
    const auto plain = [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             std::string_view("-_=.,:/@+").find(c) != std::string_view::npos;
    };
    out += i > 0 ? " " : "";
    if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) {
      out += word;
      continue;
    }
    out += '\'';
    for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    out += '\'';
  }
  return out;
}

}  // namespace decode
