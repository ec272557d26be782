// SPDX-License-Identifier: Apache-2.0
// Hooks of logits on a path with vectors: that of a model is made of vectors, with the bits of its scalar form; others
// are called as they are.
namespace zoomr {
inline namespace v0 {
namespace detail {
namespace ZOOMR_PATH {

/// A vector of logits under the bias by distance.
/// @param slopes, positions  [Queries]
/// @param slot               of the first token in the vector
template <index_t Queries>
[[gnu::always_inline]] inline floats biased(const slot_map& slots, const float* slopes, const index_t* positions,
                                            index_t slot, floats logits) {
  float apart[std::size_t{simd}];
  for (index_t lane = 0; lane < simd; ++lane) {
    apart[lane] = static_cast<float>(slots.position_of(slot + lane / Queries) - positions[lane % Queries]);
  }
  float slope[std::size_t{simd}];
  for (index_t lane = 0; lane < simd; ++lane) slope[lane] = slopes[lane % Queries];
  return fused(load(slope), load(apart), logits);
}

/// @pre run.queries == Queries
template <index_t Queries>
[[gnu::flatten]] void change(const model_logits& by, const run_logits& run) {
  const bool capped = by.of.soft_cap != 0.0f;
  const bool has_bias = by.of.slopes.size() != 0;
  float slopes[std::size_t{Queries}] = {};
  index_t positions[std::size_t{Queries}] = {};
  for (index_t q = 0; has_bias && q < Queries; ++q) {
    slopes[q] = by.of.slopes[by.head(run.first_query + q)], positions[q] = by.position(run.first_query + q);
  }
  const index_t all = run.tokens * Queries;
  index_t i = 0;
  static_assert(simd % Queries == 0, "a vector holds all queries of a token");
  for (; i + simd <= all; i += simd) {
    floats logits = load(run.logits + i);
    if (capped) logits = soft_capped(logits, by.of.soft_cap);
    if (has_bias) logits = biased<Queries>(by.of.slots, slopes, positions, run.first_slot + i / Queries, logits);
    to_memory(logits, run.logits + i);
  }
  if (i < all) {
    by({run.logits + i, (all - i) / Queries, Queries, run.first_slot + i / Queries, run.first_query});
  }
}

template <index_t Queries, class Hook>
[[gnu::always_inline]] inline void change(const Hook& hook, const run_logits& run) {
  hook(run);
}

}  // namespace ZOOMR_PATH
}  // namespace detail
}  // namespace v0
}  // namespace zoomr
