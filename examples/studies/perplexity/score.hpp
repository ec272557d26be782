// SPDX-License-Identifier: Apache-2.0
// How well a model foretells given tokens under a policy, and what that costs.
#pragma once

#include <cstddef>     // std::size_t
#include <functional>  // std::function
#include <span>        // std::span
#include <vector>      // std::vector

#include "../../decode/session.hpp"
#include "prefill.hpp"

namespace decode::perplexity {

/// -log2 of the probability of `token` by these logits.
/// @param logits  [V]
double bits_of(std::span<const float> logits, token_id token);

/// Tokens whose bits are added up: neighbours depend on each other, blocks hardly do.
inline constexpr std::size_t block_tokens = 32;

/// One policy on one passage.
struct score {
  double bits = 0;                 // of all scored tokens together
  std::vector<double> block_bits;  // of each block of them; the last one may be shorter
  double seconds = 0;
  double attended_mean = 0;
  zoomr::memory_use bytes;  // in use at the end
  zoomr::byte_count device_peak = 0;
};

/// Scores tokens one by one after a dense prompt.
///
/// @param run     an empty sequence
/// @param scored  [tokens]  what follows the prompt
/// @param passed  called with the number of tokens scored so far
score score_tokens(session<zoomr::placement>& run, const prefill& prompt, std::span<const token_id> scored,
                   const std::function<void(std::size_t)>& passed);

/// The same under a policy.
template <class Policy>
score score_tokens(model& net, const Policy& policy, const prefill& prompt, std::span<const token_id> scored,
                   std::span<const zoomr::token_class> classes, const std::function<void(std::size_t)>& passed) {
  session run(net, policy, 1, static_cast<index_t>(prompt.tokens() + scored.size()), classes);
  return score_tokens(run, prompt, scored, passed);
}

}  // namespace decode::perplexity
