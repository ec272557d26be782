// SPDX-License-Identifier: Apache-2.0
// Options of a command line that name files.
#pragma once

#include <algorithm>   // std::ranges::all_of
#include <filesystem>  // std::filesystem::exists
#include <string>      // std::string
#include <vector>      // std::vector

#include <CLI/CLI.hpp>

namespace decode {

/// For `check` of an option: an empty name, as an empty variable of a shell makes it, is not the absence of one.
inline CLI::Validator file_name() {
  const auto problem = [](const std::string& text) {
    return text.empty() ? std::string("the name is empty") : std::string();
  };
  return CLI::Validator(problem, "");
}

/// Names that are said one by one, or with commas between: "a.txt,b.txt", also as "NAME=a.txt". A name may have commas
/// itself: one is cut only if nothing has it, and something each of its parts.
inline std::vector<std::string> listed_files(const std::vector<std::string>& said) {
  const auto is_there = [](const std::string& name) {
    std::error_code unknown;
    const std::size_t equals = name.find('=');
    const bool named = equals < name.find_first_of(",/");  // of "a.txt,NAME=b.txt" the first part has no name
    return std::filesystem::exists(name, unknown) ||
           (named && std::filesystem::exists(name.substr(equals + 1), unknown));
  };
  std::vector<std::string> files;
  for (const std::string& name : said) {
    const std::vector<std::string> parts = CLI::detail::split(name, ',');
    if (!is_there(name) && std::ranges::all_of(parts, is_there))
      files.insert(files.end(), parts.begin(), parts.end());
    else
      files.push_back(name);
  }
  return files;
}

}  // namespace decode
