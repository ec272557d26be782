// SPDX-License-Identifier: Apache-2.0
// The ceilings of the device's other rows.
//   nothing/cold, /warm   an empty kernel: what events and one launch cost; short rows contain it
//   copy/SIZE             a copy on the device, cold; of_copy is its share of the copy of 1 GiB in the same run
//   copy/pinned/SIZE      one copy from pinned memory of the host: the bus
// bytes_per_second of a copy: read and written; of one from the host what has come.
// Checked: what a copy has brought, exactly; of 64 MiB and more the first and the last MiB. Nothing has no output.
#include "../support/check.hpp"
#include "../support/device_time.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

__global__ void nothing_kernel() {}

/// @param bytes  of both, compared at the beginning and at the end
void expect_same(const device_buffer<std::byte>& a, const device_buffer<std::byte>& b) {
  const std::int64_t all = a.bytes(), part = all < (64 << 20) ? all : 1 << 20;
  std::vector<std::uint32_t> one(static_cast<std::size_t>(part / 4)), other(one.size());
  comparison compared("copied");
  for (const std::int64_t first : {std::int64_t{0}, all - part}) {
    copy_to_host(one.data(), a.data() + first, part);
    copy_to_host(other.data(), b.data() + first, part);
    for (std::size_t i = 0; i < one.size(); ++i) compared.same(other[i], one[i]);
  }
}

void add_copy_of(std::int64_t bytes, const std::string& size) {
  const std::string name = "copy/" + size;
  add_row(name, 20, [=](int iterations) {
    const device_buffer<std::byte> from(bytes), to(bytes);
    fill_with_noise(reinterpret_cast<float*>(from.data()), bytes / 4, 1);
    const auto copy = [&] { copy_on_device(to.data(), from.data(), bytes, the_stream()); };
    check_once(name, [&] { copy(), expect_same(from, to); });
    return reading(timed(l2::cold, iterations, copy), 2.0 * static_cast<double>(bytes));
  });
}

void add_copy_from_host(std::int64_t bytes, const std::string& size) {
  const std::string name = "copy/pinned/" + size;
  add_row(name, 10, [=](int iterations) {
    zoomr::pinned_memory host(bytes);
    const device_buffer<std::byte> from(bytes), to(bytes);
    fill_with_noise(reinterpret_cast<float*>(from.data()), bytes / 4, 1);
    copy_to_host(static_cast<std::byte*>(host.data()), from.data(), bytes);
    const auto copy = [&] { zoomr::copy_to_device(to.data(), host.data(), bytes, the_stream()); };
    check_once(name, [&] { copy(), expect_same(from, to); });
    result of = reading(timed(l2::cold, iterations, copy), static_cast<double>(bytes));
    wait();
    return of;
  });
}

}  // namespace

std::vector<std::pair<std::string, std::string>> device::described() {
#if defined(ZOOMR_SIMT)
  return {{"device", "SIMT shim"}};
#else
  cudaDeviceProp is{};
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

void device::add_copy() {
  for (const l2 state : {l2::cold, l2::warm}) {
    add_row(std::string("nothing/") + name_of(state), 50, [=](int iterations) {
      const auto enqueue = [] { zoomr::launch({dim3(1), dim3(32)}, the_stream(), nothing_kernel); };
      return reading(timed(state, iterations, enqueue), 0);
    });
  }
  for (const int mib : {1, 8, 64, 1024}) {
    const std::int64_t bytes = toy ? 4096 : std::int64_t{mib} << 20;
    add_copy_of(bytes, std::to_string(mib) + "MiB");
    add_copy_from_host(bytes, std::to_string(mib) + "MiB");
  }
}

}  // namespace zoomr_bench
