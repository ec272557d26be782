// SPDX-License-Identifier: Apache-2.0
#include "score.hpp"

#include <algorithm>  // std::max_element
#include <chrono>     // std::chrono::steady_clock
#include <cmath>      // std::exp, std::log
#include <numbers>    // std::numbers::ln2

namespace decode::perplexity {

double bits_of(std::span<const float> logits, token_id token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return (std::log(sum) + largest - logits[static_cast<std::size_t>(token)]) / std::numbers::ln2;
}

score score_tokens(session<zoomr::placement>& run, const prefill& prompt, std::span<const token_id> scored,
                   const std::function<void(std::size_t)>& passed) {
  run.with_cache([&](auto& cache) { prompt.replay(cache, run.at(0)); });
  score out;
  const auto begin = std::chrono::steady_clock::now();
  const auto add = [&](std::size_t t, std::span<const float> logits) {
    const double bits = bits_of(logits, scored[t]);
    out.bits += bits;
    if (t % block_tokens == 0) out.block_bits.push_back(0);
    out.block_bits.back() += bits;
  };
  add(0, prompt.logits());
  for (std::size_t t = 0; t + 1 < scored.size(); ++t) {
    run.advance(scored.subspan(t, 1));
    add(t + 1, run.logits(0));
    passed(t + 2);
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  out.attended_mean = run.attended_mean();
  out.bytes = run.bytes();
  out.device_peak = run.stats().device_peak;
  return out;
}

}  // namespace decode::perplexity
