// SPDX-License-Identifier: Apache-2.0
// Hooks of logits on a path with vectors: that of a model is made of vectors, with the bits of its scalar form; others
// are called as they are.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

#if !ZOOMR_PAIRS

/// The bias by distance of the queries of a run.
/// @pre  a vector holds all queries of a token
struct bias_of_run {
  const model_logits& hook;
  index_t first_slot;
  index_t first = 0;         // position of the first token
  bool consecutive = false;  // the other tokens are at the positions after it
  // Of each number of a vector: the position and the slope of its query, and its token, from that of the first on.
  index_t positions[std::size_t{simd}], tokens[std::size_t{simd}];
  float slopes[std::size_t{simd}];

  [[gnu::noinline]] bias_of_run(const model_logits& of_model, const run_logits& run)
      : hook(of_model), first_slot(run.first_slot), first(hook.position_of_key(run.first_slot)) {
    consecutive =
        hook.positions.plain() && hook.position_of_key(run.first_slot + run.tokens - 1) - first == run.tokens - 1;
    index_t head = hook.head(run.first_query), position = hook.position(run.first_query);
    for (index_t q = 0; q < run.queries; ++q) {
      for (index_t i = q, token = 0; i < simd; i += run.queries, ++token) {
        positions[i] = position;
        slopes[i] = hook.lane.slopes[head];
        tokens[i] = token;
      }
      if (++head == hook.heads) {
        head = 0;
        position = hook.position(run.first_query + q + 1);
      }
    }
  }
  /// A vector of logits, of which the first is that of token `t` of the run.
  [[gnu::always_inline]] floats operator()(index_t t, floats logits) const {
    ints keys;
    if (consecutive) {
      keys = from_memory<ints>(tokens) + (first + t);
    } else {
      index_t at[std::size_t{simd}];
      for (index_t i = 0; i < simd; ++i) at[i] = hook.position_of_key(first_slot + t + tokens[i]);
      keys = from_memory<ints>(at);
    }
    const floats distances = __builtin_convertvector(keys - from_memory<ints>(positions), floats);
    return fused(load(slopes), distances, logits);
  }
};

/// @pre run.queries is 1, 2 or 4
[[gnu::flatten, gnu::noinline]] inline void change(const model_logits& hook, const run_logits& run) {
  if (hook.lane.plain()) return;
  const float cap = hook.lane.soft_cap;
  const index_t numbers = run.tokens * run.queries, vector_tokens = simd / run.queries;
  index_t i = 0;
  if (hook.lane.slopes.size() == 0) {
    for (; i + simd <= numbers; i += simd) to_memory(soft_capped(load(run.logits + i), cap), run.logits + i);
  } else {
    const bias_of_run bias(hook, run);
    for (index_t t = 0; i + simd <= numbers; i += simd, t += vector_tokens) {
      const floats logits = load(run.logits + i);
      to_memory(bias(t, cap == 0.0f ? logits : soft_capped(logits, cap)), run.logits + i);
    }
  }
  const index_t done = i / run.queries;
  if (i < numbers) hook({run.logits + i, run.tokens - done, run.queries, run.first_slot + done, run.first_query});
}

/// Of one query.
inline void change_one(this_path, const model_logits& hook, const run_logits& run) { change(hook, run); }

#else
inline void change(const model_logits& hook, const run_logits& run) { avx512::change(hook, run); }
#endif

template <class Hook>
[[gnu::always_inline]] inline void change(const Hook& hook, const run_logits& run) {
  hook(run);
}

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
