// SPDX-License-Identifier: Apache-2.0
#include "lessons.hpp"

#include <span>    // std::span
#include <string>  // std::string

namespace decode::retrieval {
namespace {

void append(std::vector<token_id>& text, std::span<const token_id> more) {
  text.insert(text.end(), more.begin(), more.end());
}

}  // namespace

lesson lesson_of(const scene& on, const problem& asked) {
  lesson result;
  result.kind = asked.kind, result.text = asked.prompt;
  result.prompts.push_back({0, static_cast<index_t>(asked.prompt.size())});
  std::string written;
  for (std::size_t i = 0; i < asked.answers.size(); ++i) {
    if (i > 0)
      append(result.text, asked.goes_on.empty() ? on.words.encode(",", {.add_special = false}) : asked.goes_on);
    const std::vector<index_t> next = needed_next(asked, asked.evidence, written);
    result.moments.push_back({result.text.size(), next});
    const std::vector<token_id> tokens = on.words.encode(" " + asked.answers[i], {.add_special = false});
    const std::size_t middle = tokens.size() / 2;
    append(result.text, std::span(tokens).first(middle));
    // From its middle on the answer is known that is written, where there is no order too.
    const auto own = in_order(asked.kind) ? next : std::vector{asked.evidence[i]};
    if (middle > 0) result.moments.push_back({result.text.size(), own});
    if (i + 1 < asked.answers.size()) append(result.text, std::span(tokens).subspan(middle));
    written += ' ' + asked.answers[i];
  }
  return result;
}

lesson lesson_of(const tokenizer& words, const form& as, const form_problem& asked) {
  lesson result;
  if (as.source == form::material::notes) result.kind = task::notes;
  result.text = asked.tokens(), result.question = asked.question;
  result.prompts.push_back({0, static_cast<index_t>(asked.prompt.size())});
  const auto end = static_cast<index_t>(result.text.size());
  if (!asked.turn.empty()) result.prompts.push_back({end - static_cast<index_t>(asked.turn.size()), end});
  const auto write = [&](const std::string& part) {
    const std::vector<token_id> tokens = words.encode(part, {.add_special = false, .continues = true});
    const std::size_t middle = tokens.size() / 2;
    result.moments.push_back({result.text.size(), asked.evidence});
    if (middle > 0) result.moments.push_back({result.text.size() + middle, asked.evidence});
    append(result.text, tokens);
  };
  // In a message an answer begins without a blank, unless it is begun.
  const bool begins = !asked.ranges.empty() && !as.primed && !as.nothing;
  if (!asked.reply.empty()) write((begins ? "" : " ") + asked.reply);
  write((asked.reply.empty() && begins ? "" : " ") + asked.answers.front());
  result.text.resize(result.moments.back().passed);
  return result;
}

}  // namespace decode::retrieval
