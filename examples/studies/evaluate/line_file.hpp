// SPDX-License-Identifier: Apache-2.0
// Lines of JSON that are added while a measurement runs, so that one that was stopped goes on where it was.
#pragma once

#include <fcntl.h>   // open
#include <unistd.h>  // lseek, ftruncate, close

#include <sstream>  // std::istringstream
#include <string>   // std::string

#include "../../decode/json_file.hpp"
#include "../../decode/output.hpp"

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
    const off_t cut = is_there(path) ? read(each) : 0;
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file_ < 0) refuse("cannot be written", errno);
    if (cut > 0 && ::ftruncate(file_, ::lseek(file_, 0, SEEK_END) - cut) != 0) refuse("cannot be written", errno);
  }
  line_file(const line_file&) = delete;
  line_file& operator=(const line_file&) = delete;
  ~line_file() {
    if (file_ >= 0) ::close(file_);
  }

  /// Writes a line at once, or nothing of it.
  /// @throws input_error  the disk is full
  void add(const json& line) {
    if (file_ < 0) return;
    const off_t before = ::lseek(file_, 0, SEEK_END);
    const int error = write_all(file_, line.dump() + '\n');
    if (error == 0) return;
    const int cut = before >= 0 ? ::ftruncate(file_, before) : -1;
    static_cast<void>(cut);  // if that fails too, the next run removes what is there of the line
    refuse("cannot be written any more", error);
  }

 private:
  [[noreturn]] void refuse(const char* what, int error) const { fail(path_, ": ", what, ": ", std::strerror(error)); }

  /// @return  bytes of a last line that was cut short
  template <class Each>
  off_t read(Each each) {
    std::istringstream text(read_text(path_, std::uint64_t{1} << 30));
    std::string line;
    for (int number = 1; std::getline(text, line); ++number) {
      const std::string where = path_ + ": line " + std::to_string(number);
      const bool cut_short = text.eof() && number > 1;  // a file whose first line is not ours stays as it is
      if (cut_short) return static_cast<off_t>(line.size());
      each(parse_json(line, where), where);
    }
    return 0;
  }

  std::string path_;
  int file_ = -1;
};

}  // namespace decode
