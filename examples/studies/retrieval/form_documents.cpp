// SPDX-License-Identifier: Apache-2.0
#include "form_documents.hpp"

#include <algorithm>  // std::min
#include <cctype>     // std::tolower
#include <utility>    // std::move

#include "../../decode/input_error.hpp"
#include "facts.hpp"
#include "places.hpp"

namespace decode::retrieval {
namespace {

constexpr std::size_t hidden = 5;  // facts in a passage
constexpr std::size_t rows = 12;   // of a table or an object
constexpr std::size_t notes = 9;
constexpr index_t fact_tokens = 16;      // of a sentence, about
constexpr index_t before_facts = 48;     // tokens of the document, at least: no fact is in its first segment
constexpr index_t behind_facts = 160;    // no fact is where presets always read
constexpr index_t around_note = 40;      // tokens of a note that are not the novel's, about
constexpr index_t longest_in_note = 48;  // tokens of a novel's sentence
constexpr std::size_t notes_behind = 3;  // none of the last ones is asked about: they are where presets always read

}  // namespace

std::vector<std::string> split(std::string_view text, char mark) {
  std::vector<std::string> pieces;
  for (std::size_t end = 0; end != text.npos; text.remove_prefix(std::min(end + 1, text.size()))) {
    end = text.find(mark);
    pieces.emplace_back(text.substr(0, end));
  }
  return pieces;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

document_writer::document_writer(const tokenizer& words, const std::vector<std::string>& texts,
                                 const std::vector<std::string>& as)
    : words_(words) {
  if (!as.empty()) marks_ = marks_of(words, as);
  for (const std::string& file : texts) {
    const std::vector<novel_sentence> more = sentences_of_novel(read_text(file, std::uint64_t{1} << 28));
    sentences_.insert(sentences_.end(), more.begin(), more.end());
  }
  if (sentences_.size() < 400) fail("the texts have ", sentences_.size(), " sentences, but 400 are needed");
}

std::vector<told_fact> document_writer::draw(form_material source, fact_half half, dice& random) {
  std::vector<told_fact> drawn;
  for (const std::size_t id : some_of(facts().size() / 2, rows, random)) {
    const fact& from = facts()[2 * id + static_cast<std::size_t>(half)];
    told_fact told{from.sentence, from.question, from.paraphrase,          from.first,
                   from.second,   from.key,      split(from.answers, '|'), {}};
    told.reply = told.sentence.substr(0, lower(told.sentence).find(lower(told.answers.front())));
    while (told.reply.ends_with(' ')) told.reply.pop_back();
    drawn.push_back(std::move(told));
  }
  if (source != form_material::keys) return drawn;
  drawn.clear();
  for (const std::size_t city : some_of(cities.size(), hidden - 1, random)) {
    const std::string number = digits(7, random), what = "special magic number for " + std::string(cities[city]);
    told_fact told;
    told.sentence = "One of the special magic numbers for " + std::string(cities[city]) + " is: " + number + ".";
    told.question = told.paraphrase = "What is the " + what + " mentioned in the provided text?";
    told.reply = "The " + what + " mentioned in the provided text is";
    told.answers = {number};
    drawn.push_back(std::move(told));
  }
  return drawn;
}

index_t document_writer::tokens_of(const novel_sentence& sentence) const {
  const std::vector<token_id> ids = words_.encode(" " + sentence.text, {.add_special = false});
  return static_cast<index_t>(ids.size()) + (sentence.ends_paragraph ? 1 : 0);
}

document_writer::passage document_writer::draw_passage(index_t room, index_t longest, dice& random) const {
  passage drawn;
  index_t length = 0;
  for (std::size_t at = below(sentences_.size(), random);; at = (at + 1) % sentences_.size()) {
    const index_t more = tokens_of(sentences_[at]);
    if (more > longest) continue;
    if (length + more > room) return drawn;
    drawn.sentences.push_back(&sentences_[at]), drawn.ends.push_back(length += more);
  }
}

form_document document_writer::write(form_material source, const std::vector<told_fact>& told, index_t tokens,
                                     dice& random) const {
  if (source == form_material::notes) return write_notes(told, tokens, random);
  const auto [read, ends] = draw_passage(tokens - static_cast<index_t>(hidden) * fact_tokens, zoomr::unlimited, random);
  std::vector<std::size_t> slots;  // behind which sentences a fact may stand
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] >= before_facts && ends.back() - ends[i] >= behind_facts) slots.push_back(i);
  }
  if (slots.size() < hidden) fail("a document of ", tokens, " tokens holds too few sentences; ask for more");
  std::vector<std::size_t> places;  // [facts]
  for (const std::size_t slot : some_of(slots.size(), hidden, random)) places.push_back(slots[slot]);
  const auto order = some_of(rows, rows, random);

  form_document written;
  written.evidence.resize(told.size());
  const auto add_row = [&](std::size_t id, const std::string& before, const std::string& after) {
    written.text += before;
    const std::string& value = told[id].answers.front();
    written.evidence[id] = {written.text.size() + value.size() - 1};
    written.text += value + after;
  };
  const auto add_sentence = [&](std::size_t id, const std::string& sentence) {
    written.text += ' ' + sentence;
    written.evidence[id].push_back(written.text.size() - 2);
  };
  const auto add_facts = [&](std::size_t place) {
    for (std::size_t id = 0; id < hidden && id < told.size(); ++id) {
      if (places[id] != place) continue;
      if (source == form_material::table) {
        written.text += "\n\n| What | Value |\n|---|---|\n";
        for (const std::size_t row : order) add_row(row, "| " + told[row].key + " | ", " |\n");
      } else if (source == form_material::json) {
        written.text += "\n\n{\n";
        for (const std::size_t row : order) add_row(row, "  \"" + told[row].key + "\": \"", "\",\n");
        written.text.erase(written.text.size() - 2, 1);  // the last comma
        written.text += "}\n";
      } else if (source == form_material::two_sentences) {
        add_sentence(id, told[id].first), add_sentence(id, told[id].second);
      } else {
        add_sentence(id, told[id].sentence);
      }
    }
  };
  const bool listed = source == form_material::table || source == form_material::json;
  for (std::size_t i = 0; i < read.size(); ++i) {
    written.text += read[i]->text;
    if (!listed || i == places.front()) add_facts(i);
    if (i + 1 == read.size()) break;
    written.text += written.text.ends_with('\n') ? "\n" : read[i]->ends_paragraph ? "\n\n" : " ";
  }
  return written;
}

