// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.hpp"

#include <algorithm>  // std::stable_sort, std::upper_bound
#include <utility>    // std::move

namespace decode {

void added_tokens::add(added_token token) {
  strips_ = strips_ || token.lstrip || token.rstrip;
  by_first_byte_[static_cast<unsigned char>(token.text[0])].push_back({std::move(token), nothing});
}

void added_tokens::sort() {
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

const added_token* added_tokens::at(std::string_view text, std::size_t at) const {
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

bool added_tokens::by_text(const entry& a, const entry& b) { return a.token.text < b.token.text; }

}  // namespace decode
