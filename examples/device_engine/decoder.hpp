// SPDX-License-Identifier: Apache-2.0
// The decoder on a device, as the rest of the program sees it: no word of CUDA. Behind it stand model.cuh and
// session.cuh, or absent.cpp in a build without CUDA.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/cache/statistics.hpp>
#include <zoomr/paging/tiers/tiered_pool.hpp>
#include <zoomr/policy/concepts.hpp>
#include <zoomr/policy/placement/placement.hpp>
#include <zoomr/policy/take_best.hpp>

#include <filesystem>  // std::filesystem::path
#include <functional>  // std::function
#include <memory>      // std::unique_ptr
#include <optional>    // std::optional
#include <span>        // std::span

#include "../decode/config.hpp"
#include "../decode/policy_choice.hpp"

namespace decode::device {

/// Where details live, if not on the device alone.
struct details_room {
  // device: 0 if there are none; host: pinned memory, 0 for as much as is needed
  zoomr::tier_bytes tiers;
  index_t segments = 0;  // room in the index; 0: for as many as there are tokens

  bool tiered() const { return tiers.device > 0; }
};

/// What a run has cost, as far as it is counted on a device.
struct run_cost {
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;       // after the prompt
  std::int64_t passes = 0;       // after the prompt, second ones counted
  double attended_mean = 0;      // tokens, mean over the tokens after the prompt, layers and heads
  zoomr::memory_use reserved;    // by the cache, for the longest sequence: taken before the first token
  zoomr::byte_count pinned = 0;  // the same, of the host's memory
  std::optional<zoomr::arena_statistics> arena;
};

/// One sequence under one policy; the calls are those of `session`.
class decoder {
 public:
  decoder() = default;
  decoder(const decoder&) = delete;
  decoder& operator=(const decoder&) = delete;
  virtual ~decoder() = default;

  /// Passes the prompt, chunk by chunk; then `logits` are those of its last token.
  /// @param passed  called with the number of tokens passed so far
  virtual void prompt(std::span<const token_id> ids, const std::function<void(std::size_t)>& passed) = 0;
  /// Passes one token; then `logits` are its own.
  /// @param next  [1]
  virtual void advance(std::span<const token_id> next) = 0;
  /// [V]  of the last token passed, on the host
  virtual std::span<const float> logits() const = 0;
  virtual run_cost cost() = 0;
};

/// A checkpoint whose weights are on the device.
class engine {
 public:
  engine() = default;
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine() = default;

  /// A new sequence; one at a time.
  /// @param classes  [V]  must outlive the decoder
  /// @throws input_error if the policy is not supported; zoomr::error(device) if memory is short
  virtual std::unique_ptr<decoder> open(const policy_choice& choice, std::span<const zoomr::token_class> classes,
                                        const details_room& room) = 0;
};

/// Asked before anything is loaded.
/// @throws input_error if this build has no CUDA, or this machine no device
void expect_present();

/// @param tokens  of the longest sequence
/// @throws input_error for a checkpoint that cannot be used, and for a shape that the program is not compiled for
std::unique_ptr<engine> load(const std::filesystem::path& directory, const model_config& config, index_t tokens);

/// nullptr, or the sentence that says what zoomr::device_cache does not do yet of this policy.
template <class Policy>
constexpr const char* unsupported() {
  if constexpr (Policy::selects) {
    constexpr bool votes = zoomr::share_aggregator<decltype(Policy::aggregate)>;
    if constexpr (zoomr::key_scorer<decltype(Policy::score)> && !votes)
      return "the policy scores by keys without heads that vote, which the host's cache alone does";
    if constexpr (votes && zoomr::tiered_placement<decltype(Policy::placement)>)
      return "heads that vote read all keys at each choice: not with --tiers";
    if constexpr (!zoomr::limited_selector<decltype(Policy::select)>)
      return "the policy's selector does not say its limits, so a device cannot follow it";
  }
  return nullptr;
}

}  // namespace decode::device
