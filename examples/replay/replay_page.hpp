// SPDX-License-Identifier: Apache-2.0
// The page of --report: what each policy has read of a trace's text, token by token.
#pragma once

#include <deque>    // std::deque
#include <ostream>  // std::ostream
#include <string>   // std::string
#include <vector>   // std::vector

#include "../decode/report/recorder.hpp"
#include "replay_result.hpp"
#include "trace.hpp"

namespace replay {

class replay_page {
 public:
  /// The recorder of the next policy, in the order of the results: for watcher::recorder.
  report::recorder* add(const report::policy_facts& facts) { return &recorders_.emplace_back(facts); }

  /// @param command  what made it, for a shell
  void write(std::ostream& out, const trace& from, const std::string& command,
             const std::vector<replay_result>& results) const;

 private:
  std::deque<report::recorder> recorders_;
};

}  // namespace replay
