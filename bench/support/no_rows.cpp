// SPDX-License-Identifier: Apache-2.0
// device_bench without its rows, to test what it says where there is no device, or a broken one.
#include "kernels.hpp"
#include "rows.hpp"

namespace zoomr_bench::device {

std::vector<std::pair<std::string, std::string>> described() { return {}; }
void add_copy() {
  add_row("nothing", 1, [](int iterations) {
    result of;
    of.seconds.assign(static_cast<std::size_t>(iterations), 1e-6);
    return of;
  });
}
void add_step() {}
void add_step_tiers() {}
void add_step_quest() {}
void add_transfer() {}
void add_attend_far() {}
void add_calibrate_transfers() {}
void add_choose() {}
void add_top_k() {}
void add_gather_attend() {}
void add_gather_draft() {}
void add_attend_flashinfer() {}

}  // namespace zoomr_bench::device
