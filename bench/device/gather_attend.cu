// SPDX-License-Identifier: Apache-2.0
// gather_attend alone: 8 KV heads of head_dim 128, bf16 queries and outputs, pages of 16, shuffled.
//   attend/TYPE/group:G/sequences:S/tokens:N/RANGES/cold, /warm   G query heads for each KV head; S queries that attend
//                                                                to N tokens each
//     ranges_of_24   24 tokens in each 96
//     one_range      adjacent positions
//     .../splits:K   blocks that share a row; without it they fill the device four times over
//   attend/latents/TYPE/...   the same of MLA: one KV head of 576 numbers, values in them, G query heads
// Groups of 8 and 16 are multiplied on tensor cores, but for f16.
// bytes_per_second: keys and values, once for all heads of a group. Ceiling: of_copy; arithmetic is 4 flops for each
// number of a key and head, which bounds large groups of warm rows.
// Checked: two heads in full against attention in double (support/attention_scene.hpp), tolerance::end_to_end and what
// bf16 rounds; of the other outputs, a sample being all that the host can afford, only that they are finite.
#include "../support/gather_scene.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

using zoomr::bfloat16, zoomr::float16, zoomr::float8;

template <class T, index_t Group, class Model = shared_heads>
void add_attend(const problem& p, l2 state, const std::string& suffix = "") {
  const std::string place = std::string("attend/") + (Model::values::in_keys ? "latents/" : "") + type_name<T>() +
                            "/group:" + std::to_string(Group) + "/sequences:" + std::to_string(p.sequences) +
                            "/tokens:" + std::to_string(p.tokens) + (p.scattered ? "/ranges_of_24/" : "/one_range/");
  add_row(place + name_of(state) + suffix, 30, [=](int iterations) {
    problem split = p;
    if (split.splits == 0) split.splits = splits_for(p.sequences * Model::kv_heads, p.tokens);
    const auto held = the_pages<T, Model>();
    const gather_scene<T, Group, zoomr::tokens_of_ranges, Model> made(split, *held);
    check_once(place + suffix, [&] { made.expect_right(); });
    result of = reading(timed(state, iterations, [&] { made.enqueue(); }), made.bytes(), p.sequences);
    of.figures.push_back({"splits", split.splits});
    return of;
  });
}

template <class T, index_t Group, class Model = shared_heads>
void add_grid() {
  for (const index_t sequences : toy ? std::vector<index_t>{2} : std::vector<index_t>{1, 8, 32}) {
    for (const index_t tokens : toy ? std::vector<index_t>{65} : std::vector<index_t>{512, 2048, 8192}) {
      for (const bool scattered : {true, false}) {
        for (const l2 state : {l2::cold, l2::warm})
          add_attend<T, Group, Model>({sequences, tokens, scattered, 0}, state);
      }
    }
  }
}

void add_splits() {
  for (const index_t sequences : toy ? std::vector<index_t>{1} : std::vector<index_t>{1, 8}) {
    for (const index_t splits : toy ? std::vector<index_t>{1, 3} : std::vector<index_t>{1, 2, 4, 8, 16, 32, 64}) {
      add_attend<bfloat16, 4>({sequences, toy ? 90 : 2048, true, splits}, l2::cold,
                              "/splits:" + std::to_string(splits));
    }
  }
}

}  // namespace

void device::add_gather_attend() {
  add_grid<bfloat16, 4>(), add_grid<bfloat16, 1>(), add_grid<bfloat16, 8>(), add_grid<bfloat16, 16>();
  add_splits();
  add_grid<float16, 4>();
  add_grid<float8, 4>(), add_grid<float8, 1>(), add_grid<float8, 8>(), add_grid<float8, 16>();
  add_grid<bfloat16, 16, latents>(), add_grid<float8, 16, latents>();
}

}  // namespace zoomr_bench
