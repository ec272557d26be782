// SPDX-License-Identifier: Apache-2.0
// L4. Attention over some adjacent tokens of one page, for queries that all attend them: the unit of work of the host's
// gather_attend and of its prompts. Every path adds the same numbers in the same order, so that each has the same bits:
//   logit[t] = scale * q . key[t]           in the contract's order (math/dot.hpp)
//   logit[t] = what a hook makes of it      if there is one: each logit by itself (attention/run_logits.hpp)
//   state.raise(largest logit)
//   state.sum += exp(logit[t] - max)        t ascending
//   state.out[d] += exp(...) * value[t][d]  t ascending
// Where rows have scales of their own, products are multiplied by that of the key, and weights, once they are added up,
// by that of the value. Over bfloat16, a path with products of pairs rounds weights, and adds two tokens at a time; of
// a query whose numbers are of bfloat16 it adds two dimensions at a time.
#pragma once

#include <zoomr/attention/run_logits.hpp>
#include <zoomr/core/cpu_path.hpp>
#include <zoomr/core/function_ref.hpp>
#include <zoomr/math/attention_state.hpp>
#include <zoomr/math/products.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>

#include <type_traits>  // std::is_base_of_v, std::is_same_v

namespace zoomr::inline v0::detail {

/// Adjacent tokens of one page of 16 and KV head: 1 to page_tokens of them.
template <class T>
struct page_run {
  using number = T;

  const T* keys = nullptr;    // [tokens] rows
  const T* values = nullptr;  // the same
  index_t tokens = 0;
  const std::int64_t* places = nullptr;        // [16]  of keys, as in row_places; side by side where rows have scales
  const std::int64_t* value_places = nullptr;  // [16]  the same of values
  index_t first = 0;                           // place of the first one in the page

  std::int64_t value_place(index_t token, index_t) const { return value_places[token]; }
  /// The product of a query [key_width] with the key of a token.
  float product(const float* query, index_t token, index_t key_width) const {
    return dot(query, keys + places[token], key_width);
  }
  static constexpr bool has_scales() { return scales_rows<T>; }
  float key_scale(index_t token, kv_widths widths) const {
    return row_scale(keys + std::int64_t{token} * widths.key, first + token, widths.key);
  }
  float value_scale(index_t token, kv_widths widths) const {
    const index_t stride = values == keys ? widths.key : widths.value;  // they may be in keys
    return row_scale(values + std::int64_t{token} * stride, first + token, stride);
  }
};

/// The same, widened for many queries. Keys are stored dimension by dimension: a vector holds those of several tokens,
/// so that no sum goes across a vector.
struct page_tile {
  using number = float;

  const float* keys = nullptr;    // [key width, page_tokens]
  const float* values = nullptr;  // [tokens, value width]
  index_t tokens = 0;
  const float* key_scales = nullptr;    // [tokens], where rows have scales
  const float* value_scales = nullptr;  // [tokens], then too
  const float* key_pairs = nullptr;     // [key width / 2, page_tokens]  of bfloat16, for queries in pairs

  static std::int64_t value_place(index_t token, index_t width) { return std::int64_t{token} * width; }
  bool has_scales() const { return key_scales != nullptr; }
  float key_scale(index_t token, kv_widths) const { return key_scales[token]; }
  float value_scale(index_t token, kv_widths) const { return value_scales[token]; }
  float product(const float* query, index_t token, index_t key_width) const {
    const float* const of_token = keys + token;
    return sum_over_dims(key_width,
                         [=](float acc, index_t d) { return fused(query[d], of_token[d * page_tokens], acc); });
  }
};

/// The same of bfloat16, on a path with products of pairs: the bits of a value are those of two, of a token and of the
/// next, or of zero after the last.
struct paired_tile : page_tile {  // values: [(tokens + 1) / 2, value width]
};

/// One query that attends a run: of one token and one head.
struct run_query {
  const float* query = nullptr;  // [key width]  rotated
  attention_state* state = nullptr;
  /// It is multiplied in pairs of dimensions, where keys are pairs of bfloat16. Of a tile they come behind `query`.
  bool pairs = false;
};

namespace portable {

template <class Run>
void attend_query(const Run& run, index_t number, const run_query& query, kv_widths widths, float scale,
                  const function_ref<void(index_t, float*)>* hook) {
  float logits[page_tokens];
  for (index_t t = 0; t < run.tokens; ++t) {
    float product = run.product(query.query, t, widths.key);
    if (run.has_scales()) product *= run.key_scale(t, widths);
    logits[t] = scale * product;
  }
  if (hook != nullptr) (*hook)(number, logits);
  float largest = -infinity;
  for (index_t t = 0; t < run.tokens; ++t) largest = logits[t] > largest ? logits[t] : largest;
  query.state->raise(largest, widths.value);
  query.state->weigh(logits, run.tokens);
  for (index_t t = 0; run.has_scales() && t < run.tokens; ++t) logits[t] *= run.value_scale(t, widths);
  query.state->add_values(logits, run.values, run.tokens, widths.value,
                          [&](index_t t) { return run.value_place(t, widths.value); });
}

/// Of any widths, without vectors.
/// @param hook  hook(number of a query, its logits), or nullptr: none
template <class Run>
void attend_run(cpu_path path, const Run& run, view<const run_query> queries, kv_widths widths, float scale,
                const function_ref<void(index_t, float*)>* hook) {
  on_common_path(path, [&] {
    for (index_t q = 0; q < queries.size(); ++q) attend_query(run, q, queries[q], widths, scale, hook);
  });
}

}  // namespace portable
}  // namespace zoomr::inline v0::detail

