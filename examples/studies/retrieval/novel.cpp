// SPDX-License-Identifier: Apache-2.0
#include "novel.hpp"

#include <algorithm>    // std::any_of
#include <array>        // std::array
#include <sstream>      // std::istringstream
#include <string_view>  // std::string_view

namespace decode::retrieval {
namespace {

constexpr std::size_t shortest_paragraph = 20;  // bytes; shorter ones are headings and rows of stars

bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }

// What stands between the lines that Project Gutenberg writes, or all.
std::string_view own_text(std::string_view text) {
  const std::size_t begin = text.find("*** START OF"), end = text.find("*** END OF");
  if (end != text.npos) text = text.substr(0, end);
  if (begin < end) text.remove_prefix(std::min(text.find('\n', begin), text.size()));
  return text;
}

// Bytes of a quotation mark that opens or closes, at the beginning of a text; 0: there is none.
std::size_t quote_bytes(std::string_view text, bool opens) {
  constexpr std::array<std::string_view, 3> opening = {"\"", "\u201c", "\u2018"};
  constexpr std::array<std::string_view, 3> closing = {"\"", "\u201d", "\u2019"};
  for (const std::string_view mark : opens ? opening : closing) {
    if (text.starts_with(mark)) return mark.size();
  }
  return 0;
}

// A sentence ends with a mark, maybe a quotation mark, and a blank before a capital letter.
void add_paragraph(const std::string& text, std::vector<novel_sentence>& to) {
  if (text.size() < shortest_paragraph || text.starts_with("CHAPTER") || text.starts_with("BOOK")) return;
  if (!std::any_of(text.begin(), text.end(), is_lower)) return;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '.' && text[at] != '!' && text[at] != '?') continue;
    const std::size_t end = at + 1 + quote_bytes(std::string_view(text).substr(at + 1), false);
    if (end + 1 >= text.size() || text[end] != ' ') continue;
    const std::string_view next = std::string_view(text).substr(end + 1);
    const std::size_t quote = quote_bytes(next, true);
    if (quote == next.size() || !is_upper(next[quote])) continue;
    to.push_back({text.substr(begin, end - begin), false});
    begin = end + 1;
  }
  to.push_back({text.substr(begin), true});
}

}  // namespace

std::vector<novel_sentence> sentences_of_novel(const std::string& text) {
  std::vector<novel_sentence> sentences;
  std::string paragraph;
  std::istringstream lines{std::string(own_text(text))};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    bool blank = true;
    for (std::string word; words >> word; blank = false) (paragraph += paragraph.empty() ? "" : " ") += word;
    if (!blank) continue;
    add_paragraph(paragraph, sentences);
    paragraph.clear();
  }
  add_paragraph(paragraph, sentences);
  return sentences;
}

}  // namespace decode::retrieval
