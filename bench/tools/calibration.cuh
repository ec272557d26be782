// SPDX-License-Identifier: Apache-2.0
// What a page costs on this device and this bus: copied by a kernel, read on the device, read where it is. An engine
// measures it once, before it makes its caches, and gives them the plan.
//
// Copy engines are not among the ways: a copy is enqueued by the host, and within a step only the device knows what is
// missing. ../device/transfer.cu times them beside.
#pragma once

#include <zoomr/attention/gather.cuh>
#include <zoomr/cache/device/tiers/fetching.cuh>

#include <algorithm>  // std::min_element, std::nth_element
#include <array>      // std::array
#include <vector>     // std::vector

namespace zoomr::inline v0 {

/// Seconds for one page of all KV heads in one layer, in the company of others: the time of 256 pages, divided. Either
/// kind of reading is attention of one token, with the kernel of a cache.
struct page_times {
  double fetch = 0;      // copied to the device by a kernel
  double on_device = 0;  // read by attention on the device
  double in_place = 0;   // and where it is

  /// True if a page that is read `reads` times until it goes is better copied first.
  constexpr bool fetching_pays(double reads) const { return fetch + reads * on_device < reads * in_place; }
};

/// What calibrate_transfers has found.
struct calibrated_transfers {
  transfer_plan plan;
  page_times times;
};

namespace calibration {

inline constexpr index_t pages = 256;
inline constexpr index_t rounds = 5;
inline constexpr std::array<index_t, 6> block_counts = {8, 16, 32, 64, 128, 256};

/// Of `block_counts`, the fewest blocks that take at most 5 % longer than the best: what they leave goes on beside.
inline index_t few_blocks(const std::array<double, block_counts.size()>& seconds) {
  const double best = *std::min_element(seconds.begin(), seconds.end());
  std::size_t i = 0;
  while (seconds[i] > 1.05 * best) ++i;
  return block_counts[i];
}

/// Adjacent tokens, as the list of tokens that gather_attend asks.
struct stretch_of_tokens {
  index_t first = 0;
  index_t tokens = 0;

  ZOOMR_HD index_t count() const { return tokens; }
  ZOOMR_HD index_t slot(index_t i) const { return first + i; }
};

/// One token that reads all pages in each KV head: a row for each, of its query heads.
struct rows_of_stretch {
  stretch_of_tokens tokens;
  index_t group = 1;
  index_t count = 0;

  ZOOMR_HD attending_row<stretch_of_tokens> at(index_t i) const { return {tokens, 0, i, i * group, group}; }
};

/// Copies `count` pages of `numbers` numbers: block b takes the pages b, b + blocks, ... as a cache's
/// fetch_pages_kernel does.
template <class T>
__global__ void copy_pages_kernel(const T* from, T* to, index_t count, std::int64_t numbers) {
  for (auto i = static_cast<index_t>(blockIdx.x); i < count; i += static_cast<index_t>(gridDim.x)) {
    detail::copy_page(from + i * numbers, to + i * numbers, numbers);
  }
}

/// Memory on the device, which the caller gives.
template <class T, class Number>
struct scratch {
  T* copies = nullptr;      // [pages][key | value][kv_heads][16][head_dim]
  Number* query = nullptr;  // [1, heads, head_dim]
  Number* out = nullptr;    // [1, heads, head_dim]
  float* partial = nullptr;
  unsigned* arrived = nullptr;

