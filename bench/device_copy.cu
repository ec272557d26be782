// SPDX-License-Identifier: Apache-2.0
// The ceilings of the device rows: copies on the device, and a launch that does nothing.
#include <device.hpp>

namespace zoomr_bench {

namespace {

__global__ void nothing_kernel() {}

void add_copy(std::int64_t bytes, const std::string& size) {
  add_row("copy/" + size, 20, [=](int iterations) {
    const device_buffer<std::byte> from(bytes), to(bytes);
    fill_with_noise(reinterpret_cast<float*>(from.data()), bytes / 4, 1);
    auto seconds = timed(l2::cold, iterations, [&] { copy_on_device(to.data(), from.data(), bytes, the_stream()); });
    return reading(std::move(seconds), 2.0 * static_cast<double>(bytes));
  });
}

}  // namespace

std::vector<std::pair<std::string, std::string>> described_device() {
#if defined(ZOOMR_SIMT)
  return {{"device", "SIMT shim"}};
#else
  int devices = 0;
  cudaDeviceProp is{};
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return {};
  must(cudaGetDeviceProperties(&is, 0), "no device");
  int driver = 0;
  must(cudaDriverGetVersion(&driver), "no driver");
  return {{"device", is.name},
          {"multiprocessors", std::to_string(is.multiProcessorCount)},
          {"l2_bytes", std::to_string(is.l2CacheSize)},
          {"memory_bytes", std::to_string(is.totalGlobalMem)},
          {"driver", std::to_string(driver)},
          {"copy_GB_per_second", std::to_string(copy_bandwidth() * 1e-9)}};
#endif
}

void add_copy_rows() {
  for (const l2 state : {l2::cold, l2::warm}) {
    add_row(std::string("nothing/") + name_of(state), 50, [=](int iterations) {
      const auto enqueue = [] { zoomr::launch({dim3(1), dim3(32)}, the_stream(), nothing_kernel); };
      return reading(timed(state, iterations, enqueue), 0);
    });
  }
  for (const int mib : {1, 8, 64, 1024}) {
    add_copy(toy ? 4096 : std::int64_t{mib} << 20, std::to_string(mib) + "MiB");
  }
}

}  // namespace zoomr_bench
