// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <policy/segment/stream.hpp>
#include <zoomr/policy/segment/fixed_pages.hpp>
#include <zoomr/policy/segment/unsegmented.hpp>

namespace zoomr {
using unit::closed_in;
using unit::piece;
using unit::segment_list;

TEST_CASE("fixed_pages closes at every page, whatever the tokens and the prompt") {
  const fixed_pages pages{.longest = 4};
  CHECK(closed_in(pages, "").empty());
  CHECK(closed_in(pages, "abc").empty());
  CHECK(closed_in(pages, "abcd") == segment_list{piece(0, 4)});
  CHECK(closed_in(pages, "ab.[<|>]cdef") == segment_list{piece(0, 4), piece(4, 8)});
  fixed_pages::state state{};
  closed_in(pages, "abcdef", state);
  CHECK(pages.open_begin(state) == 4);
}

TEST_CASE("pages may be one token long") {
  CHECK(closed_in(fixed_pages{.longest = 1}, "ab|c") == segment_list{piece(0, 1), piece(1, 2), piece(2, 3)});
}

TEST_CASE("fixed_pages needs a positive length") {
  CHECK(fixed_pages{}.longest == 16);
  CHECK(fixed_pages{}.problem() == nullptr);
  CHECK(fixed_pages{.longest = 0}.problem() == std::string("fixed_pages: longest must be at least 1"));
}

TEST_CASE("unsegmented closes nothing, ever") {
  unsegmented::state state{};
  CHECK(closed_in(unsegmented{}, "ab.[c]<d>|e.", state).empty());
  CHECK(unsegmented{}.open_begin(state) == 0);
  CHECK(problem_of(unsegmented{}) == nullptr);
}

}  // namespace zoomr
