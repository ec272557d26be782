// SPDX-License-Identifier: Apache-2.0
// Problems of retrieval: what they ask for stands where they say, and nowhere else.
#include <doctest/doctest.h>

#include <algorithm>  // std::sort
#include <cctype>     // std::isalnum, std::isspace, std::tolower
#include <map>
#include <set>
#include <string>
#include <vector>

#include "retrieval_scenes.hpp"

namespace decode::retrieval {
namespace {

/// The text of a segment's details.
std::string segment_text(const scene& lab, const problem& asked, index_t id) {
  std::string text;
  with_segmenter(asked.kind, [&](auto segmenter) {
    typename decltype(segmenter)::state state{};
    index_t count = 0;
    for (std::size_t at = 0; at < asked.prompt.size(); ++at) {
      zoomr::closings closed;
      const auto token = static_cast<std::size_t>(asked.prompt[at]);
      segmenter.feed(state, lab.classes[token], static_cast<index_t>(at), closed);
      for (index_t c = 0; c < closed.count; ++c, ++count) {
        if (count != id) continue;
        const auto begin = static_cast<std::size_t>(closed.at[c].begin);
        const auto end = static_cast<std::size_t>(closed.at[c].split);
        text = lab.words.decode(std::span(asked.prompt).subspan(begin, end - begin));
      }
    }
  });
  return text;
}

int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// The sentence that a part stands in.
std::string sentence_around(const std::string& text, const std::string& part) {
  const std::size_t at = text.find(part);
  std::size_t begin = at;
  while (begin >= 2 && (text[begin - 2] != '.' || std::isspace(static_cast<unsigned char>(text[begin - 1])) == 0))
    --begin;
  return text.substr(begin, text.find('.', at) - begin);
}

std::set<std::string> content_words(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + ' ') {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(word), word.clear();
    }
  }
  for (const char* const common : {"the", "of", "in", "is", "that", "which", "what"}) words.erase(common);
  return words;
}

std::string text_of(const scene& lab, const problem& asked) { return lab.words.decode(asked.prompt); }

}  // namespace

TEST_CASE("each answer stands in the segment that is needed for it, and a problem is the same each time") {
  for (const std::string task :
       {"needle", "keys", "values", "queries", "tracking", "notes", "paraphrase", "chain", "repeated"}) {
    CAPTURE(task);
    const scene_options options = notes_asked_for(task);
    const scene lab(options);
    for (index_t number = 0; number < options.problems; ++number) {
      const problem asked = lab.make(lab.groups.front(), number);
      REQUIRE(!asked.answers.empty());
      REQUIRE(asked.evidence.size() == asked.answers.size());
      const std::vector<index_t> needed = lab.needed_segments(asked);
      for (std::size_t i = 0; i < needed.size(); ++i) {
        CAPTURE(asked.answers[i]);
        REQUIRE(needed[i] >= 0);
        CHECK(segment_text(lab, asked, needed[i]).find(asked.answers[i]) != std::string::npos);
        for (std::size_t j = 0; j < i; ++j) CHECK(needed[i] != needed[j]);
      }
      CHECK(asked.prompt.size() > 1200);
      CHECK(asked.prompt.size() < 2800);                             // of bytes the words around it are more
      CHECK(text_of(lab, asked).find("Why?") == std::string::npos);  // not plain
      CHECK(lab.make(lab.groups.front(), number).prompt == asked.prompt);
      CHECK(lab.make(lab.groups.front(), number + 1).prompt != asked.prompt);
    }
  }
}

