// SPDX-License-Identifier: Apache-2.0
#include "chat.hpp"

#include <cmath>     // std::round
#include <iostream>  // std::cerr, std::cin
#include <utility>   // std::move

#include <unistd.h>  // isatty

#include <nlohmann/json.hpp>

#include "input_error.hpp"
#include "json_file.hpp"
#include "utf8.hpp"

namespace decode {
namespace {

/// A message's text: a string, or a list of parts as chat APIs have it, each on lines of its own.
std::string content_of(const field& message) {
  const field content = message.at("content");
  if (!content.value().is_array()) return content.text();
  std::string joined;
  for (const field& part : content.elements()) {
    const std::string& type = part.at("type").text();
    if (type != "text") fail(part.where(), ".type is ", shown(type), "; known is text");
    if (!joined.empty()) joined += '\n';
    joined += part.at("text").text();
  }
  return joined;
}

}  // namespace

std::vector<std::vector<chat_message>> read_messages(const std::string& file, std::size_t most_bytes) {
  using enum chat_role;
  const json text = read_json(file);
  const bool listed = text.is_array();
  const field all(text, named(file) + ": ");
  const std::vector<field> list = listed ? all.elements() : all.at("messages").elements();
  std::vector<std::vector<chat_message>> passages;
  std::vector<chat_message> open;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string& name = list[i].at("role").text();
    const std::string content = content_of(list[i]);
    const std::string where = list[i].where() + ".role";
    if ((bytes += content.size()) > most_bytes)
      fail(named(file), ": the messages have more than ", most_bytes,
           " bytes, which is all that the model's context holds");
    const bool after_user = !open.empty() && open.back().role == user;
    if (name == "user") {
      if (after_user) passages.push_back(std::exchange(open, {}));
      open.push_back({user, content});
    } else if (name == "assistant") {
      if (!after_user) fail(where, " is assistant, but no message of the user comes before it");
      open.push_back({assistant, content});
    } else if (name == "system") {
      if (i > 0) fail(where, " is system, which only the first message may be");
      open.push_back({system, content});
    } else {
      fail(where, " is ", shown(name), "; known are system, user and assistant");
    }
  }
  if (open.empty()) fail(named(file), ": there is no message");
  if (open.back().role != user) fail(named(file), ": the last message must be the user's, to be answered");
  passages.push_back(std::move(open));
  return passages;
}

typed_messages::typed_messages(std::size_t most_bytes)
    : most_bytes_(most_bytes), on_terminal_(isatty(STDIN_FILENO) != 0) {}

std::optional<std::string> typed_messages::next() {
  while (std::cin) {
    if (on_terminal_) std::cerr << "> " << std::flush;
    std::string line;
    char c = 0;
    while (std::cin.get(c) && c != '\n') {
      if (line.size() == most_bytes_)
        fail("the message has more than ", most_bytes_, " bytes, which is all that the model's context holds");
      line += c;
    }
    if (line.ends_with('\r')) line.pop_back();
    drop_byte_order_mark(line);
    if (!line.empty()) return line;
  }
  if (on_terminal_) std::cerr << '\n';
  return std::nullopt;
}

void transcript::add(const chat_passage& passed, std::size_t at) {
  if (!ranges_.empty()) ranges_.back().end += passed.closing;
  for (const chat_message& said : passed.messages) {
    messages_.push_back(said);
    cut_.push_back(false), attended_.push_back(0);
  }
  for (const message_range& range : passed.ranges) ranges_.push_back({range.role, at + range.begin, at + range.end});
}

void transcript::add_answer(const std::string& text, std::size_t tokens, bool cut, double attended) {
  messages_.push_back({chat_role::assistant, text});
  cut_.push_back(cut), attended_.push_back(attended);
  ranges_.back().end += tokens;
}

nlohmann::ordered_json transcript::to_json() const {
  auto list = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    list.push_back({{"role", name_of(messages_[i].role)},
                    {"content", messages_[i].content},
                    {"tokens", {ranges_[i].begin, ranges_[i].end}}});
    if (cut_[i]) list.back()["cut"] = true;
    if (attended_[i] > 0) list.back()["attended"] = std::round(10 * attended_[i]) / 10;
  }
  return list;
}

}  // namespace decode
