// SPDX-License-Identifier: Apache-2.0
#include "replay.hpp"

#include <algorithm>  // std::any_of, std::clamp, std::min
#include <memory>     // std::unique_ptr

#include "../decode/input_error.hpp"
#include "../studies/evaluate/policy_spec.hpp"

namespace replay {
namespace {

using decode::fail;

/// Tokens whose rows are in memory at a time.
index_t tokens_at_once(const trace_facts& facts) {
  constexpr std::int64_t most = 32 << 20;  // bytes of their rows
  const std::int64_t bytes = facts.row_numbers() * facts.model.layers * 4;
  return static_cast<index_t>(std::clamp<std::int64_t>(most / bytes, 8, 64));
}

/// A number sets how much a preset attends to.
bool takes_budget(const std::string& name) {
  bool takes = true;
  zoomr::presets::with_name(name, [&](const auto& preset) { takes = std::string(preset.limits) != "nothing"; });
  return takes;
}

/// Bytes of what is read, and of full attention.
zoomr::byte_count shared_bytes(const trace_facts& facts, index_t tokens) {
  const zoomr::byte_count rows = facts.row_numbers() * facts.model.layers * 4 * tokens;
  const zoomr::byte_count chunk = facts.row_numbers() * 4 * 512 + facts.row_numbers() * 4 * 256;
  return rows + chunk + reference::bytes(facts, tokens, top_keys);
}

}  // namespace

std::vector<named_policy> named_policies(const std::vector<std::string>& texts, const std::vector<index_t>& budgets) {
  std::vector<named_policy> all;
  for (const std::string& text : texts) {
    const decode::policy_choice choice = decode::read_policy(text);
    const bool own = choice.budget > 0 || budgets.empty() || !takes_budget(choice.name);
    for (const index_t budget : own ? std::vector<index_t>{choice.budget} : budgets) {
      named_policy one{choice.name, choice};
      one.choice.budget = budget;
      if (budget > 0) one.text += "@" + std::to_string(budget);
      for (const std::string& setting : choice.settings) one.text += "+" + setting;
      const auto same = [&](const named_policy& other) { return other.text == one.text; };
      if (!std::any_of(all.begin(), all.end(), same)) all.push_back(one);
    }
  }
  return all;
}

std::vector<replay_result> play(trace& from, const std::vector<named_policy>& policies, zoomr::byte_count memory,
                                settings shared, const watcher& seen) {
  const trace_facts& facts = from.facts();
  const index_t together = tokens_at_once(facts);
  const zoomr::byte_count others = shared_bytes(facts, together);
  const auto count = static_cast<zoomr::byte_count>(policies.size());
  shared.limits.memory = (memory - others) / std::max<zoomr::byte_count>(count, 1);
  if (memory <= others) fail("--memory is ", memory, " bytes, but what is read of the trace takes ", others);
  if (shared.limits.device >= shared.limits.memory)
    fail("--memory leaves ", shared.limits.memory, " bytes for each cache, of which --device-bytes takes ",
         shared.limits.device);
  std::vector<std::unique_ptr<player>> players;
  for (const named_policy& one : policies) {
    players.push_back(open_player(one.choice, one.text, from, shared));
    if (seen.recorder) players.back()->record(seen.recorder(players.size() - 1, players.back()->facts()));
  }
  // A token after the prompt costs about as much as it reads, one of the prompt little for each policy.
  const double prompt = facts.prompt, prompt_cost = 0.02 * static_cast<double>(policies.size()) * prompt;
  const double all = prompt_cost + static_cast<double>(facts.tokens - facts.prompt) + 1e-9;
  const auto done = [&](double cost) {
    if (seen.progress) seen.progress(cost / all);
  };
  double before = 0;
  for (const auto& one : players) {
    one->prompt(from,
                [&](index_t passed) { done(before + prompt_cost / static_cast<double>(count) * passed / prompt); });
    before += prompt_cost / static_cast<double>(count);
  }
  reference full(from, together, top_keys);
  token_rows rows;
  for (index_t first = facts.prompt; first < facts.tokens; first += together) {
    read_rows(from, {first, std::min(first + together, facts.tokens)}, rows);
    const exact_answers& exact = full.attend(rows);
    for (const auto& one : players) one->play(rows, exact);
    done(prompt_cost + static_cast<double>(rows.tokens.last - facts.prompt));
  }
  std::vector<replay_result> results;
  for (const auto& one : players) results.push_back(one->result());
  return results;
}

}  // namespace replay
