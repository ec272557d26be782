// SPDX-License-Identifier: Apache-2.0
#include "token_classes.hpp"

#include <algorithm>    // std::min
#include <string_view>  // std::string_view

#include "input_error.hpp"

namespace decode {

std::vector<zoomr::token_class> classify(const tokenizer& words, std::size_t vocab,
                                         const std::vector<std::string>& delimiters, mark_rule marks) {
  using enum zoomr::token_class;
  std::vector<zoomr::token_class> classes;
  if (delimiters.empty()) {
    const auto tokens = static_cast<zoomr::index_t>(std::min(vocab, words.size()));
    const auto text = [&](token_id id) { return words.special(id) ? std::string() : words.piece(id, false); };
    classes = zoomr::classify_sentences(tokens, text, marks);
  }
  classes.resize(vocab, plain);
  const auto add = [&](std::string_view text, zoomr::token_class as) {
    const auto id = words.id_of(text);
    if (!id) return false;
    zoomr::token_class& known = classes[static_cast<std::size_t>(*id)];
    known = known | as;
    return true;
  };
  add("<thought>", thought_begin), add("</thought>", thought_end);
  add("<summary>", summary_begin), add("</summary>", summary_end);
  add("<|begin_of_summary|>", summary_begin), add("<|end_of_summary|>", summary_end);
  for (const std::string& text : delimiters) {
    if (!add(text, delimiter)) fail("the delimiter ", shown(text), " is not a token of this model");
  }
  return classes;
}

}  // namespace decode
