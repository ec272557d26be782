// SPDX-License-Identifier: Apache-2.0
// How tokenizer.hpp reads its files: one function for each part of tokenizer.json. A type that is
// not known is an input_error, because a guess would give other ids without a word.
#include <algorithm>    // std::find, std::max
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <filesystem>   // std::filesystem::path
#include <memory>       // std::make_shared
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::move

#include <nlohmann/json.hpp>

#include "input_error.hpp"
#include "json_file.hpp"
#include "tokenizer.hpp"

namespace decode {
namespace {

constexpr std::size_t most_steps = 64;          // of a normalizer, a pre-tokenizer, a decoder
constexpr std::size_t longest_token = 4096;     // bytes
constexpr std::size_t longest_replaced = 256;   // bytes that are replaced, or put in their place
constexpr std::size_t longest_template = 1024;  // ids

constexpr std::array<std::string_view, 4> forms = {"NFC", "NFD", "NFKC", "NFKD"};  // in the order of normal_form

[[noreturn]] void refuse_type(const field& step, const char* known) {
  fail(step.where(), " has the type ", shown(step.at("type").text()), "; known are ", known);
}

// A literal as a pattern.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!plain && static_cast<unsigned char>(c) < 0x80) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

tokenizer::tokenizer(const std::filesystem::path& directory, std::size_t vocab) : words_(vocab) {
  const auto path = directory / "tokenizer.json";
  const json text = read_json(path);
  const field file(text, named(path) + ": ");
  read_model(file.at("model"));
  if (const auto steps = file.find("normalizer")) read_normalizer(*steps);
  if (const auto added = file.find("added_tokens")) read_added_tokens(*added);
  if (const auto steps = file.find("pre_tokenizer")) read_pre_tokenizer(*steps);
  if (const auto steps = file.find("post_processor")) read_post_processor(*steps);
  const auto steps = file.find("decoder");
  joins_words_ = !steps;
  if (steps) read_decoder(*steps);
  read_config(directory / "tokenizer_config.json");
}

void tokenizer::add_token(const std::string& text, const field& id) {
  if (text.size() > longest_token)
    fail(id.where(), ": the token has ", text.size(), " bytes, but may have at most ", longest_token);
  words_.add(text, id);
}

tokenizer::replacement tokenizer::checked(const field& step, replacement made) {
  if (made.from.size() > longest_replaced || made.to.size() > longest_replaced)
    fail(step.where(), " has a text of ", std::max(made.from.size(), made.to.size()), " bytes, but may have at most ",
         longest_replaced);
  return made;
}

// A text or a regular expression, and what is put in its place.
tokenizer::replacement tokenizer::read_replacement(const field& step) {
  const field pattern = step.at("pattern");
  if (const auto regex = pattern.find("Regex")) {
    auto compiled = std::make_shared<splitter>(regex->text(), split_keeps{}, step.where());
    if (compiled->may_match_nothing())
      fail(step.where(), ": the pattern ", shown(regex->text()), " may match no character, which is not known here");
    return checked(step, {"", step.at("content").text(), std::move(compiled)});
  }
  const std::string& from = pattern.at("String").text();
  if (from.empty()) fail(step.where(), ".pattern is empty");
  return checked(step, {from, step.at("content").text(), {}});
}

tokenizer::metaspace tokenizer::read_metaspace(const field& step) {
  metaspace found;
  found.sign = step.at("replacement").text();
  std::size_t letters = 0;
  for (const char byte : found.sign) letters += (static_cast<unsigned char>(byte) & 0xc0) != 0x80 ? 1 : 0;
  if (letters != 1) fail(step.where(), ".replacement must be one character, but is ", shown(found.sign));
  // Older files have add_prefix_space alone; true is what the default says.
  const bool prefixed = step.boolean("add_prefix_space", true);
  const std::string scheme = step.text("prepend_scheme", prefixed ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    fail(step.where(), ".prepend_scheme is ", shown(scheme), "; known are always, first and never");
  if (!prefixed && scheme != "never")
    fail(step.where(), ".add_prefix_space is false, but the prepend_scheme ", shown(scheme));
  found.prepends = scheme == "always"  ? metaspace::prefix::always
                   : scheme == "first" ? metaspace::prefix::first
                                       : metaspace::prefix::never;
  return found;
}

void tokenizer::expect_step(std::size_t there, const field& step) {
  if (there >= most_steps) fail(step.where(), ": there are more than ", most_steps, " steps");
}

void tokenizer::read_model(const field& model) {
  const std::string type = model.text("type", model.find("merges") ? "BPE" : "");
  word_level_ = type == "WordLevel";
  if (!word_level_ && type != "BPE") refuse_type(model, "BPE and WordLevel");
  const field vocab = model.at("vocab");
  if (!vocab.value().is_object()) fail(vocab.where(), " must be an object");
  for (const auto& [text, id] : vocab.value().items()) add_token(text, {id, vocab.where() + "." + shown(text)});
  if (const auto unknown = model.find("unk_token")) unknown_ = words_.find(unknown->text());
  if (!word_level_) merges_ = bpe(model, words_);
}

void tokenizer::read_added_tokens(const field& added) {
  for (const field& entry : added.elements()) {
    const std::string& text = entry.at("content").text();
    if (text.empty()) fail(entry.where(), ".content is empty");
    if (entry.boolean("single_word", false)) fail(entry.where(), ".single_word is not known here");
    add_token(text, entry.at("id"));
    const token_id id = *words_.find(text);
    const bool late = entry.boolean("normalized", false);
    const std::string searched = late ? normalize(text).text : text;
    if (searched.empty()) fail(entry.where(), ".content is empty once it is normalized");
    (late ? added_normalized_ : added_)
        .add({searched, id, entry.boolean("lstrip", false), entry.boolean("rstrip", false)});
    if (entry.boolean("special", false)) special_.insert(id);
  }
  added_.sort(), added_normalized_.sort();
}

void tokenizer::read_normalizer(const field& step) {
  const std::string& type = step.at("type").text();
  if (type == "Sequence") {
    for (const field& part : step.at("normalizers").elements()) read_normalizer(part);
    return;
  }
  expect_step(normalizer_.size(), step);
  if (type == "Prepend") {
    normalizer_.push_back(checked(step, {"", step.at("prepend").text(), {}}));
  } else if (type == "Replace") {
    normalizer_.push_back(read_replacement(step));
  } else if (type == "Strip") {
    normalizer_.push_back(trimming{step.at("strip_left").boolean(), step.at("strip_right").boolean()});
  } else if (const auto form = std::find(forms.begin(), forms.end(), type); form != forms.end()) {
    normalizer_.push_back(static_cast<normal_form>(form - forms.begin()));
  } else {
    refuse_type(step, "NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence and Strip");
  }
}

void tokenizer::read_pre_tokenizer(const field& step) {
  // Letters, marks, digits, connectors and joiners: \w of the Unicode standard.
  constexpr const char* words = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|)"
                                R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\s]+)";
  constexpr const char* gpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  const std::string& type = step.at("type").text();
  if (reads_bytes_) fail(step.where(), " comes after ByteLevel, which must be the last");
  expect_step(splitters_.size(), step);
  if (type == "Sequence") {
    for (const field& part : step.at("pretokenizers").elements()) read_pre_tokenizer(part);
  } else if (type == "Metaspace") {
    if (metaspace_ || !splitters_.empty()) fail(step.where(), " comes after another step, and must be the first");
    metaspace_ = read_metaspace(step);
    const std::string sign = escaped(metaspace_->sign);
    if (step.boolean("split", true))  // each sign with what follows it
      splitters_.emplace_back(sign + "?[^" + sign + "]+|" + sign, split_keeps{.gaps = false}, step.where());
  } else if (type == "Split") {
    read_split(step);
  } else if (type == "WhitespaceSplit") {
    splitters_.emplace_back(R"(\s+)", split_keeps{.matches = false}, step.where());
  } else if (type == "Whitespace") {
    splitters_.emplace_back(words, split_keeps{.gaps = false}, step.where());
  } else if (type == "Digits") {
    const char* digits = step.boolean("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)";
    splitters_.emplace_back(digits, split_keeps{}, step.where());
  } else if (type == "ByteLevel") {
    prefix_space_ = step.boolean("add_prefix_space", true);
    if (prefix_space_ && (metaspace_ || !splitters_.empty()))
      fail(step.where(), ".add_prefix_space is not known after another step");
    if (step.boolean("use_regex", true)) splitters_.emplace_back(gpt2, split_keeps{}, step.where());
    reads_bytes_ = true;
  } else {
    refuse_type(step, "ByteLevel, Digits, Metaspace, Sequence, Split, Whitespace and WhitespaceSplit");
  }
}

void tokenizer::read_split(const field& step) {
  const field pattern = step.at("pattern");
  const auto regex = pattern.find("Regex");
  const std::string& behavior = step.at("behavior").text();
  split_keeps keeps;
  if (behavior == "Removed") {
    keeps.matches = step.boolean("invert", false);
    keeps.gaps = !keeps.matches;
  } else if (behavior == "MergedWithPrevious" && !step.boolean("invert", false)) {
    keeps.joined = true;
  } else if (behavior != "Isolated") {
    fail(step.where(), ".behavior is ", shown(behavior),
         "; known are Isolated, Removed and, if not inverted, MergedWithPrevious");
  }
  splitters_.emplace_back(regex ? regex->text() : escaped(pattern.at("String").text()), keeps, step.where());
}

void tokenizer::read_post_processor(const field& step) {
  const std::string& type = step.at("type").text();
  if (type == "Sequence") {
    for (const field& part : step.at("processors").elements()) read_post_processor(part);
  } else if (type == "TemplateProcessing") {
    read_template(step);
  } else if (type != "ByteLevel") {
    refuse_type(step, "ByteLevel, Sequence and TemplateProcessing");
  }
}

void tokenizer::read_template(const field& step) {
  bool after = false;
  for (const field& item : step.at("single").elements()) {
    const auto special = item.find("SpecialToken");
    if (!special) {
      item.at("Sequence");
      after = true;
      continue;
    }
    const std::string& name = special->at("id").text();
    for (const field& id : step.at("special_tokens").at(name).at("ids").elements()) {
      if (words_.size() == 0) fail(id.where(), " is an id of an empty vocabulary");
      if (before_.size() + after_.size() >= longest_template)
        fail(step.where(), " puts more than ", longest_template, " tokens around a text");
      (after ? after_ : before_).push_back(static_cast<token_id>(id.count(0, words_.size() - 1)));
    }
  }
  if (!before_.empty()) bos_ = before_.front();
}

void tokenizer::read_decoder(const field& step) {
  const std::string& type = step.at("type").text();
  if (type == "Sequence") {
    for (const field& part : step.at("decoders").elements()) read_decoder(part);
  } else if (type == "ByteLevel") {
    writes_bytes_ = true;
  } else if (type == "Metaspace") {
    if (decoder_metaspace_ || !decoder_replacements_.empty())
      fail(step.where(), " comes after another step, and must be the first");
    decoder_metaspace_ = read_metaspace(step);
  } else if (type == "Replace") {
    expect_step(decoder_replacements_.size(), step);
    decoder_replacements_.push_back(read_replacement(step));
  } else if (type == "ByteFallback") {
    byte_tokens_ = true;
  } else if (type == "Fuse") {
    strips_each_ = false;
  } else if (type == "Strip") {
    stripped_ = step.at("content").text();
    if (stripped_.empty()) fail(step.where(), ".content is empty");
    strips_ = step.at("start").count(0, 1000);
    step.at("stop").count(0, 0);
  } else {
    refuse_type(step, "ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence and Strip");
  }
}

// Optional: names BOS and EOS, and asks for BOS where the template does not.
void tokenizer::read_config(const std::filesystem::path& path) {
  if (!is_there(path)) return;
  const json text = read_json(path);
  const field config(text, named(path) + ": ");
  const auto named = [&](const char* name, std::optional<token_id>& id) {
    const auto token = config.find(name);
    if (!token) return;
    const bool wrapped = token->value().is_object();
    const std::string& content = wrapped ? token->at("content").text() : token->text();
    id = words_.find(content);
    if (!id) fail(token->where(), " is ", shown(content), ", which is not in the vocabulary");
  };
  named("bos_token", bos_);
  named("eos_token", eos_);
  if (config.boolean("add_bos_token", false) && before_.empty() && bos_) before_ = {*bos_};
}

}  // namespace decode
