// SPDX-License-Identifier: Apache-2.0
#include "bpe.hpp"

#include <algorithm>   // std::max
#include <functional>  // std::greater
#include <queue>       // std::priority_queue
#include <string>      // std::string
#include <utility>     // std::pair

#include <nlohmann/json.hpp>

#include "input_error.hpp"
#include "utf8.hpp"

namespace decode {
namespace {

constexpr token_id merged_away = -1;

std::uint64_t key(token_id left, token_id right) {
  return static_cast<std::uint64_t>(left) << 32 | static_cast<std::uint32_t>(right);
}

// "a b" (older files) or ["a", "b"].
std::pair<std::string, std::string> pair_of(const field& merge) {
  if (merge.value().is_string()) {
    const std::string& text = merge.text();
    const auto space = text.find(' ');
    if (space != text.npos && text.find(' ', space + 1) == text.npos)
      return {text.substr(0, space), text.substr(space + 1)};
  } else if (const auto parts = merge.elements(); parts.size() == 2) {
    return {parts[0].text(), parts[1].text()};
  }
  fail(merge.where(), " must be two tokens");
}

// All bytes of a character as tokens, or none if one of them has no token.
bool bytes(std::string_view character, const vocabulary& words, std::vector<token_id>& symbols) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  const std::size_t before = symbols.size();
  for (const char c : character) {
    const auto byte = static_cast<unsigned char>(c);
    const char text[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
    const auto id = words.find({text, sizeof text});
    if (!id) return symbols.resize(before), false;
    symbols.push_back(*id);
  }
  return true;
}

}  // namespace

bpe::bpe(const field& model, const vocabulary& words) {
  byte_fallback_ = model.boolean("byte_fallback", false);
  whole_words_ = model.boolean("ignore_merges", false);
  fuse_unknown_ = model.boolean("fuse_unk", false);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.text(affix, "").empty()) fail(model.where(), ".", affix, " is not known here");
  if (const auto dropout = model.find("dropout")) dropout->number(0, 0);
  const auto merges = model.at("merges").elements();
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = pair_of(merges[rank]);
    const auto id = [&](const std::string& text) {
      if (const auto found = words.find(text)) return *found;
      fail(merges[rank].where(), ": ", shown(text), " is not in the vocabulary");
    };
    rules_[key(id(left), id(right))] = {rank, id(left + right)};
  }
}

bool bpe::encode(std::string_view piece, const vocabulary& words, std::optional<token_id> unknown,
                 std::vector<token_id>& ids) const {
  if (whole_words_)
    if (const auto id = words.find(piece)) return ids.push_back(*id), true;
  std::vector<token_id> symbols;
  if (!characters(piece, words, unknown, symbols)) return false;
  merge(symbols);
  for (const token_id id : symbols)
    if (id != merged_away) ids.push_back(id);
  return true;
}

bool bpe::characters(std::string_view piece, const vocabulary& words, std::optional<token_id> unknown,
                     std::vector<token_id>& symbols) const {
  bool after_unknown = false;
  for (std::size_t at = 0, length = 0; at < piece.size(); at += length) {
    length = static_cast<std::size_t>(std::max(1, utf8_length(piece, at)));
    const std::string_view character = piece.substr(at, length);
    if (const auto id = words.find(character)) {
      symbols.push_back(*id);
      after_unknown = false;
    } else if (byte_fallback_ && bytes(character, words, symbols)) {
      after_unknown = false;
    } else if (!unknown) {
      return false;
    } else {
      if (!(fuse_unknown_ && after_unknown)) symbols.push_back(*unknown);
      after_unknown = true;
    }
  }
  return true;
}

// A symbol that was merged into its left neighbour becomes `merged_away`.
void bpe::merge(std::vector<token_id>& symbols) const {
  const std::size_t end = symbols.size();
  std::vector<std::size_t> next(end), previous(end);
  for (std::size_t i = 0; i < end; ++i) next[i] = i + 1, previous[i] = i - 1;  // first: wraps

  const auto rule_at = [&](std::size_t left) -> const rule* {
    if (left >= end || next[left] >= end) return nullptr;
    const auto found = rules_.find(key(symbols[left], symbols[next[left]]));
    return found == rules_.end() ? nullptr : &found->second;
  };
  using candidate = std::pair<std::size_t, std::size_t>;  // rank, left
  std::priority_queue<candidate, std::vector<candidate>, std::greater<>> heap;
  const auto consider = [&](std::size_t left) {
    if (const rule* r = rule_at(left)) heap.emplace(r->rank, left);
  };
  for (std::size_t i = 0; i < end; ++i) consider(i);

  while (!heap.empty()) {
    const auto [rank, left] = heap.top();
    heap.pop();
    const rule* r = rule_at(left);  // stale if the neighbours changed since
    if (symbols[left] == merged_away || !r || r->rank != rank) continue;
    const std::size_t right = next[left];
    symbols[left] = r->result;
    symbols[right] = merged_away;
    next[left] = next[right];
    if (next[left] < end) previous[next[left]] = left;
    consider(left);
    consider(previous[left]);
  }
}

}  // namespace decode