#define ZOOMR_EACH_CPU_PATH <zoomr/attention/key_products.inl>
#include <zoomr/core/each_cpu_path.inl>
#define ZOOMR_EACH_CPU_PATH <zoomr/attention/page_run.inl>
#include <zoomr/core/each_cpu_path.inl>

namespace zoomr::inline v0::detail {

/// Rows of such widths are whole vectors, on each path.
inline bool in_vectors(kv_widths widths) { return widths.key % simd_dims == 0 && widths.value % simd_dims == 0; }

/// Adds the tokens of a run, or of a tile, to the state of each query.
/// @param ahead    what will be read next: its lines are prefetched meanwhile; `run` itself if nothing is
/// @param queries  any number; four of them share what is read and widened
/// @param scale    of the logits
/// @param call     the hook that they go through, with its arguments for the run
template <class Run, class Hook = plain_logits>
void attend_run(cpu_path path, const Run& run, const Run& ahead, view<const run_query> queries, kv_widths widths,
                float scale, hooked<Hook> call = hooked<Hook>(plain_logits{}, 0)) {
  if (in_vectors(widths)) {
    const auto attend = [&](auto vectors) {
      attend_run(vectors, run, ahead, queries.data(), queries.size(), widths, scale, call);
    };
    if constexpr (std::is_same_v<Run, page_run<bfloat16>>) {
      if (dispatch_pairs(path, attend)) return;
    }
    if (dispatch(path, attend)) return;
  }
  if constexpr (has_hook<Hook>) {
    const auto change = [&](index_t query, float* logits) {
      call.hook(run_logits{logits, run.tokens, 1, call.first_slot, call.first_query + query});
    };
    const function_ref<void(index_t, float*)> hook = change;
    portable::attend_run(path, run, queries, widths, scale, &hook);
  } else {
    portable::attend_run(path, run, queries, widths, scale, nullptr);
  }
}

/// Attention over bfloat16 is made of products of pairs.
inline bool multiplies_pairs(cpu_path path, kv_widths widths) {
  return path == cpu_path::avx512_bf16 && in_vectors(widths);
}
/// Of queries, too, that are numbers of bfloat16.
inline bool multiplies_pairs_of_keys(cpu_path path, kv_widths widths) {
  return multiplies_pairs(path, widths) && widths.key % 32 == 0;
}

/// Whether all floats are numbers of bfloat16.
inline bool is_bfloat16(view<const float> numbers) {
  std::uint32_t lower = 0;
  for (const float number : numbers) lower |= bits_as<std::uint32_t>(number);
  return (lower & 0xffffu) == 0;
}

/// As attend_run; a tile's values are whole, so that nothing is prefetched.
/// @pre  multiplies_pairs(path, widths)
template <class Hook = plain_logits>
void attend_run(cpu_path path, const paired_tile& tile, view<const run_query> queries, kv_widths widths, float scale,
                hooked<Hook> call = hooked<Hook>(plain_logits{}, 0)) {
  [[maybe_unused]] const bool done =
      in_vectors(widths) && dispatch_pairs(path, [&](auto vectors) {
        attend_run(vectors, tile, tile, queries.data(), queries.size(), widths, scale, call);
      });
  ZOOMR_ASSERT(done, "this path multiplies no pairs");
}

}  // namespace zoomr::inline v0::detail
