// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/policy/segment.hpp>

#include <vector>  // std::vector

namespace zoomr {

TEST_CASE("closings hold what one token closes, in order") {
  closings closed;
  closed.add({0, 1, 1, 0, 1, 0});
  closed.add({1, 2, 2, 1, 2, 1});
  closed.add({2, 3, 3, 2, 3, 2});
  CHECK(closed.count == 3);
  CHECK(closed.at[2].begin == 2);
#if ZOOMR_CHECKED
  CHECK_THROWS_AS(closed.add({}), precondition_error);
#endif
}

TEST_CASE("segments closed after a choice have their summary attended") {
  std::vector<level> levels{level::dropped, level::details};
  const selection_row row{levels};
  CHECK(row.level_at(0) == level::dropped);
  CHECK(row.level_at(1) == level::details);
  CHECK(row.level_at(2) == level::summary);
  CHECK(selection_row{}.level_at(0) == level::summary);
}

TEST_CASE("a selector takes a segment whole, or the first tokens of its details") {
  std::vector<level> levels(3, level::summary);
  selection_row row{levels};
  row.take(1);
  CHECK(row.cut_segment == -1);
  row.take_part(2, 5);
  CHECK(row.level_at(0) == level::summary);
  CHECK(row.level_at(1) == level::details);
  CHECK(row.level_at(2) == level::details);
  CHECK(row.cut_segment == 2);
  CHECK(row.cut_tokens == 5);
}

TEST_CASE("a run counts its tokens") {
  static_assert(token_range{3, 7}.size() == 4);
  static_assert(token_range{}.size() == 0);
  CHECK(token_range{3, 7} == token_range{3, 7});
}

}  // namespace zoomr
