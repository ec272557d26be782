// SPDX-License-Identifier: Apache-2.0
#include "scene.hpp"

#include <charconv>      // std::from_chars
#include <system_error>  // std::errc
#include <type_traits>   // std::remove_cvref_t

#include "../../decode/input_error.hpp"

namespace decode::retrieval {
namespace {

void expect_context(index_t tokens, const group& kind, std::size_t context) {
  if (static_cast<std::size_t>(tokens) + 64 <= context) return;
  fail(kind.name(), ": problems of ", tokens, " tokens and an answer are longer than this model's context of ",
       context);
}

}  // namespace

std::pair<std::string, index_t> name_and_tokens(const std::string& spec) {
  const std::size_t at = spec.find('@');
  if (at == std::string::npos) return {spec, 0};
  const char *const first = spec.data() + at + 1, *const last = spec.data() + spec.size();
  index_t tokens = 0;
  const auto [end, wrong] = std::from_chars(first, last, tokens);
  if (wrong != std::errc() || end != last || tokens < 1) fail(spec, ": behind the @ stands a number of tokens");
  return {spec.substr(0, at), tokens};
}

std::vector<group> groups_of(const scene_options& asked) {
  std::vector<group> groups;
  for (const std::string& spec : asked.tasks) {
    const auto [name, own_tokens] = name_and_tokens(spec);
    const task kind = task_named(name);
    if (own_tokens > 0) {
      groups.push_back({kind, {.tokens = own_tokens, .notes = 0}});
    } else if (has_notes(kind) && !asked.notes.empty()) {
      for (const index_t notes : asked.notes) groups.push_back({kind, {.tokens = 0, .notes = notes}});
    } else {
      for (const index_t tokens : asked.tokens) groups.push_back({kind, {.tokens = tokens, .notes = 0}});
    }
  }
  return groups;
}

scene::scene(const scene_options& from)
    : loaded_model(from.directory), given(from), problems(words, from.texts, from.marks), groups(groups_of(from)) {
  problems.mark(classes.usual);
  for (const group& one : groups) expect_context(one.size.tokens, one, config.context);
}

problem scene::make(const group& of, index_t number) const {
  const auto kind = static_cast<std::uint64_t>(of.kind);
  const std::uint64_t seed =
      ((given.seed * 1000003 + kind) * 1000003 + static_cast<std::uint64_t>(of.size.number())) * 1000003 +
      static_cast<std::uint64_t>(number / given.questions);
  problem asked = problems.make(of.kind, of.size, seed, {given.questions, number % given.questions});
  std::size_t tokens = asked.prompt.size();
  for (const problem& one : asked.later) tokens += one.prompt.size() + 64;
  if (of.size.notes > 0 || given.questions > 1) expect_context(static_cast<index_t>(tokens), of, config.context);
  return asked;
}

std::string scene::label() const {
  std::string text = last_name(given.directory);
  for (const std::string& one : given.texts) text += ", " + last_name(one);
  text += ", seed " + std::to_string(given.seed);
  return given.questions == 1 ? text : text + ", " + std::to_string(given.questions) + " questions";
}

line_file scene::resume(const std::string& label, const std::function<void(const field& line)>& visit) const {
  return labelled_lines(given.resume, label, visit);
}

std::vector<index_t> scene::needed_segments(std::span<const token_id> prompt, const problem& asked) const {
  std::vector<index_t> found(asked.evidence.size(), -1);
  with_segmenter(asked.kind, [&](const auto& segmenter) {
    const std::vector<zoomr::token_class>& of_tokens = classes.read_by(segmenter);
    typename std::remove_cvref_t<decltype(segmenter)>::state state{};
    const auto last = static_cast<index_t>(prompt.size()) - 1;
    index_t count = 0;
    for (index_t position = 0; position <= last; ++position) {
      zoomr::closings closed;
      const auto token = static_cast<std::size_t>(prompt[static_cast<std::size_t>(position)]);
      segmenter.feed(state, of_tokens[token], position, closed);
      if (position == last) segmenter.end_of_prompt(state, position, closed);
      for (index_t c = 0; c < closed.count; ++c, ++count) {
        for (std::size_t i = 0; i < found.size(); ++i) {
          const index_t at = asked.evidence[i];
          if (closed.at[c].begin <= at && at < closed.at[c].split) found[i] = count;
        }
      }
    }
  });
  return found;
}

std::vector<index_t> needed_next(const problem& asked, const std::vector<index_t>& needed, std::string_view written) {
  std::vector<index_t> next;
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (written.find(asked.answers[i]) == std::string_view::npos) next.push_back(needed[i]);
  }
  if (needed.empty()) return next;
  if (in_order(asked.kind)) return {next.empty() ? needed.back() : next.front()};
  return next.empty() ? needed : next;
}

}  // namespace decode::retrieval
