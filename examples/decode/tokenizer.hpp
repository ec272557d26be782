// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: text to ids and back. On the way to ids, added tokens such as <|eot_id|> are cut
// out first; what lies between is normalised, split into pieces, and each piece is looked up (word
// level) or merged (byte-pair encoding; see bpe.hpp). Known are
//   byte-level BPE        GPT-2, Llama 3, Qwen: each byte is one of 256 visible characters
//   SentencePiece as BPE  Llama 2: spaces become "▁", by a normalizer or by the pre-tokenizer Metaspace; what is
//   unknown
//                         becomes bytes <0xNN>
//   word level            words between spaces
// Added tokens that say "normalized" are found once the text is normalised, the others before.
#pragma once

#include <algorithm>      // std::ranges::any_of
#include <cstddef>        // std::size_t
#include <filesystem>     // std::filesystem::path
#include <memory>         // std::shared_ptr
#include <optional>       // std::optional
#include <span>           // std::span
#include <string>         // std::string
#include <string_view>    // std::string_view
#include <unordered_set>  // std::unordered_set
#include <utility>        // std::exchange
#include <variant>        // std::variant
#include <vector>         // std::vector

#include "added_tokens.hpp"
#include "bpe.hpp"
#include "config.hpp"
#include "json_file.hpp"
#include "splitter.hpp"
#include "unicode.hpp"
#include "utf8.hpp"
#include "vocabulary.hpp"

namespace decode {

struct byte_range {
  std::size_t begin, end;
};

struct encode_options {
  bool add_special = true;                          // the tokens that the tokenizer puts around a text, such as BOS
  bool allow_unknown = true;                        // false: a word that only <unk> could stand for is an input_error
  std::size_t most = static_cast<std::size_t>(-1);  // ends after a piece that makes more ids than this
  bool continues = false;                           // the text goes on behind another one
  std::span<const byte_range> plain = {};           // where special tokens are text
};

class tokenizer {
 public:
  /// What a stranger's file can cost is bounded: texts of tokens have at most 4,096 bytes, a normalizer or a decoder 64
  /// steps and 16 bytes for each that it is given, regular expressions steps and memory (see splitter.hpp), a template
  /// 1,024 ids.
  ///
  /// @param vocab  ids must be lower than this: model_config::vocab
  /// @throws       input_error
  explicit tokenizer(const std::filesystem::path& directory, std::size_t vocab = 1u << 22);

  /// Ids of a text. Added tokens in the text are recognised wherever they stand.
  ///
  /// @throws input_error  not UTF-8, or a part that no token stands for, with its byte position
  std::vector<token_id> encode(std::string_view text, encode_options options = {}) const;

  /// Bytes of a text beyond which it has more than `tokens` tokens; 16 times that where spaces or other parts of a text
  /// may leave no token, or a normalizer makes it shorter.
  std::size_t most_bytes(std::size_t tokens) const;

  /// The bytes that a token writes; they need not be whole characters (see text_stream).
  ///
  /// @param first  nothing was written before it: no space goes between, and Llama 2 drops one
  std::string piece(token_id id, bool first) const;

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
    std::string from, to;               // from: empty for the beginning of the text
    std::shared_ptr<splitter> pattern;  // what is replaced where `from` is empty

    /// @param most  bytes that `text` may have then; more is an input_error, before there are more
    /// @return      false if what begins the text now stands for no first character of it
    bool apply(std::string& text, std::size_t most, const char* step) const;
  };
  struct trimming {  // of white space
    bool left, right;
  };

  using normalizer_step = std::variant<replacement, trimming, normal_form>;

  // The pre-tokenizer of SentencePiece's vocabularies: a sign for each space, and one before a text.
  struct metaspace {
    enum class prefix { always, first, never };  // before each part between added tokens, before the text, or nowhere
    std::string sign;
    prefix prepends = prefix::always;
  };

  // What encoding one text takes along.
  struct encoding {
    encode_options options;
    std::vector<splitter::matching> matching;
    std::vector<token_id> ids;
    bool full() const { return ids.size() > options.most; }
    /// Whether some of these bytes may be no special token.
    bool is_plain(std::size_t begin, std::size_t size) const {
      return std::ranges::any_of(options.plain,
                                 [&](byte_range part) { return begin < part.end && part.begin < begin + size; });
    }
  };

  struct normalized_part {
    std::string text;
    bool begins = true;  // the first character, or what stands for it, is the part's first
  };
  normalized_part normalize(std::string_view part) const;
  void encode_part(std::string_view part, std::size_t position, encoding& to) const;
  void encode_normalized(std::string_view part, std::size_t position, bool moved, bool first, encoding& to) const;

  template <class Visit>
  bool each_piece(std::string_view text, std::size_t step, std::vector<splitter::matching>& matching,
                  const Visit& visit) const;

  bool encode_piece(std::string_view piece, std::optional<token_id> unknown, std::vector<token_id>& ids) const;

  // What reads the files: tokenizer_file.cpp.
  void add_token(const std::string& text, const field& id);
  static replacement checked(const field& step, replacement made);
  static replacement read_replacement(const field& step);
  static metaspace read_metaspace(const field& step);
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
  added_tokens added_, added_normalized_;  // found before the text is normalised, and after that
  std::unordered_set<token_id> special_;
  std::vector<normalizer_step> normalizer_;
  std::optional<metaspace> metaspace_;
  std::vector<splitter> splitters_;  // each cuts the pieces of the one before
  bool prefix_space_ = false;
  bool reads_bytes_ = false;                    // pieces go to the vocabulary as bytes
  std::vector<token_id> before_, after_;        // what the template puts around a text
  bool joins_words_ = false;                    // decoder: none; words with spaces between
  bool writes_bytes_ = false;                   // decoder: byte level
  std::optional<metaspace> decoder_metaspace_;  // decoder: SentencePiece, from here on
  std::vector<replacement> decoder_replacements_;
  bool byte_tokens_ = false;
  bool strips_each_ = true;  // each token, not the text as a whole
  std::string stripped_;
  std::size_t strips_ = 0;  // how often at most
};

/// Text from ids that arrive one by one: characters come out when they are complete.
class text_stream {
 public:
  /// @param words      must outlive the stream
  /// @param continues  the text goes on behind another one, so that a space before its first word is written
  explicit text_stream(const tokenizer& words, bool skip_special = true, bool continues = false)
      : words_(&words), skip_special_(skip_special), first_(!continues) {}

  std::string push(token_id id) {
    if (skip_special_ && words_->special(id)) return "";
    return characters_.push(words_->piece(id, std::exchange(first_, false)));
  }
  std::string finish() { return characters_.finish(); }

 private:
  const tokenizer* words_;
  bool skip_special_;
  bool first_;
  utf8_stream characters_;
};

}  // namespace decode
