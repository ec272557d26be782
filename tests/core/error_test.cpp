// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/core/error.hpp>

#include <new>  // std::bad_alloc

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

void never_called(const reported_failure&) { FAIL("with exceptions no handler is called"); }

TEST_CASE("with exceptions an error handler is kept, and not called") {
  const error_handler first = set_error_handler(never_called);
  CHECK((first != nullptr));
  CHECK((set_error_handler(never_called) == never_called));
  CHECK_THROWS_WITH_AS(detail::raise(errc::busy, "wait"), "zoomr: wait", error);
  CHECK_THROWS_WITH_AS(ZOOMR_EXPECTS(false, "never"), "zoomr: never", precondition_error);
  set_error_handler(nullptr);
  CHECK((set_error_handler(first) == first));
}

TEST_CASE("what has failed is undone, and the failure goes on") {
  int undone = 0;
  const auto undo = [&] { ++undone; };
  const auto fault = [] { detail::raise(errc::storage, "lost"); };
  const auto mistake = [] { detail::raise_precondition("wrong"); };
  CHECK_THROWS_AS(detail::undone_if_failed(fault, undo), error);
  CHECK_THROWS_AS(detail::undone_if_failed(mistake, undo), precondition_error);
  CHECK_THROWS_AS(detail::undone_if_failed([] { throw 1; }, undo), int);
  CHECK(undone == 3);
  CHECK_THROWS_AS(detail::undone_if_error(fault, undo), error);
  CHECK(undone == 4);
  CHECK_THROWS_AS(detail::undone_if_error(mistake, undo), precondition_error);
  detail::undone_if_failed([] {}, undo);
  detail::undone_if_error([] {}, undo);
  CHECK(undone == 4);
}

TEST_CASE("a failure of one kind is handled, thrown on, or becomes another") {
  const auto fault = []() -> int { detail::raise(errc::storage, "lost"); };
  const auto code = [](const error& what) { return what.code() == errc::storage ? 7 : 0; };
  CHECK(detail::handled<error>(fault, code) == 7);
  CHECK(detail::handled<error>([] { return 1; }, code) == 1);
  CHECK_THROWS_WITH_AS(detail::handled<error>(fault, [](const error&) -> int { detail::rethrow(); }), "zoomr: lost",
                       error);
  CHECK_THROWS_AS(detail::handled<std::bad_alloc>(fault, [](const std::bad_alloc&) { return 0; }), error);
  CHECK_THROWS_WITH_AS(detail::handled<error>(fault, [](const error&) -> int { detail::raise_precondition("why"); }),
                       "zoomr: why", precondition_error);
  detail::ignoring_failures([&] { fault(); });
  CHECK_FALSE(detail::failures_are_ignored());
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
