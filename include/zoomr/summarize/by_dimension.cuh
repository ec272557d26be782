// SPDX-License-Identifier: Apache-2.0
// L4. Summaries on the device, dimension by dimension; and what a summarizer that needs all keys at once is asked.
#pragma once

#include <zoomr/core/block.cuh>
#include <zoomr/summarize/stored_as.hpp>

namespace zoomr {
inline namespace v0 {

inline constexpr index summarize_threads = 128;

/// Shared memory of a summarizer that needs some: a specialisation beside its `make_summary`.
template <class Summarizer>
struct summary_scratch {};
template <class Number, class Made>
struct summary_scratch<stored_summaries<Number, Made>> : summary_scratch<Made> {};

/// The summary of one cue in one lane, by a whole block, with the host's bits.
/// @param cue   `count()` tokens, `key(t, d)` the key of the t-th in ascending order, times its scale
/// @param keep  keep(d, row, value) takes each number once, from any thread
template <dimension_summarizer Summarizer, class Cue, class Keep>
__device__ void make_summary(const Summarizer& summarize, const Cue& cue, index head_dim, block_threads& block,
                             summary_scratch<Summarizer>&, Keep keep) {
  for (index d = block.thread(); d < head_dim; d += block.size()) {
    auto c = summarize.open();
    for (index t = 0; t < cue.count(); ++t) summarize.fold(c, cue.key(t, d));
    summarize.close(c, cue.count());
    for (index r = 0; r < Summarizer::summary::rows; ++r) keep(d, r, c.row[r]);
  }
}

}  // namespace v0
}  // namespace zoomr
