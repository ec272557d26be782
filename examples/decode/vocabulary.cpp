// SPDX-License-Identifier: Apache-2.0
#include "vocabulary.hpp"

#include <algorithm>  // std::max

#include "input_error.hpp"

namespace decode {

void vocabulary::add(const std::string& text, const field& id) {
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

std::optional<token_id> vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::string_view vocabulary::text(token_id id) const {
  const auto at = static_cast<std::size_t>(id);
  return id >= 0 && at < texts_.size() && texts_[at] ? std::string_view(*texts_[at]) : "";
}

}  // namespace decode
