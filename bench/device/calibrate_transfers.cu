// SPDX-License-Identifier: Apache-2.0
// What calibrate_transfers finds.
//   transfer/calibrated   pages of 8 KV heads (64 KiB) that are read twice: `fetch_blocks` and `fetches`, which are its
//                         plan, and µs a page by each way
// The time is that of the host, and everything is waited for; no ceiling applies to it.
// Checked: that its plan follows from its times, and that every time is one. It has no numbers that a reference could
// make again; its kernels are those of the rows transfer/kernel and transfer/attention_far, which are compared.
#include "../support/check.hpp"
#include "../support/device_time.hpp"
#include "../support/kernels.hpp"
#include "../tools/calibration.cuh"

namespace zoomr_bench {

namespace {

constexpr index_t head_dim = 128, group = 4, kv_heads = toy ? 1 : 8;
constexpr double reads = 2.0;

void expect_right(const zoomr::calibrated_transfers& found) {
  const auto& counts = zoomr::calibration::block_counts;
  comparison compared("the plan");
  compared.same(std::find(counts.begin(), counts.end(), found.plan.fetch_blocks) != counts.end(), true);
  compared.same(found.plan.fetches, found.times.fetching_pays(reads));
  for (const double seconds : {found.times.fetch, found.times.on_device, found.times.in_place}) {
    compared.same(seconds >= 0 && (toy || seconds > 0) && seconds < 1, true);
  }
}

}  // namespace

void device::add_calibrate_transfers() {
  add_row("transfer/calibrated", 1, [](int iterations) {
    using zoomr::bfloat16;
    const device_buffer<std::byte> memory(zoomr::calibration_bytes<bfloat16, head_dim, group>(kv_heads));
    zoomr::pinned_memory details(zoomr::calibration_host_bytes<bfloat16, head_dim>(kv_heads));
    result of;
    for (int i = 0; i < iterations; ++i) {
      const double from = now();
      const auto found = zoomr::calibrate_transfers<bfloat16, head_dim, group>(kv_heads, reads, memory.data(),
                                                                               details.data(), the_stream());
      of.seconds.push_back(now() - from);
      expect_right(found);
      of.figures = {{"fetch_blocks", found.plan.fetch_blocks},
                    {"fetches", found.plan.fetches ? 1 : 0},
                    {"fetch_us", found.times.fetch * 1e6},
                    {"near_us", found.times.on_device * 1e6},
                    {"far_us", found.times.in_place * 1e6}};
    }
    return of;
  });
}

}  // namespace zoomr_bench
