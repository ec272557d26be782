// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "byte_alphabet.hpp"
#include "splitter.hpp"
#include "support.hpp"
#include "token_classes.hpp"
#include "tokenizer.hpp"

namespace decode {
namespace {

using zoomr::token_class;
using enum zoomr::token_class;

// A byte-level tokenizer whose ids stand for these texts, and a control token behind them.
tokenizer tokenizer_of(const std::vector<std::string>& texts) {
  json vocabulary = json::object();
  for (std::size_t id = 0; id < texts.size(); ++id) vocabulary[alphabet_from_bytes(texts[id])] = id;
  const json file = {{"added_tokens", {{{"id", texts.size()}, {"content", "<|im_end|>"}, {"special", true}}}},
                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
                     {"decoder", {{"type", "ByteLevel"}}},
                     {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}};
  const scratch folder;
  write_file(folder / "tokenizer.json", file.dump());
  return tokenizer(folder.path());
}

struct sentence_end {
  std::string text;
  token_class anywhere = plain, before_blank = plain;
};

}  // namespace

TEST_CASE("tokens that end sentences, under both rules for marks") {
  const std::vector<sentence_end> all = {
      // marks that are also in numbers and abbreviations
      {".", delimiter, mark},
      {"?!", delimiter, mark},
      {"...", delimiter, mark},
      {"…", delimiter, mark},
      {".\"", delimiter, mark},
      {".”", delimiter, mark},
      {"!»", delimiter, mark},
      {").", delimiter, mark},
      {"**.", delimiter, mark},
      {" .", delimiter, mark | blank},
      // with white space behind them they are sure
      {".\n", delimiter, delimiter},
      {".\r\n", delimiter, delimiter},
      {"!\r\n\r\n", delimiter, delimiter},
      {".\u00a0", delimiter, delimiter},
      {"  .\n", delimiter, delimiter | blank},
      // empty lines
      {"\n\n", delimiter, delimiter | blank},
      {"\r\n\r\n", delimiter, delimiter | blank},
      {"\r\r", delimiter, delimiter | blank},
      {"}\n\n", delimiter, delimiter},
      {"\n\r\n", delimiter, delimiter | blank},
      {"\n", plain, blank},
      {"\r\n", plain, blank},
      {"\r", plain, blank},
      {"  ", plain, blank},
      {"\u3000", plain, blank},
      // marks of other scripts, whatever is before them
      {"。", delimiter, delimiter},
      {"．", delimiter, delimiter},
      {"！", delimiter, delimiter},
      {"？！", delimiter, delimiter},
      {"｡", delimiter, delimiter},
      {"؟", delimiter, delimiter},
      {"۔", delimiter, delimiter},
      {"।", delimiter, delimiter},
      {"॥", delimiter, delimiter},
      {"։", delimiter, delimiter},
      {"።", delimiter, delimiter},
      {"です。", delimiter, delimiter},
      {"。」\n", delimiter, delimiter},
      {"了。…", delimiter, delimiter},
      // neither
      {"é."},
      {"etc."},
      {"3."},
      {".5"},
      {".com"},
      {" the", plain, blank},
      {"。x"},
      {"。（"},
      {"、"},
      {"；"},
      {":"},
      {"\""},
      {"”"},
      {"·"},
      {"\x82"},        // the last byte of 。 and of other characters
      {"。\xe3\x80"},  // and the beginning of another one
      {"\u2029", plain, blank},
  };
  std::vector<std::string> texts;
  for (const sentence_end& one : all) texts.push_back(one.text);
  const tokenizer words = tokenizer_of(texts);
  const auto anywhere = classify(words, words.size() + 3, {});
  const auto before_blank = classify(words, words.size(), {}, mark_rule::before_blank);
  CHECK(anywhere.size() == words.size() + 3);
  for (std::size_t id = 0; id < all.size(); ++id) {
    CAPTURE(json(all[id].text).dump(-1, ' ', true, json::error_handler_t::replace));
    CHECK(anywhere[id] == all[id].anywhere);
    CHECK(before_blank[id] == all[id].before_blank);
  }
  CHECK(anywhere[all.size()] == plain);
  CHECK(before_blank[all.size()] == blank);  // a turn that ends ends its last sentence
}

TEST_CASE("the end of a line is a delimiter and a mark, unless it ends a sentence anyway") {
  const std::vector<std::string> texts = {"\n", " |\n", "\n    ", "\r\n", "\n\n", ".\n", "。\n", "\r", "n", ""};
  const tokenizer words = tokenizer_of(texts);
  const auto classes = classify(words, words.size(), {}, mark_rule::anywhere, zoomr::line_rule::end_segments);
  const token_class line = delimiter | mark;
  const std::vector<token_class> expected = {line,      line,      line,  line,  delimiter,
                                             delimiter, delimiter, plain, plain, plain};
  for (std::size_t id = 0; id < expected.size(); ++id) {
    CAPTURE(id);
    CHECK(classes[id] == expected[id]);
  }
  const auto before_blank = classify(words, words.size(), {}, mark_rule::before_blank, zoomr::line_rule::end_segments);
  CHECK(before_blank[0] == (line | blank));
  CHECK(before_blank[5] == delimiter);
}

// The same rule in PCRE2's words, whose tables are its own: since the pattern names a character by its number, others
// have no stand-in. On the left a tail of marks that one of another script is in, or an empty line; on the right marks
// alone.
class reference {
 public:
  token_class operator()(std::string_view text, mark_rule rule) {
    const bool waits = rule == mark_rule::before_blank;
    const token_class known = waits && (text.empty() || found(first_, text)) ? blank : plain;
    if (found(sure_, text)) return known | delimiter;
    if (!found(alone_, text)) return known;
    return known | (waits && !found(last_, text) ? token_class::mark : delimiter);
  }

