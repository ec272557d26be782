// SPDX-License-Identifier: Apache-2.0
#include "problems.hpp"

#include <algorithm>  // std::find, std::min, std::replace, std::shuffle, std::sort
#include <array>      // std::array
#include <numeric>    // std::iota

#include "../../decode/input_error.hpp"

namespace decode::retrieval {
namespace {

constexpr std::array task_names = {"needle", "keys", "notes"};
constexpr std::array cities = {"Oslo",   "Lima",   "Kyoto",  "Cairo",  "Paris",  "Delhi",  "Quito",  "Bern",
                               "Dublin", "Havana", "Lisbon", "Athens", "Riga",   "Tunis",  "Sofia",  "Malta",
                               "Boston", "Denver", "Austin", "Hanoi",  "Perth",  "Milan",  "Turin",  "Seoul",
                               "Dakar",  "Accra",  "Baku",   "Minsk",  "Vienna", "Prague", "Madrid", "Rome"};
constexpr std::array buildings = {"museum",   "harbor", "library", "station", "bakery", "school",  "garden", "theater",
                                  "hospital", "market", "bank",    "hotel",   "tower",  "factory", "temple", "stadium"};
constexpr index_t around = 120;  // tokens of what is said before and behind the sentences, at most

// In [0, end), the same on every machine.
std::size_t below(std::size_t end, std::mt19937_64& random) { return static_cast<std::size_t>(random() % end); }

std::vector<std::size_t> some_of(std::size_t all, std::size_t count, std::mt19937_64& random) {
  std::vector<std::size_t> ids(all);
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(ids[i], ids[i + below(all - i, random)]);
  ids.resize(count);
  return ids;
}

std::string digits(std::size_t count, std::mt19937_64& random) {
  std::string made(1, static_cast<char>('1' + below(9, random)));
  while (made.size() < count) made += static_cast<char>('0' + below(10, random));
  return made;
}

}  // namespace

task task_named(std::string_view name) {
  for (std::size_t i = 0; i < task_names.size(); ++i) {
    if (name == task_names[i]) return static_cast<task>(i);
  }
  fail("there is no task ", shown(name), "; known are needle, keys, notes");
}
const char* name_of(task of) { return task_names[static_cast<std::size_t>(of)]; }

problem_maker::problem_maker(const tokenizer& words, const std::vector<std::string>& texts,
                             const std::vector<std::string>& as)
    : words_(words) {
  for (const std::string& text : texts) add_sentences(text);
  if (sentences_.size() < 400) fail("the texts have ", sentences_.size(), " plain sentences, but 400 are needed");
  if (!as.empty()) {
    if (as.size() != 4) fail("--marks: four tokens are needed, but ", as.size(), " are named");
    for (const std::string& mark : as) {
      if (!words.id_of(mark)) fail("--marks: ", shown(mark), " is no token of this model");
    }
    marks_ = {as[0], as[1], as[2], as[3]};
  }
  if (words.id_of("<|im_start|>")) {
    turn_ = "<|im_start|>user\n", reply_ = "<|im_end|>\n<|im_start|>assistant\n";
  } else if (words.id_of("<start_of_turn>")) {
    turn_ = "<start_of_turn>user\n", reply_ = "<end_of_turn>\n<start_of_turn>model\n";
  } else {
    reply_ = "\n";
  }
}

void problem_maker::mark(std::vector<zoomr::token_class>& classes) const {
  using enum zoomr::token_class;
  const auto set = [&](const std::string& of, zoomr::token_class as) {
    if (!of.empty()) classes[static_cast<std::size_t>(*words_.id_of(of))] = as;
  };
  set(marks_.thought_begin, thought_begin), set(marks_.thought_end, thought_end);
  set(marks_.summary_begin, summary_begin), set(marks_.summary_end, summary_end);
}

// A sentence is plain if it has 40 to 160 bytes and no mark but its full stop that could end another.
void problem_maker::add_sentences(const std::filesystem::path& file) {
  std::string text = read_text(file, std::uint64_t{1} << 28);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\r', ' ');
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(". ", begin), text.size());
    const std::size_t first = std::min(text.find_first_not_of(' ', begin), end);
    const std::string sentence = text.substr(first, end - first) + '.';
    const bool plain =
        sentence.find_first_of("?!\"*[]") == std::string::npos && sentence.find("  ") == std::string::npos;
    if (plain && sentence.size() > 40 && sentence.size() < 160) sentences_.push_back(sentence);
    begin = end + 2;
  }
}

index_t problem_maker::tokens_of(std::string_view text) const {
  return static_cast<index_t>(words_.encode(text, {.add_special = false}).size());
}