TEST_CASE("needles: as many as the task has, of which the answers are asked for") {
  const auto each = [](const char* task, auto check) {
    const scene_options options = notes_asked_for(task);
    const scene lab(options);
    for (index_t number = 0; number < 6; ++number) {
      const problem asked = lab.make(lab.groups.front(), number);
      const std::string text = text_of(lab, asked);
      for (const std::string& answer : asked.answers) CHECK(times(text, answer) == 1);
      check(asked, text, times(text, "One of the special magic numbers for "));
    }
  };
  each("needle", [](const problem& asked, const std::string&, int needles) {
    CHECK(needles == 1);
    CHECK(asked.answers.size() == 1);
  });
  each("keys", [](const problem& asked, const std::string&, int needles) {
    CHECK(needles == 4);
    CHECK(asked.answers.size() == 1);
  });
  each("values", [](const problem& asked, const std::string& text, int needles) {
    CHECK(needles == 4);
    CHECK(asked.answers.size() == 4);
    const std::string first = sentence_around(text, asked.answers[0]);
    CHECK(times(text, first.substr(0, first.find(" is: "))) == 4);  // of one city
  });
  std::set<std::size_t> counts;
  each("queries", [&](const problem& asked, const std::string& text, int needles) {
    CHECK(needles == 8);
    counts.insert(asked.answers.size());
    const std::string question = text.substr(text.rfind("What are all"));
    std::size_t at = 0;
    for (const std::string& answer : asked.answers) {  // cities in the order of the answers
      const std::string said = sentence_around(text, answer);
      const std::string city = said.substr(36, said.find(" is: ") - 36);
      CAPTURE(city);
      REQUIRE(question.find(city, at) != std::string::npos);
      at = question.find(city, at);
    }
  });
  CHECK(*counts.begin() >= 2);
  CHECK(*counts.rbegin() <= 4);
  CHECK(counts.size() > 1);
}

TEST_CASE("tracking: each variable has the value of the one before, the first the one that is asked for") {
  const scene_options options = notes_asked_for("tracking");
  const scene lab(options);
  const problem asked = lab.make(lab.groups.front(), 0);
  const std::string text = text_of(lab, asked);
  REQUIRE(asked.answers.size() == 5);
  const std::string value = sentence_around(text, "VAR " + asked.answers[0] + " = ").substr(12);
  CHECK(times(text, value) == 3);  // with question and reply
  for (std::size_t i = 1; i < 5; ++i)
    CHECK(times(text, "VAR " + asked.answers[i] + " = VAR " + asked.answers[i - 1] + ".") == 1);
}

TEST_CASE("words: the answers appear more often than all others") {
  scene_options options = notes_asked_for("words");
  options.tokens = {3000};
  const scene lab(options);
  const problem asked = lab.make(lab.groups.front(), 0);
  const std::string text = text_of(lab, asked);
  CHECK(asked.evidence.empty());
  std::map<std::string, int> counts;
  const std::size_t begin = text.find("1. ");
  int number = 1;
  for (std::size_t at = begin; at != std::string::npos; ++number) {
    const std::string label = std::to_string(number) + ". ";
    REQUIRE(text.substr(at, label.size()) == label);
    const std::size_t end = text.find_first_of(" \n", at + label.size());
    ++counts[text.substr(at + label.size(), end - at - label.size())];
    at = text[end] == '\n' ? std::string::npos : end + 1;
  }
  std::vector<std::string> common;
  for (const auto& [word, count] : counts) {
    if (count > 3) common.push_back(word);
    CHECK((count == 3 || count >= 8));
  }
  std::vector<std::string> answers = asked.answers;
  std::sort(answers.begin(), answers.end());
  CHECK(common == answers);
  CHECK(common.size() == 10);
  CHECK(lab.make(lab.groups.front(), 0).prompt == asked.prompt);
}

TEST_CASE("repeated: the text ends in half a sentence that it has said before") {
  const scene_options options = notes_asked_for("repeated");
  const scene lab(options);
  for (index_t number = 0; number < 8; ++number) {
    const problem asked = lab.make(lab.groups.front(), number);
    const std::string text = text_of(lab, asked);
    const std::size_t begin = text.rfind(". ") + 2;
    const std::string half = text.substr(begin);
    CHECK(half.size() >= 20);
    CHECK(times(text, half) == 2);
    REQUIRE(asked.answers.size() == 1);
    CHECK(segment_text(lab, asked, lab.needed_segments(asked)[0]).find(half + ' ' + asked.answers[0]) !=
          std::string::npos);
  }
}