  /// Keys and values of a page in one layer.
  static std::int64_t page_numbers(index_t kv_heads, index_t head_dim) {
    return std::int64_t{2} * kv_heads * page_tokens * head_dim;
  }
  void carve(carver& from, index_t kv_heads, index_t head_dim, index_t group, index_t splits) {
    const std::int64_t heads = std::int64_t{kv_heads} * group;
    copies = from.take<T>(pages * page_numbers(kv_heads, head_dim));
    query = from.take<Number>(heads * head_dim);
    out = from.take<Number>(heads * head_dim);
    partial = from.take<float>(heads * splits * state_numbers(head_dim));
    arrived = from.take<unsigned>(heads);
  }
};

/// The median of some rounds of what `enqueue` enqueues, after one that is not counted, in seconds. Waits for each.
template <class Enqueue>
double seconds_of(stream_ref stream, Enqueue enqueue) {
  stream_timer clock;
  std::vector<double> taken;
  for (index_t round = 0; round <= rounds; ++round) {
    clock.start(stream);
    enqueue();
    clock.stop(stream);
    const double seconds = clock.seconds();
    if (round > 0) taken.push_back(seconds);
  }
  std::nth_element(taken.begin(), taken.begin() + rounds / 2, taken.end());
  return taken[rounds / 2];
}

}  // namespace calibration

/// Device memory that calibrate_transfers works in, for as long as it runs.
template <class T, index_t HeadDim, index_t Group, class Number = bfloat16>
byte_count calibration_bytes(index_t kv_heads, index_t splits = 8) {
  carver count;
  calibration::scratch<T, Number>{}.carve(count, kv_heads, HeadDim, Group, splits);
  return count.used();
}
/// Pinned memory of the host that it reads.
template <class T, index_t HeadDim>
byte_count calibration_host_bytes(index_t kv_heads) {
  return calibration::pages * calibration::scratch<T, T>::page_numbers(kv_heads, HeadDim) *
         static_cast<byte_count>(sizeof(T));
}

/// Times the ways of a page, with the kernels and the layout of a cache, and says how its pages should come. Meant for
/// the start of a program, on a device that does nothing else: it waits for `stream`.
///
/// Whether a page is worth its way depends on how often it is read until it goes, which is a matter of policy, text and
/// room: the caller says what it expects. What a cache has seen is (hits + misses) / (misses - in_place + prefetched)
/// of its `tiers`. What is true of a page is taken to be true of one KV head's part of it.
/// @tparam Number   of queries
/// @param reads     times that a page which has come is read until it goes, at least 1
/// @param memory    calibration_bytes(...) bytes on the device, aligned to 256; the caller's, contents lost
/// @param details   calibration_host_bytes(...) bytes of pinned memory, aligned to 256; the caller's, contents lost
/// @param splits    blocks that may share a row of attention, as of the cache
/// @throws precondition_error for numbers below 1 or without memory; error(device) with what CUDA says
/// @cost  some 50 launches over 256 pages of one layer, waited for; nothing stays allocated
template <class T, index_t HeadDim, index_t Group, class Number = bfloat16>
calibrated_transfers calibrate_transfers(index_t kv_heads, double reads, void* memory, void* details, stream_ref stream,
                                         index_t splits = 8) {
  ZOOMR_EXPECTS(kv_heads >= 1 && splits >= 1 && reads >= 1 && memory != nullptr && details != nullptr,
                "calibrate_transfers: KV heads, splits and reads must be at least 1, and there must be memory");
  using namespace calibration;
  const std::int64_t numbers = scratch<T, Number>::page_numbers(kv_heads, HeadDim);
  carver from(memory);
  scratch<T, Number> in;
  in.carve(from, kv_heads, HeadDim, Group, splits);
  zero_on_device(memory, calibration_bytes<T, HeadDim, Group, Number>(kv_heads, splits), stream);
  auto* pages_of_host = static_cast<T*>(details);
  std::memset(details, 0, static_cast<std::size_t>(calibration_host_bytes<T, HeadDim>(kv_heads)));

  std::array<double, block_counts.size()> fetching{};
  for (std::size_t i = 0; i < block_counts.size(); ++i) {
    fetching[i] = seconds_of(stream, [&] {
      launch({dim3(static_cast<unsigned>(block_counts[i])), dim3(detail::fetch_threads)}, stream, copy_pages_kernel<T>,
             static_cast<const T*>(pages_of_host), in.copies, pages, numbers);
    });
  }
  const auto attending = [&](index_t first) {
    gather_task<T, Number, rows_of_stretch, scaled_logits, tiered_layer<T>> task;
    const stored_layer<T> arena{
        in.copies, in.copies + numbers / 2, numbers, std::int64_t{page_tokens} * HeadDim, HeadDim, 4};
    task.layer = tiered_layer<T>(arena, pages_of_host, pages * page_tokens);
    task.rows = {{first, pages * page_tokens}, Group, kv_heads};
    task.logits = {1.0f};
    task.queries = view<const Number, 3>(in.query, {1, kv_heads * Group, HeadDim});
    task.out = view<Number, 3>(in.out, {1, kv_heads * Group, HeadDim});
    task.partial = in.partial;
    task.arrived = in.arrived;
    return seconds_of(stream, [&] { gather_attend<T, HeadDim, Group>(task, splits, stream); });
  };
  calibrated_transfers result;
  result.plan.fetch_blocks = few_blocks(fetching);
  result.times.fetch = *std::min_element(fetching.begin(), fetching.end()) / pages;
  result.times.on_device = attending(0) / pages;
  result.times.in_place = attending(pages * page_tokens) / pages;
  result.plan.fetches = result.times.fetching_pays(reads);
  return result;
}

}  // namespace zoomr::inline v0
