// SPDX-License-Identifier: Apache-2.0
// The table of presets: each is found by its name, and has the budget that it is given.
#include <doctest/doctest.h>
#include <zoomr/presets/table.hpp>

#include <set>     // std::set
#include <string>  // std::string

namespace zoomr {
namespace {

std::string problem_or_none(const auto& policy) {
  const char* problem = policy.problem();
  return problem == nullptr ? "" : problem;
}

}  // namespace

TEST_CASE("each preset has a name of its own, and is found by it") {
  std::set<std::string> names;
  presets::each([&](const auto& one) {
    CAPTURE(one.name);
    CHECK(names.insert(one.name).second);
    CHECK(std::string(one.what) != "");
    CHECK(std::string(one.limits) != "");
    int visits = 0;
    const bool found = presets::with_name(one.name, [&](const auto& same) {
      ++visits;
      CHECK(std::string(same.name) == one.name);
      if constexpr (std::same_as<decltype(same), decltype(one)>) CHECK(same.policy == one.policy);
    });
    CHECK((found && visits == 1));
  });
  CHECK(names.contains("full"));
  CHECK_FALSE(presets::with_name("nothing", [](const auto&) { FAIL("there is no such preset"); }));
  CHECK_FALSE(presets::with_name("", [](const auto&) { FAIL("there is no such preset"); }));
}

TEST_CASE("a budget of 0 is the preset's own, and any budget from the least on can work") {
  presets::each([](const auto& one) {
    CAPTURE(one.name);
    CHECK(problem_or_none(one.policy) == "");
    CHECK(one.with_budget(0) == one.policy);
    const index_t least = one.least_budget(one.policy);
    CHECK(least >= 1);
    for (const index_t budget : {least, least + 1, 97, 128, 1000, 4096}) {
      CAPTURE(budget);
      if (budget >= least) CHECK(problem_or_none(one.with_budget(budget)) == "");
    }
  });
}

TEST_CASE("what is smaller than the least budget cannot work") {
  int limited = 0;
  presets::each([&](const auto& one) {
    CAPTURE(one.name);
    const index_t least = one.least_budget(one.policy);
    if (least == 1) return;
    ++limited;
    CHECK(problem_or_none(one.with_budget(least - 1)) != "");
  });
  CHECK(limited == 2);  // window, whose sinks come first, and arkvale, which always attends to three pages
}

TEST_CASE("a budget limits what the table says") {
  presets::with_name("window", [](const auto& one) {
    const auto policy = one.with_budget(100);
    CHECK(policy.zone.sinks + policy.zone.recent == 100);
  });
  presets::with_name("quest", [](const auto& one) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(one.policy)>, policy_of<presets::quest>>) {
      CHECK(one.with_budget(100).select.segments == 7);  // pages of 16, rounded up
      auto changed = one.policy;
      changed.segment.longest = 50;
      CHECK(one.with_budget(changed, 100).select.segments == 2);
    }
  });
  presets::with_name("sentence_kv_published", [](const auto& one) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(one.policy)>, policy_of<presets::sentence_kv>>) {
      CHECK(one.with_budget(100).refresh.everything_until == 1);
      CHECK(one.with_budget(100).select.tokens == 100);
    }
  });
}

}  // namespace zoomr
