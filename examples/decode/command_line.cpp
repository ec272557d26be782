// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <zoomr/core/executor.hpp>

#include <algorithm>  // std::max
#include <cstdint>    // std::int64_t
#include <sstream>    // std::ostringstream
#include <string>     // std::string
#include <vector>     // std::vector

#include <CLI/CLI.hpp>

#include "command_text.hpp"
#include "file_option.hpp"
#include "input_error.hpp"
#include "number_option.hpp"
#include "policies.hpp"

namespace decode {
namespace {

template <class... T>
std::vector<std::string> storage_names(zoomr::type_list<T...>) {
  return {zoomr::storage_name<T>()...};
}
/// "float 32, q8_0 8.5, ..."
template <class... T>
std::string bits_of_storage(zoomr::type_list<T...>) {
  std::ostringstream out;
  const char* separator = "";
  const auto add = [&](const char* name, std::int64_t block) {
    out << separator << name << ' ' << static_cast<double>(block) * 8.0 / zoomr::numbers_in_block;
    separator = ", ";
  };
  (add(zoomr::storage_name<T>(), zoomr::stored_size<T>(zoomr::numbers_in_block) * std::int64_t{sizeof(T)}), ...);
  return out.str();
}

// The demo is a subcommand.
CLI::App* add_demo(CLI::App& app, ledger::options& given) {
  CLI::App* demo = app.add_subcommand("ledger", "the demo: a small model that reasons, under every policy");
  demo->add_option("--model", given.checkpoints, "directories of checkpoints trained for the task")->check(file_name());
  demo->add_option("--problems", given.problems, "of the task, at the checkpoint's size")
      ->transform(number_in(1, 4096))
      ->capture_default_str();
  demo->add_option("--seed", given.seed, "of the problems")->transform(seed_number())->capture_default_str();
  demo->add_option("--policies,--policy", given.policies, "also the controls random_c and oracle")->delimiter(',');
  demo->add_option("--budget", given.budget,
                   "of window, sentence_kv and quest; default: what zoomr_one_pass attends to")
      ->transform(number_in(1, zoomr::unlimited));
  demo->add_option("--window", given.window, "last tokens that the policies of thoughts attend to")
      ->transform(number_in(1, zoomr::unlimited))
      ->capture_default_str();
  demo->add_option("--set", given.settings, "component.field=value, for all policies that have it");
  demo->add_option("--delimiters", given.delimiters, "tokens that end sentences, and so refresh")
      ->capture_default_str();
  demo->add_option("--report", given.report_file,
                   "one page, HTML: what each preset has read of the first problem, whose text is given")
      ->check(file_name());
  demo->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return demo;
}

}  // namespace

std::optional<int> read_command_line(int argc, const char* const* argv, command_line& said) {
  options& given = said.given;
  CLI::App app("Decodes with a Hugging Face checkpoint under KV-cache policies, and says what each has cost.");
  app.add_option("--model", given.directory, "directory with config.json, model.safetensors and tokenizer.json")
      ->check(file_name());
  auto* prompt = app.add_option("--prompt", given.prompt, "text to continue; empty: BOS alone");
  app.add_option("--prompt-file", given.prompt_file, "the same from a file")->check(file_name())->excludes(prompt);
  app.add_option("--turn", given.turns,
                 "text that follows an answer, such as the next message; once for each, and each is answered")
      ->allow_extra_args(false);
  auto* chat = app.add_option("--chat", given.chat_file,
                              "messages in the model's own template, each of the user's answered: from a JSON file, a "
                              "list of {role, content}, or without FILE from standard input, one a line; what --prompt "
                              "says begins the first")
                   ->expected(0, 1);
  app.add_option("--system", given.system,
                 "the message of the system in a chat; default: the file's, or what the template says; \"\": none");
  app.add_option("--policy", given.policies, "names, see --list-policies")->delimiter(',')->capture_default_str();
  app.add_option("--budget", given.budgets, "one run for each; what it limits depends on the policy")
      ->delimiter(',')
      ->transform(number_in(1, zoomr::unlimited));
  app.add_option("--set", given.settings, "component.field=value, see --list-policies");
  auto* delimiters = app.add_option(
      "--delimiters", given.delimiters,
      "tokens that end sentences, as a text has them, with the blank before a word (\" Paris\"), or as the vocabulary "
      "spells them; default: . ! ? and empty lines");
  app.add_option(
         "--sentence-marks", given.sentence_marks,
         "where . ! ? end a sentence: anywhere, or before-blank: where a space or a line's end comes next, not in "
         "3.14; known one token later")
      ->check(CLI::IsMember({"anywhere", "before-blank"}))
      ->capture_default_str()
      ->excludes(delimiters);
  app.add_flag("--line-ends", given.line_ends,
               "the end of a line ends a sentence of at least sentences.shortest_line tokens: for tables, lists, code")
      ->excludes(delimiters);
  app.add_option("--marks", given.thought_marks,
                 "four tokens that begin and end thoughts and summaries, for policies that need them: begin, end, "
                 "begin, end")
      ->delimiter(',');
  app.add_option("--voters", given.voters.file,
                 "weights of the heads that vote, for policies that ask them; default: voters.json beside the model")
      ->check(file_name());
  app.add_option(
         "--voter-keys", given.voters.keys,
         "in what the keys that these heads read are kept: as_cache, or q8_0, a copy with 8.5 bits for a number")
      ->check(CLI::IsMember({"as_cache", "q8_0"}))
      ->capture_default_str();
  app.add_option("--anchors", given.voters.anchors,
                 "layers that read the choice of an earlier one, as zoomr-eval anchors learns them; for policies that "
                 "choose for each layer or head")
      ->check(file_name());
  app.add_option("--streaming", given.voters.streaming,
                 "KV heads that keep what is far back, by the policy, as zoomr-eval streaming finds them; all others "
                 "keep the first tokens and the last ones, of which the file says how many")
      ->check(file_name());
  app.add_option("--storage", given.storage,
                 "of keys and values, and how many bits it takes for a number: " + bits_of_storage(offered_storage{}))
      ->check(CLI::IsMember(storage_names(offered_storage{})))
      ->capture_default_str();
  app.add_option("--device", given.device, "what passes the tokens: host, or cuda in a build with ZOOMR_CUDA")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_option("--tiers", given.tiers_text,
                 "host=64MiB,file=PATH:16GiB: details move between these; with --device cuda device=64MiB,host=4GiB, "
                 "where all are in pinned host memory; segments=N: room in the index");
  app.add_option("--threads", given.threads,
                 "that multiply and attend; default: one attends, and OPENBLAS_NUM_THREADS multiply, or all cores")
      ->transform(number_in(1, zoomr::executor::most_threads));
  app.add_flag("--mpi", given.mpi,
               "the processes of mpirun share out the heads of each layer: mpirun -n 2 zoomr-decode --mpi ...");
  app.add_option("--deal", given.deal,
                 "with --mpi: they share out the tokens instead, so many to one after the other: a multiple of 16")
      ->transform(number_in(16, zoomr::rank_tokens::most_deal));
  app.add_option("--max-tokens", given.max_tokens, "to generate at most, in each answer")
      ->transform(number_in(1, zoomr::unlimited))
      ->capture_default_str();
  app.add_option("--temperature", given.sampling.temperature, "0: greedy")->capture_default_str();
  app.add_option("--top-p", given.sampling.top_p, "of the likeliest tokens")->capture_default_str();
  app.add_option("--seed", given.sampling.seed, "of the sampler")->transform(seed_number())->capture_default_str();
  app.add_option("--dump-logits", given.logits_file,
                 "float32 [generated tokens, vocabulary]; of several runs FILE.policy-budget")
      ->check(file_name());
  app.add_option("--trace-pages", given.pages_file,
                 "what each layer reads of the text's pages, for bench/tier_hits; of several runs FILE.policy-budget")
      ->check(file_name());
  app.add_option("--report", given.report_file,
                 "one page, HTML, with all runs: what each step read of the text, what it cost")
      ->check(file_name());
  app.add_option("--record", given.record_file,
                 "queries, keys and values of one run, for zoomr-replay: FILE-0001.safetensors, FILE-0002.safetensors, "
                 "...")
      ->check(file_name());
  app.add_flag("--same-text", given.same_text,
               "the policies after the first pass the text that it wrote, and count the tokens that they would have "
               "written themselves");
  app.add_flag("--audit", given.audit, "measure what share of full attention's mass is attended: slow");
  app.add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  app.add_flag("--list-policies", said.list, "what each policy does, what --budget limits, its other options");
  CLI::App* demo = add_demo(app, said.of_demo);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app.exit(wrong);
    fail(wrong.what());
  }
  said.demo = demo->parsed();
  said.of_demo.checkpoints = listed_files(said.of_demo.checkpoints);
  given.chat = chat->count() > 0;
  if (said.list) return std::nullopt;
  if (said.demo && given.on_device()) fail("--device ", given.device, ": the demo `ledger` runs on the host");
  if (!given.tiers_text.empty()) given.tiers = parse_tiers(given.tiers_text);
  if (given.tiers.given() && said.demo) fail("--tiers: the demo `ledger` runs without");
  if (given.storage != "float" && (given.on_device() || given.tiers.given() || said.demo))
    fail("--storage: on a device, over tiers and in the demo keys and values are float");
  if (given.threads > 1 && given.on_device()) fail("--threads, --device cuda: threads are of the host");
  given.command = said.of_demo.command = as_typed(argc, argv);
  if (!given.report_file.empty() && given.on_device()) fail("--report: only the host's choices are shown");
  if (given.audit && given.on_device()) fail("--audit: the mass is measured on the host alone");
  if (!given.report_file.empty() && !given.pages_file.empty())
    fail("--report, --trace-pages: one of the two, since a cache records for one");
  if (!given.pages_file.empty() && given.on_device()) fail("--trace-pages: only the host's choices are written");
  if (!given.record_file.empty() && given.on_device()) fail("--record: only what the host passes is recorded");
  if (!given.record_file.empty() && !given.turns.empty()) fail("--record, --turn: a trace has one prompt");
  if (!given.record_file.empty() && given.chat) fail("--record, --chat: a trace has one prompt");
  if (given.chat && !given.turns.empty()) fail("--chat, --turn: a chat has its messages alone");
  if (given.mpi && (said.demo || given.on_device() || given.tiers.given()))
    fail("--mpi: in the demo, on a device and over tiers all heads are in one process");
  if (given.mpi &&
      (given.audit || !given.report_file.empty() || !given.pages_file.empty() || !given.record_file.empty()))
    fail("--mpi: --audit, --report, --trace-pages and --record need all heads in one process");
  if (given.deal > 0 && !given.mpi) fail("--deal: it is for --mpi, whose processes share out the tokens");
  if (given.mpi && given.deal == 0 && !given.voters.anchors.empty())
    fail("--mpi, --anchors: a file of anchors names KV heads of all ranks");
  if (!given.voters.streaming.empty()) {
    if (given.mpi) fail("--mpi, --streaming: a file of KV heads names those of all ranks");
    if (!given.voters.anchors.empty()) fail("--anchors, --streaming: anchors need a cache for all KV heads of a layer");
    if (!given.report_file.empty()) fail("--report, --streaming: a page shows KV heads that keep the same");
  }
  if (given.mpi && given.chat && given.chat_file.empty())
    fail("--mpi, --chat: name a file, since what is typed comes to one process alone");
  if (given.chat && given.on_device()) fail("--chat: on a device there are no later turns");
  if (given.chat && said.demo) fail("--chat: the demo `ledger` has a text of its own");
  if (given.system && !given.chat) fail("--system is for --chat");
  if (!given.record_file.empty() && given.policies.size() * std::max<std::size_t>(given.budgets.size(), 1) > 1)
    fail("--record: a trace is of one run, with one policy and one budget");
  if (!said.demo && given.directory.empty())
    fail("--model is missing: name a directory with a checkpoint, or run the demo `ledger`");
  return std::nullopt;
}

std::vector<policy_choice> choices(const options& given) {
  std::vector<policy_choice> all;
  for (const std::string& name : given.policies) {
    const bool own = given.budgets.empty() || !takes_budget(name);
    for (const index_t budget : own ? std::vector<index_t>{0} : given.budgets) {
      all.push_back({name, budget, given.settings});
    }
  }
  std::vector<bool> used(given.settings.size());
  for (const policy_choice& choice : all) {  // every option is checked before the model is loaded
    with_policy(choice, [&](auto policy) {
      const char* problem = device::unsupported<decltype(policy)>();
      if (given.on_device() && problem != nullptr) fail("--device cuda, ", choice.name, ": ", problem);
      for (std::size_t s = 0; s < used.size(); ++s) used[s] = apply(policy, {given.settings[s]}) > 0 || used[s];
    });
  }
  for (std::size_t s = 0; s < used.size(); ++s) {
    if (!used[s]) fail("--set ", given.settings[s], ": no chosen policy has such an option; see --list-policies");
  }
  return all;
}

}  // namespace decode
