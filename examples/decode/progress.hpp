// SPDX-License-Identifier: Apache-2.0
// A bar on a terminal, nothing in a pipe.
#pragma once

#include <cstddef>   // std::size_t
#include <iostream>  // std::cerr
#include <string>    // std::string

#include <unistd.h>  // isatty

namespace decode {

class progress {
 public:
  progress(std::string label, std::size_t total)
      : label_(std::move(label)), total_(total), shown_(isatty(STDERR_FILENO) != 0 && total > 0) {}
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress() {
    if (drawn_) std::cerr << "\r\033[K" << std::flush;
  }

  void at(std::size_t done) {
    const std::size_t cells = shown_ ? width * done / total_ : 0;
    if (!shown_ || (drawn_ && cells == cells_)) return;
    cells_ = cells;
    drawn_ = true;
    std::cerr << '\r' << label_ << " [" << std::string(cells, '#') << std::string(width - cells, '.') << "] "
              << 100 * done / total_ << " %" << std::flush;
  }

 private:
  static constexpr std::size_t width = 40;
  std::string label_;
  std::size_t total_;
  bool shown_;
  bool drawn_ = false;
  std::size_t cells_ = 0;
};

}  // namespace decode
