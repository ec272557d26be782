// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <policy/segment/stream.hpp>
#include <zoomr/policy/segment/code_segments.hpp>
#include <zoomr/vocabulary.hpp>

#include <algorithm>    // std::count
#include <cctype>       // std::isalnum, std::isspace
#include <string_view>  // std::string_view

namespace zoomr {
using unit::closed_in;
using unit::piece;
using unit::segment_list;

namespace {

/// A segment that the token behind it has closed.
segment block(index_t begin, index_t end) { return {begin, end, end, begin, end, end}; }

/// How byte-level tokenizers cut before they merge: a blank is the next word's, and the end of a line the indentation's
/// that follows it (GPT-2), or a token's of its own, or of the marks before it (Llama 3, Qwen).
enum class line_end { with_indentation, alone };

std::vector<std::string> words_of(std::string_view source, line_end rule) {
  std::vector<std::string> words;
  const auto kind = [&](std::size_t at) {
    const auto c = static_cast<unsigned char>(source[at]);
    return std::isspace(c) ? 0 : std::isalnum(c) || c == '_' ? 1 : 2;
  };
  const auto end_of_kind = [&](std::size_t at) {
    const int first = kind(at);
    while (at < source.size() && kind(at) == first) ++at;
    return at;
  };
  for (std::size_t at = 0; at < source.size();) {
    std::size_t end = end_of_kind(at);
    if (kind(at) == 0) {
      const std::size_t line = source.substr(at, end - at).rfind('\n');
      if (line != source.npos && rule == line_end::alone) {
        end = at + line + 1;
      } else if (end < source.size() && end - at > 1) {
        --end;
      } else if (end < source.size() && source[at] == ' ') {
        end = end_of_kind(end);
      }
    } else if (kind(at) == 2 && rule == line_end::alone) {
      while (end < source.size() && source[end] == '\n') ++end;
    }
    words.emplace_back(source.substr(at, end - at));
    at = end;
  }
  return words;
}

/// After how many lines of the source each segment ends: "4 9 12 ".
std::string lines_at_ends(const code_segments& split, const std::string& source, line_end rule) {
  const std::vector<std::string> words = words_of(source, rule);
  const auto classes = classify_sentences(
      static_cast<index_t>(words.size()), [&](index_t id) { return words[static_cast<std::size_t>(id)]; },
      mark_rule::before_blank, line_rule::end_segments);
  std::string ends;
  code_segments::state state{};
  std::string text;
  std::size_t read = 0;
  for (index_t position = 0; position < static_cast<index_t>(words.size()); ++position) {
    closings closed;
    split.feed(state, classes[static_cast<std::size_t>(position)], position, closed);
    if (position + 1 == static_cast<index_t>(words.size())) split.end_of_prompt(state, position, closed);
    for (index_t c = 0; c < closed.count; ++c) {
      for (; read < static_cast<std::size_t>(closed.at[c].end); ++read) text += words[read];
      ends += std::to_string(std::count(text.begin(), text.end(), '\n')) + ' ';
    }
  }
  return ends;
}

}  // namespace

TEST_CASE("an empty line before a line without indentation ends any segment of code") {
  CHECK(closed_in(code_segments{}, "a=b").size() == 1);
  CHECK(closed_in(code_segments{}, "a=bc.d") == segment_list{block(0, 2), block(2, 5)});
  CHECK(closed_in(code_segments{}, "a%%b") == segment_list{block(0, 3)});    // two line feeds
  CHECK(closed_in(code_segments{}, "a%%%=b") == segment_list{block(0, 5)});  // all of them are the segment's
  CHECK(closed_in(code_segments{}, "a=_b").empty());                         // a line with indentation
  CHECK(closed_in(code_segments{}, "a$b").empty());
  CHECK(closed_in(code_segments{}, "a=").empty());
  CHECK(closed_in(code_segments{}, "a!b").empty());
}

TEST_CASE("an empty line or the lack of indentation alone ends a segment of code of `shortest_block` tokens") {
  const code_segments split{.shortest_block = 4};
  CHECK(closed_in(split, "abc=_d") == segment_list{block(0, 4)});
  CHECK(closed_in(split, "ab=_d").empty());
  CHECK(closed_in(split, "abc$d") == segment_list{block(0, 4)});
  CHECK(closed_in(split, "ab$d").empty());
  CHECK(closed_in(split, "abcdef$_d").empty());  // neither
  CHECK(closed_in(code_segments{}, std::string(31, 'a') + "$b") == segment_list{block(0, 32)});
  CHECK(closed_in(code_segments{}, std::string(30, 'a') + "$b").empty());
}

TEST_CASE("the end of any line ends a segment of code of half of `longest`, and `longest` tokens do") {
  const code_segments split{.longest = 8};
  CHECK(closed_in(split, "abc$_d") == segment_list{block(0, 4)});
  CHECK(closed_in(split, "ab$_d").empty());
  CHECK(closed_in(split, "abcdefghi") == segment_list{piece(0, 8)});
  CHECK(closed_in(split, "abcdefg$hi") == segment_list{piece(0, 8)});
  CHECK(closed_in(split, "a$cdefg$%=i") == segment_list{piece(0, 8), block(8, 10)});
  CHECK(closed_in(code_segments{.longest = 1}, "a=b") == segment_list{piece(0, 1), piece(1, 2), piece(2, 3)});
  CHECK(code_segments{}.longest == 256);
}

TEST_CASE("the end of the prompt and the end of a span end a segment of code, and the line is forgotten") {
  CHECK(closed_in(code_segments{}, "a=|b=c") == segment_list{piece(0, 2), block(2, 4)});
  CHECK(closed_in(code_segments{}, "|a").empty());
  code_segments::state state{};
  closed_in(code_segments{}, "ab=", state);
  CHECK(code_segments{}.open_begin(state) == 0);
  closings closed;
  code_segments{}.cut(state, 3, closed);
  code_segments{}.cut(state, 3, closed);
  REQUIRE(closed.count == 1);
  CHECK(closed.at[0] == block(0, 3));
  CHECK(state == code_segments::state{3});
}

TEST_CASE("Python is cut into its functions and blocks, however the tokenizer cuts line ends") {
  const std::vector<std::string> blocks = {
      R"(import functools
import heapq
import sys
from collections import Counter

)",
      R"(WORDS = Counter()


)",
      R"(@functools.cache
def area(width, height):
    return width * height


)",
      R"(class Queue:
    """A queue. The smallest item comes first, as in a heap, at 3.14 times the price."""

)",
      R"(    def __init__(self, items=()):
        self.items = list(items)

        heapq.heapify(self.items)

)",
      R"(    def pop(self):
        if not self.items:
            raise IndexError("pop from an empty queue")
        found = heapq.heappop(self.items)
        self.taken += 1
        if self.taken > self.limit:
)",
      R"(            self.grow(by=2 * self.limit)
        return found


)",
      R"(def main(names):
    for name in names:
        WORDS[name] += 1
    print(WORDS)
)",
      R"(main(sys.argv[1:])
)"};
  std::string source, ends;
  for (const std::string& text : blocks) {
    source += text;
    ends += std::to_string(std::count(source.begin(), source.end(), '\n')) + ' ';
  }
  const code_segments split{.longest = 92, .shortest_block = 22};
  CHECK(lines_at_ends(split, source, line_end::alone) == ends);
  CHECK(lines_at_ends(split, source, line_end::with_indentation) == ends);
}

TEST_CASE("code_segments need positive lengths") {
  CHECK(code_segments{}.problem() == nullptr);
  for (const code_segments bad : {code_segments{.longest = 0}, code_segments{.shortest_block = 0}}) {
    CHECK(bad.problem() == std::string("code_segments: longest and shortest_block must be at least 1"));
  }
}

}  // namespace zoomr
