// SPDX-License-Identifier: Apache-2.0
// Policies that choose for each layer, KV head or head.
#include <cache/tiers/failing_commits.hpp>

namespace zoomr_test {

TEST_CASE("transfers fail, each KV head chooses: the sequence is what it was, and the step can be made again") {
  check_failing_commits("sentence_box", small::sentence_box);
  check_failing_commits("quest", small::quest);
  check_failing_commits("arkvale", small::arkvale);
  check_failing_commits("by_mass", small::by_mass);
  check_failing_commits("drifting", small::drifting);
}

TEST_CASE("steps are dropped, calls are refused, each KV head chooses: the sequence is what it was") {
  check_dropped_steps("sentence_box", small::sentence_box);
  check_dropped_steps("quest", small::quest);
  check_dropped_steps("arkvale", small::arkvale);
  check_dropped_steps("by_mass", small::by_mass);
  check_dropped_steps("drifting", small::drifting);
}

}  // namespace zoomr_test
