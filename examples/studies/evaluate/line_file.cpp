// SPDX-License-Identifier: Apache-2.0
#include "line_file.hpp"

#include <fcntl.h>   // open
#include <unistd.h>  // lseek, ftruncate, close

#include <cerrno>   // errno
#include <cstring>  // std::strerror
#include <sstream>  // std::istringstream

#include <nlohmann/json.hpp>

#include "../../decode/input_error.hpp"
#include "../../decode/output.hpp"

namespace decode {

line_file::line_file(const std::string& path, const each_line& each) : path_(path) {
  if (path.empty()) return;
  const std::int64_t cut = is_there(path) ? read(each) : 0;
  file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0) refuse("cannot be written", errno);
  if (cut > 0 && ::ftruncate(file_, ::lseek(file_, 0, SEEK_END) - cut) != 0) refuse("cannot be written", errno);
}

line_file::~line_file() {
  if (file_ >= 0) ::close(file_);
}

void line_file::add(const json& line) {
  if (file_ < 0) return;
  const off_t before = ::lseek(file_, 0, SEEK_END);
  const int error = write_all(file_, line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n');
  if (error == 0) return;
  const int cut = before >= 0 ? ::ftruncate(file_, before) : -1;
  static_cast<void>(cut);  // if that fails too, the next run removes what is there of the line
  refuse("cannot be written any more", error);
}

void line_file::refuse(const char* what, int error) const { fail(path_, ": ", what, ": ", std::strerror(error)); }

std::int64_t line_file::read(const each_line& each) {
  std::istringstream text(read_text(path_, std::uint64_t{1} << 30));
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    const std::string where = path_ + ": line " + std::to_string(number);
    const bool cut_short = text.eof() && number > 1;  // a file whose first line is not ours stays as it is
    if (cut_short) return static_cast<std::int64_t>(line.size());
    each(parse_json(line, where), where);
  }
  return 0;
}

line_file labelled_lines(const std::string& path, const std::string& label,
                         const std::function<void(const field& line)>& visit) {
  return line_file(path, [&](const json& line, const std::string& where) {
    const field one(line, where + ": ");
    const std::string& measured = one.at("measured").text();
    if (measured != label) fail(where, ": measured with \"", measured, "\", but \"", label, "\" is asked for");
    visit(one);
  });
}

}  // namespace decode
