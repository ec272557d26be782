// SPDX-License-Identifier: Apache-2.0
// Every file of rows, in the order in which they run: one for each kernel, named after it (host/, device/).
#pragma once

#include <string>   // std::string
#include <utility>  // std::pair
#include <vector>   // std::vector

namespace zoomr_bench {

namespace host {
void add_ceilings();
void add_gather_attend();
void add_score();
void add_fill_budget();
void add_checks();
void add_step();
void add_prompt();
void add_step_engine_pages();
void add_step_listed();
void add_step_threads();
void add_block_file();
}  // namespace host

namespace device {
/// What is said of the device beside the results (device/copy.cu).
std::vector<std::pair<std::string, std::string>> described();

void add_copy();
void add_step();
void add_step_tiers();
void add_step_quest();
void add_transfer();
void add_attend_far();
void add_calibrate_transfers();
void add_choose();
void add_top_k();
void add_gather_attend();
void add_gather_draft();
void add_attend_flashinfer();
}  // namespace device

inline void add_host_rows() {
  host::add_ceilings(), host::add_gather_attend(), host::add_score(), host::add_fill_budget(), host::add_checks();
  host::add_step(), host::add_prompt(), host::add_step_engine_pages(), host::add_step_listed(),
      host::add_step_threads();
  host::add_block_file();
}
inline void add_device_rows() {
  device::add_copy(), device::add_step_quest(), device::add_step(), device::add_step_tiers();
  device::add_transfer(), device::add_attend_far(), device::add_calibrate_transfers();
  device::add_choose(), device::add_top_k();
  device::add_gather_attend(), device::add_gather_draft(), device::add_attend_flashinfer();
}

}  // namespace zoomr_bench
