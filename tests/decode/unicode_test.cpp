// SPDX-License-Identifier: Apache-2.0
// Tokenizers over texts that are not in a normal form, and what Unicode calls white space. The ids are those of the
// package `tokenizers`; tokenizer_oracle.py makes them, and compares many more by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support.hpp"
#include "tokenizer.hpp"
#include "unicode.hpp"

namespace decode {
namespace {

// The tokenizer of a fixture, with other steps or further tokens.
tokenizer changed(const std::string& name, const json& changes) {
  const scratch folder("tokenizers/" + name);
  json text = read_json(folder / "tokenizer.json");
  for (const char* part : {"normalizer", "pre_tokenizer", "decoder"})
    if (changes.contains(part)) text[part] = changes[part];
  std::size_t unused = 0;
  for (const json& id : text["model"]["vocab"]) unused = std::max(unused, id.get<std::size_t>() + 1);
  for (const json& token : text["added_tokens"]) unused = std::max(unused, token["id"].get<std::size_t>() + 1);
  for (json token : changes.value("added", json::array())) {
    token["id"] = unused++;
    text["added_tokens"].push_back(token);
  }
  write_file(folder / "tokenizer.json", text.dump());
  return tokenizer(folder.path());
}

}  // namespace

TEST_CASE("ids equal those of the reference on texts that are not in NFC, under each normalizer") {
  std::size_t texts = 0;
  const json file = read_json(fixture("tokenizers") / "unicode.json");
  for (const json& group : file) {
    const tokenizer words = changed(group["tokenizer"], group["changes"]);
    CAPTURE(group["tokenizer"].dump());
    CAPTURE(group["changes"].dump());
    for (const json& entry : group["cases"]) {
      CAPTURE(entry.dump());
      CHECK(words.encode(entry[0].get<std::string>()) == entry[1].get<std::vector<token_id>>());
      ++texts;
    }
  }
  CHECK(texts > 1000);
}

TEST_CASE("ids and texts equal those of the reference where spaces are signs by Metaspace, and patterns are replaced") {
  const json file = read_json(fixture("tokenizers") / "metaspace.json");
  CHECK(file.size() == 10);
  for (const json& group : file) {
    const tokenizer words = changed(group["tokenizer"], group["changes"]);
    CAPTURE(group["changes"].dump());
    for (const json& entry : group["cases"]) {
      CAPTURE(entry.dump());
      const auto ids = entry[1].get<std::vector<token_id>>();
      CHECK(words.encode(entry[0].get<std::string>()) == ids);
      CHECK(words.decode(ids, false) == entry[2].get<std::string>());
    }
  }
}

TEST_CASE("white space is Unicode's, around added tokens and in patterns") {
  const std::string spaces = "\t\r \xc2\x85\xc2\xa0\xe1\x9a\x80\xe2\x80\xa8\xe3\x80\x80";  // U+0085 00A0 1680 2028 3000
  const std::string others = "\x1c\xe1\xa0\x8e\xe2\x80\x8b\xef\xbb\xbf";                   // U+001C 180E 200B FEFF
  CHECK(white_space_end("a" + spaces + "b", 1) == 1 + spaces.size());
  CHECK(white_space_begin("a" + spaces) == 1);
  for (std::size_t at = 0; at < others.size(); at += at == 0 ? 1 : 3) {
    CHECK(white_space_end(others, at) == at);
    CHECK(white_space_begin(others.substr(0, at)) == at);
  }
  CHECK(white_space_end("", 0) == 0);
  CHECK(white_space_begin("") == 0);

  const tokenizer words(fixture("tokenizers") / "qwen2");
  const token_id fill = *words.id_of("<fill>");
  CHECK(words.encode(spaces + "<fill>" + spaces) == std::vector<token_id>{fill});
  CHECK(words.encode(others + "<fill>" + others).size() > 2);

  const splitter split(R"([\s]+|\S+|\\s)", {}, "pattern");
  splitter::matching matching(split);
  std::vector<std::string> pieces;
  split("a\xe1\xa0\x8e" + spaces + others, matching,
        [&](std::string_view piece) { return pieces.emplace_back(piece), true; });
  CHECK(pieces == std::vector<std::string>{"a\xe1\xa0\x8e", spaces, others});
}

TEST_CASE("characters that the system's PCRE2 may be too old to know are of their category, and themselves") {
  // Of Unicode 15, which Debian 12's PCRE2 lacks and its utf8proc has.
  const std::string letter = "\U00031350", mark = "\u0cf3", digit = "\U00011f51", sign = "\U0001f6dc";
  const auto pieces_of = [](const char* pattern, const std::string& text) {
    const splitter split(pattern, {}, "pattern");
    splitter::matching matching(split);
    std::vector<std::string> pieces;
    split(text, matching, [&](std::string_view piece) { return pieces.emplace_back(piece), true; });
    return pieces;
  };
  using pieces = std::vector<std::string>;
  CHECK(pieces_of(R"(\p{L}+|\p{N}+|[^\s\p{L}\p{N}]+|\s+)",
                  "a" + letter + "\u00e9" + digit + "7" + sign + "!" + mark + " ") ==
        pieces{"a" + letter + "\u00e9", digit + "7", sign + "!" + mark, " "});
  CHECK(pieces_of(R"([\P{L}]+|\p{Cn}+)", "1" + letter + digit) == pieces{"1", letter, digit});
  CHECK(pieces_of(R"(\p{M}+|\p{Han}+|\w+)", letter + mark + digit) == pieces{letter, mark, digit});
  const std::string named = "a" + letter + sign;  // a pattern that names a character means that one
  CHECK(pieces_of(("[" + letter + sign + "]").c_str(), named) == pieces{"a", letter, sign});
  CHECK(pieces_of(R"(\x{1f6dc})", named) == pieces{"a" + letter, sign});

  const char* replaces = R"({"normalizer":{"type":"Replace","pattern":{"Regex":"\\p{So}"},"content":"the"}})";
  const tokenizer words = changed("gpt2", parse_json(replaces, "changes"));
  CHECK(words.encode("a " + sign) == words.encode("a the"));
}

TEST_CASE("normal forms, also of texts with many marks") {
  CHECK(normalized("e\u0301 \u2126 \ufb01 \u1112\u1161\u11ab", normal_form::nfc) == "\u00e9 \u03a9 \ufb01 \ud55c");
  CHECK(normalized("\u00e9\u0323 \ufb01", normal_form::nfd) == "e\u0323\u0301 \ufb01");
  CHECK(normalized("\u00e9 \ufb01\u2460", normal_form::nfkc) == "\u00e9 fi1");
  CHECK(normalized("\u00e9 \u00bd", normal_form::nfkd) == "e\u0301 1\u20442");
  CHECK(normalized(std::string("a\0b", 3), normal_form::nfc) == std::string("a\0b", 3));
  CHECK(normalized("", normal_form::nfkd).empty());

  std::string marks = "a", sorted = "a";
  for (int n = 0; n < 200000; ++n) marks += "\u0301\u0316", sorted += "\u0316";
  for (int n = 0; n < 200000; ++n) sorted += "\u0301";
  const auto start = std::chrono::steady_clock::now();
  CHECK((normalized(marks, normal_form::nfd) == sorted));
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 10);  // quadratic: minutes
}

