// SPDX-License-Identifier: Apache-2.0
#include "chat_form.hpp"

#include <algorithm>         // std::any_of
#include <initializer_list>  // std::initializer_list
#include <optional>          // std::optional
#include <vector>            // std::vector

#include "input_error.hpp"

namespace decode {
namespace {

constexpr std::size_t longest_template = 1 << 20;  // bytes

void replace(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size())
    out.append(text, done, at - done) += to;
  text = out.append(text, done);
}

// A template in one spelling: message.role as message['role'], quotes alike, a line's end as \n, no blanks around
// operators.
std::string in_one_spelling(std::string_view text) {
  std::string out(text);
  replace(out, "\r\n", "\n");
  replace(out, "\n", "\\n");
  replace(out, "\"", "'");
  replace(out, "message.role", "message['role']");
  replace(out, "message.content", "message['content']");
  std::string tight;
  bool after_sign = false;
  for (const char c : out) {
    const bool sign = c == '+' || c == '|';
    while (sign && tight.ends_with(' ')) tight.pop_back();
    if (c == ' ' && after_sign) continue;
    tight += c;
    after_sign = sign;
  }
  return tight;
}

// A template, for questions about its expressions.
class spelled {
 public:
  spelled(std::string_view text, const std::string& where) : text_(in_one_spelling(text)), where_(where) {}

  bool has(std::string_view part) const { return text_.find(part) != text_.npos; }
  bool has_any(std::initializer_list<std::string_view> parts) const {
    return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) { return has(part); });
  }
  /// What stands behind `part`, in each place where that is.
  std::vector<std::string_view> behind(std::string_view part) const {
    std::vector<std::string_view> found;
    for (std::size_t at = 0; (at = text_.find(part, at)) != text_.npos;)
      found.push_back(std::string_view(text_).substr(at += part.size()));
    return found;
  }
  std::string expect(const std::string& token, const char* name) const {
    if (token.empty()) fail(where_, " writes ", name, ", which tokenizer_config.json does not name");
    return token;
  }

 private:
  std::string text_;
  const std::string& where_;
};

std::optional<chat_form> chatml(const spelled& text) {
  const bool writes = text.has_any({R"('<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>'+'\n')",
                                    R"('<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>\n')",
                                    R"('<|im_start|>'+message['role']+'\n'+content+'<|im_end|>'+'\n')"});
  if (!writes || !text.has(R"('<|im_start|>assistant\n')")) return std::nullopt;
  if (text.has_any({"|trim", "bos_token", "strftime_now", "<|im_sep|>"})) return std::nullopt;
  const auto message = [](const std::string& role) {
    return chat_form::around{"<|im_start|>" + role + "\n", "<|im_end|>\n"};
  };
  chat_form form;
  form.system = message("system"), form.user = message("user"), form.assistant = message("assistant");
  form.answer_begins = form.assistant.before;
  for (const std::string_view rest : text.behind(R"('<|im_start|>system\n)")) {
    if (rest.starts_with("' }}") || rest.starts_with("' -}}") || rest.starts_with("'+messages[0]")) continue;
    std::string found(rest.substr(0, rest.find("<|im_end|>")));
    replace(found, "\\n", "\n");
    const bool plain = !found.empty() && found.find_first_of("'\\{}+|") == found.npos;
    if (!plain || (!form.default_system.empty() && form.default_system != found)) return std::nullopt;
    form.default_system = found;
  }
  form.drops_thoughts = text.has("</think>");
  form.marks = {"<|im_start|>", "<|im_end|>"};
  return form;
}

