// SPDX-License-Identifier: Apache-2.0
// Lines of JSON that are added while a measurement runs, so that one that was stopped goes on where it was.
#pragma once

#include <cstdint>     // std::int64_t
#include <functional>  // std::function
#include <string>      // std::string

#include "../../decode/json_file.hpp"

namespace decode {

class line_file {
 public:
  using each_line = std::function<void(const json& line, const std::string& where)>;

  /// Reads what is there. A last line that was cut short is removed, to be written anew.
  /// @param path  empty: nothing is kept
  /// @param each  called with each line's document and "PATH: line N"
  /// @throws input_error  not such a file, or one that cannot be written
  line_file(const std::string& path, const each_line& each);
  line_file(const line_file&) = delete;
  line_file& operator=(const line_file&) = delete;
  ~line_file();

  /// Writes a line at once, or nothing of it. Bytes of a text that are no UTF-8 are replaced.
  /// @throws input_error  the disk is full
  void add(const json& line);

 private:
  [[noreturn]] void refuse(const char* what, int error) const;

  /// @return  bytes of a last line that was cut short
  std::int64_t read(const each_line& each);

  std::string path_;
  int file_ = -1;
};

/// A file whose lines say what they were measured with: visit is called with each.
/// @param label  of each line; another one is an input_error
line_file labelled_lines(const std::string& path, const std::string& label,
                         const std::function<void(const field& line)>& visit);

}  // namespace decode
