// SPDX-License-Identifier: Apache-2.0
// L4. Exact attention over the chosen tokens: one pass over the ranges, page by page, for all query heads that
// share a KV head, so that each key and value is read once.
//
// cache/host/attending.hpp calls it for the ranges of one KV head; a prompt has tiles of its own
// (cache/host/prompt_attention.hpp). A KV lane over tiers brings the page in `key`, and keeps it until a few others are
// asked for: two are, before a page is done with.
#pragma once

#include <zoomr/attention/page_run.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/policy/segment.hpp>

#include <algorithm>    // std::copy_n, std::max, std::min
#include <type_traits>  // std::remove_cv_t

namespace zoomr {
inline namespace v0 {

namespace detail {

/// As gather_within, for a KV lane whose pages are not whole: 16 slots are copied next to each other and attended
/// together, so that the bits are those of any other pages.
template <class Lane>
void gather_copied(view<const token_range> ranges, token_range bounds, const Lane& kv_lane,
                   view<const run_query> queries, float scale, cpu_path path) {
  using number = std::remove_cv_t<typename Lane::number>;
  constexpr std::size_t rows = std::size_t{page_tokens} * shape::most_head_dim;
  alignas(64) number keys[rows];
  alignas(64) number values[rows];
  const index_t dims = kv_lane.head_dim;
  for (const token_range& r : ranges) {
    const index_t end = (std::min)(r.last, bounds.last);
    for (index_t first = (std::max)(r.first, bounds.first); first < end;) {
      const index_t last = (std::min)(end, (first / page_tokens + 1) * page_tokens);
      for (index_t slot = first; slot < last; ++slot) {
        const number* const key = kv_lane.key(slot);
        std::copy_n(key, dims, keys + (slot - first) * dims);
        std::copy_n(key + kv_lane.value_offset, dims, values + (slot - first) * dims);
      }
      const page_run<number> run{keys, values, last - first, dims, first % page_tokens};
      attend_run(path, run, run, queries, dims, scale);
      first = last;
    }
  }
}

/// Adds the tokens of `ranges` that lie within `bounds` to the state of each query. As gather_attend, for queries that
/// lie anywhere: heads that share a KV head, of one token or of several.
/// @param bounds   slots; where they cut a range, at the border of a page, so that the runs are the same
/// @param queries  [any number]
template <class Lane>
void gather_within(view<const token_range> ranges, token_range bounds, const Lane& kv_lane,
                   view<const run_query> queries, float scale, cpu_path path = fastest_cpu_path()) {
  if (!kv_lane.whole_pages()) return gather_copied(ranges, bounds, kv_lane, queries, scale, path);
  using number = std::remove_cv_t<typename Lane::number>;
  constexpr index_t ahead = 2;                    // runs between the one that is read and the one that is asked for
  page_run<number> runs[std::size_t{ahead + 1}];  // the last ones found
  index_t found = 0;
  const auto attend = [&](index_t run, index_t next) {
    attend_run(path, runs[run], runs[next], queries, kv_lane.head_dim, scale);
  };
  for (const token_range& r : ranges) {
    const index_t end = (std::min)(r.last, bounds.last);
    for (index_t first = (std::max)(r.first, bounds.first); first < end;) {
      const index_t last = (std::min)(end, (first / page_tokens + 1) * page_tokens);
      const number* const keys = kv_lane.key(first);
      runs[found % (ahead + 1)] = {keys, keys + kv_lane.value_offset, last - first, kv_lane.row_stride(),
                                   first % page_tokens};
      if (found >= ahead) attend((found - ahead) % (ahead + 1), found % (ahead + 1));
      ++found;
      first = last;
    }
  }
  for (index_t run = (std::max)(0, found - ahead); run < found; ++run) attend(run % (ahead + 1), run % (ahead + 1));
}

}  // namespace detail

/// Adds the tokens of `ranges` to one attention state for each query head of the group.
///
/// @param ranges     ascending slots
/// @param kv_lane  `key(slot)` is where a key lies, those of its page behind it, `row_stride()` apart, their values
///                 `value_offset` further; where not all rows of 16 slots are so far apart, `whole_pages()` is false
/// @param queries  [group, head_dim]  rotated
/// @param scale    of the logits: that of stored keys / sqrt(head_dim)
/// @param states   [group]  their `out` has head_dim floats; not yet finished. Logits in them are natural.
/// @param path     which instructions
/// @pre   has_cpu_path(path); `out` of a new state is zeros; each slot is added to a state at most once, since
///        nothing looks for repetitions
/// @throws error(storage) if a page over tiers does not come: the states then hold a part, and must be begun anew
/// @cost  reads 2 * head_dim numbers for each token; 4 flops * head_dim for each token and query head
template <class Lane>
void gather_attend(view<const token_range> ranges, const Lane& kv_lane, view<const float, 2> queries, float scale,
                   view<attention_state> states, cpu_path path = fastest_cpu_path()) {
  constexpr index_t most = 16;  // query heads at a time
  detail::run_query asks[std::size_t{most}];
  for (index_t head = 0; head < states.size(); head += most) {
    const index_t count = (std::min)(most, states.size() - head);
    for (index_t i = 0; i < count; ++i) asks[i] = {queries[head + i].data(), &states[head + i]};
    detail::gather_within(ranges, {0, unlimited}, kv_lane, {asks, {count}}, scale, path);
  }
}

}  // namespace v0
}  // namespace zoomr
