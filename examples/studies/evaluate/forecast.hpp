// SPDX-License-Identifier: Apache-2.0
// How long a measurement takes, said before anything runs and when the first problem is done.
#pragma once

#include <algorithm>  // std::min
#include <chrono>     // std::chrono::steady_clock
#include <cstddef>    // std::size_t
#include <iostream>   // std::cerr
#include <span>       // std::span
#include <string>     // std::string

#include "../../decode/table.hpp"
#include "../perplexity/prefill.hpp"

namespace decode {

class forecast {
 public:
  /// @param prompt    of a problem like the others
  /// @param problems  that are to be done
  /// @param what      "4 problems ...: at most"
  /// @param written   tokens that each policy writes, at most
  forecast(model& net, std::span<const token_id> prompt, std::size_t problems, const std::string& what,
           std::size_t policies, std::size_t written)
      : left_(problems) {
    if (problems == 0) return;
    const std::size_t sample = std::min<std::size_t>(prompt.size(), 64);
    const clock::time_point begin = clock::now();
    const perplexity::prefill passed(net, prompt.first(sample), [](std::size_t) {});
    const double steps =
        static_cast<double>(prompt.size()) + static_cast<double>(policies) * static_cast<double>(written) * 2;
    say(what, seconds_since(begin) / static_cast<double>(sample) * steps * static_cast<double>(problems));
    begin_ = clock::now();
  }

  void finish_problem() {
    --left_;
    if (!said_ && left_ > 0)
      say("one is done; the others take at most", seconds_since(begin_) * static_cast<double>(left_));
    said_ = true;
  }

 private:
  using clock = std::chrono::steady_clock;

  static double seconds_since(clock::time_point begin) {
    return std::chrono::duration<double>(clock::now() - begin).count();
  }
  static void say(const std::string& what, double seconds) {
    std::cerr << what << ' ' << (seconds < 90 ? fixed(seconds, 0) + " seconds" : fixed(seconds / 60, 0) + " minutes")
              << std::endl;
  }

  std::size_t left_;
  bool said_ = false;
  clock::time_point begin_;
};

}  // namespace decode
