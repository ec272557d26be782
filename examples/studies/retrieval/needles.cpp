// SPDX-License-Identifier: Apache-2.0
// Sentences that are hidden among those of a novel: needle, keys, values, queries, tracking. Or said twice: repeated.
#include "problems.hpp"

#include <algorithm>  // std::min, std::sort
#include <utility>    // std::move

#include "../../decode/input_error.hpp"
#include "places.hpp"

namespace decode::retrieval {
namespace {

constexpr std::size_t margin = 4;  // sentences at the end, which every policy's window may hold

std::string number_sentence(const std::string& city, const std::string& number) {
  return "One of the special magic numbers for " + city + " is: " + number + ".";
}

/// A passage with sentences hidden in it.
struct haystack {
  std::string text;
  std::vector<std::size_t> inside;  // a byte of each hidden sentence
};

/// @param hidden  in this order; sentence i has its answer around the byte `from_end` before its end
haystack hide(const std::vector<std::string>& body, const std::vector<std::string>& hidden, std::size_t from_end,
              dice& random) {
  std::vector<std::size_t> places = some_of(body.size() - margin, hidden.size(), random);  // before which sentence
  std::sort(places.begin(), places.end());
  haystack hay;
  std::size_t next = 0;
  for (std::size_t s = 0; s < body.size(); ++s) {
    for (; next < hidden.size() && places[next] == s; ++next) {
      hay.inside.push_back(hay.text.size() + hidden[next].size() - from_end);
      hay.text += hidden[next] + ' ';
    }
    hay.text += body[s] + ' ';
  }
  hay.text.pop_back();
  return hay;
}

void expect_room(const std::vector<std::string>& body, std::size_t hidden, index_t tokens) {
  if (body.size() < 2 * margin + hidden) fail("a problem of ", tokens, " tokens holds too few sentences; ask for more");
}

std::vector<std::string> some_cities(std::size_t count, dice& random) {
  std::vector<std::string> names;
  for (const std::size_t city : some_of(cities.size(), count, random)) names.emplace_back(cities[city]);
  return names;
}

constexpr std::size_t in_number = 12;  // bytes from the end of such a sentence

constexpr const char* one_hidden =
    "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about the "
    "number afterwards.\n";
constexpr const char* some_hidden =
    "Some special magic numbers are hidden within the following text. Make sure to memorize it. I will quiz you about "
    "the numbers afterwards.\n";

}  // namespace

// Sentences that follow each other, as many as fit.
std::vector<std::string> problem_maker::passage(index_t tokens, dice& random) const {
  std::vector<std::string> body;
  index_t length = detail::around;
  for (std::size_t at = below(sentences_.size(), random);; at = (at + 1) % sentences_.size()) {
    length += tokens_of(" " + sentences_[at]);
    if (length > tokens) return body;
    body.push_back(sentences_[at]);
  }
}

// A number for each of these cities, among such sentences.
problem_maker::numbers problem_maker::hide_numbers(const std::vector<std::string>& for_cities, index_t tokens,
                                                   dice& random) const {
  const std::vector<std::string> body = passage(tokens, random);
  numbers hidden;
  std::vector<std::string> needles;
  for (const std::string& city : for_cities) {
    hidden.values.push_back(digits(7, random));
    needles.push_back(number_sentence(city, hidden.values.back()));
  }
  expect_room(body, needles.size(), tokens);
  haystack hay = hide(body, needles, in_number, random);
  hidden.text = std::move(hay.text), hidden.inside = std::move(hay.inside);
  return hidden;
}

problem_maker::draft problem_maker::make_needles(index_t tokens, std::size_t count, index_t questions,
                                                 dice& random) const {
  const std::vector<std::string> names = some_cities(count, random);
  numbers hidden = hide_numbers(names, tokens, random);
  draft text{one_hidden, std::move(hidden.text), {}};
  for (const std::size_t asked : begun_with(below(count, random), count, static_cast<std::size_t>(questions), random)) {
    const std::string what = "special magic number for " + names[asked] + " mentioned in the provided text";
    text.asked.push_back(
        {"\nWhat is the " + what + "?", "The " + what + " is", {hidden.values[asked]}, {hidden.inside[asked]}});
  }
  return text;
}

problem_maker::draft problem_maker::make_values(index_t tokens, dice& random) const {
  constexpr std::size_t count = 4;
  const std::string city = cities[below(cities.size(), random)];
  numbers hidden = hide_numbers(std::vector<std::string>(count, city), tokens, random);
  const std::string what = "special magic numbers for " + city + " mentioned in the provided text";
  return {some_hidden,
          std::move(hidden.text),
          {{"\nWhat are all the " + what + "?", "The " + what + " are", hidden.values, hidden.inside}}};
}

problem_maker::draft problem_maker::make_queries(index_t tokens, dice& random) const {
  constexpr std::size_t count = 8;
  const std::vector<std::string> names = some_cities(count, random);
  numbers hidden = hide_numbers(names, tokens, random);
  const auto asked = some_of(count, 2 + below(3, random), random);
  inquiry question;
  std::string list;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const bool last = i + 1 == asked.size();
    list += i == 0 ? "" : asked.size() == 2 ? " and " : last ? ", and " : ", ";
    list += names[asked[i]];
    question.answers.push_back(hidden.values[asked[i]]), question.evidence.push_back(hidden.inside[asked[i]]);
  }
  const std::string what = "special magic numbers for " + list + " mentioned in the provided text";
  question.text = "\nWhat are all the " + what + "?", question.reply = "The " + what + " are";
  return {some_hidden, std::move(hidden.text), {std::move(question)}};
}

// RULER's variable tracking: one chain of four hops.
problem_maker::draft problem_maker::make_tracking(index_t tokens, dice& random) const {
  constexpr std::size_t hops = 4;
  const std::string value = digits(5, random);
  const std::vector<std::string> body = passage(tokens, random);
  std::vector<std::string> names, statements;
  while (names.size() <= hops) {
    std::string name;
    while (name.size() < 5) name += static_cast<char>('A' + below(26, random));
    statements.push_back("VAR " + name + " = " + (names.empty() ? value : "VAR " + names.back()) + ".");
    names.push_back(name);
  }
  expect_room(body, names.size(), tokens);
  haystack hay = hide(body, statements, 3, random);
  return {"Memorize and track the chain of variable assignment hidden in the following text.\n",
          std::move(hay.text),
          {{"\nFind all variables that are assigned the value " + value + " in the text above.",
            "According to the chain of variable assignment in the text above, 5 variables are assigned the value " +
                value + ", they are:",
            names, hay.inside}}};
}

// A passage, then a half of one of its sentences once more. What follows stands there already.
problem_maker::draft problem_maker::make_repeated(index_t tokens, dice& random) const {
  const std::vector<std::string> body = passage(tokens, random);
  expect_room(body, 1, tokens);
  const std::size_t again = below(body.size() - margin, random);
  const std::string& said = body[again];
  const std::size_t half = std::min(said.find(' ', said.size() / 2), said.size() - 2);
  draft text{"", "", {{said.substr(0, half), "", {said.substr(half + 1)}, {}}}, true};
  for (std::size_t s = 0; s < body.size(); ++s) {
    if (s == again) text.asked[0].evidence = {text.body.size() + said.size() - 2};
    text.body += body[s] + ' ';
  }
  return text;
}

}  // namespace decode::retrieval
