// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <policy/segment/stream.hpp>
#include <zoomr/policy/segment/sentences.hpp>

namespace zoomr {
using unit::closed_in;
using unit::piece;
using unit::segment_list;

TEST_CASE("a delimiter ends its sentence and belongs to it") {
  CHECK(closed_in(sentences{}, "ab.c.") == segment_list{piece(0, 3), piece(3, 5)});
  CHECK(closed_in(sentences{}, "a..b") == segment_list{piece(0, 2), piece(2, 3)});
  CHECK(closed_in(sentences{}, ".") == segment_list{piece(0, 1)});
  CHECK(closed_in(sentences{}, "abc").empty());
  sentences::state state{};
  closed_in(sentences{}, "ab.cd", state);
  CHECK(sentences{}.open_begin(state) == 3);
}

TEST_CASE("the end of the prompt ends a sentence, unless a delimiter just did") {
  CHECK(closed_in(sentences{}, "ab|c.") == segment_list{piece(0, 2), piece(2, 4)});
  CHECK(closed_in(sentences{}, "ab.|c.") == segment_list{piece(0, 3), piece(3, 5)});
}

TEST_CASE("without punctuation a sentence ends at `longest`") {
  const sentences split{.longest = 3};
  CHECK(closed_in(split, "abcde.") == segment_list{piece(0, 3), piece(3, 6)});
  CHECK(closed_in(split, "ab.cde") == segment_list{piece(0, 3), piece(3, 6)});
  CHECK(closed_in(split, "abc|d") == segment_list{piece(0, 3)});
  CHECK(closed_in(sentences{.longest = 1}, "a.") == segment_list{piece(0, 1), piece(1, 2)});
}

TEST_CASE("a mark ends its sentence where a blank comes next, which is known one token later") {
  const segment late{0, 3, 3, 0, 3, 3};  // closed by the token behind it
  CHECK(closed_in(sentences{}, "ab!").empty());
  CHECK(closed_in(sentences{}, "ab!c_d").empty());  // 3.14
  CHECK(closed_in(sentences{}, "ab!_") == segment_list{late});
  CHECK(closed_in(sentences{}, "a!!_") == segment_list{late});
  CHECK(closed_in(sentences{}, "ab!_c.") == segment_list{late, piece(3, 6)});
  CHECK(closed_in(sentences{}, "ab!.") == segment_list{piece(0, 4)});
  CHECK(closed_in(sentences{}, "ab!|_c.") == segment_list{piece(0, 3), piece(3, 6)});  // once
  CHECK(closed_in(sentences{.longest = 3}, "ab!_cd") == segment_list{piece(0, 3), piece(3, 6)});
  CHECK(closed_in(sentences{.longest = 1}, "!_") == segment_list{piece(0, 1), piece(1, 2)});
  CHECK(closed_in(sentences{}, "_a._b").size() == 1);

  sentences::state state{};
  closed_in(sentences{}, "ab.cd!", state);
  CHECK(sentences{}.open_begin(state) == 3);
  closings two;  // a blank that is a delimiter too
  sentences{}.feed(state, token_class::blank | token_class::delimiter, 6, two);
  CHECK(two.count == 2);
  CHECK(two.at[0] == segment{3, 6, 6, 3, 6, 6});
  CHECK(two.at[1] == piece(6, 7));
  CHECK(state == sentences::state{7});

  sentences::state both{};
  closings none;
  sentences{}.feed(both, token_class::plain, 0, none);
  sentences{}.feed(both, token_class::mark | token_class::blank, 1, none);
  CHECK(none.count == 0);
  sentences{}.feed(both, token_class::mark | token_class::blank, 2, none);
  CHECK(none.count == 1);
  CHECK(none.at[0] == segment{0, 2, 2, 0, 2, 2});
}

TEST_CASE("the end of a line ends a segment of at least `shortest_line` tokens, and is no mark in a shorter one") {
  const sentences split{.shortest_line = 4};
  CHECK(closed_in(split, "ab$cd$e.") == segment_list{piece(0, 6), piece(6, 8)});
  CHECK(closed_in(split, "abc$d$ef$") == segment_list{piece(0, 4), piece(4, 9)});
  CHECK(closed_in(split, "a$b.c$") == segment_list{piece(0, 4)});
  CHECK(closed_in(split, "a$_b").empty());
  CHECK(closed_in(split, "a$|bcd$") == segment_list{piece(0, 2), piece(2, 6)});
  CHECK(closed_in(split, "ab!$cd") == segment_list{piece(0, 4)});
  CHECK(closed_in(sentences{.shortest_line = 1}, "a$$b") == segment_list{piece(0, 2), piece(2, 3)});
  CHECK(closed_in(sentences{.longest = 3, .shortest_line = 4}, "a$bcd$") == segment_list{piece(0, 3), piece(3, 6)});
  CHECK(closed_in(sentences{}, std::string(30, 'a') + "$").empty());
  CHECK(closed_in(sentences{}, std::string(31, 'a') + "$") == segment_list{piece(0, 32)});
}

TEST_CASE("markup means nothing to sentences; a delimiter that is a marker too still ends one") {
  CHECK(closed_in(sentences{}, "<a>[b]").empty());
  sentences::state state{};
  closings closed;
  sentences{}.feed(state, token_class::delimiter | token_class::thought_end, 0, closed);
  CHECK(closed.count == 1);
}

TEST_CASE("sentences need a positive length") {
  CHECK(sentences{}.problem() == nullptr);
  CHECK(sentences{.longest = 0}.problem() == std::string("sentences: longest must be at least 1"));
  CHECK(sentences{.shortest_line = 0}.problem() == std::string("sentences: shortest_line must be at least 1"));
}

}  // namespace zoomr
