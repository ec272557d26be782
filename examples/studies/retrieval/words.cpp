// SPDX-License-Identifier: Apache-2.0
// RULER's extraction of common words: of a numbered list, which words appear most often?
#include "problems.hpp"

#include <algorithm>  // std::all_of, std::min
#include <set>        // std::set

#include "../../decode/input_error.hpp"

namespace decode::retrieval {
namespace {

constexpr std::size_t common = 10;      // words that are asked for
constexpr std::size_t most_times = 30;  // as RULER has it; fewer in a short prompt
constexpr std::size_t least_times = 8;
constexpr std::size_t rare_times = 3;  // of all others

}  // namespace

// Words of the texts with five to eight letters.
std::vector<std::string> problem_maker::long_words() const {
  std::set<std::string> all;
  for (const std::string& sentence : sentences_) {
    std::string word;
    for (const char c : sentence) {
      if (c >= 'a' && c <= 'z') {
        word += c;
        continue;
      }
      if (c == ' ' && word.size() >= 5 && word.size() <= 8) all.insert(word);
      word.clear();
    }
  }
  return {all.begin(), all.end()};
}

problem_maker::draft problem_maker::make_words(index_t tokens, dice& random) const {
  const std::vector<std::string> vocabulary = long_words();
  if (vocabulary.size() < 2 * common) {
    fail("words: the texts have ", vocabulary.size(), " words of five to eight letters, but ", 2 * common,
         " are needed");
  }
  const auto order = some_of(vocabulary.size(), vocabulary.size(), random);
  const auto word = [&](std::size_t i) -> const std::string& { return vocabulary[order[i]]; };
  const auto cost = [&](std::size_t i) { return tokens_of(" 100. " + word(i)); };
  index_t of_common = 0;
  for (std::size_t i = 0; i < common; ++i) of_common += cost(i);
  const index_t room = tokens - detail::around;
  const std::size_t times = std::min(most_times, static_cast<std::size_t>(room * 3 / 4 / of_common));
  if (times < least_times) fail("words: ", tokens, " tokens hold common words fewer than ", least_times, " times");

  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < common; ++i) list.insert(list.end(), times, i);
  index_t length = static_cast<index_t>(times) * of_common;
  for (std::size_t i = common; i < vocabulary.size(); ++i) {
    length += static_cast<index_t>(rare_times) * cost(i);
    if (length > room) break;
    list.insert(list.end(), rare_times, i);
  }
  draft text{
      "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones "
      "that appear most often.\n",
      "",
      {{"\nWhat are the 10 most common words in the above list?",
        "The top 10 words that appear most often in the list are:",
        {},
        {}}}};
  const auto places = some_of(list.size(), list.size(), random);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (i > 0) text.body += ' ';
    text.body += std::to_string(i + 1);
    text.body += ". ";
    text.body += word(list[places[i]]);
  }
  for (std::size_t i = 0; i < common; ++i) text.asked[0].answers.push_back(word(i));
  return text;
}

}  // namespace decode::retrieval
