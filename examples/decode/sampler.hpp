// SPDX-License-Identifier: Apache-2.0
// From logits to the next token: greedy, or drawn at random at a temperature from the likeliest
// tokens. The same seed draws the same tokens with every standard library: mt19937_64's bits are
// fixed by the standard, its distributions are not, so none is used.
#pragma once

#include <cstdint>  // std::uint64_t
#include <random>   // std::mt19937_64
#include <span>     // std::span
#include <vector>   // std::vector

#include "config.hpp"

namespace decode {

struct sampler_options {
  double temperature = 0;  // 0: greedy; 1: the model's own probabilities
  double top_p = 1;        // the likeliest tokens whose probabilities reach this sum, in (0, 1]
  std::uint64_t seed = 0;
};

/// The id of the largest logit, ties to the lower id.
///
/// @param logits  [vocab]  not empty
/// @throws        input_error if one is NaN or +infinity: the weights, though finite, overflow
token_id greedy(std::span<const float> logits);

class sampler {
 public:
  explicit sampler(sampler_options options = {});

  /// The next token. Draws one random number, or none if greedy.
  ///
  /// @param logits  [vocab]  not empty
  token_id operator()(std::span<const float> logits);

 private:
  double weight(token_id id) const { return weights_[static_cast<std::size_t>(id)]; }

  // In [0, 1): the upper 53 bits.
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }

  sampler_options options_;
  std::mt19937_64 bits_;
  std::vector<double> weights_;
  std::vector<token_id> order_;
};

}  // namespace decode
