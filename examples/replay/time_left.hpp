// SPDX-License-Identifier: Apache-2.0
// A bar on a terminal with the time that is left, as the time until now lets one expect; elsewhere a line every ten
// seconds, and one for each part of the work.
#pragma once

#include <algorithm>  // std::clamp
#include <chrono>     // std::chrono::steady_clock
#include <cmath>      // std::lround
#include <iostream>   // std::cerr
#include <string>     // std::string

#include <unistd.h>  // isatty

namespace replay {

class time_left {
 public:
  time_left() : terminal_(isatty(STDERR_FILENO) != 0) {}
  time_left(const time_left&) = delete;
  time_left& operator=(const time_left&) = delete;
  ~time_left() {
    if (drawn_) std::cerr << "\r\033[K" << std::flush;
  }

  /// @param share  of all work that is done
  void at(double share) {
    const auto now = clock::now();
    if (now - last_ < (terminal_ ? std::chrono::milliseconds(drawn_ ? 200 : 0) : std::chrono::milliseconds(10'000)))
      return;
    last_ = now;
    const double part = std::clamp(share, 0.0, 1.0), taken = std::chrono::duration<double>(now - begin_).count();
    std::string said = std::to_string(std::lround(100 * part)) + " %";
    if (part > 0.01) said += ", " + in_words(taken * (1 - part) / part) + " left";
    if (!terminal_) {
      std::cerr << "zoomr-replay: " << said << std::endl;
      return;
    }
    drawn_ = true;
    const auto cells = static_cast<std::size_t>(part * width);
    std::cerr << "\r\033[K[" << std::string(cells, '#') << std::string(width - cells, '.') << "] " << said
              << std::flush;
  }

  /// Work of several parts begins another one: which, where no bar shows it.
  void part(const std::string& name) {
    if (!terminal_) std::cerr << "zoomr-replay: " << name << std::endl;
  }

  /// "1:05:09", "5:09".
  static std::string in_words(double seconds) {
    const long all = std::lround(seconds), hours = all / 3600, minutes = all / 60 % 60;
    const auto two = [](long number) { return (number < 10 ? "0" : "") + std::to_string(number); };
    const std::string rest = ":" + two(all % 60);
    return hours > 0 ? std::to_string(hours) + ":" + two(minutes) + rest : std::to_string(minutes) + rest;
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr std::size_t width = 40;

  bool terminal_;
  bool drawn_ = false;
  clock::time_point begin_ = clock::now(), last_ = begin_;
};

}  // namespace replay