// Each has a fact behind one of its sentences of the novel. Its summary says what it is about, and not the answer.
form_document document_writer::write_notes(const std::vector<told_fact>& told, index_t tokens, dice& random) const {
  if (marks_.thought_begin.empty()) fail("--forms notes: name four tokens that mark them, --marks A,B,C,D");
  const std::vector<const novel_sentence*> read =
      draw_passage(tokens - static_cast<index_t>(notes) * around_note, longest_in_note, random).sentences;
  if (read.size() < notes) fail("a document of ", tokens, " tokens holds too few sentences; ask for more");
  // [notes]  their facts: none that may be asked for is in the first one, or among the last
  std::vector<std::size_t> order(notes);
  const auto inner = some_of(notes - 1 - notes_behind, hidden, random);
  for (std::size_t id = 0; id < hidden; ++id) order[1 + inner[id]] = id + 1;
  std::size_t other = hidden;
  for (std::size_t& id : order) id = id > 0 ? id - 1 : other++;

  form_document written;
  written.evidence.resize(told.size());
  for (std::size_t note = 0; note < notes; ++note) {
    const std::size_t id = order[note], first = note * read.size() / notes, last = (note + 1) * read.size() / notes;
    const std::size_t behind = first + below(last - first, random);
    written.text += marks_.thought_begin + "Note on the " + told[id].key + '.';
    for (std::size_t i = first; i < last; ++i) {
      written.text += ' ' + read[i]->text;
      if (i != behind) continue;
      written.text += ' ' + told[id].sentence;
      written.evidence[id] = {written.text.size() - 2};
    }
    written.text += marks_.thought_end + marks_.summary_begin + "About the " + told[id].key + '.';
    written.text += marks_.summary_end + '\n';
  }
  return written;
}

}  // namespace decode::retrieval
