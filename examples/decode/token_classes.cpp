// SPDX-License-Identifier: Apache-2.0
#include "token_classes.hpp"

#include <algorithm>    // std::min
#include <sstream>      // std::istringstream
#include <string_view>  // std::string_view

#include "input_error.hpp"

namespace decode {
namespace {

/// Tokens that write a text, or the one that the vocabulary spells so.
std::vector<token_id> ids_of(const tokenizer& words, std::string_view text) {
  std::vector<token_id> found;
  for (std::size_t i = 0; i < words.size() && !text.empty(); ++i) {
    const auto id = static_cast<token_id>(i);
    if (!words.special(id) && words.piece(id, false) == text) found.push_back(id);
  }
  const auto spelled = words.id_of(text);
  if (found.empty() && spelled) found.push_back(*spelled);
  return found;
}

/// The same of what one argument says. A blank at an end belongs to a token: without it, it would be another one.
std::vector<token_id> delimiter_ids(const tokenizer& words, const std::string& text) {
  std::vector<token_id> ids = ids_of(words, text);
  if (ids.empty() && !text.starts_with(' ') && !text.ends_with(' ') && text.find(' ') != text.npos) {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ' ');) {
      if (part.empty()) continue;
      for (const token_id id : delimiter_ids(words, part)) ids.push_back(id);
    }
  }
  if (ids.empty()) fail("the delimiter ", shown(text), " is not a token of this model");
  return ids;
}

}  // namespace

std::vector<zoomr::token_class> classify(const tokenizer& words, std::size_t vocab,
                                         const std::vector<std::string>& delimiters, mark_rule marks, line_rule lines) {
  using enum zoomr::token_class;
  std::vector<zoomr::token_class> classes;
  if (delimiters.empty()) {
    const auto tokens = static_cast<zoomr::index_t>(std::min(vocab, words.size()));
    const auto text = [&](token_id id) { return words.special(id) ? std::string() : words.piece(id, false); };
    classes = zoomr::classify_sentences(tokens, text, marks, lines);
  }
  classes.resize(vocab, plain);
  const auto classify_as = [&](token_id id, zoomr::token_class as) {
    zoomr::token_class& known = classes[static_cast<std::size_t>(id)];
    known = known | as;
  };
  const auto add = [&](std::string_view text, zoomr::token_class as) {
    if (const auto id = words.id_of(text)) classify_as(*id, as);
  };
  add("<thought>", thought_begin), add("</thought>", thought_end);
  add("<summary>", summary_begin), add("</summary>", summary_end);
  add("<|begin_of_summary|>", summary_begin), add("<|end_of_summary|>", summary_end);
  for (const char* mark : {"<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "[INST]"}) add(mark, message);
  for (const std::string& text : delimiters)
    for (const token_id id : delimiter_ids(words, text)) classify_as(id, delimiter);
  return classes;
}

void mark_thoughts(const tokenizer& words, const std::vector<std::string>& marks,
                   std::vector<zoomr::token_class>& classes) {
  using enum zoomr::token_class;
  if (marks.empty()) return;
  if (marks.size() != 4) fail("--marks: four tokens are needed, but ", marks.size(), " are named");
  constexpr zoomr::token_class kinds[] = {thought_begin, thought_end, summary_begin, summary_end};
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const auto id = words.id_of(marks[i]);
    if (!id) fail("--marks: ", shown(marks[i]), " is no token of this model");
    classes[static_cast<std::size_t>(*id)] = kinds[i];
  }
}

}  // namespace decode
