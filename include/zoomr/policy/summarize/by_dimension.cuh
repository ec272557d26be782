// SPDX-License-Identifier: Apache-2.0
// L4. Summaries on the device, dimension by dimension; and what a summarizer that needs all keys at once must have.
//
// summarize_kernel (cache/device/choosing/summaries.cuh) calls `make_summary` with a block of `summarize_threads` for
// each closed segment and KV lane, where a segment closes and where eviction has moved tokens.
#pragma once

#include <zoomr/core/device/block.cuh>
#include <zoomr/core/shape.hpp>
#include <zoomr/policy/summarize/stored_as.hpp>

namespace zoomr::inline v0 {

inline constexpr index_t summarize_threads = 128;

/// Shared memory of a summarizer that needs some: a specialisation beside its `make_summary`.
template <class Summarizer>
struct summary_scratch {};
template <class Number, class Made>
struct summary_scratch<stored_summaries<Number, Made>> : summary_scratch<Made> {};

/// The summary of one cue in one KV lane, by a whole block, with the host's bits. All threads call it; thread d makes
/// the dimensions d, d + threads, ... A cue may be empty, if eviction has left none of its tokens.
/// @param cue   `count()` tokens, `key(t, d)` the key of the t-th in ascending order, times its scale
/// @param keep  keep(d, row, value) takes each number once, from any thread
/// @cost  reads each key once; no barrier
template <dimension_summarizer Summarizer, class Cue, class Keep>
__device__ void make_summary(const Summarizer& summarize, const Cue& cue, index_t head_dim, block_threads& block,
                             summary_scratch<Summarizer>&, Keep keep) {
  for (index_t d = block.thread(); d < head_dim; d += block.size()) {
    auto c = summarize.open();
    for (index_t t = 0; t < cue.count(); ++t) summarize.fold(c, cue.key(t, d));
    summarize.close(c, cue.count());
    for (index_t r = 0; r < Summarizer::summary::rows; ++r) keep(d, r, c.row[r]);
  }
}

/// The same of a summarizer that needs a dimension's keys twice: `of_dimension(count, key)`.
/// @cost  reads each key as often as it does; no barrier
template <class Summarizer, class Cue, class Keep>
requires requires(index_t count, float (*key)(index_t)) { Summarizer::of_dimension(count, key); }
__device__ void make_summary(const Summarizer&, const Cue& cue, index_t head_dim, block_threads& block,
                             summary_scratch<Summarizer>&, Keep keep) {
  for (index_t d = block.thread(); d < head_dim; d += block.size()) {
    const auto c = Summarizer::of_dimension(cue.count(), [&](index_t t) { return cue.key(t, d); });
    for (index_t r = 0; r < Summarizer::summary::rows; ++r) keep(d, r, c.row[r]);
  }
}

namespace detail {
/// Where the numbers of a summary that has a scale wait until that is found; next to nothing for others.
template <class Summary, class Number>
using numbers_until_scaled = shared_array<float, scales_summaries<Number> ? shape::most_head_dim * Summary::rows : 1>;

/// Makes a summary that has a scale, as make_summary does: its numbers wait in shared memory until the largest is
/// found.
/// @param keep  keep(d, row, value, scale) takes each number once, from any thread
/// @return the scale
/// @cost   two barriers more than the summarizer has
template <class Number, class Summarizer, class Cue, class Keep>
__device__ float make_scaled_summary(const Summarizer& summarize, const Cue& cue, index_t head_dim,
                                     block_threads& block, summary_scratch<Summarizer>& own_scratch, Keep keep) {
  constexpr index_t rows = Summarizer::summary::rows;
  __shared__ numbers_until_scaled<typename Summarizer::summary, Number> numbers;
  std::uint32_t largest = 0;
  make_summary(summarize, cue, head_dim, block, own_scratch, [&](index_t d, index_t r, float value) {
    numbers[d * rows + r] = value;
    const std::uint32_t magnitude = summary_magnitude(value);
    if (magnitude > largest) largest = magnitude;
  });
  const float scale = summary_scale<Number>(block.largest(largest));
  for (index_t i = block.thread(); i < head_dim * rows; i += block.size()) keep(i / rows, i % rows, numbers[i], scale);
  __syncthreads();  // the next summary's numbers come to the same place
  return scale;
}

struct any_cue {
  __device__ index_t count() const;
  __device__ float key(index_t t, index_t d) const;
};
struct any_keep {
  __device__ void operator()(index_t d, index_t row, float value) const;
};
}  // namespace detail

/// A summarizer that works on a device: dimension by dimension, or by an overload of `make_summary` in its namespace.
/// Limits that its shared memory sets are `most_tokens` and `most_dims` of its `summary_scratch`.
template <class T>
concept device_summarizer = summarizer<T> &&
    requires(const T& summarize, const detail::any_cue& cue, block_threads& block, summary_scratch<T>& scratch,
             detail::any_keep keep) {
  make_summary(summarize, cue, index_t{}, block, scratch, keep);
};

/// Whether its shared memory holds cues of so many tokens, of keys of so many dimensions.
template <device_summarizer T>
constexpr bool fits_scratch(index_t tokens, index_t dims) {
  using scratch = summary_scratch<T>;
  bool fits = true;
  if constexpr (requires { scratch::most_tokens; }) fits = tokens <= scratch::most_tokens;
  if constexpr (requires { scratch::most_dims; }) fits = fits && dims <= scratch::most_dims;
  return fits;
}

}  // namespace zoomr::inline v0
