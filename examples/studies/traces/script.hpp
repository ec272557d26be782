// SPDX-License-Identifier: Apache-2.0
// How a text comes to be, token by token: what the study writes for the model, and where the model writes itself. This
// is the engine's part of ZoomR's loop: it names each step, closes thoughts, asks for their summaries, and asks the
// questions.
//
//   <thought> Line 1: a = 5.
//   Line 2: b = a + 4. Here a is 5, so b = 5 + 4 = 9.
//   </thought> <summary> Lines 1 to 2 set a and b.
//   </summary>
//   <thought> ...
//
// Of a step the model writes all behind the first full stop, up to the end of the line; of a summary all behind the
// steps that it is of; of an answer the value. A part that gets too long ends there, and so does one in which the model
// writes a token of control.
#pragma once

#include <cstdint>   // std::uint8_t
#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

#include "../../decode/tokenizer.hpp"
#include "../retrieval/problems.hpp"
#include "trace_problem.hpp"

namespace decode::traces {

using retrieval::marks;
using retrieval::marks_of;

/// Most tokens of the model's own, in each part.
struct part_limits {
  index_t step = 64, summary = 24, answer = 6;
};

/// @throws input_error  --marks does not name four
void expect_four(const std::vector<std::string>& names);

/// The prompt: an example with its text, and the problem, in the turns of a chat where the model has such.
std::string prompt_of(const tokenizer& words, task kind, const trace_problem& asked, const marks& as);

class trace_script {
 public:
  enum class part : std::uint8_t { step, summary, answer };

  /// What has been written of one part.
  struct piece {
    part kind = part::step;
    index_t number = 0;     // of the step, the thought or the question
    std::string text;       // of the model's own, or what was given in its place
    index_t value_at = -1;  // of the last digit, among the script's tokens; -1: none
    index_t own_tokens = 0;
  };

  /// @param given  steps and summaries are not the model's: true ones are written for it
  trace_script(const tokenizer& words, const trace_problem& asked, const marks& as, part_limits most, bool given);

  bool done() const { return at_ == pieces_.size(); }
  /// The token that is written for the model next; nothing: it chooses.
  /// @pre  not done
  std::optional<token_id> forced() const;
  /// The next token of the text.
  /// @pre  not done
  void push(token_id id);
  /// The model ends its part without a token.
  void end_part();

  /// Tokens so far.
  const std::vector<token_id>& tokens() const { return tokens_; }
  /// So many at most, when it is done.
  index_t most_tokens() const;
  /// What the next token is part of; past the end when it is done.
  std::size_t current() const { return at_; }
  const std::vector<piece>& pieces() const { return pieces_; }
  /// The steps whose values the next token's part needs.
  const std::vector<index_t>& reads() const;
  /// Nothing of the first question is written yet, but all before it.
  bool at_questions() const {
    return !done() && pieces_[at_].kind == part::answer && pieces_[at_].number == 0 && !began_;
  }
  index_t value_at(index_t step) const;  // see piece
  /// The text of a step, an answer; empty if it is not there yet.
  const std::string& text_of(part kind, index_t number) const;

 private:
  struct plan {
    std::string said, given;  // given: in place of the model's own text
    index_t limit = 0;
  };

  void begin_part();
  void count(token_id id);

  const tokenizer& words_;
  const trace_problem& asked_;
  std::vector<plan> plans_;
  std::vector<piece> pieces_;
  std::size_t at_ = 0;
  bool began_ = false;           // a token of the part is written
  bool ends_line_ = true;        // the last token
  std::vector<token_id> ahead_;  // what is said of the part, last token first
  std::size_t said_ = 0;         // of them, those that are not in place of the model's own
  std::vector<token_id> tokens_;
};

}  // namespace decode::traces
