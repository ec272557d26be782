// SPDX-License-Identifier: Apache-2.0
// Problems of retrieval: what they ask for stands where they say, and nowhere else.
#include <doctest/doctest.h>

#include <algorithm>  // std::includes, std::ranges::mismatch, std::sort
#include <cctype>     // std::isalnum, std::isspace, std::tolower
#include <map>
#include <set>
#include <string>
#include <vector>

#include "retrieval/facts.hpp"
#include "retrieval/forms.hpp"
#include "retrieval/functions.hpp"
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
      segmenter.feed(state, lab.classes.read_by(segmenter)[token], static_cast<index_t>(at), closed);
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

/// Two hundred paragraphs of three sentences, one of which is said, between what Project Gutenberg writes.
fs::path novel() {
  static const fs::path path = [] {
    std::ofstream out(files() / "novel.txt");
    out << "Licence. Read it.\n*** START OF THIS ***\n\nCHAPTER I\n\n* * * * *\n\n";
    for (int i = 0; i < 200; ++i) {
      out << "The prince of the " << coined(i) << " number " << i
          << " looked\nat the garden. \u201cWhy?\u201d said she. ";
      out << "Nobody replied to " << coined(i) << ", who went to bed.\n\n";
    }
    out << "*** END OF THIS ***\nLicence again. Read it too.\n";
    return files() / "novel.txt";
  }();
  return path;
}

/// Eighty functions with decorators, methods among them.
fs::path python_file() {
  static const fs::path path = [] {
    std::ofstream out(files() / "code.py");
    for (int i = 0; i < 80; ++i) {
      const std::string in = i % 2 == 0 ? "" : "    ", word = coined(i);
      if (i % 2 == 1) out << "class " << word << "_class:\n    \"\"\"def none(of, these, at, all)\"\"\"\n\n";
      out << in << "@cached(\"a, (\")\n" << in << "def do_" << word << "(" << (i % 2 == 0 ? "" : "self, ");
      out << "left_" << word << ": int = (1, 2), *, wide=\"), no\", third=None):\n";
      out << in << "    return left_" << word << " + wide\n\n\n";
    }
    return files() / "code.py";
  }();
  return path;
}

/// The byte-level checkpoint with tokens that begin and end messages, some that mark notes, and a template that writes
/// its own message of the system.
fs::path chat_checkpoint() {
  static const fs::path path = [] {
    const fs::path copy = files() / "chat";
    fs::copy(bytes_checkpoint, copy);
    json tokens = read_json(copy / "tokenizer.json");
    json& vocab = tokens["model"]["vocab"];
    const char* const marks[] = {"<|im_start|>", "<|im_end|>", "<m1>", "<m2>", "<m3>", "<m4>"};
    for (int id = 1; id <= 6; ++id) {
      for (auto at = vocab.begin(); at != vocab.end();) at = at.value() == id ? vocab.erase(at) : std::next(at);
      json mark = {{"id", id}, {"content", marks[id - 1]}, {"special", true}};
      for (const char* const flag : {"single_word", "lstrip", "rstrip", "normalized"}) mark[flag] = false;
      tokens["added_tokens"].push_back(mark);
    }
    write_file(copy / "tokenizer.json", tokens.dump());
    write_file(
        copy / "tokenizer_config.json",
        json{{"chat_template",
              "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
              "'<|im_start|>system\n"
              "Be kind.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
              "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif "
              "%}"}}
            .dump());
    return copy;
  }();
  return path;
}

/// What makes problems for a model. Each is made once, unless it is asked for anew.
struct form_lab {
  tokenizer words;
  form_maker maker;
  mutable std::map<std::pair<std::string, std::uint64_t>, form_problem> known = {};

  explicit form_lab(const fs::path& model, const std::vector<std::string>& marks = {})
      : words(model), maker(model, words, {novel().string()}, marks) {}
  form_problem anew(const std::string& as, std::uint64_t seed, fact_half half = fact_half::measuring) const {
    return maker.make(form_named(as), half, 1000, seed);
  }
  const form_problem& make(const std::string& as, std::uint64_t seed) const {
    const auto [at, added] = known.try_emplace({as, seed});
    if (added) at->second = anew(as, seed);
    return at->second;
  }
  std::string text(const form_problem& asked, std::size_t begin, std::size_t end) const {
    const std::vector<token_id> tokens = asked.tokens();
    return words.decode(std::span(tokens).subspan(begin, end - begin), false);
  }
  std::string text(const form_problem& asked) const { return text(asked, 0, asked.tokens().size()); }
  std::string question(const form_problem& asked) const {
    return text(asked, static_cast<std::size_t>(asked.question.first), static_cast<std::size_t>(asked.question.last));
  }
};

