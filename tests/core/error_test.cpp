// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/core/error.hpp>

#include <string>  // std::string, std::to_string

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

/// What is done where `work` fails: the marks of the blocks that were entered, in their order.
template <class Work>
std::string blocks_entered(Work work) {
  std::string entered;
  try {
    ZOOMR_TRY {
      entered += "try";
      work();
      entered += " end";
    }
    ZOOMR_CATCH(const error& why) {
      entered += std::string(" error ") + why.what();
      if (why.code() != errc::busy) detail::rethrow();
    }
    ZOOMR_CATCH(const precondition_error& why) { detail::raise(errc::format, why.what() + error::prefix.size()); }
    ZOOMR_CATCH_ALL {
      entered += " other";
      detail::rethrow();
    }
    entered += " after";
  } catch (const error& why) {
    entered += std::string(" leaves ") + why.what();
  } catch (int number) {
    entered += " leaves " + std::to_string(number);
  }
  return entered;
}

TEST_CASE("what is caught is handled, goes on, or becomes another failure") {
  CHECK(blocks_entered([] {}) == "try end after");
  CHECK(blocks_entered([] { detail::raise(errc::busy, "wait"); }) == "try error zoomr: wait after");
  CHECK(blocks_entered([] { detail::raise(errc::storage, "lost"); }) == "try error zoomr: lost leaves zoomr: lost");
  CHECK(blocks_entered([] { detail::raise_precondition("wrong"); }) == "try leaves zoomr: wrong");
  CHECK(blocks_entered([] { throw 7; }) == "try other leaves 7");
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
