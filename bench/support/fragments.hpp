// SPDX-License-Identifier: Apache-2.0
// Fragments of one size in pinned memory of the host, read in another order than they lie in.
#pragma once

#include <zoomr/core/device/streams.cuh>

#include "check.hpp"
#include "device_time.hpp"

namespace zoomr_bench {

/// The smallest and the largest sizes are those of a token's key and of a page of many layers.
inline std::vector<index_t> fragment_kib() {
  return toy ? std::vector<index_t>{2, 24, 8} : std::vector<index_t>{2, 4, 8, 16, 24, 28, 32, 64, 256};
}
inline std::vector<index_t> fragment_counts() {
  return toy ? std::vector<index_t>{2, 6} : std::vector<index_t>{32, 256};
}

/// Noise on the host, and as much room on the device.
struct fragments {
  std::int64_t bytes;
  index_t count;
  zoomr::pinned_memory host;
  zoomr::bfloat16* sent;  // what it holds
  device_buffer<zoomr::bfloat16> device;
  std::vector<index_t> order;
  device_buffer<index_t> order_there;

  fragments(std::int64_t of, index_t how_many)
      : bytes(of),
        count(how_many),
        host(of * how_many),
        sent(static_cast<zoomr::bfloat16*>(host.data())),
        device(of / 2 * how_many),
        order(shuffled(how_many)),
        order_there(order) {
    for (std::int64_t i = 0; i < of / 2 * how_many; ++i) sent[i] = stored_noise<zoomr::bfloat16>(i, 1);
    fill_with_noise(device.data(), device.size(), 2);
  }

  static std::shared_ptr<fragments> of_size(index_t kib, index_t count) {
    return kept<fragments>(place(kib, count),
                           [=] { return std::make_unique<fragments>(std::int64_t{kib} << 10, count); });
  }
  /// In a row's name.
  static std::string place(index_t kib, index_t count) {
    return "/fragment:" + std::to_string(kib) + "KiB/count:" + std::to_string(count);
  }

  static std::vector<index_t> shuffled(index_t count) {
    std::vector<index_t> made;
    for (index_t i = 0; i < count; ++i) made.push_back(i * 37 % count);  // no count has the factor 37
    return made;
  }
  std::int64_t all() const { return bytes * count; }
  const std::byte* from(index_t i) const {
    return reinterpret_cast<const std::byte*>(sent) + order[static_cast<std::size_t>(i)] * bytes;
  }
  std::byte* to(index_t i) const { return reinterpret_cast<std::byte*>(device.data()) + i * bytes; }
};

}  // namespace zoomr_bench
