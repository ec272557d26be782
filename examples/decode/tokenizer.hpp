// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: text to ids and back. On the way to ids, added tokens such as <|eot_id|> are cut
// out first; what lies between is normalised, split into pieces, and each piece is looked up (word
// level) or merged (byte-pair encoding; see bpe.hpp). Known are
//   byte-level BPE        GPT-2, Llama 3, Qwen: each byte is one of 256 visible characters
//   SentencePiece as BPE  Llama 2: spaces become "▁", what is unknown becomes bytes <0xNN>
//   word level            words between spaces
// The normalizer NFC is accepted and does nothing: text that is in NFC already, as nearly all is,
// gets the published ids. Added tokens are found in the text as it was given, "normalized" or not.
#pragma once

#include <array>          // std::array
#include <cstddef>        // std::size_t
#include <filesystem>     // std::filesystem::path
#include <optional>       // std::optional
#include <span>           // std::span
#include <string>         // std::string
#include <string_view>    // std::string_view
#include <unordered_set>  // std::unordered_set
#include <utility>        // std::exchange, std::pair
#include <vector>         // std::vector

#include "bpe.hpp"
#include "byte_alphabet.hpp"
#include "config.hpp"
#include "input_error.hpp"
#include "json_file.hpp"
#include "splitter.hpp"
#include "utf8.hpp"
#include "vocabulary.hpp"

namespace decode {

struct encode_options {
  bool add_special = true;    // the tokens that the tokenizer puts around a text, such as BOS
  bool allow_unknown = true;  // false: a word that only <unk> could stand for is an input_error
};

class tokenizer {
 public:
  /// @param vocab  ids must be lower than this: model_config::vocab
  /// @throws       input_error
  explicit tokenizer(const std::filesystem::path& directory, std::size_t vocab = 1u << 22) : words_(vocab) {
    const auto path = directory / "tokenizer.json";
    const json text = read_json(path);
    const field file(text, path.string() + ": ");
    read_model(file.at("model"));
    if (const auto added = file.find("added_tokens")) read_added_tokens(*added);
    if (const auto steps = file.find("normalizer")) read_normalizer(*steps);
    if (const auto steps = file.find("pre_tokenizer")) read_pre_tokenizer(*steps);
    if (const auto steps = file.find("post_processor")) read_post_processor(*steps);
    const auto steps = file.find("decoder");
    joins_words_ = !steps;
    if (steps) read_decoder(*steps);
    read_config(directory / "tokenizer_config.json");
  }

  /// Ids of a text. Added tokens in the text are recognised wherever they stand.
  ///
  /// @throws input_error  not UTF-8, or a part that no token stands for, with its byte position
  std::vector<token_id> encode(std::string_view text, encode_options options = {}) const {
    if (const auto bad = first_invalid_utf8(text); bad < text.size()) fail("the text is not UTF-8 at byte ", bad);
    std::vector<token_id> ids;
    if (options.add_special) ids = before_;
    std::size_t done = 0;  // the text before this byte has its ids
    for (std::size_t at = 0; at < text.size();) {
      const added_token* token = added_at(text, at);
      if (!token) {
        ++at;
        continue;
      }
      std::size_t first = at, last = at + token->text.size();
      while (token->lstrip && first > done && is_space(text[first - 1])) --first;
      while (token->rstrip && last < text.size() && is_space(text[last])) ++last;
      encode_part(text.substr(done, first - done), done, options, ids);
      ids.push_back(token->id);
      done = at = last;
    }
    encode_part(text.substr(done), done, options, ids);
    if (options.add_special) ids.insert(ids.end(), after_.begin(), after_.end());
    return ids;
  }

  /// The bytes that a token writes; they need not be whole characters (see text_stream).
  ///
  /// @param first  nothing was written before it: no space goes between, and Llama 2 drops one
  std::string piece(token_id id, bool first) const {
    const std::string_view text = words_.text(id);
    if (joins_words_) return std::string(first ? "" : " ").append(text);
    if (writes_bytes_) return bytes_from_alphabet(text).value_or(std::string(text));
    std::string out(text);
    for (const auto& [from, to] : decoder_replacements_) replace_all(out, from, to);
    if (byte_tokens_) out = byte_of(out).value_or(out);
    const std::size_t strips = first || strips_each_ ? strips_ : 0;
    for (std::size_t n = 0; n < strips && out.starts_with(stripped_); ++n) out.erase(0, stripped_.size());
    return out;
  }

  /// The text of ids, with U+FFFD for what is not UTF-8.
  std::string decode(std::span<const token_id> ids, bool skip_special = true) const;

  /// The id of a token as tokenizer.json writes it ("Ġthe", "<0x0A>", "<|eot_id|>"), and back;
  /// an id without a token has the empty text.
  std::optional<token_id> id_of(std::string_view text) const { return words_.find(text); }
  std::string_view text_of(token_id id) const { return words_.text(id); }

  /// One more than the largest id.
  std::size_t size() const { return words_.size(); }
  /// True for control tokens: added tokens that are not part of a text.
  bool special(token_id id) const { return special_.contains(id); }
  /// What begins and ends a text, where tokenizer_config.json or the template says so.
  std::optional<token_id> bos() const { return bos_; }
  std::optional<token_id> eos() const { return eos_; }

