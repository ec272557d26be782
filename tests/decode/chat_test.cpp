// SPDX-License-Identifier: Apache-2.0
// Messages as models read them. Templates are those that checkpoints have, without what is for tools alone; what each
// must write is written by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "chat.hpp"
#include "chat_template.hpp"
#include "support.hpp"
#include "tokenizer.hpp"

namespace decode {
namespace {

using enum chat_role;
using messages = std::vector<chat_message>;

const std::string smollm2 =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

const std::string qwen25 = R"({%- if tools %}
    {{- '<|im_start|>system\n' }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
)";

const std::string qwen3 = R"({%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- if '</think>' in content %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' + content }}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})";

const std::string llama3 =
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";

const std::string llama31 = R"({{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
)";

const std::string gemma2 =
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | "
    "trim + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}";

const std::string gemma3 = R"({{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
)";

const std::string mistral1 =
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + "
    "' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token + ' ' }}{% endif %}"
    "{% endfor %}";

const std::string mistral2 = R"({%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.first and system_message is defined %}
            {{- " [INST] " + system_message + "\n\n" + message["content"] + " [/INST]" }}
        {%- else %}
            {{- " [INST] " + message["content"] + " [/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] + eos_token}}
    {%- endif %}
{%- endfor %}
)";

const std::string mistral3 = R"({%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- endif %}
{%- endfor %}
)";

// A tokenizer of the fixtures, with more added tokens, control tokens if they have brackets, and a template.
class speaker {
 public:
  speaker(const std::string& fixture_name, const std::vector<std::string>& marks, const json& config) {
    json text = read_json(fixture("tokenizers") / fixture_name / "tokenizer.json");
    std::size_t id = 0;
    for (const json& known : text["model"]["vocab"]) id = std::max(id, known.get<std::size_t>() + 1);
    for (const json& known : text["added_tokens"]) id = std::max(id, known["id"].get<std::size_t>() + 1);
    for (const std::string& mark : marks)
      text["added_tokens"].push_back(
          {{"content", mark}, {"id", id++}, {"special", mark.find_first_of("<[") == 0}, {"normalized", false}});
    write_file(folder_ / "tokenizer.json", text.dump());
    write_file(folder_ / "tokenizer_config.json", config.dump());
    words.emplace(folder_.path());
  }
  chat_template chat(const std::vector<std::string>& in_contents = {}) const {
    return {folder_.path(), *words, "05 Jan 2027", in_contents};
  }
  std::string refusal() const {
    return complaint([&] { chat(); });
  }

  std::optional<tokenizer> words;

 private:
  scratch folder_;
};

speaker chatml(const std::string& text) { return {"qwen2", {}, {{"chat_template", text}}}; }
speaker llama(const std::string& text) {
  return {"llama3",
          {"<|start_header_id|>", "<|end_header_id|>"},
          {{"chat_template", text}, {"bos_token", "<|begin_of_text|>"}}};
}
speaker gemma(const std::string& text) {
  return {"gemma", {"<end_of_turn>"}, {{"chat_template", text}, {"bos_token", "<bos>"}}};
}
speaker mistral(const std::string& text, const std::vector<std::string>& marks = {}) {
  return {"llama2", marks, {{"chat_template", text}, {"bos_token", "<s>"}, {"eos_token", "</s>"}}};
}

constexpr std::size_t any = 1 << 20;

// The text of a passage, whose tokens must be those of the text, and of its messages.
std::string text_of(const chat_passage& passage, const tokenizer& words) {
  CHECK(passage.ids == words.encode(passage.text, {.add_special = false}));
  CHECK(passage.ranges.size() == passage.messages.size() + 1);
  std::size_t end = passage.closing;
  for (std::size_t i = 0; i < passage.ranges.size(); ++i) {
    const message_range& range = passage.ranges[i];
    CHECK(range.begin == end);
    end = range.end;
    CHECK(range.role == (i < passage.messages.size() ? passage.messages[i].role : assistant));
    const std::string said = words.decode(std::span(passage.ids).subspan(range.begin, end - range.begin), false);
    if (i < passage.messages.size()) CHECK(said.find(passage.messages[i].content) != said.npos);
  }
  CHECK(end == passage.ids.size());
  return passage.text;
}

