// SPDX-License-Identifier: Apache-2.0
// Segments are written {begin, split, end, cue_begin, cue_end, closed_at}.
#include <doctest/doctest.h>
#include <policy/segment/stream.hpp>
#include <zoomr/policy/segment/thoughts.hpp>

namespace zoomr {
using unit::closed_in;
using unit::piece;
using unit::segment_list;

namespace {

/// What is closed when the stream is generated from its first token on.
segment_list generated(const std::string& stream, thoughts split = {}) {
  thoughts::state state{.generated = true};
  return closed_in(split, stream, state);
}

}  // namespace

TEST_CASE("a thought and its summary are one segment, and the cue is the summary without its markers") {
  CHECK(generated("<ab>[cd]") == segment_list{{0, 4, 8, 5, 7, 7}});
  CHECK(generated("<ab>[cd]<e>[f]") == segment_list{{0, 4, 8, 5, 7, 7}, {8, 11, 14, 12, 13, 13}});
}

TEST_CASE("with summary markers alone, the thought is all text since the previous summary") {
  CHECK(generated("ab[cd]ef[g]") == segment_list{{0, 2, 6, 3, 5, 5}, {6, 8, 11, 9, 10, 10}});
}

TEST_CASE("a thought without a summary closes where the next token shows that none comes; its own text is the cue") {
  CHECK(generated("<ab>").empty());
  CHECK(generated("<ab>x") == segment_list{{0, 4, 4, 1, 3, 4}});
  CHECK(generated("<ab><cd>[e]") == segment_list{{0, 4, 4, 1, 3, 4}, {4, 8, 11, 9, 10, 10}});
  CHECK(generated("<ab>]") == segment_list{{0, 4, 4, 1, 3, 4}});
  CHECK(generated("<ab>>") == segment_list{{0, 4, 4, 1, 3, 4}});
}

TEST_CASE("an empty summary leaves the thought's own text as the cue") {
  CHECK(generated("<ab>[]") == segment_list{{0, 4, 6, 1, 3, 5}});
  CHECK(generated("ab[]") == segment_list{{0, 2, 4, 0, 2, 3}});
  CHECK(generated("<ab[]") == segment_list{{0, 3, 5, 1, 3, 4}});
}

TEST_CASE("an empty thought is a segment too; with nothing to say, all of it is the cue") {
  CHECK(generated("<>[c]") == segment_list{{0, 2, 5, 3, 4, 4}});
  CHECK(generated("<>x") == segment_list{{0, 2, 2, 0, 2, 2}});
  CHECK(generated("<>[]") == segment_list{{0, 2, 4, 0, 4, 3}});
  CHECK(generated("[c]") == segment_list{{0, 0, 3, 1, 2, 2}});
  CHECK(generated("[]") == segment_list{{0, 0, 2, 0, 2, 1}});
}

TEST_CASE("a summary after a thought that never ended belongs to it") {
  CHECK(generated("<ab[c]") == segment_list{{0, 3, 6, 4, 5, 5}});
}

TEST_CASE("text before a thought is a segment of its own") {
  CHECK(generated("ab<c>[d]") == segment_list{{0, 2, 2, 0, 2, 2}, {2, 5, 8, 6, 7, 7}});
}

TEST_CASE("a thought within a thought ends the outer one") {
  CHECK(generated("<ab<cd>[e]") == segment_list{{0, 3, 3, 1, 3, 3}, {3, 7, 10, 8, 9, 9}});
  CHECK(generated("<<a>[b]") == segment_list{{0, 1, 1, 0, 1, 1}, {1, 4, 7, 5, 6, 6}});
}

TEST_CASE("stray markers are text") {
  CHECK(generated(">]a").empty());
  CHECK(generated("a>b]c[d]") == segment_list{{0, 5, 8, 6, 7, 7}});
  CHECK(generated("<a]b>[c]") == segment_list{{0, 5, 8, 6, 7, 7}});
  CHECK(generated("ab[c<d>[e]") == segment_list{{0, 2, 10, 3, 9, 9}});
}

TEST_CASE("a delimiter changes nothing, alone or joined with a marker") {
  CHECK(generated("<a.>[.b]") == segment_list{{0, 4, 8, 5, 7, 7}});
  thoughts::state state{.generated = true};
  closings closed;
  thoughts{}.feed(state, token_class::delimiter | token_class::summary_begin, 0, closed);
  thoughts{}.feed(state, token_class::plain, 1, closed);
  thoughts{}.feed(state, token_class::delimiter | token_class::summary_end, 2, closed);
  REQUIRE(closed.count == 1);
  CHECK(closed.at[0] == segment{0, 0, 3, 1, 2, 2});
}

TEST_CASE("text of `longest` tokens closes as it is") {
  CHECK(generated("abcdefgh", {.longest = 4}) == segment_list{piece(0, 4), piece(4, 8)});
}

TEST_CASE("`longest` inside a thought cuts it; the summary that comes later stands alone with what is left") {
  CHECK(generated("<abcd>[e]f", {.longest = 5}) == segment_list{{0, 5, 5, 1, 5, 4}, {5, 6, 9, 7, 8, 8}});
  CHECK(generated("<abcd>[e]", {.longest = 4}) == segment_list{{0, 4, 4, 1, 4, 3}, {4, 6, 8, 7, 8, 7}});
}

TEST_CASE("`longest` inside a summary cuts it, and its rest is text") {
  thoughts::state state{.generated = true};
  CHECK(closed_in(thoughts{.longest = 6}, "ab[cdef]g", state) == segment_list{{0, 2, 6, 3, 6, 5}});
  CHECK(thoughts{}.open_begin(state) == 6);
  CHECK(generated("ab[cdef]gh[i]", {.longest = 6}) == segment_list{{0, 2, 6, 3, 6, 5}, {6, 10, 12, 11, 12, 11}});
}

TEST_CASE("`longest` exactly at a close closes once") {
  CHECK(generated("ab[c]d", {.longest = 5}) == segment_list{{0, 2, 5, 3, 4, 4}});
  CHECK(generated("<a>b", {.longest = 4}) == segment_list{{0, 3, 3, 1, 2, 3}});
}

TEST_CASE("`longest` exactly at the end of a thought closes it before its summary can come") {
  CHECK(generated("<ab>[c]", {.longest = 4}) == segment_list{{0, 4, 4, 1, 3, 3}, {4, 4, 7, 5, 6, 6}});
}

TEST_CASE("`longest` exactly at the beginning of a summary leaves the thought's own text as the cue") {
  CHECK(generated("<ab>[c]", {.longest = 5}) == segment_list{{0, 4, 5, 1, 3, 4}});
}

TEST_CASE("`longest` of one token makes each token a segment") {
  const segment_list each = generated("<a>[b]", {.longest = 1});
  REQUIRE(each.size() == 6);
  for (index_t t = 0; t < 6; ++t) {
    CHECK(each[static_cast<std::size_t>(t)].begin == t);
    CHECK(each[static_cast<std::size_t>(t)].end == t + 1);
    CHECK(each[static_cast<std::size_t>(t)].cue_begin == t);
    CHECK(each[static_cast<std::size_t>(t)].cue_end == t + 1);
    CHECK(each[static_cast<std::size_t>(t)].closed_at == t);
  }
}

TEST_CASE("before the end of the prompt, text closes in pieces and at the end") {
  const thoughts split{.prompt_piece = 3};
  CHECK(closed_in(split, "abcdefgh|") == segment_list{piece(0, 3), piece(3, 6), piece(6, 8)});
  CHECK(closed_in(split, "abc|defgh") == segment_list{piece(0, 3)});
  CHECK(closed_in(split, "a|bcdefgh") == segment_list{piece(0, 1)});
}

TEST_CASE("a piece of the prompt ends with a sentence in its second half") {
  const thoughts split{.prompt_piece = 6};
  CHECK(closed_in(split, "ab.d.fgh.|") == segment_list{piece(0, 5), piece(5, 9)});
  CHECK(closed_in(split, "ab!d!fgh!|") == segment_list{piece(0, 5), piece(5, 9)});
  CHECK(closed_in(split, "abc.efghi|") == segment_list{piece(0, 4), piece(4, 9)});
  CHECK(closed_in(split, "ab.defgh|") == segment_list{piece(0, 6), piece(6, 8)});
  CHECK(closed_in(split, "a|bcd.efgh") == segment_list{piece(0, 1)});
}

TEST_CASE("with own_cue a thought is found by its own tokens, and by its summary if it has none") {
  const thoughts own{.own_cue = true};
  CHECK(generated("<abc>[de]", own) == segment_list{{0, 5, 9, 1, 4, 8}});
  CHECK(generated("ab[de]", own) == segment_list{{0, 2, 6, 0, 2, 5}});
  CHECK(generated("<>[de]", own) == segment_list{{0, 2, 6, 3, 5, 5}});
  CHECK(generated("<>[]", own) == segment_list{{0, 2, 4, 0, 4, 3}});
}

TEST_CASE("markup in the prompt is respected, and never cut into pieces") {
  const thoughts split{.prompt_piece = 3};
  CHECK(closed_in(split, "ab<cdef>[gh]ijkl|") ==
        segment_list{{0, 2, 2, 0, 2, 2}, {2, 8, 12, 9, 11, 11}, piece(12, 15), piece(15, 16)});
  CHECK(closed_in(split, "abcd[e]|") == segment_list{piece(0, 3), {3, 4, 7, 5, 6, 6}});
}

TEST_CASE("the end of the prompt inside a thought or its summary leaves it open") {
  CHECK(closed_in(thoughts{}, "<ab|c>[d]") == segment_list{{0, 5, 8, 6, 7, 7}});
  CHECK(closed_in(thoughts{}, "<ab>|[c]") == segment_list{{0, 4, 7, 5, 6, 6}});
  CHECK(closed_in(thoughts{}, "<ab>|x") == segment_list{{0, 4, 4, 1, 3, 4}});
  CHECK(closed_in(thoughts{}, "ab[c|d]") == segment_list{{0, 2, 6, 3, 5, 5}});
}

TEST_CASE("one token can close the thought before it and itself") {
  CHECK(closed_in(thoughts{.prompt_piece = 1}, "<>x") == segment_list{{0, 2, 2, 0, 2, 2}, piece(2, 3)});
  CHECK(closed_in(thoughts{}, "<>x|") == segment_list{{0, 2, 2, 0, 2, 2}, piece(2, 3)});
}

TEST_CASE("thoughts need positive lengths") {
  CHECK(thoughts{}.problem() == nullptr);
  for (const thoughts bad : {thoughts{.longest = 0}, thoughts{.prompt_piece = 0}}) {
    CHECK(bad.problem() == std::string("thoughts: longest and prompt_piece must be at least 1"));
  }
}

}  // namespace zoomr
