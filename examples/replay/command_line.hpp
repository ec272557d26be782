// SPDX-License-Identifier: Apache-2.0
// The command line of zoomr-replay.
#pragma once

#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

#include "replay.hpp"

namespace replay {

struct options {
  std::vector<std::string> files;
  std::vector<std::string> policies;  // empty: full, or with `advise` what to try
  std::vector<index_t> budgets;
  zoomr::byte_count memory = zoomr::byte_count{2} << 30;
  zoomr::byte_count device = 0;
  index_t at_once = 0;  // policies that play at a time; 0: all
  std::string scratch, voters_file;
  std::string json_file, csv_file, report_file, resume_file;
  bool advise = false;
  std::string command;  // all that was said, for a shell
};

/// @return  the program's exit status, if there is nothing more to do: --help was printed
/// @throws  decode::input_error
std::optional<int> read_command_line(int argc, const char* const* argv, options& given);

}  // namespace replay