TEST_CASE("notes by number: there are as many, whatever they hold") {
  for (const std::string task : {"notes", "paraphrase", "chain"}) {
    CAPTURE(task);
    scene_options options = notes_asked_for(task);
    options.notes = {3, 12, 24, 32};
    const scene lab(options);
    REQUIRE(lab.groups.size() == 4);
    CHECK(lab.groups[1].name() == task + " x12");
    for (std::size_t i = 0; i < 4; ++i) {
      const problem asked = lab.make(lab.groups[i], 5);
      CHECK(times(text_of(lab, asked), "Note on the ") == options.notes[i]);
      const auto before = std::span(asked.prompt).first(static_cast<std::size_t>(asked.evidence.front()));
      CHECK(times(lab.words.decode(before), "Note on the ") < options.notes[i]);  // the last lies in a window
      CHECK(lab.needed_segments(asked).front() >= 0);
    }
  }
}

TEST_CASE("paraphrase: no content word of the question is in the sentence that answers it") {
  scene_options options = notes_asked_for("paraphrase");
  options.notes = {24};
  const scene lab(options);
  for (index_t number = 0; number < 8; ++number) {
    const problem asked = lab.make(lab.groups.front(), number);
    const std::string text = text_of(lab, asked);
    const std::set<std::string> said = content_words(sentence_around(text, asked.answers[0]));
    CHECK(said.size() == 5);  // secret, code, building, city, digits
    const std::size_t question = text.rfind("Which number opens the building in the capital of ");
    REQUIRE(question != std::string::npos);
    for (const std::string& word : content_words(text.substr(question))) {
      CAPTURE(word);
      CHECK(!said.contains(word));
    }
  }
}

TEST_CASE("chain: the asked note names another, whose note alone says the code") {
  scene_options options = notes_asked_for("chain");
  options.notes = {3, 12};
  const scene lab(options);
  for (index_t number = 0; number < 8; ++number) {
    const problem asked = lab.make(lab.groups[static_cast<std::size_t>(number) % 2], number);
    const std::string text = text_of(lab, asked);
    REQUIRE(asked.answers.size() == 2);
    const std::vector<index_t> needed = lab.needed_segments(asked);
    const std::string first = segment_text(lab, asked, needed[0]);
    CHECK(first.find(" is that of the " + asked.answers[0] + ".") != std::string::npos);
    CHECK(segment_text(lab, asked, needed[1])
              .find("The secret code of the " + asked.answers[0] + " is " + asked.answers[1] + ".") !=
          std::string::npos);
    CHECK(times(text, asked.answers[1]) == 1);
    const std::string place = sentence_around(first, " is that of ");
    const std::string begun = place.substr(0, place.find(" is that of"));
    CHECK(text.substr(text.size() - begun.size() - 15) == begun + " is that of the");
    CHECK(lab.words.decode(asked.goes_on) == ". The secret code of the " + asked.answers[0] + " is");
  }
}

TEST_CASE("what is needed next changes as answers are written") {
  const std::vector<index_t> needed = {5, 2, 9};
  problem asked;
  asked.answers = {"111", "222", "333"};
  asked.kind = task::queries;
  using ids = std::vector<index_t>;
  CHECK(needed_next(asked, needed, "") == ids{5});
  CHECK(needed_next(asked, needed, " 11") == ids{5});
  CHECK(needed_next(asked, needed, " 111") == ids{2});
  CHECK(needed_next(asked, needed, " 222") == ids{5});
  CHECK(needed_next(asked, needed, "111 222") == ids{9});
  CHECK(needed_next(asked, needed, "111 333 222") == ids{9});
  asked.kind = task::values;
  CHECK(needed_next(asked, needed, "") == needed);
  CHECK(needed_next(asked, needed, "222") == ids{5, 9});
  CHECK(needed_next(asked, needed, "111 333 222") == needed);
  asked = {.kind = task::needle, .prompt = {}, .answers = {"7"}, .goes_on = {}, .evidence = {}};
  CHECK(needed_next(asked, {4}, "7") == ids{4});
  CHECK(needed_next({.kind = task::words, .prompt = {}, .answers = {"a"}, .goes_on = {}, .evidence = {}}, {}, "")
            .empty());
}

}  // namespace decode::retrieval
