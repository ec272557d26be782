// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"

#include <zoomr/core/executor.hpp>

#include <CLI/CLI.hpp>

#include "../../decode/file_option.hpp"
#include "../../decode/input_error.hpp"
#include "../../decode/number_option.hpp"
#include "../traces/trace_problem.hpp"
#include "token_controls.hpp"

namespace decode::evaluate {
namespace {

CLI::App* add_ledger(CLI::App& app, ledger::study_options& given) {
  CLI::App* study = app.add_subcommand("ledger", "policies on the LEDGER task, with 95 % intervals");
  study->add_option("--model", given.checkpoints, "directories of checkpoints trained for the task")
      ->check(file_name());
  study
      ->add_option(
          "--policies,--policy", given.policies,
          "name[@budget][+component.field=value]..., also the controls random_c, oracle, zoomr_box, zoomr_cover and "
          "summaries_apart")
      ->delimiter(',');
  study
      ->add_option("--tasks,--task", given.tasks, "trace, continued, single, multi_query, multi_value, turns, permuted")
      ->delimiter(',');
  study->add_option("--problems", given.problems, "for each policy and task")
      ->transform(number_in(1, 1 << 20))
      ->capture_default_str();
  study->add_option("--free-problems", given.free_problems, "of these, how many the model also writes itself; -1: all")
      ->transform(number_in(-1, 1 << 20))
      ->capture_default_str();
  study->add_option("--registers", given.registers, "of a problem; default: the checkpoint's size")
      ->transform(number_in(3, 128));
  study->add_option("--lines", given.lines, "of a register; default: the checkpoint's size")
      ->transform(number_in(6, 64));
  study->add_option("--seed", given.seed, "of the problems")->transform(seed_number())->capture_default_str();
  study->add_option("--window", given.window, "last tokens that the policies of thoughts attend to")
      ->transform(number_in(1, zoomr::unlimited))
      ->capture_default_str();
  study->add_option("--set", given.settings, "component.field=value, for all policies; each must have it");
  study->add_option("--delimiters", given.delimiters, "tokens that end sentences, and so refresh")
      ->capture_default_str();
  study->add_option("--jobs", given.jobs, "threads")->transform(number_in(1, 256))->capture_default_str();
  study->add_option("--resume", given.resume, "file of finished parts: what it holds is not run again")
      ->check(file_name());
  study->add_option("--csv", given.csv, "file for a table of the runs")->check(file_name());
  study->add_flag("--audit", given.audit, "measure what share of the attention mass is captured: slow");
  study->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return study;
}

void add_voters(CLI::App* command, voter_options& given) {
  command->add_option("--voters", given.file, "weights of the heads that vote; default: voters.json beside the model")
      ->check(file_name());
}

CLI::App* add_perplexity(CLI::App& app, perplexity::options& given) {
  CLI::App* command = app.add_subcommand("perplexity", "perplexity of long text against attended tokens");
  const auto natural = number_in(1, zoomr::unlimited);
  command->add_option("--model", given.directory, "directory of a checkpoint")->required()->check(file_name());
  command->add_option("--text", given.texts, "files of long text, which the model has not seen")
      ->required()
      ->check(file_name());
  command->add_option("--contexts", given.contexts, "tokens of a passage, <bos> included")
      ->delimiter(',')
      ->transform(natural)
      ->capture_default_str();
  command
      ->add_option("--bytes,--tokens", given.scored,
                   "scored tokens at the end of a passage; before them a dense prompt")
      ->transform(natural)
      ->capture_default_str();
  command->add_option("--passages", given.passages, "of each text")->transform(natural)->capture_default_str();
  command
      ->add_option(
          "--policies,--policy", given.policies,
          "name[@budget][+component.field=value]..., see zoomr-decode --list-policies; also code_kv[@budget] and "
          "code_voters, and the controls exact[@budget] and random_eviction[@budget]")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--set", given.settings, "component.field=value, for all policies but full; each must have it");
  command->add_option("--delimiters", given.delimiters,
                      "tokens that end sentences, as a text has them, with the blank before a word (\" Paris\"), or as "
                      "the vocabulary spells them; default: . ! ? and empty lines");
  add_voters(command, given.voters);
  command->add_option("--seed", given.seed, "of the places of the passages")
      ->transform(seed_number())
      ->capture_default_str();
  command->add_option("--resume", given.resume_file, "file of rows: those in it are not measured again, new ones added")
      ->check(file_name());
  command->add_option("--csv", given.csv_file, "also writes the table to a file")->check(file_name());
  command->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return command;
}

void add_scene(CLI::App* command, retrieval::scene_options& given) {
  command->add_option("--model", given.directory, "directory of a checkpoint")->required()->check(file_name());
  command
      ->add_option("--text", given.texts,
                   "files of English prose, whose sentences distract; of Python, named .py, for calls")
      ->required()
      ->check(file_name());
  command
      ->add_option(
          "--tasks,--task", given.tasks,
          "needle, keys, values, queries, tracking, words, notes, paraphrase, chain, repeated, calls; keys@4096: of "
          "so many tokens, in place of --tokens")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option(
          "--marks", given.marks,
          "four tokens, otherwise unused, that mark the thoughts and summaries of notes: begin, end, begin, end")
      ->delimiter(',');
  command->add_option("--tokens", given.tokens, "of a problem, about")
      ->delimiter(',')
      ->transform(number_in(1, zoomr::unlimited))
      ->capture_default_str();
  command->add_option("--notes", given.notes, "of a problem of notes, paraphrase or chain, in place of --tokens")
      ->delimiter(',')
      ->transform(number_in(1, zoomr::unlimited));
  command->add_option("--problems", given.problems, "of each task and size")
      ->transform(number_in(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--seed", given.seed, "of the problems")->transform(seed_number())->capture_default_str();
  command->add_option("--resume", given.resume, "file of what is done: it is not done again, new results are added")
      ->check(file_name());
}

CLI::App* add_heads(CLI::App& app, retrieval::heads_options& given) {
  CLI::App* command = app.add_subcommand("heads", "which heads look at what is needed: weights for zoomr_voters");
  add_scene(command, given.of);
  command
      ->add_option("--forms", given.forms,
                   "questions as people ask them, in place of tasks unless those are named too: no_system, "
                   "behind40+paraphrase, nothing ...; the study forms has their list. nothing@3000: of so many tokens")
      ->delimiter(',');
  command
      ->add_option(
          "--queries", given.queries,
          "whose queries score, each tried: so many last ones, or question: those of the question, as an engine "
          "names it, where it is known, else the last 16")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--needless", given.needless,
                   "share of the choices that find what is needed, but may be taken for unsure: it sets the bound")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--penalty", given.penalty, "of weights: the larger, the fewer heads")
      ->check(CLI::Range(0.0, 10.0))
      ->capture_default_str();
  command->add_option("--out", given.out, "file to write, voters.json as zoomr-decode reads it")->check(file_name());
  return command;
}

CLI::App* add_anchors(CLI::App& app, anchors::options& given) {
  CLI::App* command =
      app.add_subcommand("anchors", "which layers can read what an earlier layer has chosen: tables for --anchors");
  const auto natural = number_in(1, zoomr::unlimited);
  command->add_option("--model", given.directory, "directory of a checkpoint")->required()->check(file_name());
  command->add_option("--text", given.texts, "files of long text, such as the model will read")
      ->required()
      ->check(file_name());
  command->add_option("--context", given.context, "tokens of a passage")->transform(natural)->capture_default_str();
  command
      ->add_option("--passages", given.passages,
                   "of each text; what is said of the tables is measured on every second one, which they were not "
                   "learnt on")
      ->transform(number_in(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--budget", given.budget, "tokens that a KV head reads")
      ->transform(number_in(least_control_budget, zoomr::unlimited))
      ->capture_default_str();
  command->add_option("--layers", given.layers, "that choose")->transform(natural)->capture_default_str();
  command
      ->add_option("--with", given.in_any_case,
                   "layers that choose in any case: those of the heads that vote, so that what is said once is found")
      ->delimiter(',')
      ->transform(number_in(0, zoomr::unlimited));
  command
      ->add_option("--dense-layers", given.dense_layers,
                   "the first layers, which choose nothing: zones.dense_layers of the policy")
      ->transform(number_in(0, zoomr::unlimited))
      ->capture_default_str();
  command->add_option("--seed", given.seed, "of the places of the passages")
      ->transform(seed_number())
      ->capture_default_str();
  command->add_option("--out", given.out, "file to write, as --anchors of zoomr-decode reads it")->check(file_name());
  return command;
}

CLI::App* add_streaming(CLI::App& app, streaming::options& given) {
  CLI::App* command = app.add_subcommand(
      "streaming", "which KV heads look far back, and which can keep the last tokens alone: a file for --streaming");
  const auto natural = number_in(1, zoomr::config::most_tokens);
  command->add_option("--model", given.directory, "directory of a checkpoint")->required()->check(file_name());
  command->add_option("--text", given.texts, "files of long text")->required()->check(file_name());
  command->add_option("--heads", given.heads, "KV heads that do not stream")->required()->transform(natural);
  command->add_option("--context", given.context, "tokens of a passage")->transform(natural)->capture_default_str();
  command
      ->add_option("--passages", given.passages,
                   "of each text; what is said of the heads is measured on every second one, which they were not found "
                   "on")
      ->transform(number_in(2, 1 << 20))
      ->capture_default_str();
  command->add_flag("--repeated", given.repeated,
                    "the second half of a passage is its first half once more, so that heads which look for what came "
                    "after the same words look far back");
  command->add_option("--sinks", given.sinks, "first tokens that a streaming head keeps")
      ->transform(number_in(0, zoomr::config::most_tokens))
      ->capture_default_str();
  command->add_option("--recent", given.recent, "last tokens that it keeps")->transform(natural)->capture_default_str();
  command
      ->add_option("--with", given.voters,
                   "weights of heads that vote, voters.json: the KV heads that they read do not stream in any case")
      ->check(file_name());
  command->add_option("--seed", given.seed, "of the places of the passages")
      ->transform(seed_number())
      ->capture_default_str();
  command->add_option("--out", given.out, "file to write, as --streaming of zoomr-decode reads it")->check(file_name());
  return command;
}

/// Policies, and the weights of the heads that vote under them.
void add_contenders(CLI::App* command, std::vector<std::string>& policies, std::vector<std::string>& voters) {
  command
      ->add_option("--policies,--policy", policies,
                   "name[@budget][+component.field=value]..., also code_kv[@budget] and code_voters, and the controls "
                   "oracle, random, exact[@budget] and random_eviction[@budget]")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--voters", voters,
                   "weights of the heads that vote, FILE, or NAME=FILE for policies with +voters=NAME; default: "
                   "voters.json beside the model. +voter_keys=q8_0 rounds the keys that they read")
      ->check(file_name());
}

CLI::App* add_retrieval(CLI::App& app, retrieval::options& given) {
  CLI::App* command = app.add_subcommand("retrieval", "what is asked for lies in a long prompt: is it found?");
  add_scene(command, given.of);
  add_contenders(command, given.policies, given.voters);
  command
      ->add_option("--questions", given.of.questions,
                   "about one text, asked one after the other; as many problems are about one text, each of which "
                   "begins with another question")
      ->transform(number_in(1, 64))
      ->capture_default_str();
  command->add_option("--write", given.written, "tokens of an answer; default: as many as the task needs")
      ->transform(number_in(1, 64));
  command->add_option("--csv", given.csv, "also writes the table to a file")->check(file_name());
  command->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return command;
}

CLI::App* add_forms(CLI::App& app, retrieval::forms_options& given) {
  CLI::App* command =
      app.add_subcommand("forms", "questions in the forms in which people ask them: is what they need found?");
  command->add_option("--model", given.scene.directory, "directory of a checkpoint")->required()->check(file_name());
  command->add_option("--text", given.scene.texts, "files of English novels, in which facts are hidden")
      ->required()
      ->check(file_name());
  command
      ->add_option("--forms,--form", given.forms,
                   "plain, no_system, long_system, behind40, behind100, before, both, paraphrase, two, table, json, "
                   "keys, notes, primed, later; also several with + between, as two+behind40")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--marks", given.scene.marks,
                   "four tokens, otherwise unused, that mark the notes of --forms notes and their summaries")
      ->delimiter(',');
  add_contenders(command, given.policies, given.voters);
  command->add_option("--set", given.settings,
                      "component.field=value, for all policies but full and controls; each must have it");
  command->add_option("--problems", given.scene.problems, "of each form")
      ->transform(number_in(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--tokens", given.tokens, "of a document, about")
      ->transform(number_in(1, zoomr::unlimited))
      ->capture_default_str();
  command->add_option("--write", given.written, "tokens of an answer, at most")
      ->transform(number_in(1, 256))
      ->capture_default_str();
  command->add_flag("--name-question", given.name_question,
                    "tell policies that pin a question which tokens it is, as an engine does");
  command->add_option("--seed", given.scene.seed, "of the problems")->transform(seed_number())->capture_default_str();
  command
      ->add_option("--resume", given.scene.resume, "file of what is done: it is not done again, new results are added")
      ->check(file_name());
  command->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return command;
}

CLI::App* add_traces(CLI::App& app, traces::options& given) {
  CLI::App* command = app.add_subcommand(
      "traces", "a long text of the model's own, with its own summaries: is it true under a policy?");
  command->add_option("--model", given.directory, "directory of a checkpoint")->required()->check(file_name());
  command
      ->add_option("--marks", given.marks,
                   "four tokens, otherwise unused, that mark thoughts and summaries: begin, end, begin, end")
      ->delimiter(',')
      ->required();
  command->add_option("--tasks,--task", given.tasks, "program, ledger")->delimiter(',')->capture_default_str();
  command->add_option("--steps", given.steps, "of a problem: lines of a program, notes of a ledger")
      ->transform(number_in(traces::fewest_steps, traces::most_steps))
      ->capture_default_str();
  command->add_option("--per-thought", given.per_thought, "steps that one summary is of")
      ->transform(number_in(1, traces::fewest_steps / 2))
      ->capture_default_str();
  command
      ->add_option(
          "--notes", given.notes,
          "steps and summaries are not the model's, but true ones: in the prompt, or written for it in the text")
      ->check(CLI::IsMember({"none", "prompt", "text"}))
      ->capture_default_str();
  add_contenders(command, given.policies, given.voters);
  command->add_option("--problems", given.problems, "of each task")
      ->transform(number_in(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--seed", given.seed, "of the problems")->transform(seed_number())->capture_default_str();
  command->add_option("--resume", given.resume, "file of what is done: it is not done again, new results are added")
      ->check(file_name());
  command->add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  return command;
}

CLI::App* add_speed(CLI::App& app, speed::options& given) {
  CLI::App* command = app.add_subcommand("speed", "decoding speed and memory of a shape with random weights");
  const auto natural = number_in(1, zoomr::unlimited);
  command->add_option("--shape", given.shape_file, "a config.json")->required()->check(file_name());
  command->add_option("--tokens", given.contexts, "contexts before the first timed token")
      ->delimiter(',')
      ->transform(natural)
      ->capture_default_str();
  command
      ->add_option("--policy,--policies", given.policies,
                   "name[@budget][+component.field=value]..., see zoomr-decode --list-policies")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--set", given.settings, "component.field=value, for all policies but full; each must have it");
  command->add_option("--tiers", given.tiers,
                      "as of zoomr-decode: host=64MiB,file=PATH:16GiB; of all policies but full");
  command->add_option("--threads", given.threads, "that multiply and attend")
      ->transform(number_in(1, zoomr::executor::most_threads))
      ->capture_default_str();
  command->add_option("--generate", given.generated, "tokens that are timed")
      ->transform(natural)
      ->capture_default_str();
  command->add_option("--rounds", given.rounds, "each with all policies in turn; the table has medians")
      ->transform(natural)
      ->capture_default_str();
  return command;
}

}  // namespace

std::optional<int> read_command_line(int argc, const char* const* argv, command_line& said) {
  CLI::App app("Measures what KV-cache policies keep, on models trained for it, and how fast they are.");
  add_ledger(app, said.of_ledger);
  const CLI::App* const text = add_perplexity(app, said.of_perplexity);
  const CLI::App* const heads = add_heads(app, said.of_heads);
  const CLI::App* const layers = add_anchors(app, said.of_anchors);
  const CLI::App* const kinds = add_streaming(app, said.of_streaming);
  const CLI::App* const found = add_retrieval(app, said.of_retrieval);
  const CLI::App* const forms = add_forms(app, said.of_forms);
  const CLI::App* const texts = add_traces(app, said.of_traces);
  const CLI::App* const rate = add_speed(app, said.of_speed);
  app.require_subcommand(1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app.exit(wrong);
    fail(wrong.what());
  }
  for (auto* const names :
       {&said.of_ledger.checkpoints, &said.of_perplexity.texts, &said.of_heads.of.texts, &said.of_anchors.texts,
        &said.of_streaming.texts, &said.of_retrieval.of.texts, &said.of_retrieval.voters, &said.of_forms.scene.texts,
        &said.of_forms.voters, &said.of_traces.voters})
    *names = listed_files(*names);
  if (text->parsed()) said.asked = measurement::perplexity;
  if (heads->parsed()) said.asked = measurement::heads;
  if (!said.of_heads.forms.empty() && heads->count("--tasks") == 0) said.of_heads.of.tasks.clear();
  if (layers->parsed()) said.asked = measurement::anchors;
  if (kinds->parsed()) said.asked = measurement::streaming;
  if (found->parsed()) said.asked = measurement::retrieval;
  if (forms->parsed()) said.asked = measurement::forms;
  if (texts->parsed()) said.asked = measurement::traces;
  if (rate->parsed()) said.asked = measurement::speed;
  return std::nullopt;
}

}  // namespace decode::evaluate
