// SPDX-License-Identifier: Apache-2.0
// Questions in the forms in which people ask them: facts that were invented stand in a passage of a novel, and one of
// them is asked for, in messages as the model's own template writes them. A model without a template reads plain text.
//
// A form is named by what differs from `plain`, with + between:
//
//   plain        the model's own system message, the document, one natural question behind it
//   no_system    no system message
//   long_system  one of some 50 tokens
//   behind40     some 40 tokens of instructions behind the question
//   behind100    some 100
//   before       the question before the document
//   both         before it and behind it
//   paraphrase   the question has no content word of the sentence that answers it
//   two          two sentences beside each other say what one says in `plain`; both are needed
//   table, json  rows of a table, fields of an object
//   keys         magic numbers of four cities, as the task of that name
//   notes        nine notes with summaries, which are thoughts for a policy; each has a fact, its summary its name
//   primed       the answer is begun
//   later        another question is asked and answered first
//   nothing      nothing of the document is needed; for learning
//
// The same passage and question are there in every form, so that forms can be compared in pairs.
#pragma once

#include <zoomr/core/token_range.hpp>

#include <cstdint>      // std::uint64_t
#include <filesystem>   // std::filesystem::path
#include <optional>     // std::optional
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "../../decode/chat.hpp"
#include "../../decode/tokenizer.hpp"
#include "form_documents.hpp"

namespace decode::retrieval {

using zoomr::index_t;

struct form {
  enum class system_message { own, none, extended };
  enum class question_place { behind, before, both };
  using material = form_material;

  std::string name = "plain";
  system_message system = system_message::own;
  index_t instructions = 0;  // behind the question: 0, some 40 or some 100 tokens
  question_place place = question_place::behind;
  material source = material::sentences;
  bool paraphrase = false;
  bool primed = false;
  bool later = false;
  bool nothing = false;
};

/// @throws input_error  a part that is unknown, is named again, or excludes another one
form form_named(const std::string& spec);

/// What the parts of a form are called.
std::vector<std::string> names_of_forms();

/// One question, and all that comes before its answer.
struct form_problem {
  std::vector<token_id> prompt;       // the first one, up to where an answer is written
  std::vector<token_id> said, turn;   // `later`: the first answer, and the later prompt behind it
  std::vector<std::string> answers;   // any of them is right
  std::vector<index_t> evidence;      // a position in each sentence or row that is needed; all of them are
  zoomr::token_range question;        // positions of its text, where it is asked last
  zoomr::token_range copy = {};       // of the same before the document, where it stands on both sides
  std::vector<message_range> ranges;  // positions of the messages; the last is the answer's. A plain text has none
  std::string reply;                  // how a right answer begins, up to answers.front(), as far as it is not begun

  /// `prompt`, `said` and `turn`.
  std::vector<token_id> tokens() const;
};

/// Does a text have an answer, as a word or words of it, whatever the case of their letters?
bool is_answered(std::string_view text, const std::vector<std::string>& answers);

class form_maker {
 public:
  /// @param directory  of the checkpoint, for its template
  /// @param words      must outlive this
  /// @param texts, as  of `document_writer`
  /// @throws input_error  a template that is unknown, a text without enough sentences, a mark that is no token
  form_maker(const std::filesystem::path& directory, const tokenizer& words, const std::vector<std::string>& texts,
             const std::vector<std::string>& as = {});

  /// A document can be asked about so often: each question is about another of its facts.
  static constexpr index_t questions = 4;

  /// @param tokens  of the document, about
  /// @param seed    the same gives the same document
  /// @param asked   in [0, questions)
  /// @throws input_error  too few tokens; notes without marks
  form_problem make(const form& as, fact_half half, index_t tokens, std::uint64_t seed, index_t asked = 0) const;

  /// What ends an answer, where a template says so.
  std::optional<token_id> end_of_turn() const;

 private:
  struct request;

  index_t token_at(std::string_view text, std::size_t byte, bool begins) const;
  chat_passage begin(const form& as, fact_half half, const std::string& content) const;
  chat_passage next(const std::string& content) const;

  const tokenizer& words_;
  document_writer documents_;
  std::optional<chat_template> chat_;  // none: plain text
};

}  // namespace decode::retrieval
