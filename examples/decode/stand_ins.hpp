// SPDX-License-Identifier: Apache-2.0
// Characters that PCRE2's Unicode tables lack and utf8proc's have: one version of Unicode decides, the newer one.
#pragma once

#include <cstdint>      // std::int32_t
#include <optional>     // std::optional
#include <set>          // std::set
#include <string>       // std::string
#include <string_view>  // std::string_view

namespace decode {

/// A text for a pattern, where PCRE2 knows all of a text's characters that utf8proc knows: in place of each other one
/// stands the nearest before it that both know, of the same general category and as many bytes.
class stand_ins {
 public:
  /// @param pattern  that PCRE2 has taken. A character that it names itself has no stand-in; one that names characters
  /// by their
  ///                 numbers gets none at all
  explicit stand_ins(std::string_view pattern = {});

  /// @param text  valid UTF-8
  /// @return      as many bytes; nothing where no character needs a stand-in
  /// @cost        in proportion to the text, and once a process some 20 ms for the first text beyond ASCII
  std::optional<std::string> in(std::string_view text) const;

 private:
  bool by_number_ = false;
  std::set<std::int32_t> named_;
};

}  // namespace decode
