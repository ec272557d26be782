// SPDX-License-Identifier: Apache-2.0
// Whole steps of a device cache (support/step_rows.hpp says what is timed and checked), everything on the device: 8
// sequences, 32 heads, 8 KV heads. Contexts 4,096, 32,768 and 131,072; 1 layer and 32, at 131,072 eight.
//   full         everything, with the same kernels
//   sentence_kv  sentences of 24, their means in bf16, a choice at each token, a budget of 2,048 tokens
//   zoomr_mass   thoughts of 400, summaries of 30, a prompt of 512, a window of 256; votes of all layers by mass at
//                each sentence's end, which is passed again
//   zoomr_focus  the same text; each layer alone, one pass
//   sentence_voters, zoomr_voters  a head of every other layer votes, by keys, at each token: for sentences of 24, and
//                for the thoughts. The choice is part of the time: there is no model here for it to be hidden behind
#include "../support/kernels.hpp"
#include "../support/step_rows.hpp"

namespace zoomr_bench {

namespace {

void add_context(index_t context, index_t layers) {
  add_policy("full", timed_policies::full, long_prompt(context), layers);
  add_policy("sentence_kv", timed_policies::sentence_kv, long_prompt(context), layers);
  add_policy("zoomr_mass", timed_policies::zoomr_mass, thoughts_after_prompt(context), layers);
  add_policy("zoomr_focus", timed_policies::zoomr_focus, thoughts_after_prompt(context), layers);
  add_policy("sentence_voters", timed_policies::sentence_voters, long_prompt(context), layers);
  add_policy("zoomr_voters", timed_policies::zoomr_voters, thoughts_after_prompt(context), layers);
}

}  // namespace

void device::add_step() {
  if (toy) return add_context(120, 2);
  for (const index_t context : {4096, 32768, 131072}) {
    add_context(context, 1);
    add_context(context, context > 65536 ? 8 : 32);  // 8 layers of 131,072 tokens and batch 8 are 34 GB
  }
}

}  // namespace zoomr_bench
