// SPDX-License-Identifier: Apache-2.0
#include "chat_template.hpp"

#include <algorithm>  // std::count_if, std::find_if, std::lower_bound, std::min
#include <cstdint>    // std::uint64_t
#include <optional>   // std::optional
#include <utility>    // std::exchange

#include <nlohmann/json.hpp>

#include "input_error.hpp"
#include "json_file.hpp"
#include "unicode.hpp"

namespace decode {
namespace {

// What Jinja's `trim` leaves: Python takes four control characters for white space beside Unicode's.
std::string_view trimmed(std::string_view text) {
  const auto is_separator = [](char c) { return c >= '\x1c' && c <= '\x1f'; };
  for (std::size_t before = text.size() + 1; before != text.size();) {
    before = text.size();
    text.remove_prefix(white_space_end(text, 0));
    text = text.substr(0, white_space_begin(text));
    while (!text.empty() && is_separator(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_separator(text.back())) text.remove_suffix(1);
  }
  return text;
}

// What stands behind the thoughts of an answer.
std::string_view without_thoughts(std::string_view text) {
  constexpr std::string_view end = "</think>";
  const std::size_t at = text.rfind(end);
  if (at == text.npos) return text;
  text.remove_prefix(at + end.size());
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

// Where the last paragraph of a message begins: behind its last empty line that text follows.
std::size_t last_paragraph(std::string_view content) {
  const std::size_t blank = content.rfind("\n\n", content.find_last_not_of(" \n\r\t"));
  return blank == content.npos ? 0 : blank + 2;
}

struct found_template {
  std::string text, where;
};

// A template alone is what newer checkpoints have, and counts where both are there.
std::filesystem::path template_alone(const std::filesystem::path& directory) {
  return directory / "chat_template.jinja";
}
std::filesystem::path tokenizer_config(const std::filesystem::path& directory) {
  return directory / "tokenizer_config.json";
}

found_template find_template(const std::filesystem::path& directory) {
  const auto alone = template_alone(directory), config = tokenizer_config(directory);
  if (is_there(alone)) return {read_text(alone, std::uint64_t{1} << 24), named(alone)};
  const std::string where = named(config) + ": chat_template";
  const auto none = [&] {
    fail(where,
         " is missing, so that nothing says how this model reads messages; write them yourself, with --prompt "
         "and --turn");
  };
  if (!is_there(config)) none();
  const json text = read_json(config);
  const auto said = field(text, named(config) + ": ").find("chat_template");
  if (!said) none();
  if (!said->value().is_array()) return {said->text(), where};
  for (const field& one : said->elements()) {
    if (one.at("name").text() == "default") return {one.at("template").text(), where};
  }
  fail(where, " has none with the name default");
}

// A text whose control tokens are known by their places.
class written_text {
 public:
  /// @param known, in_contents  marks of the template, and of messages
  written_text(const std::vector<std::string>& known, const std::vector<std::string>& in_contents)
      : known_(known), in_contents_(in_contents) {}

  /// Of the template.
  void add(std::string_view part) { add(part, known_); }
  /// Of a message.
  void add_content(std::string_view part) { add(part, in_contents_); }
  /// What comes is another piece.
  void end_piece() { ends_.push_back(text_.size()); }

  const std::string& text() const { return text_; }
  const std::vector<std::size_t>& ends() const { return ends_; }
  bool mark_at(std::size_t byte) const {
    const auto mark = first_from(byte);
    return mark != marks_.end() && mark->begin == byte;
  }
  /// What lies between the control tokens of text[begin, end), in bytes from `begin` on.
  std::vector<byte_range> between_marks(std::size_t begin, std::size_t end) const {
    std::vector<byte_range> found;
    std::size_t at = begin;
    for (auto mark = first_from(begin); mark != marks_.end() && mark->begin < end; ++mark) {
      found.push_back({at - begin, mark->begin - begin});
      at = mark->end;
    }
    found.push_back({at - begin, end - begin});
    return found;
  }

 private:
  // These marks are control tokens.
  void add(std::string_view part, const std::vector<std::string>& known) {
    while (!part.empty()) {
      const auto mark =
          std::find_if(known.begin(), known.end(), [&](const std::string& one) { return part.starts_with(one); });
      const std::size_t size = mark == known.end() ? 1 : mark->size();
      if (mark != known.end()) marks_.push_back({text_.size(), text_.size() + size});
      text_ += part.substr(0, size);
      part.remove_prefix(size);
    }
  }
  std::vector<byte_range>::const_iterator first_from(std::size_t byte) const {
    return std::lower_bound(marks_.begin(), marks_.end(), byte,
                            [](byte_range mark, std::size_t at) { return mark.begin < at; });
  }

  const std::vector<std::string>&known_, &in_contents_;
  std::string text_;
  std::vector<byte_range> marks_;
  std::vector<std::size_t> ends_;
};

// Bytes [begin, end) of a text.
std::vector<token_id> ids_of(const tokenizer& words, const written_text& from, std::size_t begin, std::size_t end,
                             encode_options options) {
  const std::vector<byte_range> between = from.between_marks(begin, end);
  options.add_special = options.allow_unknown = false;
  options.plain = between;
  std::vector<token_id> ids = words.encode(std::string_view(from.text()).substr(begin, end - begin), options);
  const auto control = std::count_if(ids.begin(), ids.end(), [&](token_id id) { return words.special(id); });
  if (ids.size() <= options.most && control != static_cast<std::ptrdiff_t>(between.size()) - 1)
    fail("a message has a word that this tokenizer knows as a control token alone");
  return ids;
}

// Appends the tokens of a text. Pieces that begin with a control token are encoded one by one. Others end where the
// text up to there would.
// @return  [pieces]  tokens up to their ends
std::vector<std::size_t> encode(const tokenizer& words, const written_text& from, encode_options options,
                                std::vector<token_id>& ids) {
  std::vector<std::size_t> tokens;
  std::size_t begin = 0;  // of the first piece that has no tokens yet
  for (std::size_t piece = 0; piece < from.ends().size(); ++piece) {
    const std::size_t end = from.ends()[piece];
    const std::vector<token_id> found = ids_of(words, from, begin, end, options);
    tokens.push_back(ids.size() + found.size());
    if (piece + 1 < from.ends().size() && !from.mark_at(end)) continue;
    ids.insert(ids.end(), found.begin(), found.end());
    options.continues = true;
    begin = end;
  }
  return tokens;
}

std::string text_of(const tokenizer& words, std::optional<token_id> id) {
  return id ? std::string(words.text_of(*id)) : std::string();
}

}  // namespace

std::string_view name_of(chat_role role) {
  return role == chat_role::system ? "system" : role == chat_role::user ? "user" : "assistant";
}

chat_template::chat_template(const std::filesystem::path& directory, const tokenizer& words, const std::string& today,
                             const std::vector<std::string>& in_contents)
    : words_(words), in_contents_(in_contents) {
  const found_template found = find_template(directory);
  form_ = read_chat_form(found.text, {text_of(words, words.bos()), text_of(words, words.eos()), today}, found.where);
  const auto control = [&](const std::string& mark) {
    const auto id = words.id_of(mark);
    return id && words.special(*id);
  };
  for (const std::string& mark : form_.marks) {
    if (!control(mark)) fail(found.where, " writes ", shown(mark), ", which is no control token of this tokenizer");
    marks_.push_back(mark);
  }
  for (const std::string& mark : form_.marks_or_text) {
    if (control(mark)) marks_.push_back(mark);
  }
  for (const std::string& mark : in_contents_) {
    if (!control(mark)) fail(shown(mark), " is no control token of this tokenizer, so that no message can have it");
  }
  for (const std::string& mark : marks_) {
    if (form_.assistant.after.starts_with(mark)) end_of_turn_ = *words.id_of(mark);
  }
}

bool chat_template::is_named(const std::filesystem::path& directory) {
  const auto config = tokenizer_config(directory);
  if (is_there(template_alone(directory))) return true;
  if (!is_there(config)) return false;
  const json text = read_json(config);
  return field(text, named(config) + ": ").find("chat_template").has_value();
}

chat_passage chat_template::begin(std::span<const chat_message> messages, std::size_t most) const {
  return passage(messages, true, most);
}

chat_passage chat_template::next(std::span<const chat_message> messages, std::size_t most) const {
  return passage(messages, false, most);
}

chat_passage chat_template::passage(std::span<const chat_message> messages, bool begins, std::size_t most) const {
  using enum chat_role;
  using enum chat_form::system_place;
  written_text text(marks_, in_contents_);
  chat_passage to;
  std::size_t asked = 0;  // number of the piece before the question, which is a piece of its own
  const auto write = [&](chat_role role, const std::string& before, std::string_view content, const std::string& after,
                         bool last = false) {
    text.add(before);
    const std::size_t at = last ? last_paragraph(content) : content.size();
    text.add_content(content.substr(0, at));
    if (last) {
      text.end_piece();
      asked = text.ends().size() - 1;
      text.add_content(content.substr(at));
      text.end_piece();
    }
    text.add(after);
    text.end_piece();
    to.messages.push_back({role, std::string(content)});
  };
  const auto& [system_begins, system_ends] = form_.system;
  std::string user_begins = form_.user.before;
  text.add(begins ? form_.head : form_.assistant.after);
  if (!begins) text.end_piece();
  const bool given = !messages.empty() && messages.front().role == system;
  if (begins && !given && (form_.always_system || !form_.default_system.empty()))
    write(system, system_begins, form_.default_system, system_ends);
  for (const auto& [role, content] : messages) {
    if (role == user) {
      const bool last = &content == &messages.back().content;
      write(user, user_begins, form_.trims ? trimmed(content) : content, form_.user.after, last);
      user_begins = form_.user.before;
    } else if (role == assistant) {
      const std::string_view answer = form_.drops_thoughts ? without_thoughts(content) : content;
      write(assistant, form_.assistant.before, form_.trims_answers ? trimmed(answer) : answer, form_.assistant.after);
    } else if (form_.place == message) {
      write(system, system_begins, form_.trims ? trimmed(content) : content, system_ends);
    } else if (form_.place == before_first_user) {
      write(system, std::exchange(user_begins, ""), content, "\n\n");
    } else {
      fail("this model's template takes no message of the system",
           form_.place == nowhere ? "" : " that stays in its place",
           "; leave it out, or begin the first message of the user with it");
    }
  }
  text.add(form_.answer_begins);
  text.end_piece();
  std::vector<std::size_t> ends = encode(words_, text, {.most = most, .continues = !begins}, to.ids);
  if (!messages.empty() && messages.back().role == user) {
    const auto piece = ends.begin() + static_cast<std::ptrdiff_t>(asked);
    to.question = {piece[0], piece[1]};
    ends.erase(piece, piece + 2);
  }
  std::size_t begin = 0;
  if (!begins) {
    begin = to.closing = ends.front();
    ends.erase(ends.begin());
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const chat_role role = i < to.messages.size() ? to.messages[i].role : assistant;
    to.ranges.push_back({role, std::exchange(begin, ends[i]), ends[i]});
  }
  to.text = text.text();
  return to;
}

}  // namespace decode
