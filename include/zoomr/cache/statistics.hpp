// SPDX-License-Identifier: Apache-2.0
// L6. Counters of one sequence, cheap enough to be always on.
#pragma once

#include <zoomr/core/cpu_path.hpp>
#include <zoomr/core/shape.hpp>

namespace zoomr::inline v0 {

/// Bytes by what they hold.
struct memory_use {
  byte_count details = 0;    // keys and values, in pages; over tiers those in memory
  byte_count summaries = 0;  // the index: what stands for the segments; and the keys that are kept beside pages
  byte_count metadata = 0;   // tables, query sums, the selection and its log
  byte_count workspace = 0;  // shared by all sequences; capacity only
  byte_count file = 0;       // under the memory of tiers: all pages

  /// Of memory.
  constexpr byte_count total() const { return details + summaries + metadata + workspace; }
  constexpr memory_use& operator+=(const memory_use& other) {
    details += other.details;
    summaries += other.summaries;
    metadata += other.metadata;
    workspace += other.workspace;
    file += other.file;
    return *this;
  }
  friend constexpr bool operator==(const memory_use&, const memory_use&) = default;
};

/// What a sequence has cost since it was opened. Work counts when it is done, also for drafts that were rejected, steps
/// that were dropped and commits that have failed.
struct statistics {
  std::int64_t prompt_tokens = 0;  // committed in prompts
  std::int64_t tokens = 0;         // committed after it
  std::int64_t passes = 0;         // forward passes after the prompt, second ones counted
  std::int64_t taken = 0;          // that have attended after it, accepted or not; a second pass counts none
  std::int64_t attended = 0;       // by these, summed over query heads, layers and passes
  std::int64_t refreshes = 0;      // choices made, one for each row
  std::int64_t zooms = 0;          // segments that a choice brought in, new against the choice before
  std::int64_t chosen = 0;         // segments that choices named, new or not; 0 where none was ever there to be chosen
  double agreeability_sum = 0;     // of the choices below: share of all votes that the chosen segments got
  std::int64_t agreeability_count = 0;
  double entropy_sum = 0;  // of the choices below: bits of the posterior that voters agree on
  std::int64_t entropy_count = 0;
  std::int64_t unsure = 0;         // of the choices: those of everything, since their posterior was unsure
  std::int64_t unsure_tokens = 0;  // of `taken`: those that have read everything because of one
  double captured_sum = 0;  // with config.audit: share of full attention's mass that each query head's tokens have
  std::int64_t captured_count = 0;
  byte_count device_peak = 0;  // most bytes on the device in a step after the prompt: memory_use::total()

  friend constexpr bool operator==(const statistics&, const statistics&) = default;

  /// Adds what other layers have cost for the same tokens and passes. The peak becomes the sum of both, which is not
  /// less than what all layers held at once. Of `unsure_tokens` the larger number stays.
  constexpr void add_layers(const statistics& other) {
    attended += other.attended;
    refreshes += other.refreshes;
    zooms += other.zooms;
    chosen += other.chosen;
    agreeability_sum += other.agreeability_sum;
    agreeability_count += other.agreeability_count;
    entropy_sum += other.entropy_sum;
    entropy_count += other.entropy_count;
    unsure += other.unsure;
    unsure_tokens = unsure_tokens > other.unsure_tokens ? unsure_tokens : other.unsure_tokens;
    captured_sum += other.captured_sum;
    captured_count += other.captured_count;
    device_peak += other.device_peak;
  }

  /// Which instructions the host code of this cache uses: "avx512_bf16", "avx512", "avx2", "neon", or "portable", those
  /// of the compiler's options (core/cpu_path.hpp).
  static const char* cpu_path() { return name_of(fastest_cpu_path()); }

  /// Attended tokens, mean over those that have attended after the prompt, whether they were accepted or not, layers
  /// and heads; second passes add to it.
  double attended_mean(const shape& model) const {
    const double heads = static_cast<double>(model.layers) * model.heads;
    return taken == 0 ? 0.0 : static_cast<double>(attended) / (static_cast<double>(taken) * heads);
  }
  /// Mean share of the attention mass over all tokens still held that falls on those attended; 0 without config.audit.
  double captured() const { return captured_count == 0 ? 0.0 : captured_sum / static_cast<double>(captured_count); }
  /// AG of ZoomR: higher when heads agree; 0 where no choice had votes.
  double agreeability() const {
    return agreeability_count == 0 ? 0.0 : agreeability_sum / static_cast<double>(agreeability_count);
  }
  /// Mean entropy of a choice's posterior (head_posterior), in bits: the voters are as unsure as among 2^entropy
  /// segments that are equally likely. 0 where no choice had one.
  double entropy() const { return entropy_count == 0 ? 0.0 : entropy_sum / static_cast<double>(entropy_count); }
  /// Share of the tokens that have attended after the prompt, accepted or not, that have read everything since a choice
  /// was unsure (config.voters_unsure).
  double unsure_share() const {
    return taken == 0 ? 0.0 : static_cast<double>(unsure_tokens) / static_cast<double>(taken);
  }
  /// Share of chosen segments that were not chosen the time before.
  double churn() const { return chosen == 0 ? 0.0 : static_cast<double>(zooms) / static_cast<double>(chosen); }
};

}  // namespace zoomr::inline v0
