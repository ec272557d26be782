// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/retain/everything.hpp>
#include <zoomr/retain/observed_attention.hpp>

#include <string>  // std::string

namespace zoomr {

TEST_CASE("keep_everything keeps every token") {
  CHECK_FALSE(keep_everything::observes);
  for (const index tokens : {0, 1, 4097}) CHECK(keep_everything{}.kept(tokens) == tokens);
}

TEST_CASE("observed_attention keeps its number of tokens of a longer prompt, and all of a shorter one") {
  CHECK(observed_attention::observes);
  constexpr observed_attention retain{.tokens = 100};
  CHECK(retain.kept(1) == 1);
  CHECK(retain.kept(100) == 100);
  CHECK(retain.kept(101) == 100);
  CHECK(retain.kept(unlimited) == 100);
  CHECK(observed_attention{}.kept(unlimited) == unlimited);  // r = infinity: nothing is lost
}

TEST_CASE("each problem of observed_attention has its sentence") {
  const auto problem = [](observed_attention retain) { return std::string(retain.problem()); };
  CHECK(observed_attention{}.problem() == nullptr);
  CHECK(observed_attention{.tokens = 32}.problem() == nullptr);
  CHECK(problem({.tokens = 31}) == "observed_attention: tokens must be at least queries, which are always kept");
  for (const observed_attention bad : {observed_attention{.queries = 0}, observed_attention{.pooling = 0},
                                       observed_attention{.pooling = 6}, observed_attention{.pooling = -7}}) {
    CHECK(problem(bad) == "observed_attention: queries must be at least 1 and pooling odd");
  }
}

}  // namespace zoomr
