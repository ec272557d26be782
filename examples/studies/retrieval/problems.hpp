// SPDX-License-Identifier: Apache-2.0
// Problems whose answers stand in single sentences, or notes, of a long prompt. Those after RULER (arXiv:2404.06654)
// hide them among a novel's sentences.
//
//   needle      a number for one city, which is asked for
//   keys        the same with four cities, of which one is asked for
//   values      four numbers for one city, all asked for
//   queries     a number for each of eight cities, of which two to four are asked for
//   tracking    a variable has a value, and four others have that of the one before; all five are asked for
//   words       a numbered list of words, of which ten appear more often; no novel, and no sentence says the answer
//   repeated    nothing is hidden or asked: the text comes back to a sentence of its own, and goes on
//   calls       functions of Python's, no novel: one that is defined far above is called, with its parameters by name
//
// Notes are some of a novel's sentences on a building in a city, with a code and a summary that does not say it:
//
//   notes       the code of one note is asked for
//   paraphrase  the same, in words that the note does not have: its city is "the capital of" a country
//   chain       the asked note says that its code is that of another building, whose note says the code
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>      // std::uint64_t
#include <filesystem>   // std::filesystem::path
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "../../decode/tokenizer.hpp"
#include "draws.hpp"
#include "functions.hpp"

namespace decode::retrieval {

using zoomr::index_t;

enum class task { needle, keys, notes, values, queries, tracking, words, paraphrase, chain, repeated, calls };

/// @throws input_error  there is no such task
task task_named(std::string_view name);
const char* name_of(task kind);

/// Is the prompt made of notes, with marks?
constexpr bool has_notes(task kind) { return kind == task::notes || kind == task::paraphrase || kind == task::chain; }

/// Are the answers written in one order, so that it is known which is next?
constexpr bool in_order(task kind) { return kind != task::values && kind != task::tracking && kind != task::words; }

/// Tokens in which a model has room for the answers.
index_t answer_tokens(task kind);

/// How large a problem is: about so many tokens, or exactly so many notes.
struct problem_size {
  index_t tokens = 0;
  index_t notes = 0;  // 0: tokens count

  index_t number() const { return notes > 0 ? notes : tokens; }
};

struct problem {
  task kind = task::needle;
  std::vector<token_id> prompt;      // it ends in the middle of the sentence that says the answer
  std::vector<std::string> answers;  // texts that must be written, in this order where the task has one
  std::vector<token_id> goes_on;     // is written for the model as soon as it has written the first answer
  std::vector<index_t> evidence;     // [answers] position of a token of what says it; empty: the whole prompt does

  /// What is asked for behind the answer, about other parts of the same text. Their prompts are later ones, whose first
  /// token ends the answer before; evidence stands in the first prompt.
  std::vector<problem> later;
};

/// Questions that are asked about one text, one after the other.
struct question_plan {
  index_t number = 1;
  index_t first = 0;  // the place of the one that is asked first among those of a text; then they go round
};

/// Tokens of the vocabulary, otherwise unused, that mark thoughts and their summaries; as tokenizer.json writes them.
struct marks {
  std::string thought_begin, thought_end, summary_begin, summary_end;
};

/// @throws input_error  other names than four, or one that is no token
marks marks_of(const tokenizer& words, const std::vector<std::string>& names);

/// What stands around the texts of a conversation, by the tokens that a model has for that.
struct turn_texts {
  std::string user, end, model;  // before the user's text, behind a text, before the model's
};
turn_texts turns_of(const tokenizer& words);

class problem_maker {
 public:
  /// @param texts  novels, in English: their plain sentences are what distracts; those named .py have functions
  /// @param as     four texts, if there are to be notes; otherwise none
  /// @throws input_error  a text without enough plain sentences, a mark that is no token
  problem_maker(const tokenizer& words, const std::vector<std::string>& texts, const std::vector<std::string>& as);

  /// @param seed       the same gives the same problem
  /// @param questions  first < number; with the same number the same questions are asked about the same text
  /// @throws input_error  notes without marks, more of them than there are places, too few tokens, more questions than
  ///                      the task has something to ask for
  problem make(task kind, problem_size size, std::uint64_t seed, question_plan questions = {}) const;

  /// What the classes of tokens say of marks, on top of those of sentences.
  void mark(std::vector<zoomr::token_class>& classes) const;

 private:
  /// What is asked for, before it is cut into tokens.
  struct inquiry {
    std::string text, reply;  // reply: how the answer begins
    std::vector<std::string> answers;
    std::vector<std::size_t> evidence;  // bytes of the body within what says each answer
    std::string goes_on = {};
  };
  struct draft {
    std::string head, body;
    std::vector<inquiry> asked;  // one after the other
    bool plain = false;          // text alone: no turns of user and model around it
  };
  struct note;
  /// Numbers that are hidden in a text.
  struct numbers {
    std::string text;
    std::vector<std::string> values;
    std::vector<std::size_t> inside;  // a byte of each
  };

  void add_sentences(const std::filesystem::path& file);
  void expect_sentences() const;
  index_t tokens_of(std::string_view text) const;

  // needles.cpp
  draft make_needles(index_t tokens, std::size_t count, index_t questions, dice& random) const;
  draft make_values(index_t tokens, dice& random) const;
  draft make_queries(index_t tokens, dice& random) const;
  draft make_tracking(index_t tokens, dice& random) const;
  draft make_repeated(index_t tokens, dice& random) const;
  numbers hide_numbers(const std::vector<std::string>& for_cities, index_t tokens, dice& random) const;
  std::vector<std::string> passage(index_t tokens, dice& random) const;

  // calls.cpp
  void add_functions(const std::filesystem::path& file);
  draft make_calls(index_t tokens, dice& random) const;

  // words.cpp
  draft make_words(index_t tokens, dice& random) const;
  std::vector<std::string> long_words() const;

  // notes.cpp
  draft make_notes(task kind, problem_size size, index_t questions, dice& random) const;
  std::vector<note> draw_notes(task kind, problem_size size, dice& random) const;
  std::string written(const note& one, std::size_t& evidence) const;

  problem finish(draft text, task kind, index_t first) const;

  const tokenizer& words_;
  marks marks_;
  std::vector<std::string> sentences_;
  std::vector<function> functions_;
  turn_texts turns_;
};

namespace detail {
inline constexpr index_t around = 120;  // tokens of what is said before and behind the sentences, at most
}

}  // namespace decode::retrieval
