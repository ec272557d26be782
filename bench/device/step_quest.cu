// SPDX-License-Identifier: Apache-2.0
// Whole steps with the shapes that Quest's own kernels are measured with (support/step_rows.hpp): one sequence, one
// layer, 32 heads with keys of their own. Contexts 2,048 to 131,072.
//   full_quest_heads   everything
//   quest_published    pages of 16, boxes in 16 bits, each head alone, 2,048 tokens
#include "../support/kernels.hpp"
#include "../support/step_rows.hpp"

namespace zoomr_bench {

void device::add_step_quest() {
  for (const index_t context : toy ? std::vector<index_t>{120} : std::vector<index_t>{2048, 8192, 32768, 131072}) {
    add_policy<quest_heads>("full_quest_heads", timed_policies::full, long_prompt(context), 1);
    add_policy<quest_heads>("quest_published", timed_policies::quest_published, long_prompt(context), 1);
  }
}

}  // namespace zoomr_bench