TEST_CASE("an added token that is normalised is found in the normalised text, another in the text as it is") {
  const json tokens = {{{"content", "caf\u00e9"}, {"normalized", true}},
                       {{"content", "x\u0301"}, {"normalized", false}}};
  const tokenizer words = changed("qwen2", {{"added", tokens}});
  const auto cafe = *words.id_of("caf\u00e9"), raw = *words.id_of("x\u0301");
  CHECK(words.encode("cafe\u0301") == std::vector<token_id>{cafe});
  CHECK(words.encode("x\u0301caf\u00e9") == std::vector<token_id>{raw, cafe});
  const char* removed = R"({"normalizer":{"type":"Replace","pattern":{"String":"qq"},"content":""},
                            "added":[{"content":"qq","normalized":true}]})";
  CHECK(complaint([&] {
          changed("gpt2", parse_json(removed, "changes"));
        }).ends_with(".content is empty once it is normalized"));
}

TEST_CASE("a normal form makes no more of a text than a normalizer may") {
  const char* grows = R"({"normalizer":{"type":"Sequence","normalizers":[
      {"type":"Replace","pattern":{"String":"a"},"content":"\ufdfa\ufdfa\ufdfa"},{"type":"NFKC"}]}})";
  CHECK(complaint([&] { changed("gpt2", parse_json(grows, "changes")).encode(std::string(100, 'a')); }) ==
        "the tokenizer's normalizer makes more than 1664 bytes of a text, 16 for each that it has");
}

}  // namespace decode
