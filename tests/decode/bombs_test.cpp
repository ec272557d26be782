// SPDX-License-Identifier: Apache-2.0
// What keeps a stranger's tokenizer.json from costing too much does not change what an honest one says.
#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "added_tokens.hpp"
#include "numbers.hpp"
#include "support.hpp"
#include "tokenizer.hpp"

namespace decode {
namespace {

const std::string damaged_families[] = {"gpt2", "llama3", "qwen2", "llama2", "words"};

std::vector<std::string> texts_of(const std::string& family) {
  std::vector<std::string> texts;
  const json file = read_json(fixture("tokenizers") / family / "cases.json");
  for (const json& entry : file["cases"]) {
    if (entry.contains("ids")) texts.push_back(entry["text"]);
  }
  return texts;
}

std::vector<std::string> pieces_of(const std::string& pattern, const std::string& text) {
  const splitter split(pattern, {}, "pattern");
  splitter::matching matching(split);
  std::vector<std::string> pieces;
  split(text, matching, [&](std::string_view piece) { return pieces.emplace_back(piece), true; });
  return pieces;
}

}  // namespace

TEST_CASE("of added tokens the longest is found, as by trying each") {
  std::mt19937 draw(7);
  const auto word = [&](std::size_t most) {
    std::string made;
    for (std::size_t n = 1 + draw() % most; n > 0; --n) made += static_cast<char>('a' + draw() % 3);
    return made;
  };
  for (int round = 0; round < 200; ++round) {
    added_tokens tokens;
    std::vector<std::string> all;
    for (std::size_t n = draw() % 40; n > 0; --n) {
      all.push_back(word(6));  // some of them twice
      tokens.add({all.back(), static_cast<token_id>(all.size() - 1), false, false});
    }
    tokens.sort();
    const std::string text = word(60);
    for (std::size_t at = 0; at < text.size(); ++at) {
      const std::string* longest = nullptr;
      for (const std::string& one : all) {
        if (text.compare(at, one.size(), one) == 0 && (longest == nullptr || one.size() > longest->size()))
          longest = &one;  // of equal ones the first
      }
      const added_token* found = tokens.at(text, at);
      REQUIRE((found == nullptr) == (longest == nullptr));
      if (found != nullptr) REQUIRE(found->id == longest - all.data());
    }
  }
}

TEST_CASE("encoding ends soon after the most tokens that are wanted, with the same ones") {
  for (const std::string& family : damaged_families) {
    const tokenizer words(fixture("tokenizers") / family);
    for (const std::string& text : texts_of(family)) {
      const auto all = words.encode(text);
      for (const std::size_t most : {std::size_t{0}, all.size() / 2, all.size()}) {
        const auto some = words.encode(text, {.add_special = false, .most = most});
        const auto plain = words.encode(text, {.add_special = false});
        CHECK((some.size() > most) == (plain.size() > most));
        REQUIRE(some.size() <= plain.size());
        CHECK(std::equal(some.begin(), some.end(), plain.begin()));
      }
    }
  }
  const tokenizer words(fixture("tokenizers") / "gpt2");
  std::string text;
  for (int n = 0; n < 1000; ++n) text += " the";
  CHECK(words.encode(text, {.most = 10}).size() < 20);  // a piece is a word
}

TEST_CASE("no text has more bytes than its tokens can stand for") {
  for (const std::string& family : damaged_families) {
    const tokenizer words(fixture("tokenizers") / family);
    for (const std::string& text : texts_of(family)) {
      const auto ids = words.encode(text, {.add_special = false});
      CAPTURE(family);
      CAPTURE(text);
      if (!ids.empty()) CHECK(text.size() <= words.most_bytes(ids.size()));
    }
  }
}

TEST_CASE("a pattern that takes more than a few steps finds what it would find without limits") {
  const std::string spaces(3000, ' '), letters(600, 'a');
  CHECK(pieces_of(R"(\s*[\r\n]|\s+(?!\S)|\s+)", spaces + "b") == std::vector<std::string>{spaces.substr(1), " ", "b"});
  CHECK(pieces_of("(?:a|ä)+b|[^x]", letters + "c") == [&] {
    std::vector<std::string> each(600, "a");
    each.push_back("c");
    return each;
  }());
  CHECK(pieces_of("(?:a|ä)+b", "xä" + letters + "bä") == std::vector<std::string>{"x", "ä" + letters + "b", "ä"});
}

TEST_CASE("sizes and numbers of a command line") {
  CHECK(size_in_bytes("1") == 1);
  CHECK(size_in_bytes("64MiB") == std::int64_t{64} << 20);
  CHECK(size_in_bytes("3kb") == 3072);
  CHECK(size_in_bytes("8191PiB") == std::int64_t{8191} << 50);
  CHECK(size_in_bytes("9223372036854775807b") == 9223372036854775807);
  for (const char* wrong : {"", "0", "-1", "+1", "1.5", "1 MiB", "MiB", "1XiB", "1MiBs", "8192PiB",
                            "9223372036854775808", "18446744073709551617", "1k2"}) {
    CAPTURE(wrong);
    CHECK(!size_in_bytes(wrong));
  }
  CHECK(whole_number<int>("-4", -4, 4) == -4);
  for (const char* wrong : {"5", "-5", "4294967297", "0x1", "", " 1", "1 ", "+1"})
    CHECK(!whole_number<int>(wrong, -4, 4));
}

}  // namespace decode