 private:
  struct added_token {
    std::string text;
    token_id id;
    bool lstrip, rstrip;  // swallows the spaces before it, after it
  };
  using replacement = std::pair<std::string, std::string>;  // from (empty: the beginning), to

  static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

  static void replace_all(std::string& text, const std::string& from, const std::string& to) {
    std::string out;
    std::size_t done = 0;
    for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size())
      out.append(text, done, at - done) += to;
    text = out.append(text, done);
  }

  // The byte of "<0xNN>".
  static std::optional<std::string> byte_of(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
    constexpr std::string_view digits = "0123456789ABCDEF";
    const auto high = digits.find(text[3]), low = digits.find(text[4]);
    if (high == digits.npos || low == digits.npos) return std::nullopt;
    return std::string(1, static_cast<char>(high * 16 + low));
  }

  // The added token that begins at text[at], the longest if there are several.
  const added_token* added_at(std::string_view text, std::size_t at) const {
    for (const added_token& token : added_[static_cast<unsigned char>(text[at])])
      if (text.substr(at).starts_with(token.text)) return &token;
    return nullptr;
  }

  // A part without added tokens, which begins at byte `position` of the text.
  void encode_part(std::string_view part, std::size_t position, encode_options options,
                   std::vector<token_id>& ids) const {
    if (part.empty()) return;
    std::string text(part);
    for (const auto& [from, to] : normalizer_replacements_)
      if (from.empty())
        text.insert(0, to);
      else
        replace_all(text, from, to);
    if (prefix_space_ && !text.starts_with(' ')) text.insert(0, 1, ' ');
    if (text.empty()) return;

    std::vector<std::string_view> pieces = {text}, cut;
    for (const splitter& split : splitters_) {
      cut.clear();
      for (const std::string_view piece : pieces) split(piece, cut);
      pieces.swap(cut);
    }
    const auto unknown = options.allow_unknown ? unknown_ : std::nullopt;
    for (const std::string_view piece : pieces)
      if (!encode_piece(piece, unknown, ids)) {
        const bool moved = text.size() != part.size();  // then only the part's place is known
        fail("no token stands for ", shown(piece), " at byte ",
             position + (moved ? 0 : static_cast<std::size_t>(piece.data() - text.data())));
      }
  }

  bool encode_piece(std::string_view piece, std::optional<token_id> unknown, std::vector<token_id>& ids) const {
    if (!word_level_ && reads_bytes_) return merges_.encode(alphabet_from_bytes(piece), words_, unknown, ids);
    if (!word_level_) return merges_.encode(piece, words_, unknown, ids);
    const auto id = words_.find(piece);
    if (!id && !unknown) return false;
    ids.push_back(id ? *id : *unknown);
    return true;
  }

  void read_model(const field& model);
  void read_added_tokens(const field& added);
  void read_normalizer(const field& step);
  void read_pre_tokenizer(const field& step);
  void read_post_processor(const field& step);
  void read_decoder(const field& step);
  void read_config(const std::filesystem::path& path);
  void read_split(const field& step);
  void read_template(const field& step);

  vocabulary words_;
  bpe merges_;
  bool word_level_ = false;
  std::optional<token_id> unknown_, bos_, eos_;
  std::array<std::vector<added_token>, 256> added_;  // by first byte, the longest first
  std::unordered_set<token_id> special_;
  std::vector<replacement> normalizer_replacements_;
  std::vector<splitter> splitters_;  // each cuts the pieces of the one before
  bool prefix_space_ = false;
  bool reads_bytes_ = false;                       // pieces go to the vocabulary as bytes
  std::vector<token_id> before_, after_;           // what the template puts around a text
  bool joins_words_ = false;                       // decoder: none; words with spaces between
  bool writes_bytes_ = false;                      // decoder: byte level
  std::vector<replacement> decoder_replacements_;  // decoder: SentencePiece, from here on
  bool byte_tokens_ = false;
  bool strips_each_ = true;  // each token, not the text as a whole
  std::string stripped_;
  std::size_t strips_ = 0;  // how often at most
};

/// Text from ids that arrive one by one: characters come out when they are complete.
class text_stream {
 public:
  /// @param words  must outlive the stream
  explicit text_stream(const tokenizer& words, bool skip_special = true)
      : words_(&words), skip_special_(skip_special) {}

  std::string push(token_id id) {
    if (skip_special_ && words_->special(id)) return "";
    return characters_.push(words_->piece(id, std::exchange(first_, false)));
  }
  std::string finish() { return characters_.finish(); }

 private:
  const tokenizer* words_;
  bool skip_special_;
  bool first_ = true;
  utf8_stream characters_;
};

inline std::string tokenizer::decode(std::span<const token_id> ids, bool skip_special) const {
  text_stream stream(*this, skip_special);
  std::string text;
  for (const token_id id : ids) text += stream.push(id);
  return text += stream.finish();
}

}  // namespace decode

#include "tokenizer_file.hpp"
