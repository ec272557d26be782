// SPDX-License-Identifier: Apache-2.0
// The names of a trace's files: run-0001.safetensors, run-0002.safetensors, ...
#pragma once

#include <algorithm>    // std::ranges::all_of
#include <string>       // std::string
#include <string_view>  // std::string_view

namespace decode {

namespace detail {

inline constexpr std::string_view trace_ending = ".safetensors";

}  // namespace detail

/// @param path  "run" or "run.safetensors"
/// @param i     from 0
inline std::string trace_file_name(std::string path, int i) {
  if (path.ends_with(detail::trace_ending)) path.resize(path.size() - detail::trace_ending.size());
  std::string number = std::to_string(i + 1);
  if (number.size() < 4) number.insert(0, 4 - number.size(), '0');
  return path.append("-").append(number).append(detail::trace_ending);
}

/// What precedes the number; empty: it is no file of a trace.
inline std::string_view trace_of(std::string_view file_name) {
  if (!file_name.ends_with(detail::trace_ending)) return "";
  file_name.remove_suffix(detail::trace_ending.size());
  const std::size_t dash = file_name.rfind('-');
  if (dash == file_name.npos || file_name.size() < dash + 5) return "";
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::ranges::all_of(file_name.substr(dash + 1), is_digit) ? file_name.substr(0, dash + 1) : "";
}

}  // namespace decode