std::optional<chat_form> llama3(const spelled& text, const chat_surroundings& around) {
  if (!text.has(
          R"('<|start_header_id|>'+message['role']+'<|end_header_id|>\n\n'+message['content']|trim+'<|eot_id|>')"))
    return std::nullopt;
  if (!text.has(R"('<|start_header_id|>assistant<|end_header_id|>\n\n')") || !text.has("bos_token"))
    return std::nullopt;
  const auto message = [](const std::string& role) {
    return chat_form::around{"<|start_header_id|>" + role + "<|end_header_id|>\n\n", "<|eot_id|>"};
  };
  chat_form form;
  form.head = text.expect(around.bos, "bos_token");
  form.system = message("system"), form.user = message("user"), form.assistant = message("assistant");
  form.answer_begins = form.assistant.before;
  form.trims = form.trims_answers = true;
  form.marks = {form.head, "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
  if (!text.has("Today Date: ")) return form;
  std::string date = around.today;
  if (!text.has("strftime_now('%d %b %Y')")) {
    const auto fixed = text.behind("date_string = '");
    date = fixed.empty() ? "" : fixed.front().substr(0, fixed.front().find('\''));
  }
  if (date.empty() || !text.has(R"('Cutting Knowledge Date: December 2023\n')")) return std::nullopt;
  if (!text.has(R"('Today Date: '+date_string+'\n\n')")) return std::nullopt;
  form.system.before += "Cutting Knowledge Date: December 2023\nToday Date: " + date + "\n\n";
  form.always_system = true;
  return form;
}

std::optional<chat_form> gemma(const spelled& text, const chat_surroundings& around) {
  if (!text.has(R"('<start_of_turn>'+role+'\n')")) return std::nullopt;
  if (!text.has(R"(<end_of_turn>\n')") || !text.has(R"('<start_of_turn>model\n')")) return std::nullopt;
  if (!text.has("message['content']|trim") || !text.has("bos_token")) return std::nullopt;
  using enum chat_form::system_place;
  chat_form form;
  form.head = text.expect(around.bos, "bos_token");
  form.user = {"<start_of_turn>user\n", "<end_of_turn>\n"};
  form.assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"};
  form.answer_begins = form.assistant.before;
  form.trims = form.trims_answers = true;
  form.place = text.has(R"(first_user_prefix = messages[0]['content']+'\n\n')") ? before_first_user : nowhere;
  form.marks = {form.head, "<start_of_turn>", "<end_of_turn>"};
  return form;
}

std::optional<chat_form> mistral(const spelled& text, const chat_surroundings& around) {
  if (text.has("SYSTEM_PROMPT") || !text.has("bos_token")) return std::nullopt;
  using enum chat_form::system_place;
  chat_form form;
  for (const chat_form::around& user :
       {chat_form::around{" [INST] ", " [/INST]"}, chat_form::around{"[INST] ", " [/INST]"},
        chat_form::around{"[INST] ", "[/INST]"}, chat_form::around{"[INST]", "[/INST]"}}) {
    if (form.user.before.empty() && text.has("'" + user.before + "'+message['content']+'" + user.after + "'"))
      form.user = user;
  }
  form.trims_answers = text.has("message['content']|trim+eos_token");
  if (form.user.before.empty() || !(form.trims_answers || text.has("message['content']+eos_token")))
    return std::nullopt;
  form.head = text.expect(around.bos, "bos_token");
  form.assistant.before =
      text.has_any({"' '+message['content']+eos_token", "' '+message['content']|trim+eos_token"}) ? " " : "";
  form.assistant.after = text.expect(around.eos, "eos_token") + (text.has("eos_token+' '") ? " " : "");
  const bool before_user = text.has(R"(system_message+'\n\n'+message['content'])");
  form.place = !before_user                                ? nowhere
               : text.has("loop.first and system_message") ? before_first_user
                                                           : before_last_user;
  form.marks = {form.head, around.eos};
  form.marks_or_text = {"[INST]", "[/INST]"};
  return form;
}

}  // namespace

chat_form read_chat_form(std::string_view text, const chat_surroundings& around, const std::string& where) {
  if (text.size() > longest_template)
    fail(where, " has ", text.size(), " bytes, but may have at most ", longest_template);
  const spelled known(text, where);
  if (const auto form = chatml(known)) return *form;
  if (const auto form = llama3(known, around)) return *form;
  if (const auto form = gemma(known, around)) return *form;
  if (const auto form = mistral(known, around)) return *form;
  fail(where,
       " is none that is known here: ChatML as SmolLM2 and Qwen write it, Llama 3, Gemma and Mistral; write the "
       "messages yourself, with --prompt and --turn");
}

}  // namespace decode
