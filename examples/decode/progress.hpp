// SPDX-License-Identifier: Apache-2.0
// A bar on a terminal; elsewhere a line every ten seconds.
#pragma once

#include <chrono>    // std::chrono::steady_clock
#include <cstddef>   // std::size_t
#include <iostream>  // std::cerr
#include <string>    // std::string

#include <unistd.h>  // isatty

namespace decode {

class progress {
 public:
  progress(std::string label, std::size_t total)
      : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;
  ~progress() {
    if (drawn_) std::cerr << "\r\033[K" << std::flush;
  }

  void at(std::size_t done) {
    if (total_ == 0) return;
    if (!terminal_) return say(done);
    const std::size_t cells = width * done / total_;
    if (drawn_ && cells == cells_) return;
    cells_ = cells;
    drawn_ = true;
    std::cerr << '\r' << label_ << " [" << std::string(cells, '#') << std::string(width - cells, '.') << "] "
              << 100 * done / total_ << " %" << std::flush;
  }

 private:
  using clock = std::chrono::steady_clock;

  void say(std::size_t done) {
    if (clock::now() - said_ < std::chrono::seconds(10)) return;
    said_ = clock::now();
    std::cerr << label_ << ": " << 100 * done / total_ << " %" << std::endl;
  }

  static constexpr std::size_t width = 40;
  inline static thread_local clock::time_point said_ = clock::now();  // by any of them
  std::string label_;
  std::size_t total_;
  bool terminal_;
  bool drawn_ = false;
  std::size_t cells_ = 0;
};

}  // namespace decode
