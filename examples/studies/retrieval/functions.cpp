// SPDX-License-Identifier: Apache-2.0
#include "functions.hpp"

#include <algorithm>  // std::min
#include <utility>    // std::move

namespace decode::retrieval {
namespace {

constexpr std::string_view indents = " \t\r\f";

/// The first byte behind a string, or behind a comment's text, that begins at `at`; at + 1 behind any other byte.
std::size_t past(std::string_view text, std::size_t at) {
  const char first = text[at];
  if (first == '#') return std::min(text.find('\n', at), text.size());
  if (first != '"' && first != '\'') return at + 1;
  const bool triple = text.substr(at, 3) == std::string(3, first);
  const std::string_view quotes = triple ? text.substr(at, 3) : text.substr(at, 1);
  for (at += quotes.size(); at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text.substr(at, quotes.size()) == quotes) {
      return at + quotes.size();
    } else if (text[at] == '\n' && !triple) {
      return at;
    }
  }
  return text.size();
}

/// Keeps count of brackets: +1 for one that opens, -1 for one that closes.
int bracket(char c) {
  if (std::string_view("([{").find(c) != std::string_view::npos) return 1;
  return std::string_view(")]}").find(c) != std::string_view::npos ? -1 : 0;
}

/// The end of the logical line that begins at `at`, behind its line feed: strings and brackets go on.
std::size_t line_end(std::string_view source, std::size_t at) {
  int depth = 0;
  while (at < source.size()) {
    const char c = source[at];
    depth += bracket(c);
    const bool continued = c == '\\' && at + 1 < source.size() && source[at + 1] == '\n';
    at = continued ? at + 2 : past(source, at);
    if (c == '\n' && depth <= 0) break;
  }
  return at;
}

struct line {
  std::size_t begin = 0, first = 0, end = 0;  // first: byte that is no blank

  std::size_t indentation() const { return first - begin; }
  bool empty(std::string_view source) const { return source[first] == '\n' || source[first] == '#'; }
};

line line_at(std::string_view source, std::size_t begin) {
  const std::size_t first = std::min(source.find_first_not_of(indents, begin), source.size() - 1);
  return {begin, first, line_end(source, begin)};
}

/// Where the name of a function stands that a line defines; npos: it defines none.
std::size_t name_in(std::string_view source, const line& head) {
  for (const std::string_view keyword : {"def ", "async def "}) {
    if (source.substr(head.first).starts_with(keyword)) return head.first + keyword.size();
  }
  return std::string_view::npos;
}

/// Reads the parameters of a signature from behind its opening parenthesis on.
/// @return  the place of the closing one; npos: there is none
std::size_t read_parameters(std::string_view text, std::size_t at, std::vector<parameter>& found) {
  constexpr std::string_view name_bytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  bool expected = true;    // a parameter, behind a comma
  bool in_lambda = false;  // before its colon, where commas are between parameters of its own
  for (int depth = 1; at < text.size();) {
    const char c = text[at];
    depth += bracket(c);
    if (depth == 0) return at;
    if (depth == 1 && text.substr(at).starts_with("lambda ")) in_lambda = true;
    if (depth == 1 && c == ':') in_lambda = false;
    if (depth == 1 && c == ',' && !in_lambda) {
      expected = true;
    } else if (depth == 1 && c == '/' && expected) {
      found.clear();
    } else if (expected && name_bytes.find(c) != std::string_view::npos) {
      const std::size_t end = std::min(text.find_first_not_of(name_bytes, at), text.size());
      const std::string name(text.substr(at, end - at));
      if (name != "self" && name != "cls") found.push_back({name, end});
      expected = false, at = end;
      continue;
    } else if (c == '*') {
      expected = false;
    }
    at = past(text, at);
  }
  return std::string_view::npos;
}

/// Lines without so much of their indentation as they have.
std::string without_indentation(std::string_view text, std::size_t width) {
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    const std::size_t first = std::min(text.find_first_not_of(indents, begin), end);
    out += text.substr(begin + std::min(width, first - begin), end - begin - std::min(width, first - begin));
    begin = end;
  }
  return out;
}

}  // namespace

std::vector<function> functions_in(std::string_view source) {
  std::vector<function> found;
  std::size_t decorated = std::string_view::npos;
  for (std::size_t at = 0; at < source.size();) {
    const line head = line_at(source, at);
    at = head.end;
    const std::size_t name = name_in(source, head);
    if (name == std::string_view::npos) {
      const bool decorator = source[head.first] == '@';
      if (!decorator && !head.empty(source)) decorated = std::string_view::npos;
      if (decorator && decorated == std::string_view::npos) decorated = head.begin;
      continue;
    }
    const std::size_t begin = std::min(decorated, head.begin);
    decorated = std::string_view::npos;
    std::size_t last = head.end;  // of the function
    while (at < source.size()) {
      const line next = line_at(source, at);
      if (!next.empty(source) && next.indentation() <= head.indentation()) break;
      at = next.end;
      if (!next.empty(source) || next.indentation() > head.indentation()) last = next.end;
    }
    function item;
    item.text = without_indentation(source.substr(begin, last - begin), head.indentation());
    while (!item.text.empty() && (item.text.back() == '\n' || item.text.back() == ' ')) item.text.pop_back();
    item.name = std::string(source.substr(name, source.find_first_of("([ \n", name) - name));
    const std::size_t signature = item.text.find("def " + item.name + "(");
    if (signature == std::string::npos) continue;
    const std::size_t inside = signature + item.name.size() + 5;
    if (read_parameters(item.text, inside, item.parameters) != std::string::npos) found.push_back(std::move(item));
  }
  return found;
}

}  // namespace decode::retrieval
