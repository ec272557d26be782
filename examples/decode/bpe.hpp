// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece of text: start with its characters, and merge neighbours, the
// lowest rank first and the leftmost of equals, until no rule applies. The neighbours form a linked
// list and the candidates a heap: n log n, also for a prompt that is one piece (SentencePiece).
#pragma once

#include <cstddef>        // std::size_t
#include <cstdint>        // std::uint64_t
#include <optional>       // std::optional
#include <string_view>    // std::string_view
#include <unordered_map>  // std::unordered_map
#include <vector>         // std::vector

#include "config.hpp"
#include "json_file.hpp"
#include "vocabulary.hpp"

namespace decode {

class bpe {
 public:
  bpe() = default;

  /// @param model  the "model" of a tokenizer.json, its vocabulary already read into `words`
  bpe(const field& model, const vocabulary& words);

  /// Appends the ids of one piece. Characters without a token become bytes (`<0xNN>`), or else
  /// `unknown`.
  ///
  /// @return  false if a character has no token, no bytes and there is no `unknown`
  bool encode(std::string_view piece, const vocabulary& words, std::optional<token_id> unknown,
              std::vector<token_id>& ids) const;

 private:
  struct rule {
    std::size_t rank = 0;
    token_id result = 0;
  };

  bool characters(std::string_view piece, const vocabulary& words, std::optional<token_id> unknown,
                  std::vector<token_id>& symbols) const;
  void merge(std::vector<token_id>& symbols) const;

  std::unordered_map<std::uint64_t, rule> rules_;  // by the pair that they merge
  bool byte_fallback_ = false;
  bool whole_words_ = false;  // a piece that is a token is not taken apart
  bool fuse_unknown_ = false;
};

}  // namespace decode
