// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/core/error.hpp>

namespace zoomr {

TEST_CASE("a broken precondition throws its sentence") {
  const auto halve = [](int n) {
    ZOOMR_EXPECTS(n % 2 == 0, "n must be even");
    return n / 2;
  };
  CHECK(halve(4) == 2);
  CHECK_THROWS_WITH_AS(halve(3), "zoomr: n must be even", precondition_error);
}

TEST_CASE("an error carries its code and its sentence") {
  const error full(errc::capacity, "the pool is full");
  CHECK(full.code() == errc::capacity);
  CHECK(std::string(full.what()) == "zoomr: the pool is full");
  CHECK(error(errc::rollback_depth, "").code() == errc::rollback_depth);
}

TEST_CASE("the macros are one statement") {
  bool reached = false;
  if (reached)
    ZOOMR_EXPECTS(false, "not reached");
  else
    reached = true;
  if (!reached)
    ZOOMR_ASSERT(false, "not reached");
  else
    reached = false;
  CHECK_FALSE(reached);
}

}  // namespace zoomr
