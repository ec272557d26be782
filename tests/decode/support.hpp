// SPDX-License-Identifier: Apache-2.0
// What the decoder's tests share: where fixtures lie, a folder for broken copies of them, and the
// sentence of an expected complaint.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <unistd.h>  // getpid

#include "input_error.hpp"
#include "json_file.hpp"

namespace decode {

namespace fs = std::filesystem;

inline fs::path fixture(const std::string& name) { return fs::path(DECODE_FIXTURES) / name; }

inline void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(const fs::path& path) { return read_text(path, 1u << 30); }

/// A fresh folder for one test, removed at its end; may begin as a copy of a fixture.
class scratch {
 public:
  explicit scratch(const std::string& copy_of = "") {
    static int count = 0;
    path_ = fs::temp_directory_path() / ("decode_test_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    fs::remove_all(path_);
    if (copy_of.empty())
      fs::create_directories(path_);
    else
      fs::copy(fixture(copy_of), path_, fs::copy_options::recursive);
  }
  ~scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// The sentence with which `action` complains; "no complaint" if it does not.
template <class Action>
std::string complaint(Action action) {
  try {
    action();
  } catch (const input_error& error) {
    return error.what();
  }
  return "no complaint";
}

inline bool says(const std::string& sentence, std::string_view words) {
  return sentence.find(words) != sentence.npos && sentence.find('\n') == sentence.npos;
}

}  // namespace decode
