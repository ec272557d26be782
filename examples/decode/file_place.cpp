// SPDX-License-Identifier: Apache-2.0
#include "file_place.hpp"

#include <unistd.h>  // getpid

#include <limits>        // std::numeric_limits
#include <system_error>  // std::error_code

#include "numbers.hpp"

namespace decode {
namespace {

// The files of /proc/self/fd look like links, but what they lead to has a position and a mode of its own: opened by its
// name, it is another open file.
std::optional<int> descriptor_in(const std::filesystem::path& folder, const std::string& name) {
  const std::string process = "/proc/" + std::to_string(::getpid()) + "/";
  if (!folder.native().starts_with(process) || folder.filename() != "fd") return std::nullopt;
  return whole_number<int>(name, 0, std::numeric_limits<int>::max());
}

}  // namespace

file_place place_of(const std::filesystem::path& file) {
  constexpr int most_links = 40;  // as the system has it
  std::filesystem::path at = file;
  for (int links = 0; links < most_links; ++links) {
    std::error_code unknown;
    file_place place;
    place.folder = std::filesystem::canonical(at.has_parent_path() ? at.parent_path() : ".", unknown);
    if (unknown) break;
    place.name = at.filename().string();
    place.descriptor = descriptor_in(place.folder, place.name);
    const auto target = std::filesystem::read_symlink(place.path(), unknown);
    if (place.descriptor || unknown) return place;
    at = place.folder / target;
  }
  return {{}, file.string(), std::nullopt};
}

}  // namespace decode
