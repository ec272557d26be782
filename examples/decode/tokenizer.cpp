// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.hpp"

#include <algorithm>  // std::max

#include "byte_alphabet.hpp"
#include "input_error.hpp"

namespace decode {
namespace {

// Bytes that a normalizer or a decoder may make of a text: real ones need three for a space, and three at the start.
std::size_t most_of(std::string_view text) { return 16 * text.size() + 64; }

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The byte of "<0xNN>".
std::optional<std::string> byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  constexpr std::string_view digits = "0123456789ABCDEF";
  const auto high = digits.find(text[3]), low = digits.find(text[4]);
  if (high == digits.npos || low == digits.npos) return std::nullopt;
  return std::string(1, static_cast<char>(high * 16 + low));
}

}  // namespace

std::vector<token_id> tokenizer::encode(std::string_view text, encode_options options) const {
  if (const auto bad = first_invalid_utf8(text); bad < text.size()) fail("the text is not UTF-8 at byte ", bad);
  std::vector<token_id> ids;
  if (options.add_special) ids = before_;
  std::vector<splitter::matching> matching;
  for (const splitter& split : splitters_) matching.emplace_back(split);
  std::size_t done = 0;  // the text before this byte has its ids
  for (std::size_t at = 0; at < text.size() && ids.size() <= options.most;) {
    const added_token* token = added_.at(text, at);
    if (!token) {
      ++at;
      continue;
    }
    std::size_t first = at, last = at + token->text.size();
    while (token->lstrip && first > done && is_space(text[first - 1])) --first;
    while (token->rstrip && last < text.size() && is_space(text[last])) ++last;
    encode_part(text.substr(done, first - done), done, options, matching, ids);
    if (ids.size() > options.most) break;
    ids.push_back(token->id);
    done = at = last;
  }
  if (ids.size() <= options.most) encode_part(text.substr(done), done, options, matching, ids);
  if (options.add_special) ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

std::size_t tokenizer::most_bytes(std::size_t tokens) const {
  bool drops = added_.strips();
  for (const splitter& split : splitters_) drops = drops || split.drops();
  for (const auto& [from, to] : normalizer_replacements_) drops = drops || to.size() < from.size();
  return tokens * std::max<std::size_t>(1, words_.longest()) * (drops ? 16 : 1);
}

std::string tokenizer::piece(token_id id, bool first) const {
  const std::string_view text = words_.text(id);
  if (joins_words_) return std::string(first ? "" : " ").append(text);
  if (writes_bytes_) return bytes_from_alphabet(text).value_or(std::string(text));
  std::string out(text);
  for (const auto& each : decoder_replacements_) each.apply(out, most_of(text), "decoder");
  if (byte_tokens_) out = byte_of(out).value_or(out);
  const std::size_t strips = first || strips_each_ ? strips_ : 0;
  std::size_t begin = 0;
  for (std::size_t n = 0; n < strips && out.compare(begin, stripped_.size(), stripped_) == 0; ++n)
    begin += stripped_.size();
  return out.substr(begin);
}

std::string tokenizer::decode(std::span<const token_id> ids, bool skip_special) const {
  text_stream stream(*this, skip_special);
  std::string text;
  for (const token_id id : ids) text += stream.push(id);
  return text += stream.finish();
}

void tokenizer::replacement::apply(std::string& text, std::size_t most, const char* step) const {
  const auto expect_room = [&](std::size_t bytes) {
    if (bytes > most)
      fail("the tokenizer's ", step, " makes more than ", most, " bytes of a text, 16 for each that it has");
  };
  if (from.empty()) return expect_room(text.size() + to.size()), static_cast<void>(text.insert(0, to));
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
    expect_room(out.size() + (at - done) + to.size());
    out.append(text, done, at - done) += to;
  }
  expect_room(out.size() + (text.size() - done));
  text = out.append(text, done);
}

// visit(piece) for the pieces of a text after the splitters from `step` on, one after the other; until it is false.
template <class Visit>
bool tokenizer::each_piece(std::string_view text, std::size_t step, std::vector<splitter::matching>& matching,
                           const Visit& visit) const {
  if (step == splitters_.size()) return visit(text);
  return splitters_[step](text, matching[step],
                          [&](std::string_view piece) { return each_piece(piece, step + 1, matching, visit); });
}

// A part without added tokens, which begins at byte `position` of the text.
void tokenizer::encode_part(std::string_view part, std::size_t position, encode_options options,
                            std::vector<splitter::matching>& matching, std::vector<token_id>& ids) const {
  if (part.empty()) return;
  std::string text(part);
  for (const auto& each : normalizer_replacements_) each.apply(text, most_of(part), "normalizer");
  if (prefix_space_ && !text.starts_with(' ')) text.insert(0, 1, ' ');
  if (text.empty()) return;

  const auto unknown = options.allow_unknown ? unknown_ : std::nullopt;
  each_piece(text, 0, matching, [&](std::string_view piece) {
    if (!encode_piece(piece, unknown, ids)) {
      const bool moved = text.size() != part.size();  // then only the part's place is known
      fail("no token stands for ", shown(piece), " at byte ",
           position + (moved ? 0 : static_cast<std::size_t>(piece.data() - text.data())));
    }
    return ids.size() <= options.most;
  });
}

bool tokenizer::encode_piece(std::string_view piece, std::optional<token_id> unknown,
                             std::vector<token_id>& ids) const {
  if (!word_level_ && reads_bytes_) return merges_.encode(alphabet_from_bytes(piece), words_, unknown, ids);
  if (!word_level_) return merges_.encode(piece, words_, unknown, ids);
  const auto id = words_.find(piece);
  if (!id && !unknown) return false;
  ids.push_back(id ? *id : *unknown);
  return true;
}

}  // namespace decode
