// SPDX-License-Identifier: Apache-2.0
// Policies that choose thoughts, or nothing.
#include <cache/tiers/failing_commits.hpp>

namespace zoomr_test {

TEST_CASE(
    "transfers fail, thoughts are chosen, or nothing: the sequence is what it was, and the step can be made again") {
  for_each_in_tiers<share::chooses_thoughts_or_nothing>(
      [](const char* name, const auto& policy) { check_failing_commits(name, policy); });
}

TEST_CASE("steps are dropped, calls are refused, thoughts are chosen, or nothing: the sequence is what it was") {
  for_each_in_tiers<share::chooses_thoughts_or_nothing>(
      [](const char* name, const auto& policy) { check_dropped_steps(name, policy); });
}

}  // namespace zoomr_test
