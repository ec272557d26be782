// SPDX-License-Identifier: Apache-2.0
// One layer's choice in a cache, exactly as a step enqueues it, and its scoring alone; each has a file of its own, and
// they share the scenes that are made here.
//   choose/POLICY/context:N/PART/cold, /warm   8 sequences, 32 heads, 8 KV heads, head_dim 128
//     layer, score   layer.cuh, score.cuh
//   sentence_kv      sentences of 24, their means in bf16 (_f32: in float; _fp8, _int8: in 8 bits, with scales)
//   quest            boxes of pages of 16
//   zoomr_focus      thoughts of 400; the choice of a sentence's end
//   quest_published  one sequence, 32 heads with keys of their own, each choosing alone; boxes in 16 bits
// bytes_per_second: summaries; ceiling: of_copy. Checked: each part as its file says.
#include "../support/device_policies.hpp"
#include "../support/kernels.hpp"
#include "layer.cuh"

namespace zoomr_bench {

namespace {

template <head_count Heads, class Part, class Policy>
void add_part(const std::string& name, const Policy& policy, const text& says) {
  using choosing_type = choosing<Policy, Heads>;
  const std::string place = "choose/" + name + "/context:" + std::to_string(says.timed_from) + "/";
  for (const l2 state : {l2::cold, l2::warm}) {
    add_row(place + Part::name + "/" + name_of(state), 50, [=](int iterations) {
      const auto made = kept<choosing_type>(place, [&] { return std::make_unique<choosing_type>(policy, says); });
      check_once(place + Part::name, [&] { Part::enqueue(*made), Part::expect_right(*made); });
      result of = reading(timed(state, iterations, [&] { Part::enqueue(*made); }), Part::bytes(*made));
      of.figures.push_back({"segments", made->segments()});
      return of;
    });
  }
}

template <head_count Heads = head_count{}, class Policy>
void add_parts(const std::string& name, const Policy& policy, const text& says) {
  add_part<Heads, layer>(name, policy, says);
  add_part<Heads, score>(name, policy, says);
}

}  // namespace

void device::add_choose() {
  using namespace timed_policies;
  for (const index_t context : toy ? std::vector<index_t>{120} : std::vector<index_t>{4096, 32768, 131072}) {
    add_parts("sentence_kv", sentence_kv, long_prompt(context));
    add_parts("sentence_kv_f32", sentence_kv_f32, long_prompt(context));
    add_parts("sentence_kv_fp8", sentence_kv_fp8, long_prompt(context));
    add_parts("sentence_kv_int8", sentence_kv_int8, long_prompt(context));
    add_parts("quest", quest, long_prompt(context));
    add_parts("zoomr_focus", zoomr_focus, thoughts_after_prompt(context));
  }
  for (const index_t context : toy ? std::vector<index_t>{120} : std::vector<index_t>{2048, 8192, 32768, 131072}) {
    add_parts<quest_heads>("quest_published", quest_published, long_prompt(context));
  }
}

}  // namespace zoomr_bench
