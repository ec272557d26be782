// SPDX-License-Identifier: Apache-2.0
// Policies that evict tokens.
#include <cache/tiers/failing_commits.hpp>

namespace zoomr_test {

TEST_CASE("transfers fail, tokens are evicted: the sequence is what it was, and the step can be made again") {
  for_each_in_tiers<share::evicts>([](const char* name, const auto& policy) { check_failing_commits(name, policy); });
}

TEST_CASE("steps are dropped, calls are refused, tokens are evicted: the sequence is what it was") {
  for_each_in_tiers<share::evicts>([](const char* name, const auto& policy) { check_dropped_steps(name, policy); });
}

}  // namespace zoomr_test
