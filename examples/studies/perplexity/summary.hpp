// SPDX-License-Identifier: Apache-2.0
// Means over passages, with 95 % intervals by Student's t: of bits per byte, and of the paired difference to full.
#pragma once

#include <cmath>    // std::exp2
#include <cstddef>  // std::size_t
#include <vector>   // std::vector

#include <nlohmann/json_fwd.hpp>

#include "journal.hpp"

namespace decode::perplexity {

/// A mean and half the width of its 95 % interval (0 where one value alone gives none).
struct estimate {
  double mean = 0;
  double half_width = 0;
};

/// The 0.975 quantile of Student's t.
double student_t(std::size_t degrees);

estimate estimate_of(const std::vector<double>& values);

/// One policy in one context, over all its passages.
struct group {
  row task;  // whose policy, settings, budget and context these are
  std::size_t passages = 0;
  estimate bits_per_byte;
  double perplexity_per_byte = 0;
  double perplexity_per_word = 0;
  std::size_t paired = 0;     // passages that full has too
  estimate bits_beyond_full;  // per byte
  double gap_closed = 0;      // of the bits between window and full at this budget; NaN where there is none
  double attended_mean = 0, tokens_per_second = 0;
  zoomr::memory_use bytes;  // mean over passages
  zoomr::byte_count device_peak = 0;

  /// Perplexity per byte against full's, less 1.
  double beyond_full() const { return std::exp2(bits_beyond_full.mean) - 1; }
};

group summarize(const std::vector<row>& rows, const row& of);

/// One group for each policy, settings, budget and context, in the order of their first rows.
std::vector<group> summarize(const std::vector<row>& rows);

nlohmann::ordered_json to_json(const group& g);

}  // namespace decode::perplexity
