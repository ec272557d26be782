// SPDX-License-Identifier: Apache-2.0
// Problems of which one sentence, or one note, of a long prompt says the answer.
//
//   needle  a novel's sentences; among them a number for one city, which is asked for (RULER, arXiv:2404.06654)
//   keys    the same with four cities, of which one is asked for
//   notes   notes of some sentences on buildings in cities, each with a code and a summary that does not say it
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>      // std::uint64_t
#include <filesystem>   // std::filesystem::path
#include <random>       // std::mt19937_64
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "../../decode/tokenizer.hpp"

namespace decode::retrieval {

using zoomr::index_t;

enum class task { needle, keys, notes };

/// @throws input_error  there is no such task
task task_named(std::string_view name);
const char* name_of(task of);

struct problem {
  task of = task::needle;
  index_t tokens = 0;            // about as many were asked for
  std::vector<token_id> prompt;  // it ends in the middle of the sentence that says the answer
  index_t evidence = 0;          // position of a token of what must be found
  std::string answer;            // digits
};

/// Tokens of the vocabulary, otherwise unused, that mark thoughts and their summaries; as tokenizer.json writes them.
struct marks {
  std::string thought_begin, thought_end, summary_begin, summary_end;
};

class problem_maker {
 public:
  /// @param texts  novels, in English: their plain sentences are what distracts
  /// @param as     four texts, if `notes` are to be made; otherwise none
  /// @throws input_error  a text without enough plain sentences, a mark that is no token
  problem_maker(const tokenizer& words, const std::vector<std::string>& texts, const std::vector<std::string>& as);

  /// @param seed  the same gives the same problem
  /// @throws input_error  `notes` without marks, or more notes than there are cities
  problem make(task of, index_t tokens, std::uint64_t seed) const;

  /// What the classes of tokens say of marks, on top of those of sentences.
  void mark(std::vector<zoomr::token_class>& classes) const;

 private:
  using dice = std::mt19937_64;

  void add_sentences(const std::filesystem::path& file);
  index_t tokens_of(std::string_view text) const;
  problem make_needles(index_t tokens, std::size_t count, dice& random) const;
  problem make_notes(index_t tokens, dice& random) const;
  // Puts the parts together. @param evidence  byte of `body` within what must be found
  problem finish(std::string_view head, std::string_view body, std::size_t evidence, std::string_view question,
                 std::string_view answer_begins) const;

  const tokenizer& words_;
  marks marks_;
  std::vector<std::string> sentences_;
  std::string turn_, reply_;  // what goes before the user's text, and between it and the model's
};

}  // namespace decode::retrieval
