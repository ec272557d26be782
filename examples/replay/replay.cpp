// SPDX-License-Identifier: Apache-2.0
#include "replay.hpp"

#include <algorithm>  // std::any_of, std::clamp, std::min
#include <memory>     // std::unique_ptr

#include "../decode/input_error.hpp"
#include "../decode/policies.hpp"
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

/// Bytes of what is read, and of full attention.
zoomr::byte_count shared_bytes(const trace_facts& facts, index_t tokens) {
  const zoomr::byte_count rows = facts.row_numbers() * facts.model.layers * 4 * tokens;
  const zoomr::byte_count chunk = facts.row_numbers() * 4 * 512 + facts.row_numbers() * 4 * 256;
  return rows + chunk + reference::bytes(facts, tokens, top_keys);
}

/// Of one cache, a device with it.
zoomr::byte_count memory_for_each(zoomr::byte_count memory, zoomr::byte_count others, std::size_t caches,
                                  zoomr::byte_count device) {
  if (memory <= others) fail("--memory is ", memory, " bytes, but what is read of the trace takes ", others);
  const zoomr::byte_count each = (memory - others) / static_cast<zoomr::byte_count>(caches);
  if (device >= each) fail("--memory leaves ", each, " bytes for each cache, of which --device-bytes takes ", device);
  return each;
}

/// What a replay costs, in keys that are read: full attention reads all keys, a policy perhaps half of them, and
/// keeping a token of the prompt is worth some.
class progress_estimate {
 public:
  progress_estimate(const trace_facts& facts, double policies) : facts_(facts), policies_(policies) {}

  /// Of one policy.
  double in_prompt(index_t passed) const { return 16.0 * passed; }
  /// Of all, up to a token.
  double after_prompt(index_t end) const {
    const double count = end - facts_.prompt;
    return count * (facts_.prompt + count / 2) * (1 + policies_ / 2);
  }
  double all() const { return policies_ * in_prompt(facts_.prompt) + after_prompt(facts_.tokens); }

 private:
  const trace_facts& facts_;
  double policies_;
};

}  // namespace

std::vector<named_policy> named_policies(const std::vector<std::string>& texts, const std::vector<index_t>& budgets) {
  std::vector<named_policy> all;
  for (const std::string& text : texts) {
    const decode::policy_choice choice = decode::read_policy(text);
    const bool own = choice.budget > 0 || budgets.empty() || !decode::takes_budget(choice.name);
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
  if (policies.empty()) return {};
  const trace_facts& facts = from.facts();
  const index_t together = tokens_at_once(facts);
  shared.limits.memory = memory_for_each(memory, shared_bytes(facts, together), policies.size(), shared.limits.device);
  std::vector<std::unique_ptr<player>> players;
  for (const named_policy& one : policies) {
    players.push_back(open_player(one.choice, one.text, from, shared));
    if (seen.recorder) players.back()->record(seen.recorder(players.size() - 1, players.back()->facts()));
  }
  const progress_estimate work(facts, static_cast<double>(policies.size()));
  const auto done = [&](double cost) {
    if (seen.progress) seen.progress(cost / work.all());
  };
  double before = 0;
  for (const auto& one : players) {
    one->prompt(from, [&](index_t passed) { done(before + work.in_prompt(passed)); });
    before += work.in_prompt(facts.prompt);
  }
  reference full(from, together, top_keys);
  token_rows rows;
  for (index_t first = facts.prompt; first < facts.tokens; first += together) {
    read_rows(from, {first, std::min(first + together, facts.tokens)}, rows);
    const exact_answers& exact = full.attend(rows);
    for (const auto& one : players) one->play(rows, exact);
    done(before + work.after_prompt(rows.tokens.last));
  }
  std::vector<replay_result> results;
  for (const auto& one : players) results.push_back(one->result());
  return results;
}

}  // namespace replay
