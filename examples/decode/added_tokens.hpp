// SPDX-License-Identifier: Apache-2.0
// Added tokens, such as <|eot_id|>: found wherever they stand in a text.
#pragma once

#include <algorithm>    // std::sort, std::upper_bound
#include <array>        // std::array
#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "config.hpp"

namespace decode {

struct added_token {
  std::string text;
  token_id id = 0;
  bool lstrip = false, rstrip = false;  // swallows the spaces before it, after it
};

class added_tokens {
 public:
  void add(added_token token) {
    strips_ = strips_ || token.lstrip || token.rstrip;
    by_first_byte_[static_cast<unsigned char>(token.text[0])].push_back({std::move(token), nothing});
  }
  /// After the last `add`. Of equal texts the one that was added first counts.
  void sort() {
    for (auto& tokens : by_first_byte_) {
      std::stable_sort(tokens.begin(), tokens.end(), by_text);
      std::vector<std::size_t> open;  // of those that the next one may begin with
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const std::string_view text = tokens[i].token.text;
        while (!open.empty() && !text.starts_with(tokens[open.back()].token.text)) open.pop_back();
        tokens[i].shorter = open.empty() ? nothing : open.back();
        if (open.empty() || tokens[open.back()].token.text != text) open.push_back(i);
      }
    }
  }

  /// The token that begins at text[at], the longest if there are several; nullptr if there is none.
  /// @cost  a comparison for each doubling of the tokens with the same first byte, and for each of their beginnings
  ///        that is a token too
  const added_token* at(std::string_view text, std::size_t at) const {
    const auto& tokens = by_first_byte_[static_cast<unsigned char>(text[at])];
    if (tokens.empty()) return nullptr;
    const std::string_view rest = text.substr(at);
    // Whatever `rest` begins with is not greater than `rest`, and all that lies between the two begins with it too.
    const auto greater = std::upper_bound(tokens.begin(), tokens.end(), rest,
                                          [](std::string_view a, const entry& b) { return a < b.token.text; });
    for (std::size_t i = static_cast<std::size_t>(greater - tokens.begin()) - 1; i != nothing; i = tokens[i].shorter) {
      if (!rest.starts_with(tokens[i].token.text)) continue;
      const bool again = tokens[i].shorter != nothing && tokens[tokens[i].shorter].token.text == tokens[i].token.text;
      return &tokens[again ? tokens[i].shorter : i].token;
    }
    return nullptr;
  }

  /// Whether some swallow spaces.
  bool strips() const { return strips_; }

 private:
  static constexpr std::size_t nothing = static_cast<std::size_t>(-1);
  struct entry {
    added_token token;
    std::size_t shorter;  // the longest other one that this one begins with
  };
  static bool by_text(const entry& a, const entry& b) { return a.token.text < b.token.text; }

  std::array<std::vector<entry>, 256> by_first_byte_;  // each sorted by text
  bool strips_ = false;
};

}  // namespace decode
