// SPDX-License-Identifier: Apache-2.0
// Results that a file keeps, so that a replay that was stopped goes on with the policies that are left.
#pragma once

#include <map>     // std::map
#include <string>  // std::string

#include "../studies/evaluate/line_file.hpp"
#include "replay_result.hpp"
#include "trace.hpp"

namespace replay {

class resumed {
 public:
  /// Reads what is there.
  /// @param path    empty: nothing is kept
  /// @param limits  in words: what else decides results
  /// @throws decode::input_error  not such a file, one of another trace, or one that cannot be written
  resumed(const std::string& path, const trace& from, std::string limits);

  /// @return  nullptr: it has not been played under these limits
  const replay_result* find(const std::string& policy) const;
  void add(const replay_result& result);

 private:
  void read(const decode::json& line, const std::string& where);

  std::string trace_, limits_;  // what a line must be of
  index_t heads_;
  std::map<std::string, replay_result> results_;
  decode::line_file file_;
};

}  // namespace replay
