// SPDX-License-Identifier: Apache-2.0
// zoomr by plain C calls, so that compare.py can time it and a peer in one process, in turn, over the same memory.
// Heads of 128 dimensions; queries and outputs in bf16. A call returns null, or the sentence that says what is wrong.
#include <zoomr/attention/gather.cuh>

#include <cmath>      // std::sqrt
#include <stdexcept>  // std::invalid_argument
#include <string>     // std::string

#include "../../tests/support/row_top_k.cuh"
#include "../../tests/support/tokens_of_slots.hpp"
#include "../support/device_time.hpp"

namespace zoomr_bench {

using zoomr::bfloat16;

extern "C" {

/// Sequences that attend to the same number of tokens each.
struct zoomr_attention {
  int type;  // of keys and values; 0: bf16, 1: fp8 (E4M3)
  int group;
  int kv_heads;
  int sequences;
  int tokens;  // of each
  int page_bits;
  long long page_stride;  // all in elements
  long long head_stride;
  long long token_stride;
  const void* keys;
  const void* values;
  const int* slots;     // [sequences, tokens]  page << page_bits | token of the page
  const void* queries;  // [sequences, kv_heads * group, 128]
  void* out;            // the same
  float* lse;           // [sequences, kv_heads * group]  natural
  float* workspace;     // zoomr_workspace_bytes at 16 bytes, zeroed once
  int splits;           // blocks for each sequence and KV head: zoomr_splits
};

int zoomr_splits(int kv_heads, int sequences, int tokens);
long long zoomr_workspace_bytes(const zoomr_attention* wanted);
const char* zoomr_attend(const zoomr_attention* wanted, void* on);
const char* zoomr_top_k(const float* scores, int rows, int n, int k, int* ids, int* counts, void* on);

}  // extern "C"

namespace {

constexpr index_t head_dim = 128;

struct rows_of_slots {
  view<const int, 2> slots;
  index_t kv_heads = 0;
  index_t group = 0;
  index_t count = 0;

  ZOOMR_HD zoomr::attending_row<zoomr_test::tokens_of_slots> at(index_t i) const {
    const index_t sequence = i / kv_heads;
    const index_t kv_head = i % kv_heads;
    return {{slots[sequence], slots.extent(1)}, sequence, kv_head, kv_head * group, group};
  }
};

stream_ref as_stream([[maybe_unused]] void* on) {
#if defined(ZOOMR_SIMT)
  return {};
#else
  return static_cast<stream_ref>(on);
#endif
}

/// body(), and the sentence of what it throws.
template <class Body>
const char* said(Body body) {
  static thread_local std::string sentence;
  try {
    body();
    return nullptr;
  } catch (const std::exception& fault) {
    sentence = fault.what();
    return sentence.c_str();
  }
}

template <class T, index_t Group>
void attend(const zoomr_attention& wanted, stream_ref on) {
  const zoomr::extents<3> wide{{wanted.sequences, wanted.kv_heads * Group, head_dim}};
  const index_t rows = wanted.sequences * wanted.kv_heads;
  zoomr::gather_task<T, bfloat16, rows_of_slots, zoomr::scaled_logits> task;
  task.layer = {static_cast<const T*>(wanted.keys),
                static_cast<const T*>(wanted.values),
                wanted.page_stride,
                wanted.head_stride,
                wanted.token_stride,
                wanted.page_bits};
  task.rows = {view<const int, 2>(wanted.slots, {wanted.sequences, wanted.tokens}), wanted.kv_heads, Group, rows};
  task.logits = {1.0f / std::sqrt(static_cast<float>(head_dim))};
  task.queries = {static_cast<const bfloat16*>(wanted.queries), wide};
  task.out = {static_cast<bfloat16*>(wanted.out), wide};
  task.lse = {wanted.lse, {{wanted.sequences, wanted.kv_heads * Group}}};
  task.partial = wanted.workspace;
  // counters last: they must be zero before, and are after
  const std::int64_t states = std::int64_t{rows} * wanted.splits * Group;
  task.arrived = reinterpret_cast<unsigned*>(wanted.workspace + states * zoomr::state_numbers(head_dim));
  zoomr::gather_attend<T, head_dim, Group>(task, wanted.splits, on);
}

template <class T>
void attend_by_group(const zoomr_attention& wanted, stream_ref on) {
  if (wanted.group == 1) return attend<T, 1>(wanted, on);
  if (wanted.group == 4) return attend<T, 4>(wanted, on);
  if (wanted.group == 8) return attend<T, 8>(wanted, on);
  throw std::invalid_argument("zoomr_attend: group must be 1, 4 or 8");
}

}  // namespace

int zoomr_splits(int kv_heads, int sequences, int tokens) { return splits_for(kv_heads * sequences, tokens); }

long long zoomr_workspace_bytes(const zoomr_attention* wanted) {
  const long long readers = static_cast<long long>(wanted->sequences) * wanted->kv_heads * wanted->group;
  return 4 * readers * (1 + static_cast<long long>(wanted->splits) * zoomr::state_numbers(head_dim));
}

const char* zoomr_attend(const zoomr_attention* wanted, void* on) {
  return said([&] {
    if (wanted->type == 0) return attend_by_group<bfloat16>(*wanted, as_stream(on));
    if (wanted->type == 1) return attend_by_group<zoomr::float8>(*wanted, as_stream(on));
    throw std::invalid_argument("zoomr_attend: type must be 0 (bf16) or 1 (fp8)");
  });
}

const char* zoomr_top_k(const float* scores, int rows, int n, int k, int* ids, int* counts, void* on) {
  return said([&] {
    zoomr_test::launch_top_k(view<const float, 2>(scores, {rows, n}), view<index_t, 2>(ids, {rows, k}),
                             view<index_t>(counts, {rows}), as_stream(on));
  });
}

}  // namespace zoomr_bench
