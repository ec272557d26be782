// SPDX-License-Identifier: Apache-2.0
// Running text of novels, paragraphs as they are.
#pragma once

#include <string>  // std::string
#include <vector>  // std::vector

namespace decode::retrieval {

/// A sentence of a paragraph, on one line.
struct novel_sentence {
  std::string text;
  bool ends_paragraph = false;
};

/// A novel's sentences, paragraph by paragraph, without headings and without what Project Gutenberg puts around it.
std::vector<novel_sentence> sentences_of_novel(const std::string& text);

}  // namespace decode::retrieval
