// SPDX-License-Identifier: Apache-2.0
// Added tokens, such as <|eot_id|>: found wherever they stand in a text.
#pragma once

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
  bool lstrip = false, rstrip = false;  // swallows the white space before it, after it
};

class added_tokens {
 public:
  void add(added_token token);
  /// After the last `add`. Of equal texts the one that was added first counts.
  void sort();

  /// The token that begins at text[at], the longest if there are several; nullptr if there is none.
  /// @cost  a comparison for each doubling of the tokens with the same first byte, and for each of their beginnings
  ///        that is a token too
  const added_token* at(std::string_view text, std::size_t at) const;

  /// Whether some swallow white space.
  bool strips() const { return strips_; }

 private:
  static constexpr std::size_t nothing = static_cast<std::size_t>(-1);
  struct entry {
    added_token token;
    std::size_t shorter;  // the longest other one that this one begins with
  };
  static bool by_text(const entry& a, const entry& b);

  std::array<std::vector<entry>, 256> by_first_byte_;  // each sorted by text
  bool strips_ = false;
};

}  // namespace decode
