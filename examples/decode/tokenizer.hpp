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

#include <algorithm>      // std::max
#include <cstddef>        // std::size_t
#include <filesystem>     // std::filesystem::path
#include <optional>       // std::optional
#include <span>           // std::span
#include <string>         // std::string
#include <string_view>    // std::string_view
#include <unordered_set>  // std::unordered_set
#include <utility>        // std::exchange
#include <vector>         // std::vector

#include "added_tokens.hpp"
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
  bool add_special = true;                          // the tokens that the tokenizer puts around a text, such as BOS
  bool allow_unknown = true;                        // false: a word that only <unk> could stand for is an input_error
  std::size_t most = static_cast<std::size_t>(-1);  // ends after a piece that makes more ids than this
};

class tokenizer {
 public:
  /// What a stranger's file can cost is bounded: texts of tokens have at most 4,096 bytes, a normalizer or a decoder 64
  /// steps and 16 bytes for each that it is given, regular expressions steps and memory (see splitter.hpp), a template
  /// 1,024 ids.
  ///
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
    std::vector<splitter::matching> matching;
    for (const splitter& split : splitters_) matching.emplace_back(split);
    std::size_t done = 0;  // the text before this byte has its ids
    for (std::size_t at = 0; at < text.size() && ids.size() <= options.most;) {
      const added_token* token = added_.at(text, at);
      if (!token) {
        ++at;
        continue;
      }
      std::size_t first = at, last = at + token->text.size();
      while (token->lstrip && first > done && is_space(text[first - 1])) --first;
      while (token->rstrip && last < text.size() && is_space(text[last])) ++last;
      encode_part(text.substr(done, first - done), done, options, matching, ids);
      if (ids.size() > options.most) break;
      ids.push_back(token->id);
      done = at = last;
    }
    if (ids.size() <= options.most) encode_part(text.substr(done), done, options, matching, ids);
    if (options.add_special) ids.insert(ids.end(), after_.begin(), after_.end());
    return ids;
  }

  /// Bytes of a text beyond which it has more than `tokens` tokens; 16 times that where spaces or other parts of a text
  /// may leave no token.
  std::size_t most_bytes(std::size_t tokens) const {
    bool drops = added_.strips();
    for (const splitter& split : splitters_) drops = drops || split.drops();
    for (const auto& [from, to] : normalizer_replacements_) drops = drops || to.size() < from.size();
    return tokens * std::max<std::size_t>(1, words_.longest()) * (drops ? 16 : 1);
  }

  /// The bytes that a token writes; they need not be whole characters (see text_stream).
  ///
  /// @param first  nothing was written before it: no space goes between, and Llama 2 drops one
  std::string piece(token_id id, bool first) const {
    const std::string_view text = words_.text(id);
    if (joins_words_) return std::string(first ? "" : " ").append(text);
    if (writes_bytes_) return bytes_from_alphabet(text).value_or(std::string(text));
    std::string out(text);
    for (const auto& each : decoder_replacements_) each.apply(out, most_of(text), "decoder");
    if (byte_tokens_) out = byte_of(out).value_or(out);
    const std::size_t strips = first || strips_each_ ? strips_ : 0;
    std::size_t begin = 0;
    for (std::size_t n = 0; n < strips && out.compare(begin, stripped_.size(), stripped_) == 0; ++n)
      begin += stripped_.size();
    return out.substr(begin);
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
  struct replacement {
    std::string from, to;  // from: empty for the beginning of the text

    /// @param most  bytes that `text` may have then; more is an input_error, before there are more
    void apply(std::string& text, std::size_t most, const char* step) const {
      const auto expect_room = [&](std::size_t bytes) {
        if (bytes > most)
          fail("the tokenizer's ", step, " makes more than ", most, " bytes of a text, 16 for each that it has");
      };
      if (from.empty()) return expect_room(text.size() + to.size()), static_cast<void>(text.insert(0, to));
      std::string out;
      std::size_t done = 0;
      for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
        expect_room(out.size() + (at - done) + to.size());
        out.append(text, done, at - done) += to;
      }
      expect_room(out.size() + (text.size() - done));
      text = out.append(text, done);
    }
  };
  static constexpr std::size_t most_steps = 64;          // of a normalizer, a pre-tokenizer, a decoder
  static constexpr std::size_t longest_token = 4096;     // bytes
  static constexpr std::size_t longest_pattern = 256;    // bytes that are replaced, or put in their place
  static constexpr std::size_t longest_template = 1024;  // ids

  /// Bytes that a normalizer or a decoder may make of a text: real ones need three for a space, and three at the start.
  static std::size_t most_of(std::string_view text) { return 16 * text.size() + 64; }

  static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

  // The byte of "<0xNN>".
  static std::optional<std::string> byte_of(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
    constexpr std::string_view digits = "0123456789ABCDEF";
    const auto high = digits.find(text[3]), low = digits.find(text[4]);
    if (high == digits.npos || low == digits.npos) return std::nullopt;
    return std::string(1, static_cast<char>(high * 16 + low));
  }

  // A part without added tokens, which begins at byte `position` of the text.
  void encode_part(std::string_view part, std::size_t position, encode_options options,
                   std::vector<splitter::matching>& matching, std::vector<token_id>& ids) const {
    if (part.empty()) return;
    std::string text(part);
    for (const auto& each : normalizer_replacements_) each.apply(text, most_of(part), "normalizer");
    if (prefix_space_ && !text.starts_with(' ')) text.insert(0, 1, ' ');
    if (text.empty()) return;

    const auto unknown = options.allow_unknown ? unknown_ : std::nullopt;
    each_piece(text, 0, matching, [&](std::string_view piece) {
      if (!encode_piece(piece, unknown, ids)) {
        const bool moved = text.size() != part.size();  // then only the part's place is known
        fail("no token stands for ", shown(piece), " at byte ",
             position + (moved ? 0 : static_cast<std::size_t>(piece.data() - text.data())));
      }
      return ids.size() <= options.most;
    });
  }

  // visit(piece) for the pieces of a text after the splitters from `step` on, one after the other; until it is false.
  template <class Visit>
  bool each_piece(std::string_view text, std::size_t step, std::vector<splitter::matching>& matching,
                  const Visit& visit) const {
    if (step == splitters_.size()) return visit(text);
    return splitters_[step](text, matching[step],
                            [&](std::string_view piece) { return each_piece(piece, step + 1, matching, visit); });
  }

  bool encode_piece(std::string_view piece, std::optional<token_id> unknown, std::vector<token_id>& ids) const {
    if (!word_level_ && reads_bytes_) return merges_.encode(alphabet_from_bytes(piece), words_, unknown, ids);
    if (!word_level_) return merges_.encode(piece, words_, unknown, ids);
    const auto id = words_.find(piece);
    if (!id && !unknown) return false;
    ids.push_back(id ? *id : *unknown);
    return true;
  }

  void add_token(const std::string& text, const field& id);
  static void add_replacement(std::vector<replacement>& to, const field& step, replacement made);
  static void expect_step(std::size_t there, const field& step);
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
  added_tokens added_;
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
