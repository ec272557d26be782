// SPDX-License-Identifier: Apache-2.0
// How well a model foretells given tokens under a policy, and what that costs.
#pragma once

#include <chrono>  // std::chrono::steady_clock
#include <cmath>   // std::exp, std::log
#include <span>    // std::span

#include "../../decode/session.hpp"
#include "prefill.hpp"

namespace decode::perplexity {

/// -log2 of the probability of `token` by these logits.
/// @param logits  [V]
inline double bits_of(std::span<const float> logits, token_id token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return (std::log(sum) + largest - logits[static_cast<std::size_t>(token)]) / std::numbers::ln2;
}

/// One policy on one passage.
struct score {
  double bits = 0;  // of all scored tokens together
  double seconds = 0;
  double attended_mean = 0;
  zoomr::memory_use bytes;  // in use at the end
  zoomr::byte_count device_peak = 0;
};

/// Scores tokens one by one after a dense prompt.
///
/// @param scored  [tokens]  what follows the prompt
/// @param passed  called with the number of tokens scored so far
template <class Policy, class Passed>
score score_tokens(model& net, const Policy& policy, const prefill& prompt, std::span<const token_id> scored,
                   std::span<const zoomr::token_class> classes, Passed passed) {
  session run(net, policy, 1, static_cast<index_t>(prompt.tokens() + scored.size()), classes);
  prompt.replay(run.cache(), run.at(0));
  score out;
  const auto begin = std::chrono::steady_clock::now();
  out.bits = bits_of(prompt.logits(), scored.front());
  for (std::size_t t = 0; t + 1 < scored.size(); ++t) {
    run.advance(scored.subspan(t, 1));
    out.bits += bits_of(run.logits(0), scored[t + 1]);
    passed(t + 2);
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const zoomr::statistics& stats = run.cache().stats(run.at(0));
  out.attended_mean = stats.attended_mean(run.cache().model());
  out.bytes = run.cache().bytes(run.at(0));
  out.device_peak = stats.device_peak;
  return out;
}

}  // namespace decode::perplexity
