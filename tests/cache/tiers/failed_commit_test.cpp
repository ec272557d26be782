// SPDX-License-Identifier: Apache-2.0
// Policies that choose for all layers, or never.
#include <cache/tiers/failing_commits.hpp>

namespace zoomr_test {

TEST_CASE(
    "transfers fail, summaries are chosen, or nothing: the sequence is what it was, and the step can be made again") {
  check_failing_commits("full", small::full);
  check_failing_commits("window", small::window);
  check_failing_commits("zoomr_one_pass", small::zoomr_one_pass);
  check_failing_commits("zoomr_second_pass", small::zoomr_second_pass);
  check_failing_commits("zoomr_mass", small::zoomr_mass);
  check_failing_commits("zoomr_focus", small::zoomr_focus);
  check_failing_commits("focus_each_token", small::focus_each_token);
  check_failing_commits("summary_only", small::summary_only);
  check_failing_commits("by_layer", small::by_layer);
}

TEST_CASE("steps are dropped, calls are refused, summaries are chosen, or nothing: the sequence is what it was") {
  check_dropped_steps("full", small::full);
  check_dropped_steps("window", small::window);
  check_dropped_steps("zoomr_one_pass", small::zoomr_one_pass);
  check_dropped_steps("zoomr_second_pass", small::zoomr_second_pass);
  check_dropped_steps("zoomr_mass", small::zoomr_mass);
  check_dropped_steps("zoomr_focus", small::zoomr_focus);
  check_dropped_steps("focus_each_token", small::focus_each_token);
  check_dropped_steps("summary_only", small::summary_only);
  check_dropped_steps("by_layer", small::by_layer);
}

}  // namespace zoomr_test