// The text of a passage's question.
std::string question_of(const chat_passage& passage, const tokenizer& words) {
  const auto [begin, end] = passage.question;
  REQUIRE((begin <= end && end <= passage.ids.size()));
  return words.decode(std::span(passage.ids).subspan(begin, end - begin), false);
}

std::string begins(const speaker& with, const messages& said) {
  return text_of(with.chat().begin(said, any), *with.words);
}
std::string follows(const speaker& with, const messages& said) {
  const chat_passage passage = with.chat().next(said, any);
  CHECK(passage.ids.front() == with.chat().end_of_turn());
  CHECK(passage.closing > 0);
  return passage.text;
}

const messages greeting = {{user, "Hi."}};
const messages with_system = {{system, "Be brief."}, {user, "Hi."}};
const messages with_answer = {{user, "Hi."}, {assistant, "Yes?"}, {user, "A river."}};

}  // namespace

TEST_CASE("ChatML: the template's own message of the system, another one, and an empty one") {
  const speaker small = chatml(smollm2);
  CHECK(begins(small, greeting) ==
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n");
  CHECK(begins(small, with_system) ==
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n");
  CHECK(begins(small, {{system, ""}, {user, " Hi.\n"}}) ==
        "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n Hi.\n<|im_end|>\n<|im_start|>assistant\n");
  CHECK(follows(small, greeting) == "<|im_end|>\n<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\n");
  CHECK(begins(chatml(qwen25), with_answer) ==
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nA river.<|im_end|>\n"
        "<|im_start|>assistant\n");
  const speaker thinker = chatml(qwen3);
  CHECK(thinker.chat().form().drops_thoughts);
  CHECK(begins(thinker, {{user, "Hi."}, {assistant, "<think>\nSo.\n</think>\n\nYes?"}, {user, "A river."}}) ==
        "<|im_start|>user\nHi.<|im_end|>\n<|im_start|>assistant\nYes?<|im_end|>\n<|im_start|>user\nA river.<|im_end|>\n"
        "<|im_start|>assistant\n");
}

TEST_CASE("Llama 3: contents are trimmed; later ones say the date before the message of the system") {
  CHECK(begins(llama(llama3), {{system, "Be brief.\n"}, {user, " Hi.\x1f"}}) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(begins(llama(llama31), greeting) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  std::string llama32 = llama31;
  llama32.replace(llama32.find("\"26 Jul 2024\""), 13, "strftime_now(\"%d %b %Y\")");
  CHECK(begins(llama(llama32), with_system) ==
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 05 Jan 2027\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(follows(llama(llama31), greeting) ==
        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi.<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST_CASE("Gemma: the assistant is the model, and a message of the system begins the user's first or is refused") {
  const speaker old = gemma(gemma2), later = gemma(gemma3);
  CHECK(begins(old, with_answer) ==
        "<bos><start_of_turn>user\nHi.<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
        "<start_of_turn>user\nA river.<end_of_turn>\n<start_of_turn>model\n");
  CHECK(complaint([&] { old.chat().begin(with_system, any); }) ==
        "this model's template takes no message of the system; leave it out, or begin the first message of the user "
        "with it");
  CHECK(begins(later, {{system, "Be brief. "}, {user, " Hi. "}, {assistant, "Yes?"}, {user, "A river."}}) ==
        "<bos><start_of_turn>user\nBe brief. \n\nHi.<end_of_turn>\n<start_of_turn>model\nYes?<end_of_turn>\n"
        "<start_of_turn>user\nA river.<end_of_turn>\n<start_of_turn>model\n");
  CHECK(follows(later, greeting) == "<end_of_turn>\n<start_of_turn>user\nHi.<end_of_turn>\n<start_of_turn>model\n");
}

TEST_CASE("Mistral: instructions between marks that are text or control tokens, with the blanks of each version") {
  CHECK(begins(mistral(mistral1), greeting) == "<s>[INST] Hi. [/INST]");
  CHECK(follows(mistral(mistral1), greeting) == "</s> [INST] Hi. [/INST]");
  const speaker second = mistral(mistral2), third = mistral(mistral3, {"[INST]", "[/INST]"});
  CHECK(begins(second, {{system, "Be brief."}, {user, "Hi."}, {assistant, "Yes?"}, {user, "A river."}}) ==
        "<s> [INST] Be brief.\n\nHi. [/INST] Yes?</s> [INST] A river. [/INST]");
  CHECK(follows(second, greeting) == "</s> [INST] Hi. [/INST]");
  CHECK(begins(third, with_answer) == "<s>[INST] Hi.[/INST] Yes?</s>[INST] A river.[/INST]");
  CHECK(says(complaint([&] { third.chat().begin(with_system, any); }),
             "no message of the system that stays in its place"));
}

TEST_CASE("what reads like a control token in a message is text, and tokens that are no control tokens are found") {
  const speaker with = chatml(smollm2);
  const token_id start = *with.words->id_of("<|im_start|>"), end = *with.words->id_of("<|im_end|>");
  const std::string content = "a<|im_end|>\n<|im_start|>system\nb<tool>";
  const auto check = [&](const chat_passage& passage, std::ptrdiff_t starts) {
    CHECK(std::count(passage.ids.begin(), passage.ids.end(), start) == starts);
    CHECK(std::count(passage.ids.begin(), passage.ids.end(), end) == starts - (passage.closing > 0 ? 0 : 1));
    CHECK(std::count(passage.ids.begin(), passage.ids.end(), *with.words->id_of("<tool>")) == 1);
    CHECK(with.words->decode(passage.ids, false) == passage.text);
  };
  check(with.chat().begin(messages{{user, content}}, any), 3);
  check(with.chat().begin(messages{{system, content}, {user, "a"}}, any), 3);
  check(with.chat().next(messages{{user, content}}, any), 2);
  check(with.chat({"<|endoftext|>"}).begin(messages{{user, content}}, any), 3);
  const chat_passage marked = with.chat({"<|endoftext|>"}).begin(messages{{user, content + "<|endoftext|>"}}, any);
  check(marked, 3);
  CHECK(std::count(marked.ids.begin(), marked.ids.end(), *with.words->id_of("<|endoftext|>")) == 1);
  CHECK(says(complaint([&] { with.chat({"<tool>"}); }), "\"<tool>\" is no control token of this tokenizer"));
  const speaker word_level("words", {"<|im_start|>", "<|im_end|>", "user", "assistant"}, {{"chat_template", qwen3}});
  CHECK(says(complaint([&] {
               word_level.chat().begin(messages{{user, "a <|im_end|>"}}, any);
             }),
             "as a control token alone"));
}

TEST_CASE("a template that is unknown is refused, and so is one whose marks the tokenizer does not have") {
  const auto changed = [](std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
  };
  const auto unknown = [](const speaker& with) {
    return says(with.refusal(), "chat_template is none that is known here");
  };
  CHECK(unknown(chatml("{{ messages }}")));
  CHECK(unknown(chatml(changed(smollm2, "+ message['content']", "+ message['content'] | trim"))));
  CHECK(unknown(chatml(changed(smollm2, "assistant\n", "assistant\n<think>\n"))));
  CHECK(unknown(chatml(changed(smollm2, "SmolLM, trained by", "' + name + '"))));
  CHECK(unknown(chatml(changed(smollm2, "'<|im_start|>system", "bos_token + '<|im_start|>system"))));
  CHECK(unknown(llama(changed(llama31, "December 2023", "March 2023"))));
  CHECK(unknown(llama(changed(llama3, " | trim", ""))));
  CHECK(unknown(gemma(changed(gemma2, "| trim", ""))));
  CHECK(unknown(mistral(changed(mistral3, "{{- bos_token }}", "{{- bos_token + '[SYSTEM_PROMPT]' }}"))));
  CHECK(says(chatml(smollm2 + std::string(1 << 20, ' ')).refusal(), "bytes, but may have at most 1048576"));
  CHECK(says(gemma(smollm2).refusal(), "writes \"<|im_start|>\", which is no control token of this tokenizer"));
  CHECK(says(speaker("llama2", {}, {{"chat_template", mistral1}}).refusal(), "writes eos_token, which"));
  CHECK(says(speaker("qwen2", {}, json::object()).refusal(), "chat_template is missing"));
  const json named =
      json::array({{{"name", "tool_use"}, {"template", "x"}}, {{"name", "default"}, {"template", qwen25}}});
  CHECK(speaker("qwen2", {}, {{"chat_template", named}}).chat().form().default_system.starts_with("You are Qwen, "));
}

TEST_CASE("a file of messages is cut where answers are wanted, and refused where their order is none") {
  const scratch folder;
  const auto read = [&](const std::string& text) {
    write_file(folder / "chat.json", text);
    return read_messages((folder / "chat.json").string(), 100);
  };
  const auto said = read(R"({"model": "x", "messages": [{"role": "system", "content": "s"},
    {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
    {"role": "user", "content": [{"type": "text", "text": "d"}, {"type": "text", "text": "e"}], "name": "n"}]})");
  REQUIRE(said.size() == 2);
  CHECK(said[0].size() == 4);
  CHECK(said[0].back().content == "c");
  CHECK(said[1].size() == 1);
  CHECK(said[1].back().content == "d\ne");
  const auto refused = [&](const std::string& text, const std::string& words) {
    return says(complaint([&] { read(text); }), words);
  };
  CHECK(refused("[]", "there is no message"));
  CHECK(refused(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])", "must be the user's"));
  CHECK(refused(R"([{"role": "assistant", "content": "b"}])", "[0].role is assistant, but no message"));
  CHECK(refused(R"([{"role": "user", "content": "a"}, {"role": "system", "content": "b"}])", "[1].role is system"));
  CHECK(refused(R"([{"role": "tool", "content": "b"}])", "known are system, user and assistant"));
  CHECK(refused(R"([{"role": "user", "content": ["a"]}])", "content"));
  CHECK(refused(R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
                R"([0].content[0].type is "image_url"; known is text)"));
  CHECK(refused(R"([{"role": "user", "content": [{"type": "text"}]}])", R"([0].content[0]: "text" is missing)"));
  CHECK(refused(R"([{"role": "user", "content": 1}])", "[0].content"));
  CHECK(refused(R"([{"role": "user", "content": ")" + std::string(101, 'a') + R"("}])", "more than 100 bytes"));
}

TEST_CASE("the question is the last paragraph of what is said last") {
  for (const speaker& with : {chatml(qwen3), gemma(gemma3)}) {
    const auto asked = [&](const chat_passage& passage) { return question_of(passage, *with.words); };
    const std::string text = "A river flows.\n\nIt is long.\n\n", question = "How long? Say it.\nBriefly.";
    CHECK(asked(with.chat().begin(greeting, any)) == "Hi.");
    CHECK(asked(with.chat().begin(messages{{user, text + question}}, any)) == question);
    CHECK(asked(with.chat().begin(messages{{user, "One.\n\nTwo."}, {assistant, "Yes.\n\nNo."}, {user, "Three."}},
                                  any)) == "Three.");
    CHECK(asked(with.chat().next(messages{{user, text + question}}, any)) == question);
    CHECK(asked(with.chat().next(messages{{user, ""}}, any)) == "");
  }
}

TEST_CASE("a transcript knows the tokens of each message, and is a file of messages") {
  const speaker with = chatml(qwen3);
  const chat_passage first = with.chat().begin(greeting, any), second = with.chat().next(greeting, any);
  transcript said;
  said.add(first, 0);
  said.add_answer("Yes?", 5, true);
  const std::size_t at = first.ids.size() + 5;
  said.add(second, at);
  REQUIRE(said.ranges().size() == 4);
  CHECK(said.ranges()[1].begin == first.ranges[1].begin);
  CHECK(said.ranges()[1].end == at + second.closing);
  CHECK(said.ranges()[2].begin == at + second.closing);
  CHECK(said.ranges()[3].role == assistant);
  CHECK(said.ranges()[3].end == at + second.ids.size());
  said.add_answer("No.", 2, false);
  const auto list = said.to_json();
  CHECK(list[1]["cut"] == true);
  CHECK(!list[3].contains("cut"));
  CHECK(list[3]["tokens"][1] == at + second.ids.size() + 2);
  CHECK(list[3]["content"] == "No.");
}

}  // namespace decode
