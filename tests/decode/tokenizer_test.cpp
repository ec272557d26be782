// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "support.hpp"
#include "tokenizer.hpp"

namespace decode {
namespace {

const std::string families[] = {"gpt2", "llama3", "qwen2", "llama2", "gemma", "words", "words_unknown"};

fs::path folder_of(const std::string& name) { return fixture("tokenizers") / name; }

// What the tokenizer of a fixture complains about after a change.
template <class Change>
std::string complaint_after(const std::string& name, Change change) {
  json text = read_json(folder_of(name) / "tokenizer.json");
  change(text);
  const scratch folder;
  write_file(folder / "tokenizer.json", text.dump());
  return complaint([&] { tokenizer{folder.path()}; });
}

}  // namespace

TEST_CASE("ids and texts equal those of the reference, on texts chosen to be nasty") {
  for (const std::string& name : families) {
    const tokenizer words(folder_of(name));
    const json file = read_json(folder_of(name) / "cases.json");
    for (const json& entry : file["cases"]) {
      const std::string text = entry["text"];
      CAPTURE(name);
      CAPTURE(text);
      if (entry.contains("unknown")) {
        CHECK(complaint([&] { words.encode(text); }) ==
              "no token stands for \"" + entry["unknown"].get<std::string>() + "\" at byte " + entry["at"].dump());
        continue;
      }
      const std::vector<token_id> ids = entry["ids"];
      CHECK(words.encode(text) == ids);
      CHECK(words.decode(ids, file["skip_special"]) == entry["decoded"].get<std::string>());
    }
  }
}

TEST_CASE("a stream writes what decoding at once writes, in whole characters only") {
  for (const std::string& name : families) {
    const tokenizer words(folder_of(name));
    const json file = read_json(folder_of(name) / "cases.json");
    for (const json& entry : file["cases"]) {
      if (!entry.contains("ids")) continue;
      const std::vector<token_id> ids = entry["ids"];
      text_stream stream(words, false);
      std::string text;
      for (const token_id id : ids) {
        const std::string part = stream.push(id);
        CHECK(first_invalid_utf8(part) == part.size());
        text += part;
      }
      text += stream.finish();
      CHECK(text == words.decode(ids, false));
    }
  }
}

TEST_CASE("a text that goes on behind a prompt keeps the space before its first word") {
  for (const std::string name : {"llama2", "words_unknown"}) {
    const tokenizer words(folder_of(name));
    const std::string prompt = "a b", rest = " c d";
    const auto before = words.encode(prompt, {.add_special = false}),
               all = words.encode(prompt + rest, {.add_special = false});
    REQUIRE(all.size() > before.size());
    for (const bool continues : {true, false}) {
      text_stream stream(words, false, continues);
      std::string text;
      for (std::size_t i = before.size(); i < all.size(); ++i) text += stream.push(all[i]);
      CHECK(text == rest.substr(continues ? 0 : 1));
    }
  }
}

TEST_CASE("further pre-tokenizers cut where they say") {
  const tokenizer plain(folder_of("gpt2"));
  const auto with = [](const char* steps) {
    const scratch folder("tokenizers/gpt2");
    json text = read_json(folder / "tokenizer.json");
    text["pre_tokenizer"] = parse_json(steps, "steps");
    write_file(folder / "tokenizer.json", text.dump());
    return tokenizer(folder.path());
  };
  const auto joined = [&](const std::vector<std::string>& parts) {
    std::vector<token_id> all;
    for (const std::string& part : parts)
      for (const token_id id : plain.encode(part)) all.push_back(id);
    return all;
  };
  const std::string bytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  const auto sequence = [&](const std::string& step) {
    return with((R"({"type":"Sequence","pretokenizers":[)" + step + "," + bytes + "]}").c_str());
  };
  const tokenizer prefixed = with(R"({"type":"ByteLevel","add_prefix_space":true})");
  CHECK(prefixed.encode("the lamp") == plain.encode(" the lamp"));
  CHECK(prefixed.encode(" the lamp") == plain.encode(" the lamp"));
  CHECK(sequence(R"({"type":"Digits","individual_digits":true})").encode("lamp31") == joined({"lamp", "3", "1"}));
  CHECK(sequence(R"({"type":"Digits"})").encode("lamp31") == joined({"lamp", "31"}));
  const std::string split = R"({"type":"Split","pattern":{"String":"+*"},"behavior":)";
  CHECK(sequence(split + R"("Removed"})").encode("the+*lamp") == joined({"the", "lamp"}));
  CHECK(sequence(split + R"("Isolated"})").encode("the+*lamp") == joined({"the", "+*", "lamp"}));
  CHECK(sequence(split + R"("Removed","invert":true})").encode("the+*lamp") == joined({"+*"}));
  const std::string before = R"({"type":"Split","pattern":{"String":"he"},"behavior":"MergedWithPrevious")";
  CHECK(sequence(before + "}").encode("thehe lamp") == joined({"the", "he", " lamp"}));
  CHECK(says(complaint([&] { sequence(before + R"(,"invert":true})"); }), "if not inverted, MergedWithPrevious"));
}

TEST_CASE("tokens have names, and names have tokens") {
  const tokenizer words(folder_of("llama3"), 401);
  CHECK(words.size() == 401);
  CHECK(words.id_of("Ġzoom") == 400);
  CHECK(words.text_of(400) == "Ġzoom");
  CHECK(words.piece(400, true) == " zoom");
  CHECK(words.id_of("Ġzoomzoom") == std::nullopt);
  CHECK(words.text_of(-1).empty());
  CHECK(words.text_of(401).empty());
  CHECK(words.piece(1 << 30, true).empty());
  CHECK(words.bos() == words.id_of("<|begin_of_text|>"));
  CHECK(words.eos() == std::nullopt);
  CHECK(words.special(*words.id_of("<|eot_id|>")));
  CHECK_FALSE(words.special(400));
  CHECK(words.encode("a").size() == words.encode("a", {.add_special = false}).size() + 1);
}

TEST_CASE("tokenizer_config.json names BOS and EOS, and adds BOS where no template does") {
  const scratch folder("tokenizers/qwen2");
  const auto with = [&](const json& config) {
    write_file(folder / "tokenizer_config.json", config.dump());
    return tokenizer(folder.path());
  };
  const tokenizer quiet = with({{"add_bos_token", false}, {"bos_token", nullptr}, {"eos_token", "<|im_end|>"}});
  CHECK(quiet.bos() == std::nullopt);
  CHECK(quiet.eos() == quiet.id_of("<|im_end|>"));
  const tokenizer adds = with({{"add_bos_token", true}, {"bos_token", {{"content", "<|im_start|>"}}}});
  CHECK(adds.encode("") == std::vector<token_id>{*adds.id_of("<|im_start|>")});
  CHECK(says(complaint([&] {
               with({{"eos_token", "</s>"}});
             }),
             "eos_token is \"</s>\", which is not in the vocabulary"));
  CHECK(says(complaint([&] { with({{"eos_token", 3}}); }), "eos_token must be a string"));
}

TEST_CASE("text that has no tokens is named, with its byte") {
  const tokenizer plain(folder_of("words"));
  CHECK(complaint([&] { plain.encode("a = \xff b"); }) == "the text is not UTF-8 at byte 4");
  CHECK(complaint([&] { plain.encode("a = \xe5\xa4"); }) == "the text is not UTF-8 at byte 4");
  CHECK(complaint([&] { plain.encode("a\n<eos> b zebra"); }) == "no token stands for \"zebra\" at byte 10");
  CHECK(says(complaint([&] { plain.encode(std::string(1000, 'z')); }), "z…\" at byte 0"));

  const tokenizer lenient(folder_of("words_unknown"));
  CHECK(lenient.encode("a zebra") == std::vector<token_id>{*lenient.id_of("a"), *lenient.id_of("<unk>")});
  CHECK(complaint([&] { lenient.encode("a zebra", {.allow_unknown = false}); }) ==
        "no token stands for \"zebra\" at byte 2");

  json text = read_json(folder_of("gpt2") / "tokenizer.json");  // a byte that has no token
  text["model"]["vocab"].erase("Z");
  json merges = json::array();
  for (const json& merge : text["model"]["merges"])
    if (merge.get<std::string>().find('Z') == std::string::npos) merges.push_back(merge);
  text["model"]["merges"] = merges;
  const scratch folder;
  write_file(folder / "tokenizer.json", text.dump());
  const tokenizer holed(folder.path());
  CHECK(complaint([&] { holed.encode("the lamp ZZ"); }) == "no token stands for \" ZZ\" at byte 8");
}

TEST_CASE("a tokenizer.json that cannot be followed says why") {
  const auto says_of = [](const std::string& sentence, const std::string& words) {
    CAPTURE(sentence);
    CHECK(says(sentence, words));
  };
  const auto type = [](const char* part, const char* name) {
    return complaint_after("gpt2", [&](json& t) { t[part]["type"] = name; });
  };
  says_of(type("model", "Unigram"), "model has the type \"Unigram\"; known are BPE and WordLevel");
  says_of(type("pre_tokenizer", "BertPreTokenizer"), "pre_tokenizer has the type \"BertPreTokenizer\"");
  const auto step = [](const char* part, const char* text) {
    return complaint_after("llama2", [&](json& t) { t[part] = json::parse(text); });
  };
  CHECK(step("pre_tokenizer", R"({"type":"Metaspace","replacement":"_"})") == "no complaint");
  says_of(step("pre_tokenizer", R"({"type":"Metaspace"})"), "\"replacement\" is missing");
  says_of(step("pre_tokenizer", R"({"type":"Metaspace","replacement":"ab"})"), "must be one character, but is \"ab\"");
  says_of(step("pre_tokenizer", R"({"type":"Metaspace","replacement":""})"), "must be one character, but is \"\"");
  says_of(step("pre_tokenizer", R"({"type":"Metaspace","replacement":"_","prepend_scheme":"last"})"),
          "prepend_scheme is \"last\"; known are always, first and never");
  says_of(
      step("decoder", R"({"type":"Metaspace","replacement":"_","prepend_scheme":"first","add_prefix_space":false})"),
      "add_prefix_space is false, but the prepend_scheme \"first\"");
  says_of(step("pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},)"
                                R"({"type":"Metaspace","replacement":"_"}]})"),
          "pretokenizers[1] comes after another step, and must be the first");
  says_of(step("normalizer", R"({"type":"Replace","pattern":{"Regex":" *"},"content":"_"})"),
          "normalizer: the pattern \" *\" may match no character, which is not known here");
  says_of(step("normalizer", R"({"type":"Replace","pattern":{"Regex":"("},"content":"_"})"), "is wrong at byte 1");
  says_of(step("normalizer", R"({"type":"Strip","strip_left":true})"), "\"strip_right\" is missing");
  says_of(type("normalizer", "Lowercase"), "normalizer has the type \"Lowercase\"");
  says_of(type("decoder", "WordPiece"), "decoder has the type \"WordPiece\"");
  says_of(type("post_processor", "BertProcessing"), "post_processor has the type");
  says_of(complaint_after("gpt2", [](json& t) { t.erase("model"); }), "\"model\" is missing");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["vocab"]["Q"] = -1; }), "not negative");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["vocab"]["Q"] = 1.5; }), "whole number");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["vocab"]["Q"] = 1ull << 40; }), "must lie between");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["vocab"]["new"] = 7; }), "have the id 7");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["vocab"] = json::array(); }), "vocab must be an object");
  says_of(complaint_after("gpt2", [](json& t) { t["added_tokens"][0]["id"] = 9; }), "has the ids 0 and 9");
  says_of(complaint_after("gpt2", [](json& t) { t["added_tokens"][0]["content"] = ""; }), "content is empty");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["merges"][3] = "a b c"; }), "merges[3] must be two tokens");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["merges"][3] = "ab"; }), "merges[3] must be two tokens");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["merges"][3] = 5; }), "merges[3] must be an array");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["merges"][3] = "q zz"; }), "zz\" is not in the vocabulary");
  says_of(complaint_after("gpt2", [](json& t) { t["model"]["dropout"] = 0.5; }), "dropout is 0.5");
  says_of(complaint_after("llama3", [](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "(a"; }),
          "is wrong at byte 2: missing closing parenthesis");
  says_of(
      complaint_after("llama3", [](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\C"; }),
      "using \\C is disabled");
  says_of(complaint_after("llama3", [](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Sideways"; }),
          "behavior is \"Sideways\"");
  says_of(complaint_after("llama3",
                          [](json& t) {
                            t["post_processor"]["processors"][1]["special_tokens"]["<|begin_of_text|>"]["ids"][0] =
                                9999;
                          }),
          "must lie between 0 and 400");
  says_of(complaint_after("llama2", [](json& t) { t["normalizer"]["normalizers"][1]["pattern"]["String"] = ""; }),
          "pattern is empty");
  says_of(complaint([] { tokenizer(folder_of("gpt2"), 64); }), "but must lie between 0 and 63");
}

TEST_CASE("a pattern without end, and one that steps back, are given up") {
  const auto with = [](const std::string& pattern, const std::string& text) {
    const scratch folder("tokenizers/llama3");
    json file = read_json(folder / "tokenizer.json");
    file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = pattern;
    write_file(folder / "tokenizer.json", file.dump());
    const tokenizer words(folder.path());
    return complaint([&] { words.encode(text); });
  };
  CHECK(says(with("(a+)+$", std::string(100, 'a') + "b"), "gives up on this text"));
  CHECK(with("x*", "aaaxxa") == "no complaint");
  CHECK(with("(?=a)", "aaa") == "no complaint");
}

TEST_CASE("long texts take time in proportion, also as a single piece") {
  for (const std::string name : {"llama2", "llama3"}) {
    const tokenizer words(folder_of(name));
    const auto seconds = [&](const std::string& text) {
      const auto start = std::chrono::steady_clock::now();
      const auto ids = words.encode(text);
      CHECK(words.decode(ids) == text);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    std::string prose;
    while (prose.size() < 200000) prose += "the lamp had been lit at 6:45, and nobody had counted the waves ";
    CHECK(seconds(prose) < 10);  // well under a second; quadratic: many minutes
    CHECK(seconds(std::string(200000, 'a')) < 10);
    CHECK(seconds("a" + std::string(200000, ' ') + "a") < 10);
  }
}

TEST_CASE("UTF-8 is checked as the Unicode standard asks, one U+FFFD for each broken part") {
  const auto repaired = [](std::string_view bytes) {
    utf8_stream stream;
    std::string out;
    for (const char c : bytes) out += stream.push({&c, 1});
    return out + stream.finish();
  };
  const std::string bad = "\xef\xbf\xbd";
  CHECK(repaired("a\xc3\xa9\xe5\xa4\xa7\xf0\x9f\x99\x82") == "aé大🙂");
  CHECK(repaired("\xc3") == bad);
  CHECK(repaired("\xc3(") == bad + "(");
  CHECK(repaired("\xc0\x80") == bad + bad);                      // overlong
  CHECK(repaired("\xed\xa0\x80") == bad + bad + bad);            // surrogate
  CHECK(repaired("\xf4\x90\x80\x80") == bad + bad + bad + bad);  // above U+10FFFF
  CHECK(repaired("\xf0\x9f\x99x") == bad + "x");
  CHECK(repaired("\xff\x80") == bad + bad);
  CHECK(first_invalid_utf8("ab\xe5\xa4") == 2);
  CHECK(first_invalid_utf8("") == 0);
}

}  // namespace decode
