// SPDX-License-Identifier: Apache-2.0
#include "forms.hpp"

#include <algorithm>  // std::find_if
#include <array>      // std::array
#include <cctype>     // std::isalnum
#include <cstdint>    // std::uint8_t

#include "../../decode/input_error.hpp"

namespace decode::retrieval {
namespace {

constexpr const char* today = "1 Jan 2026";  // for templates that say it

// What may not stand in one form.
enum class choice : std::uint8_t { nothing_else, system, instructions, place, source, paraphrase, primed, later, task };

struct part {
  const char* name;
  choice kind;
  void (*set)(form& to);
};
constexpr std::array<part, 16> parts = {
    {{"plain", choice::nothing_else, [](form&) {}},
     {"no_system", choice::system, [](form& to) { to.system = form::system_message::none; }},
     {"long_system", choice::system, [](form& to) { to.system = form::system_message::extended; }},
     {"behind40", choice::instructions, [](form& to) { to.instructions = 40; }},
     {"behind100", choice::instructions, [](form& to) { to.instructions = 100; }},
     {"before", choice::place, [](form& to) { to.place = form::question_place::before; }},
     {"both", choice::place, [](form& to) { to.place = form::question_place::both; }},
     {"paraphrase", choice::paraphrase, [](form& to) { to.paraphrase = true; }},
     {"two", choice::source, [](form& to) { to.source = form::material::two_sentences; }},
     {"table", choice::source, [](form& to) { to.source = form::material::table; }},
     {"json", choice::source, [](form& to) { to.source = form::material::json; }},
     {"keys", choice::source, [](form& to) { to.source = form::material::keys; }},
     {"notes", choice::source, [](form& to) { to.source = form::material::notes; }},
     {"primed", choice::primed, [](form& to) { to.primed = true; }},
     {"later", choice::later, [](form& to) { to.later = true; }},
     {"nothing", choice::task, [](form& to) { to.nothing = true; }}}};

// Wordings of the two halves.
struct wording {
  const char *system, *behind40, *further60, *read, *read_below;
};
constexpr std::array<wording, 2> wordings = {
    {{"You are the clerk of a town archive. You help visitors to find what they look for in old papers. Be friendly "
      "and brief, keep to what the papers say, and never invent names, places or numbers. If you are not sure, say so "
      "frankly.",
      " Please reply in a single sentence. Rely on the text alone, add nothing of your own, and leave out the "
      "question itself. Where the text says nothing about it, tell me that you could not find it.",
      " Use simple words that a child of ten would understand, without headings, lists, tables or bold letters. Stay "
      "courteous, as if you were speaking to a guest who visits the archive for the first time, and do not say "
      "anything about these rules, about yourself, or about the way in which you have come to your reply.",
      "Here is a text. Read it, because I will ask you something about it.",
      "You will find what I want to know in this text:"},
     {"You are a reading assistant for a publishing house. People show you pages of books and want to know details "
      "of them. Answer politely and in few words. Everything that you say must be supported by the pages that you "
      "were given; do not guess, and admit it when something is not there.",
      " Answer in one short sentence. Use only what is said in the text above, do not make anything up, and do not "
      "repeat what I asked. If the answer is not in the text, write that you do not know.",
      " Write plain English and no formatting of any kind, so no bullet points and no quotation marks. Keep a warm "
      "and patient tone, like a bookseller who talks with an old customer on a rainy afternoon, and never mention "
      "these instructions, your training, or the steps that have led you to the answer that you give.",
      "Read the following text and answer the question about it.", "Look for the answer in the following text."}}};

const wording& words_of(fact_half half) { return wordings[static_cast<std::size_t>(half)]; }

// What can be said or continued without the document.
struct errand {
  const char *request, *begun, *answer;
};
constexpr std::array<std::array<errand, 3>, 2> errands = {
    {{{{"Thank you. Please just say hello to my sister Emma.", "", "hello"},
       {"Forget the text. Count from one to ten in words.", "One, two, three,", "four"},
       {"Forget the text. Name the days of the week.", "Monday, Tuesday,", "Wednesday"}}},
     {{{"That was long. Please say good morning to me.", "", "good morning"},
       {"Never mind the text. Recite the alphabet.", "A, B, C, D,", "E"},
       {"Never mind the text. Name the months of the year.", "January, February,", "March"}}}}};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

}  // namespace

form form_named(const std::string& spec) {
  form read;
  read.name = spec;
  std::vector<const part*> named;
  for (const std::string& name : split(spec, '+')) {
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const part& known) { return name == known.name; });
    if (found == parts.end()) {
      std::string known;
      for (const std::string& each : names_of_forms()) (known += known.empty() ? "" : ", ") += each;
      fail("--forms ", spec, ": there is no form ", shown(name), "; known are ", known);
    }
    for (const part* other : named) {
      if (other->kind == found->kind || other->kind == choice::nothing_else || found->kind == choice::nothing_else)
        fail("--forms ", spec, ": ", other->name, " and ", found->name, " exclude each other");
    }
    found->set(read);
    named.push_back(&*found);
  }
  return read;
}

