// SPDX-License-Identifier: Apache-2.0
// Policies that evict tokens.
#include <cache/tiers/failing_commits.hpp>

namespace zoomr_test {

TEST_CASE("transfers fail, tokens are evicted: the sequence is what it was, and the step can be made again") {
  check_failing_commits("sentence_kv", small::sentence_kv);
  check_failing_commits("sentence_kv_published", small::sentence_kv_published);
  check_failing_commits("snapkv", small::snapkv);
  check_failing_commits("h2o", small::h2o);
  check_failing_commits("r_kv", small::r_kv);
  check_failing_commits("pinned_prompt", small::pinned_prompt);
  check_failing_commits("evicting", small::evicting);
}

TEST_CASE("steps are dropped, calls are refused, tokens are evicted: the sequence is what it was") {
  check_dropped_steps("sentence_kv", small::sentence_kv);
  check_dropped_steps("sentence_kv_published", small::sentence_kv_published);
  check_dropped_steps("snapkv", small::snapkv);
  check_dropped_steps("h2o", small::h2o);
  check_dropped_steps("r_kv", small::r_kv);
  check_dropped_steps("pinned_prompt", small::pinned_prompt);
  check_dropped_steps("evicting", small::evicting);
}

}  // namespace zoomr_test