const form_lab& chat_lab() {
  static const form_lab lab(chat_checkpoint(), {"<m1>", "<m2>", "<m3>", "<m4>"});
  return lab;
}
const form_lab& plain_lab() {
  static const form_lab lab(bytes_checkpoint);
  return lab;
}

/// The fact that a problem asks for, by its first answer; of keys there is none.
const fact* fact_of(const form_problem& asked) {
  for (const fact& told : facts()) {
    if (std::string(told.answers).substr(0, std::string(told.answers).find('|')) == asked.answers.front()) return &told;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("the questions about one document are about other facts of it") {
  const form_lab& lab = chat_lab();
  for (const char* as : {"plain", "two", "keys", "table", "later"}) {
    CAPTURE(as);
    std::vector<form_problem> asked;
    for (index_t n = 0; n < form_maker::questions; ++n)
      asked.push_back(lab.maker.make(form_named(as), fact_half::measuring, 1000, 5, n));
    CHECK(asked[0].prompt == lab.anew(as, 5).prompt);
    for (std::size_t a = 0; a < asked.size(); ++a) {
      const std::string text = lab.text(asked[a]);
      CHECK(text.find(asked[a].answers.front()) != std::string::npos);
      for (const form_problem& other : asked) {  // its answer stands here too
        CHECK(text.find(other.answers.front()) != std::string::npos);
      }
      for (std::size_t b = 0; b < a; ++b) {
        CHECK(asked[a].answers != asked[b].answers);
        CHECK(asked[a].evidence != asked[b].evidence);
        CHECK(lab.question(asked[a]) != lab.question(asked[b]));
        // Of the prompts all is alike up to where a question begins.
        const std::size_t alike = static_cast<std::size_t>(std::ranges::mismatch(asked[a].prompt, asked[b].prompt).in1 -
                                                           asked[a].prompt.begin());
        CHECK(alike > 900);
      }
    }
  }
}

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
      const std::vector<index_t> needed = lab.needed_segments(asked.prompt, asked);
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

TEST_CASE("several questions about one text: each problem begins with another, and asks for the rest behind it") {
  for (const std::string task : {"keys", "notes", "paraphrase"}) {
    CAPTURE(task);
    scene_options options = notes_asked_for(task);
    const std::string alone = scene(options).make(groups_of(options).front(), 0).answers.front();
    options.questions = 3;
    const scene lab(options);
    std::vector<problem> asked;
    for (index_t number = 0; number < 4; ++number) asked.push_back(lab.make(lab.groups.front(), number));
    CHECK(asked[0].answers.front() == alone);  // as without later ones
    for (std::size_t number = 0; number < 3; ++number) {
      CAPTURE(number);
      const problem& one = asked[number];
      const std::string text = text_of(lab, one);
      REQUIRE(one.later.size() == 2);
      for (std::size_t q = 0; q < 2; ++q) {
        const problem& later = one.later[q];
        const problem& first = asked[(number + q + 1) % 3];  // where it is asked first
        CHECK(later.answers == first.answers);
        CHECK(later.evidence == first.evidence);
        CHECK(later.later.empty());
        CHECK(lab.needed_segments(one.prompt, later) == lab.needed_segments(first.prompt, first));
        CHECK(times(text, later.answers.front()) == 1);
        const std::string question = lab.words.decode(later.prompt);
        CHECK(question.find(later.answers.front()) == std::string::npos);
        CHECK(question.starts_with("\nW"));  // this model has no turns: a line end is what ends an answer
        const std::string_view asks = std::string_view(question).substr(1, question.find('?') - 1);
        CHECK(text_of(lab, first).find(asks) != std::string::npos);
      }
      CHECK(one.later[0].answers != one.later[1].answers);
    }
    CHECK(text_of(lab, asked[3]).find(asked[0].answers.front()) == std::string::npos);  // another text
  }
  scene_options options = notes_asked_for("values");
  options.questions = 2;
  const scene lab(options);
  std::string why;
  try {
    lab.make(lab.groups.front(), 0);
  } catch (const input_error& wrong) {
    why = wrong.what();
  }
  CHECK(says(why, "a problem of values"));
  CHECK(says(why, " has 1 to ask for, but 2 questions are asked for"));
}

TEST_CASE("more notes than cities: another building in each") {
  scene_options options = notes_asked_for("notes");
  options.notes = {40};
  const scene lab(options);
  const std::string text = text_of(lab, lab.make(lab.groups.front(), 0));
  std::set<std::string> places;
  const std::string begins = "Note on ";
  for (std::size_t at = text.find(begins); at != std::string::npos; at = text.find(begins, at + 1))
    places.insert(text.substr(at, text.find('.', at) - at));
  CHECK(places.size() == 40);
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
    CHECK(segment_text(lab, asked, lab.needed_segments(asked.prompt, asked)[0]).find(half + ' ' + asked.answers[0]) !=
          std::string::npos);
  }
}

TEST_CASE("functions of a source: their bounds, and the names that a call can give") {
  const std::vector<function> found = functions_in(R"py("""A module.

def none(of, these):
"""
import os

@trace("(", key=[1, 2])
# of three
def plain(a, b: Dict[str, int] = {"x": (1, 2), "y": ")"}, sep=", ", key=lambda p, q: (p, q),  # and ), too
          *args, last: Callable[[int, int], int] = 'it\'s', **kwargs) -> None:
    """Text
that is not indented
    """
    def inner(of, none):
        return 0

# not of it
    return a


class Shape(Base):
    size = 3
    @property
    def area(self, unit): return unit

    async def wait(cls, for_only, /, timeout,
                   *, loop=None):
        await loop
x = plain(1, 2)
def broken(a, b
)py");
  const auto names = [](const function& item) {
    std::string list = item.name;
    for (const parameter& each : item.parameters) {
      list += ' ' + each.name;
      CHECK(item.text.substr(0, each.end).ends_with(each.name));
    }
    return list;
  };
  REQUIRE(found.size() == 3);
  CHECK(names(found[0]) == "plain a b sep key last");
  CHECK(found[0].text.starts_with("@trace(\"(\", key=[1, 2])\n# of three\ndef plain("));
  CHECK(found[0].text.ends_with("# not of it\n    return a"));
  CHECK(names(found[1]) == "area unit");
  CHECK(found[1].text == "@property\ndef area(self, unit): return unit");
  CHECK(names(found[2]) == "wait timeout loop");
  CHECK(found[2].text.ends_with("\n               *, loop=None):\n    await loop"));
}

TEST_CASE("calls: a function that is defined far above, and the names of its parameters") {
  scene_options options = asked_for();
  options.texts = {python_file().string()}, options.tasks = {"calls"};
  const scene lab(options);
  for (index_t number = 0; number < 40; ++number) {
    const problem asked = lab.make(lab.groups.front(), number);
    const std::string text = text_of(lab, asked);
    const std::size_t call = text.find("# Call do_");
    const std::string name = text.substr(call + 7, 9), definition = "def " + name + '(';
    CHECK(text.ends_with('\n' + name + "(left_" + name.substr(3) + "=left_" + name.substr(3) + ','));
    CHECK(times(text, name) == 3);
    const std::size_t at = text.find(definition);
    CHECK(at > 64);  // a token is a byte
    CHECK(at + 160 < call);
    CHECK(asked.answers == std::vector<std::string>{"wide=", "third="});
    CHECK(asked.prompt.size() > 1700);
    CHECK(asked.prompt.size() <= 2001);  // one that begins the text
    const std::vector<index_t> needed = lab.needed_segments(asked.prompt, asked);
    REQUIRE(needed.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      const auto place = static_cast<std::size_t>(asked.evidence[i]);
      const std::string up_to = lab.words.decode(std::span(asked.prompt).first(place + 1));
      CHECK(up_to.ends_with(asked.answers[i].substr(0, asked.answers[i].size() - 1)));
      CHECK(up_to.size() > at);
      CHECK(up_to.size() < at + 100);
      CHECK(segment_text(lab, asked, needed[i]).find(definition) != std::string::npos);
    }
    CHECK(lab.make(lab.groups.front(), number).prompt == asked.prompt);
    CHECK(lab.make(lab.groups.front(), number + 1).prompt != asked.prompt);
  }
}

TEST_CASE("calls: by the classes of a tokenizer that joins line feeds and blanks a function is one segment") {
  const tokenizer words(fixture("tokenizers/qwen2"));
  const problem_maker maker(words, {python_file().string()}, {});
  const class_tables classes(words, words.size(), {});
  const problem asked = maker.make(task::calls, {.tokens = 1500, .notes = 0}, 3);
  const zoomr::code_segments by;
  zoomr::code_segments::state state{};
  zoomr::segment holds{};
  for (std::size_t at = 0; at < asked.prompt.size(); ++at) {
    zoomr::closings closed;
    by.feed(state, classes.read_by(by)[static_cast<std::size_t>(asked.prompt[at])], static_cast<index_t>(at), closed);
    for (index_t c = 0; c < closed.count; ++c) {
      if (closed.at[c].begin <= asked.evidence[0] && asked.evidence[0] < closed.at[c].split) holds = closed.at[c];
    }
  }
  const auto begin = static_cast<std::size_t>(holds.begin), size = static_cast<std::size_t>(holds.split) - begin;
  const std::string text = words.decode(std::span(asked.prompt).subspan(begin, size));
  CHECK(text.starts_with("@cached(\"a, (\")\ndef do_"));
  CHECK(text.ends_with("+ wide\n\n\n"));
  CHECK(times(text, "def ") == 1);
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
      CHECK(lab.needed_segments(asked.prompt, asked).front() >= 0);
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
    const std::vector<index_t> needed = lab.needed_segments(asked.prompt, asked);
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

TEST_CASE("facts: the answer stands where it must, and is no other fact's; the paraphrase has other words") {
  REQUIRE(facts().size() % 2 == 0);
  std::vector<std::set<std::string>> words;
  for (const fact& told : facts())
    words.push_back(content_words(std::string(told.sentence) + ' ' + told.first + ' ' + told.second));
  for (std::size_t id = 0; id < facts().size(); ++id) {
    const fact& told = facts()[id];
    CAPTURE(std::string(told.sentence));
    const std::string answers = told.answers, first = answers.substr(0, answers.find('|'));
    CHECK(times(told.sentence, first) == 1);
    CHECK(times(told.second, first) == 1);
    for (std::size_t begin = 0; begin < answers.size();) {
      const std::string answer = answers.substr(begin, answers.find('|', begin) - begin);
      CAPTURE(answer);
      CHECK(!is_answered(std::string(told.question) + told.paraphrase + ' ' + told.first + ' ' + told.key, {answer}));
      const std::set<std::string> parts = content_words(answer);
      for (std::size_t other = 0; other < words.size(); ++other) {
        const bool has = std::includes(words[other].begin(), words[other].end(), parts.begin(), parts.end());
        if (has) CHECK(other == id);
      }
      begin += answer.size() + 1;
    }
    std::set<std::string> said = content_words(told.sentence);
    for (const char* const common :
         {"a",  "by", "did", "do",  "does", "for", "from", "has", "have",  "he", "his", "into",
          "it", "on", "to",  "was", "with", "who", "one",  "her", "where", "s",  "at",  "and"})
      said.erase(common);
    for (const std::string& word : content_words(told.paraphrase)) CHECK(!said.contains(word));
  }
}

TEST_CASE("forms: what is needed is where it is said to be, and so are the question and the messages") {
  const form_lab &chat = chat_lab(), &plain = plain_lab();
  for (const form_lab* lab : {&chat, &plain}) {
    for (const std::string& as : names_of_forms()) {
      if (as == "nothing" || (lab == &plain && as != "plain" && as != "later")) continue;
      CAPTURE(as);
      const form_problem& asked = lab->make(as, 5);
      const fact* const told = fact_of(asked);
      const std::string text = lab->text(asked), question = lab->question(asked);
      REQUIRE((as == "keys") == (told == nullptr));
      if (told != nullptr) CHECK(question == (as == "paraphrase" ? told->paraphrase : told->question));
      REQUIRE(asked.evidence.size() == (as == "two" ? 2 : 1));
      for (std::size_t i = 0; i < asked.evidence.size(); ++i) {
        const auto at = static_cast<std::size_t>(asked.evidence[i]);
        const std::string up_to = lab->text(asked, 0, at + 1);
        const std::string needed = as == "two"     ? (i == 0 ? told->first : told->second)
                                   : as == "table" ? std::string("| ") + told->key + " | " + asked.answers.front()
                                   : as == "json"  ? '"' + std::string(told->key) + "\": \"" + asked.answers.front()
                                   : as == "keys"  ? "is: " + asked.answers.front() + '.'
                                                   : std::string(told->sentence);
        CHECK(times(text, needed) == 1);
        const std::size_t begin = text.find(needed);
        CHECK(begin < up_to.size());
        CHECK(up_to.size() <= begin + needed.size());
      }
      // Neither the preamble nor the tokens before the question, which presets pin, have it.
      CHECK(asked.evidence.front() > 48);
      CHECK(asked.evidence.back() + 128 < static_cast<index_t>(asked.prompt.size()));
    }
  }
  // Where a part of a word is more tokens than the word.
  const form_lab merging(fixture("tokenizers/qwen2"));
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const form_problem asked = merging.maker.make(form_named("plain"), fact_half::measuring, 900, seed);
    const std::string sentence = fact_of(asked)->sentence;
    CAPTURE(sentence);
    const std::string up_to = merging.text(asked, 0, static_cast<std::size_t>(asked.evidence[0]) + 1);
    CHECK(up_to.ends_with(sentence.substr(0, sentence.size() - 1)));
    const std::string question = merging.question(asked);
    CHECK(question.substr(question.starts_with(' ') ? 1 : 0) == fact_of(asked)->question);  // one token with the blank
  }
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const form_problem asked = plain.anew("plain", seed);
    CHECK(asked.evidence[0] + 160 < asked.question.first);
  }
  const form_problem& own = chat.make("plain", 5);
  REQUIRE(own.ranges.size() == 3);
  CHECK(chat.text(own, own.ranges[0].begin, own.ranges[0].end) == "<|im_start|>system\nBe kind.<|im_end|>\n");
  CHECK(chat.text(own, own.ranges[2].begin, own.ranges[2].end) == "<|im_start|>assistant\n");
  CHECK(own.ranges[2].end == own.prompt.size());
  CHECK(plain.make("plain", 5).ranges.empty());
  CHECK(plain.text(plain.make("plain", 5)).ends_with("?\nAnswer:"));
}

TEST_CASE("forms: each differs from the plain one in what its name says") {
  const form_lab& lab = chat_lab();
  const std::string plain = lab.text(lab.make("plain", 5)), system = "<|im_start|>system\nBe kind.<|im_end|>\n";
  REQUIRE(plain.starts_with(system));
  CHECK(lab.text(lab.make("no_system", 5)) == plain.substr(system.size()));
  const form_problem& bare = lab.make("no_system", 5);
  CHECK(bare.ranges.size() == 2);
  CHECK(lab.text(bare, bare.ranges[0].begin, bare.ranges[0].end).starts_with("<|im_start|>user\n"));
  CHECK(lab.text(lab.make("long_system", 5)).find("reading assistant") != std::string::npos);
  const std::string tail = plain.substr(plain.rfind('?') + 1);  // of messages
  const auto behind = [&](const std::string& as) {
    const std::string text = lab.text(lab.make(as, 5));
    CHECK(text.starts_with(plain.substr(0, plain.rfind('?') + 1)));
    CHECK(text.ends_with(tail));
    return text.size() - plain.size();
  };
  CHECK(behind("behind40") > 120);
  CHECK(behind("behind100") > 2 * behind("behind40"));
  const std::string question = lab.question(lab.make("plain", 5));
  const auto document_at = [](const std::string& text) { return text.find("The prince of the"); };
  for (const std::string as : {"before", "both"}) {
    const std::string text = lab.text(lab.make(as, 5));
    CHECK(text.find(question) < document_at(text));
    CHECK(times(text, question) == (as == "both" ? 2 : 1));
    CHECK((lab.make(as, 5).question.first > lab.make(as, 5).evidence[0]) == (as == "both"));
  }
  const form_problem &begun = lab.make("primed", 5), &later = lab.make("later", 5);
  CHECK(lab.text(begun) == plain + lab.make("plain", 5).reply);
  CHECK(begun.reply.empty());
  CHECK(begun.ranges.back().end == begun.prompt.size());
  REQUIRE(later.ranges.size() == 5);
  CHECK(lab.text(later, later.prompt.size() + later.said.size(), later.tokens().size()) ==
        "<|im_end|>\n<|im_start|>user\nQuestion: " + question + "<|im_end|>\n<|im_start|>assistant\n");
  CHECK(lab.text(later, later.ranges[3].begin, later.ranges[3].end)
            .starts_with("<|im_start|>user\nQuestion: " + question));
  CHECK(!is_answered(lab.words.decode(later.said), later.answers));
  const std::string notes = lab.text(lab.make("notes", 5));
  CHECK(times(notes, "<m1>Note on the ") == 9);
  for (const fact& told : facts()) {  // what a note is about stands in its summary, and the answer in the note
    const std::string summary = std::string("<m2><m3>About the ") + told.key + ".<m4>\n";
    CHECK(times(notes, summary) == times(notes, std::string("Note on the ") + told.key + ". "));
    CHECK(times(notes, summary) == times(notes, told.sentence));
  }
  CHECK(std::ranges::count(lab.make("notes", 5).prompt, *lab.words.id_of("<m2>")) == 9);
  CHECK(lab.make("nothing", 5).evidence.empty());
  CHECK(lab.text(lab.make("two+behind40+long_system", 5)).find("reading assistant") != std::string::npos);
  for (const std::string as :
       {"plain", "later", "json", "keys"}) {  // the same each time; the same passage in each form
    CHECK(lab.make(as, 5).tokens() == lab.anew(as, 5).tokens());
    CHECK(lab.make(as, 5).tokens() != lab.make(as, 6).tokens());
    const std::string text = lab.text(lab.make(as, 5));
    CHECK(text.substr(document_at(text), 60) == plain.substr(document_at(plain), 60));
  }
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const auto number = [](const fact* told) { return told - facts().data(); };
    CHECK(number(fact_of(lab.anew("plain", seed, fact_half::learning))) % 2 == 0);
    CHECK(number(fact_of(lab.make("plain", seed))) % 2 == 1);
    CHECK(lab.text(lab.make("plain", seed)).find("Licence") == std::string::npos);
  }
}

TEST_CASE("forms that are none, and documents that are too short, are refused with a sentence") {
  const auto why = [](const std::string& spec) { return complaint([&] { form_named(spec); }); };
  CHECK(says(why("sideways"), "there is no form \"sideways\"; known are plain, no_system"));
  CHECK(says(why("two+"), "there is no form \"\""));
  CHECK(says(why("two+table"), "two and table exclude each other"));
  CHECK(says(why("plain+two"), "plain and two exclude each other"));
  CHECK(why("two+behind40+later+primed") == "no complaint");
  const form_lab& lab = plain_lab();
  CHECK(says(complaint([&] { lab.maker.make(form_named("plain"), fact_half::measuring, 300, 1); }),
             "a document of 300 tokens holds too few sentences"));
  CHECK(says(complaint([&] { lab.maker.make(form_named("notes"), fact_half::measuring, 900, 1); }),
             "--forms notes: name four tokens that mark them, --marks A,B,C,D"));
  CHECK(says(complaint([&] { chat_lab().maker.make(form_named("notes"), fact_half::measuring, 400, 1); }),
             "a document of 400 tokens holds too few sentences"));
  const tokenizer words(bytes_checkpoint);
  CHECK(says(complaint([&] { form_maker(bytes_checkpoint, words, {(bytes_checkpoint / "training.md").string()}); }),
             "sentences, but 400 are needed"));
}

TEST_CASE("an answer is a word of the text, whatever its case") {
  CHECK(is_answered("It costs Six florins", {"six"}));
  CHECK(is_answered("14.", {"fourteen", "14"}));
  CHECK(is_answered("sixteen or six", {"six"}));
  CHECK(!is_answered("It costs sixteen florins", {"six"}));
  CHECK(!is_answered("ox", {"oxen"}));
}

}  // namespace decode::retrieval
