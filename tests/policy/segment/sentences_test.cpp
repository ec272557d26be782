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
}

}  // namespace zoomr