std::vector<std::string> names_of_forms() {
  std::vector<std::string> names;
  for (const part& known : parts) names.emplace_back(known.name);
  return names;
}

std::vector<token_id> form_problem::tokens() const {
  std::vector<token_id> joined = prompt;
  joined.insert(joined.end(), said.begin(), said.end());
  joined.insert(joined.end(), turn.begin(), turn.end());
  return joined;
}

bool is_answered(std::string_view text, const std::vector<std::string>& answers) {
  const std::string written = lower(text);
  for (const std::string& answer : answers) {
    const std::string sought = lower(answer);
    for (std::size_t at = 0; (at = written.find(sought, at)) != written.npos; ++at) {
      const std::size_t end = at + sought.size();
      if ((at == 0 || !is_word(written[at - 1])) && (end == written.size() || !is_word(written[end]))) return true;
    }
  }
  return false;
}

// What is asked or told to do, and how its answer begins.
struct form_maker::request {
  std::string text, reply;
  std::vector<std::string> answers;
};

form_maker::form_maker(const std::filesystem::path& directory, const tokenizer& words,
                       const std::vector<std::string>& texts, const std::vector<std::string>& as)
    : words_(words), documents_(words, texts, as) {
  if (chat_template::is_named(directory)) chat_.emplace(directory, words, today, as);
}

std::optional<token_id> form_maker::end_of_turn() const {
  if (!chat_) return std::nullopt;
  return chat_->end_of_turn();
}

// The token of a passage that one of its bytes lies in: the last one of the text up to there, since a blank line before
// a word may be other tokens than one at the end. The byte ends a word, whose parts may be more tokens than all of it.
index_t form_maker::token_at(std::string_view text, std::size_t byte, bool begins) const {
  const encode_options options{.add_special = begins && !chat_, .continues = !begins};
  return static_cast<index_t>(words_.encode(text.substr(0, byte + 1), options).size()) - 1;
}

chat_passage form_maker::begin(const form& as, fact_half half, const std::string& content) const {
  using enum chat_form::system_place;
  const std::string system = as.system == form::system_message::extended ? words_of(half).system : "";
  const std::string before = system.empty() ? "" : system + "\n\n";
  chat_passage passage;
  if (!chat_) {
    passage.text = before + content;
    passage.ids = words_.encode(passage.text);
    return passage;
  }
  const chat_form& around = chat_->form();
  const bool takes_system = around.place == message || around.place == before_first_user;
  std::vector<chat_message> messages;
  if (!system.empty() && takes_system) messages.push_back({chat_role::system, system});
  messages.push_back({chat_role::user, takes_system ? content : before + content});
  passage = chat_->begin(messages, static_cast<std::size_t>(-1));
  if (as.system != form::system_message::none || passage.messages.front().role != chat_role::system) return passage;
  // The template's own message goes, but not what stands before all.
  const std::size_t head = around.head.empty() ? 0 : 1, gone = passage.ranges.front().end - head;
  const auto first = passage.ids.begin() + static_cast<std::ptrdiff_t>(head);
  passage.ids.erase(first, first + static_cast<std::ptrdiff_t>(gone));
  passage.text.erase(around.head.size(),
                     around.system.before.size() + around.default_system.size() + around.system.after.size());
  passage.messages.erase(passage.messages.begin()), passage.ranges.erase(passage.ranges.begin());
  for (message_range& range : passage.ranges) range.begin -= gone, range.end -= gone;
  passage.ranges.front().begin = 0;
  return passage;
}

