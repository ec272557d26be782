// SPDX-License-Identifier: Apache-2.0
// Bytes as a command line of zoomr-decode or zoomr-eval: it is understood, or refused with an input_error. What it says
// of policies, budgets, tiers and sampling is looked at too, as far as no model is loaded and no file is touched.
//
// The first byte says which program and which of its commands. A byte from 0x80 on stands for a word that means
// something there, a line feed ends an argument, and any other stands for itself.
#include <evaluate/command_line.hpp>
#include <evaluate/policy_spec.hpp>
#include <retrieval/contender.hpp>
#include <retrieval/forms.hpp>
#include <traces/trace_problem.hpp>

#include <iostream>  // std::cout

#include "command_line.hpp"

namespace {

using namespace decode;

const std::vector<std::string>& words() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> made = {"--model\n",
                                     "--prompt\n",
                                     "--prompt-file\n",
                                     "--policy\n",
                                     "--policies\n",
                                     "--budget\n",
                                     "--set\n",
                                     "--delimiters\n",
                                     "--sentence-marks\n",
                                     "--line-ends\n",
                                     "--device\n",
                                     "cuda",
                                     "host",
                                     "--tiers\n",
                                     "--threads\n",
                                     "--max-tokens\n",
                                     "--temperature\n",
                                     "--top-p\n",
                                     "--seed\n",
                                     "--dump-logits\n",
                                     "--json\n",
                                     "--list-policies",
                                     "--trace-pages\n",
                                     "--help\n",
                                     "ledger\n",
                                     "--problems\n",
                                     "--window\n",
                                     "--tasks\n",
                                     "--registers\n",
                                     "--lines\n",
                                     "--jobs\n",
                                     "--text\n",
                                     "--contexts\n",
                                     "--bytes\n",
                                     "--passages\n",
                                     "--shape\n",
                                     "--tokens\n",
                                     "--generate\n",
                                     "--rounds\n",
                                     "--resume\n",
                                     "--notes\n",
                                     "--marks\n",
                                     "--voters\n",
                                     "--write\n",
                                     "--queries\n",
                                     "--penalty\n",
                                     "voters=",
                                     "voter_keys=q8_0",
                                     "oracle",
                                     "random",
                                     "exact",
                                     "device=",
                                     "host=",
                                     "file=",
                                     "segments=",
                                     "64MiB",
                                     "4G",
                                     "2147483647",
                                     "-2147483648",
                                     "1e39",
                                     "nan",
                                     "0.5",
                                     "unlimited",
                                     "true",
                                     "kv_head",
                                     "max",
                                     "candidates",
                                     "--\n",
                                     "=",
                                     ",",
                                     "@",
                                     "+",
                                     "18446744073709551616"};
    zoomr::presets::each([&](const auto& preset) {
      made.push_back(preset.name);
      zoomr::each_option(preset.policy, [&](const std::string& name, const auto&) { made.push_back(name + "="); });
    });
    std::ranges::sort(made);
    made.erase(std::unique(made.begin(), made.end()), made.end());
    return made;
  }();
  return all;
}

/// A byte, or two, that say which word.
std::vector<std::string> arguments(const unsigned char* data, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    if (data[i] < 0x80) {
      if (data[i] != 0) text += static_cast<char>(data[i]);
      continue;
    }
    std::size_t word = data[i] & 0x7f;
    if (i + 1 < size && word >= 64) word = (word - 64) * 256 + data[++i];
    text += words()[word % words().size()];
  }
  std::vector<std::string> made(1);
  for (const char c : text) c == '\n' ? made.emplace_back() : made.back() += c;
  if (made.back().empty()) made.pop_back();
  return made;
}

void read_decode(const std::vector<const char*>& line) {
  command_line said;
  if (read_command_line(static_cast<int>(line.size()), line.data(), said) || said.list) return;
  sampler{said.given.sampling};
  const std::vector<policy_choice> all = choices(said.given);
  if (all.size() != said.given.policies.size() * std::max<std::size_t>(said.given.budgets.size(), 1)) std::abort();
  for (const policy_choice& one : all) {
    with_policy(one, [](const auto& policy) {
      if (policy.problem() != nullptr) std::abort();
      static_cast<void>(describe(policy));
    });
  }
}

void read_policies(const std::vector<std::string>& specs, const std::vector<std::string>& everywhere) {
  for (const std::string& spec : specs) {
    const policy_choice own = read_policy(spec);
    with_policy(own, [&](const auto& policy) { expect_options(policy, spec, own, everywhere); });
  }
}

void read_eval(const std::vector<const char*>& line) {
  evaluate::command_line said;
  if (evaluate::read_command_line(static_cast<int>(line.size()), line.data(), said)) return;
  switch (said.asked) {
    case evaluate::measurement::ledger:
      return read_policies(said.of_ledger.policies, said.of_ledger.settings);
    case evaluate::measurement::perplexity:
      return read_policies(said.of_perplexity.policies, said.of_perplexity.settings);
    case evaluate::measurement::heads:
      return;
    case evaluate::measurement::retrieval:
      retrieval::read_contenders(said.of_retrieval.policies, {}, {});
      return;
    case evaluate::measurement::forms:
      for (const std::string& name : said.of_forms.forms) retrieval::form_named(name);
      retrieval::read_contenders(said.of_forms.policies, {}, {});
      return;
    case evaluate::measurement::traces:
      for (const std::string& name : said.of_traces.tasks) traces::task_named(name);
      retrieval::read_contenders(said.of_traces.policies, {}, {});
      return;
    case evaluate::measurement::speed:
      if (!said.of_speed.tiers.empty()) parse_tiers(said.of_speed.tiers);
      read_policies(said.of_speed.policies, said.of_speed.settings);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  std::cout.setstate(std::ios::failbit);  // what --help says
  const std::vector<std::string> given = arguments(data + 1, size - 1);
  static const std::vector<const char*> begins[] = {
      {"zoomr-decode"},
      {"zoomr-decode", "--model", "DIR"},
      {"zoomr-decode", "ledger"},
      {"zoomr-eval", "ledger"},
      {"zoomr-eval", "perplexity", "--model", "DIR", "--text", "FILE"},
      {"zoomr-eval", "speed", "--shape", "FILE"},
      {"zoomr-eval", "heads", "--model", "DIR", "--text", "FILE"},
      {"zoomr-eval", "retrieval", "--model", "DIR", "--text", "FILE"},
      {"zoomr-eval", "forms", "--model", "DIR", "--text", "FILE"},
      {"zoomr-eval", "traces", "--model", "DIR", "--marks", "A,B,C,D"},
  };
  const std::size_t which = data[0] % std::size(begins);
  std::vector<const char*> line = begins[which];
  for (const std::string& argument : given) line.push_back(argument.c_str());
  try {
    which < 3 ? read_decode(line) : read_eval(line);
  } catch (const input_error&) {
  }
  return 0;
}
