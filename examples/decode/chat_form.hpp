// SPDX-License-Identifier: Apache-2.0
// How a model writes messages: what stands around each. A checkpoint says it in `chat_template`, a program in Jinja.
// Nothing is interpreted here: a template is known if it has the expressions that write its messages, word for word,
// and any other one is refused.
//
//   ChatML     SmolLM2, Qwen2, Qwen2.5, Qwen3
//   Llama 3    3, 3.1, 3.2, 3.3
//   Gemma      1, 2, 3
//   Mistral    7B v0.1 to v0.3, Mixtral, Nemo
#pragma once

#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

namespace decode {

struct chat_form {
  struct around {
    std::string before, after;
  };
  enum class system_place {
    message,            // one of its own
    before_first_user,  // in the user's first message, with an empty line between
    before_last_user,   // moves with each message
    nowhere             // refused
  };

  std::string head;  // before all
  around system, user, assistant;
  std::string answer_begins;   // before an answer that is to be written
  bool trims = false;          // white space around contents
  bool trims_answers = false;  // around those of answers that are given
  system_place place = system_place::message;
  bool always_system = false;              // a message of the system without content, where none is given
  std::string default_system;              // where none is given; empty: nothing
  bool drops_thoughts = false;             // of answers that are given: up to </think>
  std::vector<std::string> marks;          // control tokens in these texts
  std::vector<std::string> marks_or_text;  // so in some vocabularies
};

struct chat_surroundings {
  std::string bos, eos;  // texts of tokens; empty: there is none
  std::string today;     // "29 Nov 2026"
};

/// @param text   a program in Jinja
/// @param where  what to call it in a complaint
/// @throws       input_error  it is unknown, or names a token that is not there
chat_form read_chat_form(std::string_view text, const chat_surroundings& around, const std::string& where);

}  // namespace decode
