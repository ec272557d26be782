// SPDX-License-Identifier: Apache-2.0
// Where the name of a file leads: through symbolic links, and to descriptors that the process was started with.
#pragma once

#include <filesystem>  // std::filesystem::path
#include <optional>    // std::optional
#include <string>      // std::string

namespace decode {

struct file_place {
  std::filesystem::path folder;   // without links; empty: there is none
  std::string name;               // in that folder, and no link; the file need not be there
  std::optional<int> descriptor;  // what /dev/stdout, /dev/fd/N and /proc/self/fd/N are

  std::filesystem::path path() const { return folder / name; }
};

/// Follows the links of a name to its end, also where that is a file yet to be made.
file_place place_of(const std::filesystem::path& file);

}  // namespace decode
