// SPDX-License-Identifier: Apache-2.0
// Lines of JSON that are added while a measurement runs, so that one that was stopped goes on where it was.
#pragma once

#include <filesystem>  // std::filesystem::resize_file
#include <fstream>     // std::ofstream
#include <sstream>     // std::istringstream
#include <string>      // std::string

#include "../json_file.hpp"

namespace decode {

class line_file {
 public:
  /// Reads what is there. A last line that was cut short is removed, to be written anew.
  /// @param path  empty: nothing is kept
  /// @param each  called with each line's document and "PATH: line N"
  /// @throws input_error  not such a file, or one that cannot be written
  template <class Each>
  line_file(const std::string& path, Each each) : path_(path) {
    if (path.empty()) return;
    if (std::filesystem::exists(path)) read(each);
    out_.open(path, std::ios::binary | std::ios::app);
    if (!out_) fail(path, ": cannot be written");
  }

  /// Writes a line at once.
  /// @throws input_error  the disk is full
  void add(const json& line) {
    if (!out_.is_open()) return;
    out_ << line.dump() << std::endl;
    if (!out_) fail(path_, ": cannot be written any more");
  }

 private:
  template <class Each>
  void read(Each each) {
    std::istringstream text(read_text(path_, std::uint64_t{1} << 30));
    std::string line;
    for (int number = 1; std::getline(text, line); ++number) {
      const std::string where = path_ + ": line " + std::to_string(number);
      const bool cut_short = text.eof() && number > 1;  // a file whose first line is not ours stays as it is
      if (cut_short) return std::filesystem::resize_file(path_, file_bytes(path_) - line.size());
      each(parse_json(line, where), where);
    }
  }

  std::string path_;
  std::ofstream out_;
};

}  // namespace decode
