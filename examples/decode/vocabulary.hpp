// SPDX-License-Identifier: Apache-2.0
// Token ids and their texts, each way.
#pragma once

#include <cstddef>        // std::size_t
#include <functional>     // std::equal_to, std::hash
#include <optional>       // std::optional
#include <string>         // std::string
#include <string_view>    // std::string_view
#include <unordered_map>  // std::unordered_map
#include <vector>         // std::vector

#include "config.hpp"
#include "json_file.hpp"

namespace decode {

class vocabulary {
 public:
  /// @param most  ids must be lower than this: the rows of the embedding
  explicit vocabulary(std::size_t most) : most_(most) {}

  /// Gives an id to a text; the same pair twice is harmless, any other repetition an input_error.
  void add(const std::string& text, const field& id);

  std::optional<token_id> find(std::string_view text) const;

  /// Empty for an id that has no text.
  std::string_view text(token_id id) const;

  /// Bytes of the longest text.
  std::size_t longest() const { return longest_; }

  /// One more than the largest id.
  std::size_t size() const { return texts_.size(); }

 private:
  struct hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, token_id, hash, std::equal_to<>> ids_;
  std::vector<std::optional<std::string>> texts_;
  std::size_t most_;
  std::size_t longest_ = 0;
};

}  // namespace decode
