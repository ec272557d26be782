// SPDX-License-Identifier: Apache-2.0
// Documents to be asked about: facts that were invented stand in a passage of a novel, or in notes with summaries.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>      // std::uint8_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "../../decode/tokenizer.hpp"
#include "draws.hpp"
#include "novel.hpp"
#include "problems.hpp"

namespace decode::retrieval {

/// What facts are told by.
enum class form_material : std::uint8_t { sentences, two_sentences, table, json, keys, notes };

/// Learning and measuring share no fact, no system message and no instruction. The order is that of `facts()`, by
/// turns.
enum class fact_half : std::uint8_t { learning, measuring };

/// A fact, or a number for a city.
struct told_fact {
  std::string sentence, question, paraphrase, first, second, key;
  std::vector<std::string> answers;
  std::string reply;  // up to the answer
};

struct form_document {
  std::string text;
  std::vector<std::vector<std::size_t>> evidence;  // [told]  the last byte of a word in each sentence that is needed
};

class document_writer {
 public:
  /// @param words  must outlive this
  /// @param texts  novels, in English
  /// @param as     four tokens that mark notes and their summaries; none: no notes are written
  /// @throws input_error  texts without enough sentences, a mark that is no token
  document_writer(const tokenizer& words, const std::vector<std::string>& texts, const std::vector<std::string>& as);

  /// What stands in a document; what is asked for comes first. The draws are the same for all materials but keys.
  static std::vector<told_fact> draw(form_material source, fact_half half, dice& random);

  /// A passage whose length does not depend on what is hidden in it, or nine notes of it, each with a fact.
  /// @param tokens  about
  /// @throws input_error  too few tokens; notes without marks
  form_document write(form_material source, const std::vector<told_fact>& told, index_t tokens, dice& random) const;

 private:
  struct passage {
    std::vector<const novel_sentence*> sentences;
    std::vector<index_t> ends;  // [sentences]  tokens up to there
  };

  index_t tokens_of(const novel_sentence& sentence) const;
  // Sentences that follow each other, without those that are too long, as many as fit.
  passage draw_passage(index_t room, index_t longest, dice& random) const;
  form_document write_notes(const std::vector<told_fact>& told, index_t tokens, dice& random) const;

  const tokenizer& words_;
  marks marks_;
  std::vector<novel_sentence> sentences_;
};

/// The parts of a text between its marks, empty ones too.
std::vector<std::string> split(std::string_view text, char mark);
/// ASCII letters in lower case.
std::string lower(std::string_view text);

}  // namespace decode::retrieval