 private:
  struct pattern {
    explicit pattern(const std::string& text) : code(text, {.gaps = false}, "reference"), matching(code) {}
    splitter code;
    splitter::matching matching;
  };
  static bool found(pattern& in, std::string_view text) {
    return !text.empty() && !in.code(text, in.matching, [](std::string_view) { return false; });
  }
  static constexpr const char* around = R"(\s\p{Pe}\p{Pf}\p{Pi}"'*)";

  pattern sure_{std::string("^(?s:.*[^") + around + R"(.!?\x{2026}\p{Sentence_Terminal}])?+[)" + around +
                R"(.!?…]*+\p{Sentence_Terminal}|(?>\r\n?|\n)[\r\n])"};
  pattern alone_{std::string("^[") + around + "]*+[.!?…][" + around + R"(.!?…]*+\z)"};
  pattern first_{R"(^\s)"}, last_{R"(\s\z)"};
};

TEST_CASE("classes of tokens are what PCRE2's properties of characters say") {
  // Characters get properties with each version of Unicode. Where PCRE2's is not the library's 14, ASCII, Latin, CJK
  // and general punctuation alone are compared: they have not changed since.
  const auto utf8 = [](char32_t c) {
    const auto byte = [](char32_t bits) { return static_cast<char>(bits); };
    if (c < 0x80) return std::string{byte(c)};
    if (c < 0x800) return std::string{byte(0xc0 | c >> 6), byte(0x80 | (c & 63))};
    if (c < 0x10000) return std::string{byte(0xe0 | c >> 12), byte(0x80 | ((c >> 6) & 63)), byte(0x80 | (c & 63))};
    return std::string{byte(0xf0 | c >> 18), byte(0x80 | ((c >> 12) & 63)), byte(0x80 | ((c >> 6) & 63)),
                       byte(0x80 | (c & 63))};
  };
  reference expected;
  const auto ends = [&](char32_t c) { return expected(utf8(c), mark_rule::anywhere) == delimiter; };
  const bool same = ends(0x2e53) && !ends(0x11f43);  // given the property by 14 and by 15
  std::vector<std::string> texts = {""};
  for (char32_t c = 1; c < 0x110000; ++c) {
    const bool settled = c < 0x250 || (c >= 0x2000 && c < 0x2070) || (c >= 0x3000 && c < 0x3040);
    if ((c >= 0xd800 && c < 0xe000) || (!same && !settled)) continue;
    texts.push_back(utf8(c));
    if (c < 0x3100 || c % 16 == 0) texts.insert(texts.end(), {"a" + utf8(c), "." + utf8(c), utf8(c) + ".\""});
  }
  std::mt19937 random(7);
  const std::vector<std::string> parts = {".",      "!",  "…",  "。", "؟", " ", "\n", "\r",
                                          "\u3000", "\"", "」", "”",  "*", "a", "é",  "("};
  for (int i = 0; i < 40000; ++i) {
    std::string text;
    for (std::size_t n = random() % 7; n-- > 0;) text += parts[random() % parts.size()];
    texts.push_back(text);
  }
  for (const mark_rule rule : {mark_rule::anywhere, mark_rule::before_blank}) {
    const auto classes = zoomr::classify_sentences(
        static_cast<zoomr::index_t>(texts.size()),
        [&](zoomr::index_t id) -> const std::string& { return texts[static_cast<std::size_t>(id)]; }, rule);
    int wrong = 0;
    for (std::size_t id = 0; id < texts.size(); ++id) {
      if (classes[id] == expected(texts[id], rule)) continue;
      if (++wrong < 5) MESSAGE(json(texts[id]).dump(-1, ' ', true, json::error_handler_t::replace));
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("a token of no whole characters is plain") {
  const std::vector<std::string> texts = {"\x80",              // a byte that goes on
                                          "\xc3",              // and one that waits for it
                                          ".\xe3\x80",         // of three bytes two
                                          "\xc0\xae",          // a full stop in more bytes than it needs
                                          "\xe0\x80\xae",      // and in three
                                          "\xed\xa0\x80",      // a surrogate
                                          "\xf4\x90\x80\x80",  // after the last character
                                          "\xf5\x80\x80\x80",
                                          "\xff"};
  for (const mark_rule rule : {mark_rule::anywhere, mark_rule::before_blank}) {
    const auto classes = zoomr::classify_sentences(
        static_cast<zoomr::index_t>(texts.size()),
        [&](zoomr::index_t id) { return std::string_view(texts[static_cast<std::size_t>(id)]); }, rule);
    for (const token_class one : classes) CHECK(one == plain);
  }
}

TEST_CASE("delimiters that are named are all that end sentences") {
  const tokenizer words = tokenizer_of({".", ";", " a"});
  for (const mark_rule rule : {mark_rule::anywhere, mark_rule::before_blank})
    CHECK(classify(words, 4, {";"}, rule) == std::vector<token_class>{plain, delimiter, plain, plain});
  CHECK(says(complaint([&] { classify(words, 4, {"!"}); }), "\"!\" is not a token of this model"));
  CHECK(classify(words, 4, {" a"}) == std::vector<token_class>{plain, plain, delimiter, plain});
  CHECK(classify(words, 4, {". ;"}) == std::vector<token_class>{delimiter, delimiter, plain, plain});
  for (const char* const other : {"a", "; a", " ;", "; ", " ", ""})
    CHECK(says(complaint([&] { classify(words, 4, {other}); }), "is not a token of this model"));
}

}  // namespace decode
