// SPDX-License-Identifier: Apache-2.0
// The messages of a chat: from a file, or typed one after the other. What was passed of them is kept.
#pragma once

#include <cstddef>   // std::size_t
#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

#include <nlohmann/json_fwd.hpp>

#include "chat_template.hpp"

namespace decode {

/// Messages up to the one that is to be answered, each time.
///
/// A file is what chat APIs take: a list of objects with `role` and `content`, or an object with such a list by the
/// name `messages`. One message of the system may come first. A message of the user that one of the assistant follows
/// has its answer already.
/// @param most_bytes  of all contents
/// @throws            input_error
std::vector<std::vector<chat_message>> read_messages(const std::string& file, std::size_t most_bytes);

/// Standard input, a message a line; empty lines are none. On a terminal with a sign before each.
class typed_messages {
 public:
  /// @param most_bytes  of one message
  explicit typed_messages(std::size_t most_bytes);

  bool on_terminal() const { return on_terminal_; }
  /// The next message; none at the end of the input.
  /// @throws input_error  it is too long
  std::optional<std::string> next();

 private:
  std::size_t most_bytes_;
  bool on_terminal_;
};

/// What was passed of a chat.
class transcript {
 public:
  /// @param at  tokens that were passed before it
  void add(const chat_passage& passed, std::size_t at);
  /// The answer to what was added last.
  /// @param tokens    that were passed
  /// @param cut       it is not ended
  /// @param attended  tokens that one of them attended, their mean; 0: it is not known
  void add_answer(const std::string& text, std::size_t tokens, bool cut, double attended = 0);

  /// By their positions in the sequence. The last one is the answer's, also before it is added.
  const std::vector<message_range>& ranges() const { return ranges_; }

  /// A list that is a file of messages too.
  nlohmann::ordered_json to_json() const;

 private:
  std::vector<chat_message> messages_;
  std::vector<message_range> ranges_;
  std::vector<bool> cut_;         // [messages]
  std::vector<double> attended_;  // [messages]
};

}  // namespace decode
