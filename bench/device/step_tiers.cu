// SPDX-License-Identifier: Apache-2.0
// Whole steps of a device cache whose pages lie in pinned memory of the host, with an arena for 1/8 of them, beside the
// same with everything on the device (support/step_rows.hpp): context 32,768, 4 layers, 4.6 GB of pinned memory.
//   ..._tiers           what the next layer will read comes while one is attended
//   ..._tiers_at_need   without that
// arena_hits: share of a layer's blocks that were there when it asked; fetched_mb: what one step has fetched, in pages
// or where KV heads choose alone in one head's part of them; prefetched: share of it that came beforehand. The ceiling
// of what is fetched is the bus (rows transfer/).
#include "../support/kernels.hpp"
#include "../support/step_rows.hpp"

namespace zoomr_bench {

void device::add_step_tiers() {
  const index_t context = toy ? 120 : 32768, layers = toy ? 3 : 4;
  const text prompt = long_prompt(context), thoughts = thoughts_after_prompt(context);
  add_policy("full", timed_policies::full, prompt, layers);
  add_policy("sentence_kv", timed_policies::sentence_kv, prompt, layers);
  add_policy("sentence_kv_tiers", with_placement(timed_policies::sentence_kv, zoomr::tiered<>{}), prompt, layers);
  add_policy("zoomr_focus", timed_policies::zoomr_focus, thoughts, layers);
  add_policy("zoomr_focus_tiers", with_placement(timed_policies::zoomr_focus, zoomr::tiered<>{}), thoughts, layers);
  add_policy("zoomr_focus_tiers_at_need",
             with_placement(timed_policies::zoomr_focus, zoomr::tiered<>{.prefetch = false}), thoughts, layers);
}

}  // namespace zoomr_bench
