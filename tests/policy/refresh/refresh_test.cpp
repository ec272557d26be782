// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/policy/refresh/after_prefill.hpp>
#include <zoomr/policy/refresh/boundaries.hpp>
#include <zoomr/policy/refresh/every_token.hpp>

#include <string>  // std::string

namespace zoomr {
using enum refresh_action;

namespace {

constexpr token_event word{.position = 40, .open_tokens = 5, .since_choice = 7};
constexpr token_event stop{token_class::delimiter, 40, 5, 7};

}  // namespace

TEST_CASE("boundaries chooses at delimiters and marks only") {
  CHECK(boundaries{}.due(word) == keep);
  CHECK(boundaries{}.due(stop) == choose);
  CHECK(boundaries{}.due({token_class::delimiter | token_class::summary_end, 0, 1, 1}) == choose);
  CHECK(boundaries{}.due({token_class::mark, 0, 1, 1}) == choose);
  CHECK(boundaries{}.due({token_class::summary_end, 0, 1, 1}) == keep);
  CHECK(boundaries{}.due({token_class::blank, 0, 1, 1}) == keep);
  CHECK_FALSE(boundaries{}.each_token());
}

TEST_CASE("boundaries chooses at the latest after `at_most` tokens") {
  CHECK(boundaries{.at_most = 8}.due(word) == keep);
  CHECK(boundaries{.at_most = 7}.due(word) == choose);
  CHECK(boundaries{.at_most = 6}.due(word) == choose);
  CHECK(boundaries{.at_most = 1}.due({.since_choice = 1}) == choose);
  CHECK(boundaries{.at_most = 1}.each_token());
  CHECK_FALSE(boundaries{.at_most = 2}.each_token());
}

TEST_CASE("every_token chooses at each token, or takes everything while the open segment is young") {
  CHECK(every_token{}.due(word) == choose);
  CHECK(every_token{}.due(stop) == choose);
  CHECK(every_token{}.due({.open_tokens = 1}) == choose);
  CHECK(every_token{.everything_until = 1}.due({.open_tokens = 1}) == everything);
  CHECK(every_token{.everything_until = 1}.due({.open_tokens = 2}) == choose);
  const token_event delimiter{.classes = token_class::delimiter, .open_tokens = 20};  // the open one is empty behind it
  CHECK(every_token{.everything_until = 1}.due(delimiter) == everything);
  CHECK(every_token{}.due(delimiter) == choose);
  CHECK(every_token{.everything_until = 1}.problem() == nullptr);
  CHECK(every_token{.everything_until = -1}.problem() != nullptr);
  CHECK(every_token{.everything_until = 5}.due(word) == everything);
  CHECK(every_token::each_token());
}

TEST_CASE("never keeps") {
  CHECK(after_prefill{}.due(stop) == keep);
  CHECK_FALSE(after_prefill::each_token());
  CHECK_FALSE(after_prefill::second_pass);
}

TEST_CASE("each problem of a refresh rule has its sentence") {
  CHECK(boundaries{}.problem() == nullptr);
  CHECK(boundaries{.at_most = 0}.problem() == std::string("boundaries: at_most must be at least 1"));
  CHECK(every_token{}.problem() == nullptr);
  CHECK(problem_of(after_prefill{}) == nullptr);
}

}  // namespace zoomr
