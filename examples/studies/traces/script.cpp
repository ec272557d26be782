// SPDX-License-Identifier: Apache-2.0
#include "script.hpp"

#include <algorithm>  // std::ranges::any_of, std::ranges::reverse

#include "../../decode/input_error.hpp"

namespace decode::traces {
namespace {

// What of the text goes before each part, and how much the model may write of it.
struct part_text {
  trace_script::part kind;
  index_t number;
  std::string said, given;  // given: what the model should write, if anything
};

std::vector<part_text> parts_of(const trace_problem& asked, const marks& as) {
  using part = trace_script::part;
  std::vector<part_text> parts;
  std::string before = as.thought_begin;
  for (index_t i = 0; i < static_cast<index_t>(asked.steps.size()); ++i) {
    const step& line = asked.steps[static_cast<std::size_t>(i)];
    parts.push_back({part::step, i, before + line.said, line.worked});
    before.clear();
    const bool closes = (i + 1) % asked.per_thought == 0 || i + 1 == static_cast<index_t>(asked.steps.size());
    if (!closes) continue;
    const auto thought = static_cast<std::size_t>(i / asked.per_thought);
    parts.push_back({part::summary, i / asked.per_thought, as.thought_end + as.summary_begin + asked.cues[thought],
                     asked.summaries[thought]});
    before = as.summary_end + '\n';
    if (i + 1 < static_cast<index_t>(asked.steps.size())) before += as.thought_begin;
  }
  for (std::size_t i = 0; i < asked.questions.size(); ++i) {
    const question& one = asked.questions[i];
    parts.push_back(
        {part::answer, static_cast<index_t>(i), before + one.said, ' ' + std::to_string(one.value) + ".\n"});
    before.clear();
  }
  return parts;
}

std::string text_of_all(const trace_problem& asked, const marks& as) {
  std::string text;
  for (const part_text& one : parts_of(asked, as)) text += one.said + one.given;
  return text;
}

}  // namespace

void expect_four(const std::vector<std::string>& names) {
  if (names.size() != 4)
    fail("--marks: four tokens that begin and end thoughts and summaries are needed, but ", names.size(), " are named");
}

std::string prompt_of(const tokenizer& words, task kind, const trace_problem& asked, const marks& as) {
  const retrieval::turn_texts turns = retrieval::turns_of(words);
  const trace_problem example = worked_example(kind, asked.per_thought);
  return turns.user + example.user + turns.end + turns.model + text_of_all(example, as) + turns.end + turns.user +
         asked.user + turns.end + turns.model;
}

trace_script::trace_script(const tokenizer& words, const trace_problem& asked, const marks& as, part_limits most,
                           bool given)
    : words_(words), asked_(asked) {
  for (const part_text& one : parts_of(asked, as)) {
    plan next{one.said, "", 0};
    if (one.kind != part::answer && given) {
      next.given = one.given;
    } else if (!one.given.empty()) {
      next.limit = one.kind == part::step ? most.step : one.kind == part::summary ? most.summary : most.answer;
    }
    plans_.push_back(std::move(next));
    pieces_.push_back({one.kind, one.number, "", -1, 0});
  }
  begin_part();
}

void trace_script::begin_part() {
  began_ = false;
  if (done()) return;
  const plan& next = plans_[at_];
  // marks follow any text, but a line begins behind the end of another one
  const bool breaks = !ends_line_ && pieces_[at_].kind != part::summary && pieces_[at_ - 1].kind != part::summary;
  const auto encoded = [&](const std::string& text) {
    return words_.encode(text, {.add_special = false, .continues = true});
  };
  const std::vector<token_id> said = encoded((breaks ? "\n" : "") + next.said);
  ahead_ = encoded(next.given);
  ahead_.insert(ahead_.begin(), said.begin(), said.end());
  said_ = said.size();
  std::ranges::reverse(ahead_);
}

std::optional<token_id> trace_script::forced() const {
  if (ahead_.empty()) return std::nullopt;
  return ahead_.back();
}

void trace_script::count(token_id id) {
  const std::string text = words_.piece(id, false);
  const bool digit = std::ranges::any_of(text, [](char c) { return '0' <= c && c <= '9'; });
  if (digit) pieces_[at_].value_at = static_cast<index_t>(tokens_.size());
  if (!text.empty()) ends_line_ = text.back() == '\n';
}

void trace_script::push(token_id id) {
  piece& now = pieces_[at_];
  count(id);
  tokens_.push_back(id);
  began_ = true;
  if (!ahead_.empty()) {
    ahead_.pop_back();
    if (said_ > 0) {
      --said_;
    } else {
      now.text += words_.piece(id, false);
    }
    if (ahead_.empty() && plans_[at_].limit == 0) end_part();
    return;
  }
  const std::string text = words_.piece(id, false);
  now.text += text, ++now.own_tokens;
  int value = 0;
  const bool answered =
      now.kind == part::answer && first_number(now.text, value) && text.find_first_of(".,;") != std::string::npos;
  if (text.find('\n') != std::string::npos || answered || now.own_tokens >= plans_[at_].limit) end_part();
}

void trace_script::end_part() {
  ++at_;
  begin_part();
}

index_t trace_script::most_tokens() const {
  index_t most = 0;
  for (const plan& one : plans_) {
    for (const std::string* const text : {&one.said, &one.given})
      most += static_cast<index_t>(words_.encode(*text, {.add_special = false, .continues = true}).size());
    most += one.limit + 1;  // a line's end that the model did not write
  }
  return most;
}

const std::vector<index_t>& trace_script::reads() const {
  static const std::vector<index_t> none;
  if (done()) return none;
  const auto number = static_cast<std::size_t>(pieces_[at_].number);
  if (pieces_[at_].kind == part::step) return asked_.steps[number].reads;
  if (pieces_[at_].kind == part::summary) return none;
  return asked_.questions[number].reads;
}

index_t trace_script::value_at(index_t step) const {
  for (std::size_t i = 0; i < at_; ++i) {
    if (pieces_[i].kind == part::step && pieces_[i].number == step) return pieces_[i].value_at;
  }
  return -1;
}

const std::string& trace_script::text_of(part kind, index_t number) const {
  static const std::string none;
  for (const piece& one : pieces_) {
    if (one.kind == kind && one.number == number) return one.text;
  }
  return none;
}

}  // namespace decode::traces
