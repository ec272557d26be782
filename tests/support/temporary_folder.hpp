// SPDX-License-Identifier: Apache-2.0
// A folder for files that a test makes, and that must be gone at its end.
#pragma once

#include <unistd.h>  // rmdir

#include <cstdlib>  // mkdtemp
#include <string>   // std::string

namespace zoomr_test {

class temporary_folder {
 public:
  temporary_folder() {
    char made[] = "/tmp/zoomr_test_XXXXXX";
    name_ = mkdtemp(made);
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() { ::rmdir(name_.c_str()); }  // fails if anything was left in it

  /// Another path each time.
  std::string path() { return name_ + "/" + std::to_string(paths_++); }

 private:
  std::string name_;
  int paths_ = 0;
};

}  // namespace zoomr_test
