// SPDX-License-Identifier: Apache-2.0
// Token ids and their texts, each way.
#pragma once

#include <algorithm>      // std::max
#include <cstddef>        // std::size_t
#include <functional>     // std::equal_to, std::hash
#include <optional>       // std::optional
#include <string>         // std::string
#include <string_view>    // std::string_view
#include <unordered_map>  // std::unordered_map
#include <vector>         // std::vector

#include "config.hpp"
#include "input_error.hpp"
#include "json_file.hpp"

namespace decode {

class vocabulary {
 public:
  /// @param most  ids must be lower than this: the rows of the embedding
  explicit vocabulary(std::size_t most) : most_(most) {}

  /// Gives an id to a text; the same pair twice is harmless, any other repetition an input_error.
  void add(const std::string& text, const field& id) {
    const std::size_t number = id.count(0, most_ - 1);
    const auto [known, fresh] = ids_.emplace(text, static_cast<token_id>(number));
    texts_.resize(std::max(texts_.size(), number + 1));
    if (!fresh && known->second != static_cast<token_id>(number))
      fail(id.where(), ": ", shown(text), " has the ids ", known->second, " and ", number);
    if (fresh && texts_[number])
      fail(id.where(), ": ", shown(*texts_[number]), " and ", shown(text), " have the id ", number);
    texts_[number] = text;
    longest_ = std::max(longest_, text.size());
  }

  std::optional<token_id> find(std::string_view text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Empty for an id that has no text.
  std::string_view text(token_id id) const {
    const auto at = static_cast<std::size_t>(id);
    return id >= 0 && at < texts_.size() && texts_[at] ? std::string_view(*texts_[at]) : "";
  }

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
