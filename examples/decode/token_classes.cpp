// SPDX-License-Identifier: Apache-2.0
#include "token_classes.hpp"

#include <algorithm>    // std::min
#include <string_view>  // std::string_view

#include "input_error.hpp"
#include "splitter.hpp"
#include "unicode.hpp"
#include "utf8.hpp"

namespace decode {
namespace {

/// Whether a pattern is found in texts of tokens. Each takes steps in proportion to the text.
class finder {
 public:
  explicit finder(const std::string& pattern)
      : pattern_(pattern, {.gaps = false}, "a sentence's end"), matching_(pattern_) {}
  bool operator()(std::string_view text) {
    return !pattern_(text, matching_, [](std::string_view) { return false; });
  }

 private:
  splitter pattern_;
  splitter::matching matching_;
};

// What may stand around a mark: white space, closing marks, quotes of either side, and *.
const std::string around = R"(\s\p{Pe}\p{Pf}\p{Pi}"'*)";
const std::string unsure = ".!?…";

class sentence_ends {
 public:
  // A mark of another script at the end, whatever is before it; or an empty line.
  bool surely(std::string_view text) { return sure_(text); }
  // One of the marks that are also in 3.14 and "Dr.", alone.
  bool perhaps(std::string_view text) { return alone_(text); }

 private:
  finder sure_{"^(?s:.*[^" + around + unsure + R"(\p{Sentence_Terminal}])?+[)" + around + unsure +
               R"(]*+\p{Sentence_Terminal}|(?>\r\n?|\n)[\r\n])"};
  finder alone_{"^[" + around + "]*+[" + unsure + "][" + around + unsure + R"(]*+\z)"};
};

}  // namespace

std::vector<zoomr::token_class> classify(const tokenizer& words, std::size_t vocab,
                                         const std::vector<std::string>& delimiters, mark_rule marks) {
  using enum zoomr::token_class;
  std::vector<zoomr::token_class> classes(vocab, plain);
  const auto add = [&](token_id id, zoomr::token_class as) {
    auto& classes_of_it = classes[static_cast<std::size_t>(id)];
    classes_of_it = classes_of_it | as;
  };
  const auto add_named = [&](std::string_view text, zoomr::token_class as) {
    const auto id = words.id_of(text);
    if (id) add(*id, as);
    return id.has_value();
  };
  add_named("<thought>", thought_begin), add_named("</thought>", thought_end);
  add_named("<summary>", summary_begin), add_named("</summary>", summary_end);
  add_named("<|begin_of_summary|>", summary_begin), add_named("<|end_of_summary|>", summary_end);
  for (const std::string& text : delimiters) {
    if (!add_named(text, delimiter)) fail("the delimiter ", shown(text), " is not a token of this model");
  }
  if (!delimiters.empty()) return classes;
  sentence_ends ends;
  const bool waits = marks == mark_rule::before_blank;
  for (std::size_t i = 0; i < std::min(vocab, words.size()); ++i) {
    const auto id = static_cast<token_id>(i);
    const std::string text = words.piece(id, false);
    const bool whole = first_invalid_utf8(text) == text.size();
    if (waits && (words.special(id) || (whole && white_space_end(text, 0) > 0))) add(id, blank);
    if (!whole) continue;  // bytes of characters that other tokens complete
    if (ends.surely(text))
      add(id, delimiter);
    else if (ends.perhaps(text))
      add(id, waits && white_space_begin(text) == text.size() ? mark : delimiter);
  }
  return classes;
}

}  // namespace decode
