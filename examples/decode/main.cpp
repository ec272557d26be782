// SPDX-License-Identifier: Apache-2.0
// zoomr-decode: generates text with a Hugging Face checkpoint under one policy or several, and says what each
// has cost. Bad input ends with exit code 2 and one sentence.
#include <algorithm>  // std::min, std::none_of
#include <iostream>   // std::cout
#include <optional>   // std::optional

#include <CLI/CLI.hpp>

#include <zoomr/core/thread_pool.hpp>

#include "../device_engine/decoder.hpp"
#include "../studies/ledger/demo.hpp"
#include "generate.hpp"
#include "number_option.hpp"
#include "token_classes.hpp"

namespace decode {
namespace {

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
  return read_text(given.prompt_file, most);
}

/// Each policy with each budget.
std::vector<policy_choice> choices(const options& given) {
  std::vector<policy_choice> all;
  for (const std::string& name : given.policies) {
    for (const index_t budget : given.budgets.empty() ? std::vector<index_t>{0} : given.budgets) {
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

void decode_text(const options& given) {
  const auto all = choices(given);
  sampler{given.sampling};  // complains about its options before a large model is loaded
  std::optional<zoomr::thread_pool> pool;
  std::optional<model> net;
  if (given.on_device()) {
    device::expect_present();
  } else {
    const index_t threads = given.threads > 0 ? given.threads : usual_threads();
    if (threads > 1) pool.emplace(threads);
    net.emplace(load_model(given.directory, pool ? zoomr::executor(*pool) : zoomr::executor{}));
  }
  const model_config config = net ? net->config() : read_config(given.directory);
  const tokenizer words(given.directory, config.vocab);
  job work{given,
           config,
           words,
           classify(words, config.vocab, given.delimiters),
           {},
           all.size(),
           given.threads > 1 ? net->threads() : zoomr::executor{},
           {}};
  const std::string text = prompt_text(given, words, config);
  work.prompt = encode_prompt(words, text, config);
  const auto on = net ? nullptr : device::load(given.directory, config, work.tokens());
  const auto ends_sentence = [](zoomr::token_class of) { return zoomr::has(of, zoomr::token_class::delimiter); };
  if (!given.json && std::none_of(work.classes.begin(), work.classes.end(), ends_sentence))
    work.notes.push_back("no token of this model ends a sentence, so nothing refreshes there; see --delimiters");
  std::vector<run_report> runs;
  for (const policy_choice& choice : all) {
    if (!given.json && all.size() > 1) {
      std::cout << "--- " << choice.name;
      if (choice.budget > 0) std::cout << ", budget " << choice.budget;
      std::cout << '\n';
    }
    const auto logits = for_run(work, given.logits_file, choice);
    with_policy(choice, [&](const auto& policy) {
      std::ostream* logits_out = logits ? &logits->stream() : nullptr;
      if (given.tiers.given() && net)
        return runs.push_back(generate(work, choice, with_placement(policy, zoomr::tiered<>{}), *net, logits_out));
      runs.push_back(net ? generate(work, choice, policy, *net, logits_out)
                         : generate(work, choice, describe(policy), *on, logits_out));
    });
    if (logits) logits->finish();
    if (!given.json) std::cout << "\n\n";
  }
  if (given.json)
    print_json(std::cout, runs);
  else
    print_table(std::cout, runs);
}

void list_policies() {
  zoomr::presets::each([](const auto& preset) {
    std::cout << preset.name << "\n  " << preset.what << "\n  --budget limits " << preset.limits << "\n  --set "
              << describe(preset.policy) << "\n\n";
  });
}

int run(int argc, char** argv) {
  options given;
  ledger::options ledger_options;
  bool list = false;
  CLI::App app("Decodes with a Hugging Face checkpoint under KV-cache policies, and says what each has cost.");
  app.add_option("--model", given.directory, "directory with config.json, model.safetensors and tokenizer.json");
  auto* prompt = app.add_option("--prompt", given.prompt, "text to continue; empty: BOS alone");
  app.add_option("--prompt-file", given.prompt_file, "the same from a file")->excludes(prompt);
  app.add_option("--policy", given.policies, "names, see --list-policies")->delimiter(',')->capture_default_str();
  app.add_option("--budget", given.budgets, "one run for each; what it limits depends on the policy")
      ->delimiter(',')
      ->transform(number_in(1, zoomr::unlimited));
  app.add_option("--set", given.settings, "component.field=value, see --list-policies");
  app.add_option("--delimiters", given.delimiters, "tokens that end sentences; default: . ! ? and empty lines")
      ->delimiter(' ');
  app.add_option("--device", given.device, "what passes the tokens: host, or cuda in a build with ZOOMR_CUDA")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  app.add_option("--tiers", given.tiers_text,
                 "device=64MiB,host=4GiB,file=PATH:16GiB: details move between these; without a file all are in host "
                 "memory, which a device needs pinned; "
                 "segments=N: room in the index, which is on the device");
  app.add_option("--threads", given.threads,
                 "that multiply and attend; default: one attends, and OPENBLAS_NUM_THREADS multiply, or all cores")
      ->transform(number_in(1, zoomr::executor::most_threads));
  app.add_option("--max-tokens", given.max_tokens, "to generate at most")
      ->transform(number_in(1, zoomr::unlimited))
      ->capture_default_str();
  app.add_option("--temperature", given.sampling.temperature, "0: greedy")->capture_default_str();
  app.add_option("--top-p", given.sampling.top_p, "of the likeliest tokens")->capture_default_str();
  app.add_option("--seed", given.sampling.seed, "of the sampler")->transform(seed_number())->capture_default_str();
  app.add_option("--dump-logits", given.logits_file,
                 "float32 [generated tokens, vocabulary]; of several runs FILE.policy-budget");
  app.add_option("--trace-pages", given.pages_file,
                 "what each layer reads of the text's pages, for bench/tier_hits; of several runs FILE.policy-budget");
  app.add_flag("--json", given.json, "one JSON document on standard output, nothing else");
  app.add_flag("--list-policies", list, "what each policy does, what --budget limits, its other options");
  CLI::App* demo = ledger::add_command(app, ledger_options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app.exit(wrong);
    fail(wrong.what());
  }
  if (list) return list_policies(), 0;
  if (demo->parsed() && given.on_device()) fail("--device ", given.device, ": the demo `ledger` runs on the host");
  if (!given.tiers_text.empty()) given.tiers = parse_tiers(given.tiers_text);
  if (given.tiers.given() && demo->parsed()) fail("--tiers: the demo `ledger` runs without");
  if (given.tiers.bytes.file > 0 && given.on_device()) fail("--tiers, --device cuda: there is no file under the host");
  if (given.threads > 1 && given.on_device()) fail("--threads, --device cuda: threads are of the host");
  if (!given.pages_file.empty() && given.on_device()) fail("--trace-pages: only the host's choices are written");
  if (demo->parsed()) return ledger::run(ledger_options), 0;
  if (given.directory.empty()) fail("--model is missing: name a directory with a checkpoint, or run the demo `ledger`");
  decode_text(given);
  return 0;
}

}  // namespace
}  // namespace decode

int main(int argc, char** argv) {
  return decode::run_program("zoomr-decode", [&] { return decode::run(argc, argv); });
}
