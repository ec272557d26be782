// SPDX-License-Identifier: Apache-2.0
// Messages as tokens, in the form that a model has learnt to read.
#pragma once

#include <cstddef>      // std::size_t
#include <filesystem>   // std::filesystem::path
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

#include "chat_form.hpp"
#include "tokenizer.hpp"

namespace decode {

enum class chat_role { system, user, assistant };

/// As chat APIs name it.
std::string_view name_of(chat_role role);

struct chat_message {
  chat_role role;
  std::string content;
};

/// The tokens of a message, with what the template puts around it.
struct message_range {
  chat_role role;
  std::size_t begin, end;
};

/// Tokens of a passage.
struct passage_range {
  std::size_t begin = 0, end = 0;
};

/// What is passed at once: messages, and where an answer begins.
struct chat_passage {
  std::string text;
  std::vector<token_id> ids;
  std::size_t closing = 0;             // tokens that end the answer before it
  std::vector<chat_message> messages;  // the template's own one of the system among them
  std::vector<message_range> ranges;   // [messages + 1]  in `ids`; the last is the answer's, as far as it is given
  passage_range question;              // the last paragraph of the user's last message
};

class chat_template {
 public:
  /// Of a checkpoint: chat_template.jinja, or `chat_template` of tokenizer_config.json.
  /// @param words  must outlive this
  /// @param today  "29 Nov 2026", for templates that say it
  /// @param in_contents  control tokens that a content may have, as the marks of thoughts
  /// @throws       input_error  there is none, it is unknown, or its marks are no control tokens of the tokenizer
  chat_template(const std::filesystem::path& directory, const tokenizer& words, const std::string& today,
                const std::vector<std::string>& in_contents = {});

  /// Whether a checkpoint has one, known or not.
  /// @throws input_error  a file that cannot be read
  static bool is_named(const std::filesystem::path& directory);

  /// The beginning of a chat. What reads like a control token in a content is text, but for those that it may
  /// have.
  /// @param messages  one of the system or none, one of the user; then answers and messages of the user by turns
  /// @param most      tokens beyond which encoding may end
  /// @throws          input_error  the template takes no message of the system, or a content is no text of this
  ///                               tokenizer
  chat_passage begin(std::span<const chat_message> messages, std::size_t most) const;
  /// What comes after an answer, whose end it begins with.
  /// @param messages  one of the user; then answers and messages of the user by turns
  chat_passage next(std::span<const chat_message> messages, std::size_t most) const;

  /// Ends an answer.
  token_id end_of_turn() const { return end_of_turn_; }
  const chat_form& form() const { return form_; }

 private:
  chat_passage passage(std::span<const chat_message> messages, bool begins, std::size_t most) const;

  const tokenizer& words_;
  chat_form form_;
  std::vector<std::string> marks_, in_contents_;
  token_id end_of_turn_ = 0;
};

}  // namespace decode
