// SPDX-License-Identifier: Apache-2.0
#include "token_classes.hpp"

#include <algorithm>    // std::min
#include <string_view>  // std::string_view

#include "input_error.hpp"

namespace decode {
namespace {

// True for text that ends a sentence: blanks and closing marks around . ! ? or their CJK forms, or an empty line.
bool ends_sentence(std::string_view text) {
  if (text.find("\n\n") != text.npos) return true;
  for (const std::string_view mark : {".", "!", "?", "。", "！", "？"}) {
    const auto at = text.rfind(mark);
    if (at == text.npos) continue;
    bool alone = true;  // nothing but blanks, dots and closing marks around it
    for (const char c : text) {
      const bool multibyte = static_cast<unsigned char>(c) >= 0x80;
      alone = alone && (multibyte || std::string_view(" \n\t.!?\"')]*").find(c) != std::string_view::npos);
    }
    if (alone) return true;
  }
  return false;
}

}  // namespace

std::vector<zoomr::token_class> classify(const tokenizer& words, std::size_t vocab,
                                         const std::vector<std::string>& delimiters) {
  using enum zoomr::token_class;
  std::vector<zoomr::token_class> classes(vocab, plain);
  const auto mark = [&](std::string_view text, zoomr::token_class as) {
    const auto id = words.id_of(text);
    if (!id) return false;
    auto& of = classes[static_cast<std::size_t>(*id)];
    of = of | as;
    return true;
  };
  mark("<thought>", thought_begin), mark("</thought>", thought_end);
  mark("<summary>", summary_begin), mark("</summary>", summary_end);
  mark("<|begin_of_summary|>", summary_begin), mark("<|end_of_summary|>", summary_end);
  for (const std::string& text : delimiters) {
    if (!mark(text, delimiter)) fail("the delimiter ", shown(text), " is not a token of this model");
  }
  if (!delimiters.empty()) return classes;
  for (std::size_t id = 0; id < std::min(vocab, words.size()); ++id) {
    if (ends_sentence(words.piece(static_cast<token_id>(id), false))) classes[id] = classes[id] | delimiter;
  }
  return classes;
}

}  // namespace decode
