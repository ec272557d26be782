// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "byte_alphabet.hpp"
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

TEST_CASE("delimiters that are named are all that end sentences") {
  const tokenizer words = tokenizer_of({".", ";", " a"});
  for (const mark_rule rule : {mark_rule::anywhere, mark_rule::before_blank})
    CHECK(classify(words, 4, {";"}, rule) == std::vector<token_class>{plain, delimiter, plain, plain});
  CHECK(says(complaint([&] { classify(words, 4, {"!"}); }), "\"!\" is not a token of this model"));
}

}  // namespace decode
