// SPDX-License-Identifier: Apache-2.0
// zoomr-decode: generates text with a Hugging Face checkpoint under one policy or several, and says what each
// has cost. Bad input ends with exit code 2 and one sentence.
#include <algorithm>    // std::any_of, std::min, std::none_of
#include <ctime>        // std::localtime, std::strftime, std::time
#include <iostream>     // std::cout
#include <memory>       // std::make_unique
#include <optional>     // std::optional
#include <string_view>  // std::string_view

#include <zoomr/core/threads/thread_pool.hpp>

#include "../device_engine/decoder.hpp"
#include "../studies/ledger/demo_page.hpp"
#include "command_line.hpp"
#include "generate.hpp"
#include "input_error.hpp"
#include "json_file.hpp"
#include "mpi_processes.hpp"
#include "named_files.hpp"
#include "token_classes.hpp"
#include "utf8.hpp"
#include "voters.hpp"

namespace decode {
namespace {

/// What follows the first answer, encoded.
std::vector<chat_passage> encode_turns(const tokenizer& words, const options& given, std::size_t room) {
  std::vector<chat_passage> turns;
  for (const std::string& text : given.turns) {
    turns.emplace_back().text = text;
    turns.back().ids = words.encode(text, {.add_special = false, .allow_unknown = false, .most = room});
    if (turns.back().ids.empty()) fail("--turn: there is nothing in it");
  }
  return turns;
}

std::vector<token_id> encode_prompt(const tokenizer& words, const std::string& text, const model_config& config) {
  const std::size_t most = config.context - 1;  // the first token that is written needs a place too
  std::vector<token_id> ids = words.encode(text, {.allow_unknown = false, .most = most});
  if (ids.empty()) {
    const auto bos = words.bos() ? words.bos() : config.bos;
    if (!bos) fail("the prompt is empty, and this model has no BOS token to begin with");
    ids.push_back(*bos);
  }
  if (ids.size() > most)
    fail("the prompt has more than ", most, " tokens, but this model's context is ", config.context);
  return ids;
}

/// The text to continue. One that cannot fit is refused before it is read.
std::string prompt_text(const options& given, const tokenizer& words, const model_config& config) {
  const std::uint64_t most = std::min<std::uint64_t>(words.most_bytes(config.context), std::uint64_t{1} << 30);
  const auto expect_room = [&](std::uint64_t bytes) {
    if (bytes > most)
      fail("the prompt has ", bytes, " bytes, but this model's context of ", config.context, " tokens holds at most ",
           most);
  };
  if (given.prompt_file.empty()) return expect_room(given.prompt.size()), given.prompt;
  expect_room(file_bytes(given.prompt_file));
  return read_prompt(given.prompt_file, most);
}

/// "29 Nov 2026", in English.
std::string today() {
  const std::time_t seconds = std::time(nullptr);
  char text[32] = "";
  if (const std::tm* const date = std::localtime(&seconds)) std::strftime(text, sizeof text, "%d %b %Y", date);
  return text;
}

/// The first messages of a chat, as the command line changes them.
/// @param before  text that the user's first one begins with
void complete(std::vector<chat_message>& messages, const options& given, const chat_form& form, std::string before) {
  const bool has_system = messages.front().role == chat_role::system;
  if (given.system && has_system) fail("--system: the file has a message of the system already");
  while (before.ends_with('\n')) before.pop_back();
  std::string& first = messages[has_system ? 1 : 0].content;
  if (!before.empty()) first = before + "\n\n" + first;
  if (given.system && (!given.system->empty() || !form.default_system.empty()))
    messages.insert(messages.begin(), {chat_role::system, *given.system});
}

/// The messages of a file, or the first of those that are typed and a way to the others.
void read_chat(job& work, const chat_template& writer, const std::string& before) {
  const std::size_t most = work.config.context, most_bytes = work.words.most_bytes(most);
  work.end_of_turn = writer.end_of_turn();
  if (!work.given.chat_file.empty()) {
    auto passages = read_messages(work.given.chat_file, most_bytes);
    complete(passages.front(), work.given, writer.form(), before);
    work.prompt = writer.begin(passages.front(), most);
    for (std::size_t i = 1; i < passages.size(); ++i) work.turns.push_back(writer.next(passages[i], most));
    return;
  }
  typed_messages typed(most_bytes);
  work.as_typed = true;
  work.on_terminal = typed.on_terminal();
  work.on_screen = work.on_terminal ? 1 : 0;
  const std::optional<std::string> first = typed.next();
  if (!first) fail("--chat: there is no message on standard input");
  std::vector<chat_message> messages = {{chat_role::user, *first}};
  complete(messages, work.given, writer.form(), before);
  work.prompt = writer.begin(messages, most);
  work.typed = [typed, &writer, most]() mutable -> std::optional<chat_passage> {
    const std::optional<std::string> next = typed.next();
    if (!next) return std::nullopt;
    const chat_message message = {chat_role::user, *next};
    return writer.next({&message, 1}, most);
  };
}

/// Of answers that have not ended by themselves; empty: all have.
/// @param most  tokens of an answer
std::string note_on_cut(const std::vector<run_report>& runs, const options& given, index_t most) {
  std::int64_t cut = 0, answers = 0;
  for (const run_report& run : runs) {
    cut += run.cut;
    answers += run.answers;
  }
  if (cut == 0) return "";
  const std::string at = "cut at " + std::to_string(most) + (most == 1 ? " token" : " tokens");
  const auto counted = [](std::int64_t part, std::int64_t all) {
    return std::to_string(part) + " of " + std::to_string(all);
  };
  std::string which = counted(cut, answers);
  if (runs.size() > 1 && answers > static_cast<std::int64_t>(runs.size())) {  // of a chat: whose
    which.clear();
    for (const run_report& run : runs) {
      if (run.cut > 0) which += (which.empty() ? "" : ", ") + run.policy + ' ' + counted(run.cut, run.answers);
    }
  }
  return (answers == 1 ? "the answer is " + at : at + ": " + which + " answers") +
         (most < given.max_tokens ? "; the model's context has no room for more" : "; see --max-tokens");
}

/// Before anything takes long.
void expect_files_apart(const options& given, const std::vector<policy_choice>& all) {
  named_files files;
  files.reads_model(given.directory);
  files.reads("--prompt-file", given.prompt_file);
  files.reads("--chat", given.chat_file);
  files.reads("--voters", voters_file(given.directory, given.voters));
  files.reads("--anchors", given.voters.anchors);
  files.reads("--streaming", given.voters.streaming);
  files.writes("--report", given.report_file);
  for (const policy_choice& choice : all) {
    files.writes("--dump-logits", name_for_run(given.logits_file, all.size(), choice));
    files.writes("--trace-pages", name_for_run(given.pages_file, all.size(), choice));
  }
  files.writes_trace("--record", given.record_file);
}

/// @param ranks  that share out the heads
void decode_text(const options& given, const zoomr::rank_group& ranks) {
  const auto all = choices(given);
  expect_files_apart(given, all);
  sampler{given.sampling};  // complains about its options before a large model is loaded
  const model_config config = read_config_with_voters(given.directory, given.voters);
  if (given.on_device() && !given.turns.empty()) fail("--turn: on a device there are no later turns");
  if (given.on_device()) expect_layers_alike(config, "--device cuda");
  if (given.on_device() && !given.voters.anchors.empty()) fail("--anchors: on a device each layer chooses for itself");
  if (given.tiers.given()) expect_layers_alike(config, "--tiers");
  if (!given.pages_file.empty()) expect_layers_alike(config, "--trace-pages");
  if (!given.record_file.empty() && !config.donors.empty())
    fail("--record: a trace has the keys of each layer, here some share them");
  if (given.on_device()) device::expect_present();
  std::optional<zoomr::thread_pool> pool;
  std::optional<model> net;
  if (!given.on_device()) {
    const index_t threads = given.threads > 0 ? given.threads : usual_threads();
    if (threads > 1) pool.emplace(threads);
    net.emplace(config, read_weights(given.directory, config), pool ? zoomr::executor(*pool) : zoomr::executor{});
  }
  const tokenizer words(given.directory, config.vocab);
  job work{given, config, words,      classify(words, config.vocab, given.delimiters, given.marks(), given.lines()),
           {},    {},     all.size(), given.threads > 1 ? net->threads() : zoomr::executor{},
           false, {},     {}};
  mark_thoughts(words, given.thought_marks, work.classes);
  work.ranks = ranks;
  std::string text = prompt_text(given, words, config);
  const auto note = [&](const std::string& what) {
    if (!given.json) tell("note: " + what);
  };
  if (drop_byte_order_mark(text)) note("the byte order mark before the prompt is left out");
  work.continues = given.chat || !text.empty();
  std::optional<chat_template> writer;
  if (given.chat) {
    if (writer.emplace(given.directory, words, today()).form().drops_thoughts)
      note("this model's template leaves out the thoughts of earlier answers; in this chat they stay");
    read_chat(work, *writer, text);
  } else {
    work.prompt.ids = encode_prompt(words, text, config);
    work.turns = encode_turns(words, given, config.context);
  }
  if (work.most_tokens() < 1) {
    fail(given.chat ? "the messages have " : "the prompt and its turns have ", work.given_tokens(),
         " tokens, and this model's context of ", config.context, " has no room for ", work.turns.size() + 1,
         " answers");
  }
  const auto on = net ? nullptr : device::load(given.directory, config, work.tokens());
  const auto ends_sentence = [](zoomr::token_class of) {
    using enum zoomr::token_class;
    return zoomr::has(of, delimiter | mark);
  };
  if (std::none_of(work.classes.begin(), work.classes.end(), ends_sentence))
    note("no token of this model ends a sentence, so nothing refreshes there; see --delimiters");
  const auto page_file = given.report_file.empty() ? nullptr : std::make_unique<output_file>(given.report_file);
  if (page_file) work.page.emplace("zoomr: " + given.model_name(), given.command, all.size());
  std::vector<run_report> runs;
  for (const policy_choice& choice : all) {
    if (!given.json && all.size() > 1) {
      std::cout << "--- " << choice.name;
      if (choice.budget > 0) std::cout << ", budget " << choice.budget;
      if (!work.text.empty()) std::cout << ", passing the text of the first";
      std::cout << '\n';
    }
    const auto logits = ranks.rank() == 0 ? for_run(work, given.logits_file, choice) : nullptr;
    std::ostream* const logits_out = logits ? &logits->stream() : nullptr;
    runs.push_back(net ? generate(work, choice, *net, logits_out) : generate(work, choice, *on, logits_out));
    if (logits) logits->finish();
    if (given.same_text) work.text = runs.front().tokens;
    work.typed = nullptr;
    if (!given.json && !given.chat) std::cout << "\n\n";
  }
  if (page_file) {
    work.page->write(page_file->stream());
    page_file->finish();
  }
  if (given.json)
    print_json(std::cout, runs);
  else
    print_table(std::cout, runs);
  if (const std::string cut = note_on_cut(runs, given, work.most_tokens()); !cut.empty() && !work.on_terminal)
    note(cut);
}

void list_policies() {
  zoomr::presets::each([](const auto& preset) {
    std::cout << preset.name << "\n  " << preset.what << "\n  --budget limits " << preset.limits << "\n  --set "
              << describe(preset.policy) << "\n\n";
  });
}

int run(int argc, char** argv, const zoomr::rank_group& ranks) {
  command_line said;
  if (const auto status = read_command_line(argc, argv, said)) return *status;
  if (said.list) return list_policies(), 0;
  if (said.demo) {
    ledger::demo_page page;
    return ledger::run(said.of_demo, said.of_demo.report_file.empty() ? nullptr : &page), 0;
  }
  decode_text(said.given, ranks);
  return 0;
}

}  // namespace
}  // namespace decode

int main(int argc, char** argv) {
  return decode::run_program("zoomr-decode", [&] {
    // before the command line is read, so that one of the ranks says what is wrong with it
    const bool by_mpi =
        std::any_of(argv, argv + argc, [](const char* said) { return std::string_view(said) == "--mpi"; });
    if (!by_mpi) return decode::run(argc, argv, {});
    return decode::run_by_mpi([&](const zoomr::rank_group& ranks) { return decode::run(argc, argv, ranks); });
  });
}
