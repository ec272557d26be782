// SPDX-License-Identifier: Apache-2.0
// Notes with a secret code each: notes, paraphrase, chain.
#include "problems.hpp"

#include <set>      // std::set
#include <utility>  // std::move

#include "../../decode/input_error.hpp"
#include "places.hpp"

namespace decode::retrieval {
namespace {

constexpr std::size_t fewest = 3;
constexpr std::size_t most_cities = cities.size();
static_assert(capitals.size() == most_cities);

// In other words a note is known by its city alone.
constexpr std::size_t most_notes(task kind) {
  return kind == task::paraphrase ? most_cities : most_cities * buildings.size();
}

}  // namespace

struct problem_maker::note {
  std::size_t city = 0;           // of `cities`, or of `capitals`
  std::string place, code;        // "the museum in Oslo", digits
  std::string secret;             // the sentence that says the code
  std::vector<std::string> said;  // other sentences
  std::size_t spot = 0;           // before which of them the secret stands
};

/// @param evidence  set: a byte of the text within the secret
std::string problem_maker::written(const note& one, std::size_t& evidence) const {
  std::string text = marks_.thought_begin + "Note on " + one.place + ".";
  for (std::size_t i = 0; i < one.said.size(); ++i) {
    if (i == one.spot) {
      text += ' ' + one.secret;
      evidence = text.size() - 3;
    }
    text += ' ' + one.said[i];
  }
  return text + marks_.thought_end + marks_.summary_begin + "About " + one.place + "." + marks_.summary_end + '\n';
}

// As many as are asked for, or as fit. Each city has one of its buildings, and then another.
std::vector<problem_maker::note> problem_maker::draw_notes(task kind, problem_size size, dice& random) const {
  const auto names = some_of(most_cities, most_cities, random);
  std::vector<note> notes;
  std::set<std::string> places;
  index_t length = detail::around;
  while (notes.size() < most_notes(kind)) {
    if (size.notes > 0 && notes.size() == static_cast<std::size_t>(size.notes)) break;
    note one;
    one.city = names[notes.size() % most_cities];
    const char* const city = kind == task::paraphrase ? capitals[one.city].city : cities[one.city];
    std::size_t building = below(buildings.size(), random);
    do {
      one.place = std::string("the ") + buildings[building] + " in " + city;
      building = (building + 1) % buildings.size();
    } while (!places.insert(one.place).second);
    one.code = digits(5, random);
    one.secret = "The secret code of " + one.place + " is " + one.code + ".";
    for (int i = 0; i < 4; ++i) one.said.push_back(sentences_[below(sentences_.size(), random)]);
    one.spot = 1 + below(2, random);
    std::size_t unused = 0;
    length += tokens_of(written(one, unused));
    if (size.notes == 0 && length > size.tokens) break;
    notes.push_back(std::move(one));
  }
  return notes;
}

problem_maker::draft problem_maker::make_notes(task kind, problem_size size, index_t questions, dice& random) const {
  const std::string who = name_of(kind);
  if (marks_.thought_begin.empty()) fail(who, ": name four tokens that mark them, --marks A,B,C,D");
  if (size.notes > static_cast<index_t>(most_notes(kind)))
    fail(who, ": there are places for ", most_notes(kind), " notes, but ", size.notes, " are asked for");
  if (size.notes > 0 && size.notes < static_cast<index_t>(fewest))
    fail(who, ": at least ", fewest, " notes are needed, but ", size.notes, " are asked for");
  std::vector<note> notes = draw_notes(kind, size, random);
  if (notes.size() < fewest) fail(who, ": ", size.tokens, " tokens hold fewer than three of them");
  if (size.notes == 0 && notes.size() == most_notes(kind))
    fail(who, ": ", size.tokens, " tokens hold more notes than there are places");
  const std::size_t last = notes.size() - 1;  // lies in the window
  const std::size_t first = below(last, random);
  draft text{"Read the notes.\n", "", {}};
  std::vector<std::vector<std::size_t>> needed;  // [questions]  notes
  const auto some = kind == task::chain ? 1 : static_cast<std::size_t>(questions);
  for (const std::size_t asked : begun_with(first, last, some, random)) {
    const std::string code = "secret code of " + notes[asked].place;
    inquiry question{"What is the " + code + "?", "The " + code + " is", {notes[asked].code}, {}};
    needed.push_back({asked});
    if (kind == task::paraphrase) {
      const std::string capital = std::string("the capital of ") + capitals[notes[asked].city].country;
      question.text = "Which number opens the building in " + capital + "?";
      question.reply = "The number that opens the building in " + capital + " is";
    }
    if (kind == task::chain) {
      const std::size_t other = (asked + 1 + below(last - 1, random)) % last;
      const std::string where = notes[other].place.substr(4);  // without "the "
      notes[asked].secret = "The " + code + " is that of the " + where + ".";
      question.reply += " that of the";
      question.goes_on = ". The secret code of the " + where + " is";
      question.answers = {where, notes[other].code};
      needed.back().push_back(other);
    }
    text.asked.push_back(std::move(question));
  }
  std::vector<std::size_t> inside(notes.size());
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const std::size_t before = text.body.size();
    text.body += written(notes[i], inside[i]);
    inside[i] += before;
  }
  for (std::size_t q = 0; q < needed.size(); ++q) {
    for (const std::size_t one : needed[q]) text.asked[q].evidence.push_back(inside[one]);
  }
  return text;
}

}  // namespace decode::retrieval
