// SPDX-License-Identifier: Apache-2.0
// L4. What may become of logits between their scale and their softmax: nothing (`plain_logits`), what a model does
// (`model_logits`: soft cap, bias by distance), or whatever the caller of gather_attend passes. It is a hook, a
// callable that changes the logits of some adjacent tokens. Its type is a parameter of the kernel: without a hook the
// code has no trace of it. Every path calls it for the same tokens and queries, except that these come one, two or four
// at a time: a hook that changes each logit by itself gives the same bits on all of them.
#pragma once

#include <zoomr/core/cpu_path.hpp>
#include <zoomr/policy/lane_logits.hpp>
#include <zoomr/policy/position_map.hpp>

namespace zoomr::inline v0 {

/// The logits of adjacent tokens for some queries: what a hook may change, one by one.
struct run_logits {
  float* logits = nullptr;  // [tokens, queries]  natural, scaled
  index_t tokens = 0;
  index_t queries = 0;
  index_t first_slot = 0;   // of the first token; the others follow
  index_t first_query = 0;  // the number of the first query among those that attend; the others follow

  constexpr float& at(index_t token, index_t query) const { return logits[token * queries + query]; }
};

/// No hook: logits are products times the scale.
struct plain_logits {};

/// The hook of a model's soft cap and bias by distance. The queries are those of `heads` heads of one KV head at
/// `first_position`, then those of the same heads at the next position, and so on.
/// @cost  for each logit an exponential and two divisions under a soft cap, a fma under a bias
struct model_logits {
  lane_logits lane;  // its slopes are of these heads
  index_t heads = 1;
  index_t first_position = 0;
  position_map positions = {};  // what is apart are model positions

  index_t head(index_t query) const { return query % heads; }
  /// Model positions.
  index_t position(index_t query) const { return positions.at(first_position + query / heads); }
  index_t position_of_key(index_t slot) const { return positions.at(lane.slots.position_of(slot)); }
  void operator()(const run_logits& run) const {
    for (index_t t = 0; t < run.tokens; ++t) {
      for (index_t q = 0; q < run.queries; ++q) {
        const index_t query = run.first_query + q;
        // The lane counts from positions of keys.
        const index_t slot = run.first_slot + t;
        const index_t moved = positions.offset_at(lane.slots.position_of(slot));
        run.at(t, q) = lane(run.at(t, q), head(query), slot, position(query) - moved);
      }
    }
  }
};

namespace detail {

/// A hook, and which tokens and queries it is called for: an argument of kernels.
template <class Hook>
struct hooked {
  const Hook& hook;
  index_t first_slot = 0;
  index_t first_query = 0;

  /// For the queries from this one on.
  hooked from(index_t query) const { return {hook, first_slot, first_query + query}; }
};
template <>
struct hooked<plain_logits> {
  hooked(const plain_logits&, index_t, index_t = 0) {}
  hooked from(index_t) const { return *this; }
};
template <class Hook>
inline constexpr bool has_hook = true;
template <>
inline constexpr bool has_hook<plain_logits> = false;

}  // namespace detail
}  // namespace zoomr::inline v0

#define ZOOMR_EACH_CPU_PATH <zoomr/attention/run_logits.inl>
#include <zoomr/core/each_cpu_path.inl>

namespace zoomr::inline v0::detail {

/// Changes the logits of one query over adjacent tokens, as its model does.
/// @param logits  [tokens]  natural, scaled
/// @param first   slot of the first token
inline void change_row(cpu_path path, const model_logits& hook, view<float> logits, index_t first) {
  if (hook.lane.plain()) return;
  const run_logits run{logits.data(), logits.size(), 1, first, 0};
  if (!dispatch(path, [&](auto vectors) { change_one(vectors, hook, run); })) hook(run);
}

/// Makes logits of the products of one query head with adjacent keys: times `scale`, then what its model does.
/// @param hook      for the heads of a KV head, of which this is number `head`
/// @param products  [tokens]
/// @param first     slot of the first token
inline void scale_row(cpu_path path, const model_logits& hook, index_t head, float scale, view<float> products,
                      index_t first) {
  on_path(path, [&] {
    for (float& product : products) product = fused(scale, product, -0.0f);
  });
  model_logits of_head = hook;
  if (hook.lane.slopes.size() > 0) of_head.lane.slopes = hook.lane.slopes.slice(head, head + 1);
  of_head.heads = 1;
  change_row(path, of_head, products, first);
}

}  // namespace zoomr::inline v0::detail
