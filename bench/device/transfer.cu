// SPDX-License-Identifier: Apache-2.0
// The ways of bytes from pinned memory of the host to a device, by the size of what lies together and how many of them.
//   transfer/WAY/fragment:F/count:N   N fragments of F, in another order than they lie in
//     copies  one cudaMemcpyAsync for each
//     batch   one cudaMemcpyBatchAsync (CUDA 12.8; before, it is skipped)
//     kernel  blocks that take a fragment each, as a cache fetches pages
// bytes_per_second: what has come. Ceiling: of_bus, the share of one copy of 256 MiB from pinned memory.
// Checked: every fragment that has come, exactly.
#include <zoomr/cache/device/tiers/fetching.cuh>

#include "../support/fragments.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

using zoomr::bfloat16;

__global__ void copy_fragments_kernel(const bfloat16* from, bfloat16* to, const index_t* order, index_t count,
                                      std::int64_t numbers) {
  for (auto i = static_cast<index_t>(blockIdx.x); i < count; i += static_cast<index_t>(gridDim.x)) {
    zoomr::detail::copy_page(from + order[i] * numbers, to + i * numbers, numbers);
  }
}

void copy_one_by_one(const fragments& all) {
  for (index_t i = 0; i < all.count; ++i) zoomr::copy_to_device(all.to(i), all.from(i), all.bytes, the_stream());
}

void copy_in_a_batch(const fragments& all) {
#if !defined(ZOOMR_SIMT) && CUDART_VERSION >= 12080
  static std::vector<void*> to, from;
  static std::vector<std::size_t> sizes;
  to.clear(), from.clear(), sizes.assign(static_cast<std::size_t>(all.count), static_cast<std::size_t>(all.bytes));
  for (index_t i = 0; i < all.count; ++i) {
    to.push_back(all.to(i));
    from.push_back(const_cast<std::byte*>(all.from(i)));
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  std::size_t first = 0;
#if CUDART_VERSION >= 13000
  must(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), to.size(), &attributes, &first, 1, the_stream()),
       "a batch of copies");
#else
  std::size_t failed = 0;
  must(cudaMemcpyBatchAsync(to.data(), from.data(), sizes.data(), to.size(), &attributes, &first, 1, &failed,
                            the_stream()),
       "a batch of copies");
#endif
#elif defined(ZOOMR_SIMT)
  copy_one_by_one(all);
#else
  throw skipped("needs cudaMemcpyBatchAsync, of CUDA 12.8: copies are timed one by one");
#endif
}

void copy_by_a_kernel(const fragments& all) {
  const auto blocks = static_cast<unsigned>(std::min<index_t>(all.count, zoomr::transfer_plan{}.fetch_blocks));
  zoomr::launch({dim3(blocks), dim3(zoomr::detail::fetch_threads)}, the_stream(), copy_fragments_kernel,
                static_cast<const bfloat16*>(all.sent), all.device.data(),
                static_cast<const index_t*>(all.order_there.data()), all.count, all.bytes / 2);
}

void expect_right(const fragments& all, void (*move)(const fragments&)) {
  fill_with_noise(all.device.data(), all.device.size(), 2);
  move(all);
  const std::vector<bfloat16> came = all.device.values();
  const std::int64_t numbers = all.bytes / 2;
  comparison compared("fragments");
  for (index_t i = 0; i < all.count; ++i) {
    const bfloat16* const sent = all.sent + all.order[static_cast<std::size_t>(i)] * numbers;
    for (std::int64_t n = 0; n < numbers; ++n) {
      compared.same(came[static_cast<std::size_t>(i * numbers + n)].bits, sent[n].bits);
    }
  }
}

}  // namespace

void device::add_transfer() {
  const std::pair<const char*, void (*)(const fragments&)> ways[] = {
      {"copies", copy_one_by_one}, {"batch", copy_in_a_batch}, {"kernel", copy_by_a_kernel}};
  for (const index_t kib : fragment_kib()) {
    for (const index_t count : fragment_counts()) {
      for (const auto& [way, move] : ways) {
        const std::string name = std::string("transfer/") + way + fragments::place(kib, count);
        add_row(name, 20, [=, moves = move](int iterations) {
          const auto all = fragments::of_size(kib, count);
          check_once(name, [&] { expect_right(*all, moves); });
          result of = reading(timed(l2::cold, iterations, [&] { moves(*all); }), static_cast<double>(all->all()));
          of.figures.push_back({"of_bus", of.bytes / quantile(of.seconds, 0.5) / bus_bandwidth()});
          return of;
        });
      }
    }
  }
}

}  // namespace zoomr_bench
