// SPDX-License-Identifier: Apache-2.0
#include "problems.hpp"

#include <algorithm>  // std::min, std::ranges::none_of, std::replace, std::rotate
#include <array>      // std::array
#include <utility>    // std::move

#include "../../decode/input_error.hpp"

namespace decode::retrieval {
namespace {

struct task_fact {
  const char* name;
  index_t answer_tokens;
};
constexpr std::array<task_fact, 11> tasks = {{{"needle", 10},
                                              {"keys", 10},
                                              {"notes", 10},
                                              {"values", 56},
                                              {"queries", 56},
                                              {"tracking", 60},
                                              {"words", 64},
                                              {"paraphrase", 10},
                                              {"chain", 32},
                                              {"repeated", 24},
                                              {"calls", 40}}};

}  // namespace

task task_named(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (name == tasks[i].name) return static_cast<task>(i);
    (known += i == 0 ? "" : ", ") += tasks[i].name;
  }
  fail("there is no task ", shown(name), "; known are ", known);
}
const char* name_of(task kind) { return tasks[static_cast<std::size_t>(kind)].name; }
index_t answer_tokens(task kind) { return tasks[static_cast<std::size_t>(kind)].answer_tokens; }

marks marks_of(const tokenizer& words, const std::vector<std::string>& names) {
  if (names.size() != 4) fail("--marks: four tokens are needed, but ", names.size(), " are named");
  for (const std::string& name : names) {
    if (!words.id_of(name)) fail("--marks: ", shown(name), " is no token of this model");
  }
  return {names[0], names[1], names[2], names[3]};
}

turn_texts turns_of(const tokenizer& words) {
  if (words.id_of("<|im_start|>")) return {"<|im_start|>user\n", "<|im_end|>\n", "<|im_start|>assistant\n"};
  if (words.id_of("<start_of_turn>")) return {"<start_of_turn>user\n", "<end_of_turn>\n", "<start_of_turn>model\n"};
  return {"", "\n", ""};
}

problem_maker::problem_maker(const tokenizer& words, const std::vector<std::string>& texts,
                             const std::vector<std::string>& as)
    : words_(words), turns_(turns_of(words)) {
  const auto is_code = [](const std::string& text) { return text.ends_with(".py"); };
  for (const std::string& text : texts) is_code(text) ? add_functions(text) : add_sentences(text);
  if (std::ranges::none_of(texts, is_code)) expect_sentences();
  if (!as.empty()) marks_ = marks_of(words, as);
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

void problem_maker::expect_sentences() const {
  if (sentences_.size() < 400) fail("the texts have ", sentences_.size(), " plain sentences, but 400 are needed");
}

index_t problem_maker::tokens_of(std::string_view text) const {
  return static_cast<index_t>(words_.encode(text, {.add_special = false}).size());
}

problem problem_maker::make(task kind, problem_size size, std::uint64_t seed, question_plan questions) const {
  constexpr index_t least = 2 * detail::around;
  if (size.notes == 0 && size.tokens < least)
    fail("a problem of ", size.tokens, " tokens leaves no room for sentences; ", least, " would");
  if (kind != task::calls) expect_sentences();
  dice random(seed);
  draft text = [&]() -> draft {
    switch (kind) {
      case task::keys:
        return make_needles(size.tokens, 4, questions.number, random);
      case task::values:
        return make_values(size.tokens, random);
      case task::queries:
        return make_queries(size.tokens, random);
      case task::tracking:
        return make_tracking(size.tokens, random);
      case task::repeated:
        return make_repeated(size.tokens, random);
      case task::calls:
        return make_calls(size.tokens, random);
      case task::words:
        return make_words(size.tokens, random);
      case task::notes:
      case task::paraphrase:
      case task::chain:
        return make_notes(kind, size, questions.number, random);
      default:
        return make_needles(size.tokens, 1, questions.number, random);
    }
  }();
  if (const auto known = static_cast<index_t>(text.asked.size()); known < questions.number)
    fail("a problem of ", name_of(kind), ' ', size.number(), " has ", known, " to ask for, but ", questions.number,
         " questions are asked for");
  return finish(std::move(text), kind, questions.first);
}

problem problem_maker::finish(draft text, task kind, index_t first) const {
  std::rotate(text.asked.begin(), text.asked.begin() + first, text.asked.end());
  const std::string turn = text.plain ? "" : turns_.user;
  problem result;
  for (const inquiry& asked : text.asked) {
    const bool later = &asked != &text.asked.front();
    const std::string question = asked.text + (text.plain ? "" : turns_.end + turns_.model) + asked.reply;
    problem& one = later ? result.later.emplace_back() : result;
    one.kind = kind, one.answers = asked.answers;
    one.prompt = later ? words_.encode(turns_.end + turn + question.substr(question.find_first_not_of('\n')),
                                       {.add_special = false})
                       : words_.encode(turn + text.head + text.body + question);
    if (!asked.goes_on.empty()) one.goes_on = words_.encode(asked.goes_on, {.add_special = false});
    for (const std::size_t at : asked.evidence) {
      const std::size_t tokens = words_.encode(turn + text.head + text.body.substr(0, at)).size();
      one.evidence.push_back(static_cast<index_t>(tokens) - 1);
    }
  }
  return result;
}

}  // namespace decode::retrieval