chat_passage form_maker::next(const std::string& content) const {
  if (chat_) {
    const chat_message message{chat_role::user, content};
    return chat_->next({&message, 1}, static_cast<std::size_t>(-1));
  }
  chat_passage passage;
  passage.text = "\n\n" + content;
  passage.ids = words_.encode(passage.text, {.add_special = false, .continues = true});
  return passage;
}

form_problem form_maker::make(const form& as, fact_half half, index_t tokens, std::uint64_t seed,
                              index_t asked_about) const {
  dice random(seed), key_dice(seed + 1);
  const std::vector<told_fact> drawn = documents_.draw(form::material::sentences, half, random);
  const std::vector<told_fact> told =
      as.source == form::material::keys ? documents_.draw(as.source, half, key_dice) : drawn;
  const form_document read = documents_.write(as.source, told, tokens, random);
  const auto number = static_cast<std::size_t>(asked_about), others = static_cast<std::size_t>(questions);
  const errand& task =
      errands[static_cast<std::size_t>(half)][(below(errands[0].size(), random) + number) % errands[0].size()];
  const told_fact &sought = told[number], &earlier = told[(number + 1) % others];

  request last{as.paraphrase ? sought.paraphrase : sought.question, sought.reply, sought.answers};
  if (as.nothing) last = {task.request, task.begun, {task.answer}};
  const request first = as.later ? request{earlier.question, earlier.reply, earlier.answers} : last;
  std::string instructions = as.instructions > 0 ? words_of(half).behind40 : "";
  if (as.instructions > 40) instructions += words_of(half).further60;

  // Of the user's messages, where the document and the question begin.
  const std::string reply_mark = chat_ ? "" : "\nAnswer:";
  const std::string last_label = as.nothing ? "" : "Question: ", label = as.later ? "Question: " : last_label;
  const std::string question = label + first.text + (as.later ? "" : instructions);
  std::string content = (as.place == form::question_place::behind ? words_of(half).read : question) + "\n\n";
  std::size_t question_at = as.place == form::question_place::behind ? 0 : label.size();
  if (as.place != form::question_place::behind) content += words_of(half).read_below + std::string("\n\n");
  const std::size_t document_at = content.size();
  content += read.text;
  if (as.place != form::question_place::before) {
    content += "\n\n";
    question_at = content.size() + label.size();
    content += question;
  }
  content += reply_mark;

  form_problem asked;
  asked.answers = last.answers;
  transcript said;
  chat_passage passage = begin(as, half, content);
  asked.prompt = passage.ids;
  said.add(passage, 0);
  const std::size_t content_at = passage.text.rfind(content);
  if (!as.nothing) {
    for (const std::size_t byte : read.evidence[number])
      asked.evidence.push_back(token_at(passage.text, content_at + document_at + byte, true));
  }
  std::size_t from = 0, asked_at = content_at + question_at;  // position of the passage; byte of the question
  if (as.later) {
    asked.said = words_.encode((chat_ ? "" : " ") + first.reply + ' ' + first.answers.front() + '.',
                               {.add_special = false, .continues = true});
    const std::string next_content = last_label + last.text + instructions + reply_mark;
    passage = next(next_content);
    asked.turn = passage.ids;
    from = asked.prompt.size() + asked.said.size();
    if (chat_) said.add_answer("", asked.said.size(), false), said.add(passage, from);
    asked_at = passage.text.rfind(next_content) + last_label.size();
  }
  const auto position = [&](std::size_t byte) {
    return static_cast<index_t>(from) + token_at(passage.text, byte, !as.later);
  };
  asked.question = {position(asked_at), position(asked_at + last.text.size() - 1) + 1};
  if (as.place == form::question_place::both && !as.later)
    asked.copy = {position(content_at), position(content_at + question.size() - 1) + 1};
  if (chat_) asked.ranges = said.ranges();
  asked.reply = last.reply;
  if (!as.primed && !(as.nothing && !last.reply.empty())) return asked;
  const std::vector<token_id> begun =
      words_.encode((chat_ ? "" : " ") + last.reply, {.add_special = false, .continues = true});
  std::vector<token_id>& open = as.later ? asked.turn : asked.prompt;
  open.insert(open.end(), begun.begin(), begun.end());
  if (chat_) asked.ranges.back().end += begun.size();
  asked.reply.clear();
  return asked;
}

}  // namespace decode::retrieval
