// SPDX-License-Identifier: Apache-2.0
#include "tokenizer.hpp"

#include <algorithm>  // std::max
#include <utility>    // std::move

#include "byte_alphabet.hpp"
#include "input_error.hpp"

namespace decode {
namespace {

// Bytes that a normalizer or a decoder may make of a text: real ones need three for a space, and three at the start;
// the longest compatibility character is 11 for each of its own.
std::size_t most_of(std::string_view text) { return 16 * text.size() + 64; }

void expect_room(std::size_t bytes, std::size_t most, const char* step) {
  if (bytes > most)
    fail("the tokenizer's ", step, " makes more than ", most, " bytes of a text, 16 for each that it has");
}

std::size_t letter_bytes(std::string_view text, std::size_t at) {
  std::size_t bytes = 1;
  while (at + bytes < text.size() && (static_cast<unsigned char>(text[at + bytes]) & 0xc0) == 0x80) ++bytes;
  return bytes;
}

// The byte of "<0xNN>".
std::optional<std::string> byte_of(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  constexpr std::string_view digits = "0123456789ABCDEF";
  const auto high = digits.find(text[3]), low = digits.find(text[4]);
  if (high == digits.npos || low == digits.npos) return std::nullopt;
  return std::string(1, static_cast<char>(high * 16 + low));
}

// Cuts added tokens out of a text, with the white space that they swallow: their ids go to `to`, and what lies between
// them to part(text, position), until `to` is full.
// @param is_token  is_token(token, position): whether what reads like one is one
template <class Encoding, class IsToken, class Part>
void cut(std::string_view text, const added_tokens& added, Encoding& to, const IsToken& is_token, const Part& part) {
  std::size_t done = 0;  // the text before this byte has its ids
  for (std::size_t at = 0; at < text.size() && !to.full();) {
    const added_token* token = added.at(text, at);
    if (!token || !is_token(*token, at)) {
      ++at;
      continue;
    }
    const std::size_t end = at + token->text.size();
    const std::size_t first = token->lstrip ? done + white_space_begin(text.substr(done, at - done)) : at;
    const std::size_t last = token->rstrip ? white_space_end(text, end) : end;
    if (first > done) part(text.substr(done, first - done), done);
    if (to.full()) return;
    to.ids.push_back(token->id);
    done = at = last;
  }
  if (done < text.size() && !to.full()) part(text.substr(done), done);
}

}  // namespace

std::vector<token_id> tokenizer::encode(std::string_view text, encode_options options) const {
  if (const auto bad = first_invalid_utf8(text); bad < text.size()) fail("the text is not UTF-8 at byte ", bad);
  encoding to{options, {}, {}};
  if (options.add_special) to.ids = before_;
  for (const splitter& split : splitters_) to.matching.emplace_back(split);
  const auto is_token = [&](const added_token& token, std::size_t at) {
    return !special(token.id) || !to.is_plain(at, token.text.size());
  };
  cut(text, added_, to, is_token,
      [&](std::string_view part, std::size_t position) { encode_part(part, position, to); });
  if (options.add_special) to.ids.insert(to.ids.end(), after_.begin(), after_.end());
  return to.ids;
}

std::size_t tokenizer::most_bytes(std::size_t tokens) const {
  bool drops = added_.strips() || added_normalized_.strips();
  for (const splitter& split : splitters_) drops = drops || split.drops();
  for (const normalizer_step& step : normalizer_) {
    const auto* replaced = std::get_if<replacement>(&step);  // a normal form makes one byte of at most four
    drops = drops || !replaced || replaced->pattern || replaced->to.size() < replaced->from.size();
  }
  return tokens * std::max<std::size_t>(1, words_.longest()) * (drops ? 16 : 1);
}

std::string tokenizer::piece(token_id id, bool first) const {
  const std::string_view text = words_.text(id);
  if (joins_words_) return std::string(first ? "" : " ").append(text);
  if (writes_bytes_) return bytes_from_alphabet(text).value_or(std::string(text));
  std::string out(text);
  if (decoder_metaspace_) {
    const bool dropped = first && decoder_metaspace_->prepends != metaspace::prefix::never;
    replacement{decoder_metaspace_->sign, dropped ? "" : " ", {}}.apply(out, most_of(text), "decoder");
  }
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

bool tokenizer::replacement::apply(std::string& text, std::size_t most, const char* step) const {
  std::string out;
  std::size_t done = 0;
  bool begins = true;
  const auto replace = [&](std::size_t begin, std::size_t end) {
    // The package tokenizers takes what replaces several characters for the last of them.
    if (begin == 0 && end > 0) begins = !to.empty() && end == letter_bytes(text, 0);
    expect_room(out.size() + (begin - done) + to.size(), most, step);
    out.append(text, done, begin - done) += to;
    done = end;
  };
  if (pattern)
    pattern->each_match(text, [&](const splitter::place& found) { replace(found.begin, found.end); });
  else if (from.empty())
    replace(0, 0);
  else
    for (std::size_t at; (at = text.find(from, done)) != text.npos;) replace(at, at + from.size());
  expect_room(out.size() + (text.size() - done), most, step);
  text = out.append(text, done);
  return begins;
}

// visit(piece) for the pieces of a text after the splitters from `step` on, one after the other; until it is false.
template <class Visit>
bool tokenizer::each_piece(std::string_view text, std::size_t step, std::vector<splitter::matching>& matching,
                           const Visit& visit) const {
  if (step == splitters_.size()) return visit(text);
  return splitters_[step](text, matching[step],
                          [&](std::string_view piece) { return each_piece(piece, step + 1, matching, visit); });
}

tokenizer::normalized_part tokenizer::normalize(std::string_view part) const {
  std::string text(part);
  bool begins = true;
  for (const normalizer_step& step : normalizer_) {
    if (const auto* form = std::get_if<normal_form>(&step)) {
      text = normalized(text, *form);
      expect_room(text.size(), most_of(part), "normalizer");
    } else if (const auto* trim = std::get_if<trimming>(&step)) {
      if (trim->right) text.resize(white_space_begin(text));
      const std::size_t removed = trim->left ? white_space_end(text, 0) : 0;
      text.erase(0, removed);
      begins = begins && removed == 0;
    } else {
      begins = std::get<replacement>(step).apply(text, most_of(part), "normalizer") && begins;
    }
  }
  return {std::move(text), begins};
}

// A part between added tokens that are found in the text as it is, which begins at byte `position` of the text.
void tokenizer::encode_part(std::string_view part, std::size_t position, encoding& to) const {
  const auto [text, begins] = normalize(part);
  const bool moved = text != part;  // then only the part's place is known
  const bool first = begins && position == 0 && !to.options.continues;
  const bool plain = to.is_plain(position, part.size());
  const auto is_token = [&](const added_token& token, std::size_t) { return !plain || !special(token.id); };
  cut(text, added_normalized_, to, is_token, [&](std::string_view rest, std::size_t at) {
    encode_normalized(rest, position + (moved ? 0 : at), moved, first && at == 0, to);
  });
}

// A part without added tokens, normalised.
// @param moved  only the beginning of the part that it comes from is known
// @param first  the text begins with it
void tokenizer::encode_normalized(std::string_view part, std::size_t position, bool moved, bool first,
                                  encoding& to) const {
  std::string text(part);
  if (metaspace_) {
    const auto& [sign, prepends] = *metaspace_;
    replacement{" ", sign, {}}.apply(text, most_of(part), "pre-tokenizer");
    const bool prefixed = prepends == metaspace::prefix::always || (prepends == metaspace::prefix::first && first);
    if (prefixed && !text.starts_with(sign)) text.insert(0, sign);
  }
  if (prefix_space_ && !text.starts_with(' ')) text.insert(0, 1, ' ');
  const auto unknown = to.options.allow_unknown ? unknown_ : std::nullopt;
  each_piece(text, 0, to.matching, [&](std::string_view piece) {
    if (!encode_piece(piece, unknown, to.ids)) {
      const bool known = !moved && text.size() == part.size();
      fail("no token stands for ", shown(piece), " at byte ",
           position + (known ? static_cast<std::size_t>(piece.data() - text.data()) : 0));
    }
    return !to.full();
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