problem problem_maker::make(task of, index_t tokens, std::uint64_t seed) const {
  if (tokens < 2 * around)
    fail("a problem of ", tokens, " tokens leaves no room for sentences; ", 2 * around, " would");
  dice random(seed);
  problem made =
      of == task::notes ? make_notes(tokens, random) : make_needles(tokens, of == task::keys ? 4 : 1, random);
  made.of = of, made.tokens = tokens;
  return made;
}

problem problem_maker::make_needles(index_t tokens, std::size_t count, dice& random) const {
  std::vector<std::string> body, numbers;
  const auto names = some_of(cities.size(), count, random);
  index_t length = around;
  for (std::size_t at = below(sentences_.size(), random);; at = (at + 1) % sentences_.size()) {
    length += tokens_of(" " + sentences_[at]);
    if (length > tokens) break;
    body.push_back(sentences_[at]);
  }
  std::vector<std::string> needles;
  for (const std::size_t name : names) {
    numbers.push_back(digits(7, random));
    needles.push_back(std::string("One of the special magic numbers for ") + cities[name] + " is: " + numbers.back() +
                      ".");
  }
  constexpr std::size_t margin = 4;  // sentences at the end, which every policy's window may hold
  if (body.size() < 2 * margin + count) fail("a problem of ", tokens, " tokens holds too few sentences; ask for more");
  std::vector<std::size_t> places = some_of(body.size() - margin, count, random);  // before which sentence
  std::sort(places.begin(), places.end());
  const std::size_t asked = below(count, random);
  std::string text;
  std::size_t evidence = 0, next = 0;
  for (std::size_t s = 0; s < body.size(); ++s) {
    for (; next < count && places[next] == s; ++next) {
      if (next == asked) evidence = text.size() + needles[next].size() - 12;
      text += needles[next] + ' ';
    }
    text += body[s] + ' ';
  }
  text.pop_back();
  const std::string of =
      std::string("special magic number for ") + cities[names[asked]] + " mentioned in the provided text";
  problem made = finish(
      "A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about the "
      "number afterwards.\n",
      text, evidence, "\nWhat is the " + of + "?", "The " + of + " is");
  made.answer = numbers[asked];
  return made;
}

problem problem_maker::make_notes(index_t tokens, dice& random) const {
  if (marks_.thought_begin.empty()) fail("notes: name four tokens that mark them, --marks A,B,C,D");
  const auto names = some_of(cities.size(), cities.size(), random);
  std::vector<std::string> places, codes;
  std::vector<std::size_t> evidence;
  std::string text;
  index_t length = around;
  for (const std::size_t name : names) {
    const std::string place = std::string("the ") + buildings[below(buildings.size(), random)] + " in " + cities[name];
    const std::string code = digits(5, random);
    std::vector<std::string> said;
    for (int i = 0; i < 4; ++i) said.push_back(sentences_[below(sentences_.size(), random)]);
    said.insert(said.begin() + 1 + static_cast<std::ptrdiff_t>(below(2, random)),
                "The secret code of " + place + " is " + code + ".");
    std::string note = marks_.thought_begin + "Note on " + place + ".";
    std::size_t at = 0;
    for (const std::string& sentence : said) {
      note += ' ' + sentence;
      if (sentence.find(code) != std::string::npos) at = note.size() - 3;
    }
    note += marks_.thought_end + marks_.summary_begin + "About " + place + "." + marks_.summary_end + '\n';
    length += tokens_of(note);
    if (length > tokens) break;
    evidence.push_back(text.size() + at);
    places.push_back(place), codes.push_back(code);
    text += note;
  }
  if (places.size() < 3) fail("notes: ", tokens, " tokens hold fewer than three of them");
  if (places.size() == cities.size()) fail("notes: ", tokens, " tokens hold more notes than there are cities");
  const std::size_t asked = below(places.size() - 1, random);  // the last lies in the window
  problem made = finish("Read the notes.\n", text, evidence[asked], "What is the secret code of " + places[asked] + "?",
                        "The secret code of " + places[asked] + " is");
  made.answer = codes[asked];
  return made;
}

problem problem_maker::finish(std::string_view head, std::string_view body, std::size_t evidence,
                              std::string_view question, std::string_view answer_begins) const {
  std::string text = turn_;
  text += head;
  const std::size_t before = text.size();
  text += body;
  text += question;
  text += reply_;
  text += answer_begins;
  problem made;
  made.prompt = words_.encode(text);
  made.evidence = static_cast<index_t>(words_.encode(std::string_view(text).substr(0, before + evidence)).size()) - 1;
  return made;
}

}  // namespace decode::retrieval
