// SPDX-License-Identifier: Apache-2.0
// The ways from pinned memory of the host to a device, by the size of what lies together and how many of them: copy
// engines, a kernel, and attention that reads where it lies. And what a cache would make of it.
#include <zoomr/cache/device_calibration.cuh>

#include <device.hpp>

#include <cmath>    // std::sqrt
#include <cstring>  // std::memcmp

namespace zoomr_bench {

namespace {

using namespace zoomr;
using zoomr::index;

constexpr index head_dim = 128;
constexpr index group = 4;
constexpr std::int64_t token_bytes = head_dim * 2;  // of a bf16 key

enum class way { copies, batch, kernel, attention_far, attention_near };
const char* name_of(way how) {
  const char* const names[] = {"copies", "batch", "kernel", "attention_far", "attention_near"};
  return names[static_cast<int>(how)];
}

__global__ void copy_fragments_kernel(const bfloat16* from, bfloat16* to, const index* order, index count,
                                      std::int64_t numbers) {
  for (auto i = static_cast<index>(blockIdx.x); i < count; i += static_cast<index>(gridDim.x)) {
    copy_page(from + order[i] * numbers, to + i * numbers, numbers);
  }
}

/// Fragments of one size, read in another order than they lie in. For attention, of which a fragment is the keys or
/// the values of some tokens, keys and values alternate.
struct fragments {
  std::int64_t bytes;
  index count;
  pinned_memory host;
  bfloat16* sent;  // what it holds
  device_buffer<bfloat16> device;
  std::vector<index> order;
  device_buffer<index> order_there, pages;
  device_buffer<run> runs;
  device_buffer<index> before;
  device_buffer<bfloat16> query, out;
  device_buffer<float> lse, partial;
  device_buffer<unsigned> arrived;

  fragments(std::int64_t of, index how_many)
      : bytes(of),
        count(how_many),
        host(of * how_many),
        sent(static_cast<bfloat16*>(host.data())),
        device(of / 2 * how_many),
        order(shuffled(how_many)),
        order_there(order),
        pages(shuffled(how_many / 2)),
        runs(std::vector<run>{{0, tokens()}}),
        before(std::vector<index>{0}),
        query(group * head_dim),
        out(group * head_dim),
        lse(group),
        partial(gather_workspace_bytes<bfloat16, head_dim, group>(1, splits()) / 4),
        arrived(16) {
    for (std::int64_t i = 0; i < of / 2 * how_many; ++i) sent[i].bits = static_cast<std::uint16_t>(i * 40503u & 0xbfff);
    fill_with_noise(device.data(), device.size(), 1);
    fill_with_noise(query.data(), query.size(), 3);
    zero_on_device(arrived.data(), arrived.bytes(), the_stream());
  }

  static std::vector<index> shuffled(index count) {
    std::vector<index> made;
    for (index i = 0; i < count; ++i) made.push_back(i * 37 % count);  // no count has the factor 37
    return made;
  }
  index tokens() const { return static_cast<index>(bytes / token_bytes * (count / 2)); }
  index splits() const { return splits_for(1, tokens()); }
  std::int64_t all() const { return bytes * count; }
  const std::byte* from(index i) const {
    return reinterpret_cast<const std::byte*>(sent) + order[static_cast<std::size_t>(i)] * bytes;
  }
  std::byte* to(index i) const { return reinterpret_cast<std::byte*>(device.data()) + i * bytes; }
};

void copy_one_by_one(const fragments& all) {
  for (index i = 0; i < all.count; ++i) zoomr::copy_to_device(all.to(i), all.from(i), all.bytes, the_stream());
}

void copy_in_a_batch(const fragments& all) {
#if !defined(ZOOMR_SIMT) && CUDART_VERSION >= 12080
  static std::vector<void*> to, from;
  static std::vector<std::size_t> sizes;
  to.clear(), from.clear(), sizes.assign(static_cast<std::size_t>(all.count), static_cast<std::size_t>(all.bytes));
  for (index i = 0; i < all.count; ++i) {
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

struct one_row {
  attending_row<tokens_of_runs> row;
  index count = 1;
  ZOOMR_HD attending_row<tokens_of_runs> at(index) const { return row; }
};

void attend(const fragments& all, bool far) {
  index bits = 0;
  while ((token_bytes << bits) < all.bytes) ++bits;
  const std::int64_t numbers = all.bytes / 2;
  const auto* keys = far ? all.sent : all.device.data();
  gather_task<bfloat16, bfloat16, one_row, scaled_logits> task;
  task.layer = {keys, keys + numbers, 2 * numbers, numbers, head_dim, bits};
  const tokens_of_runs tokens{view<const run>(all.runs.data(), {1}), view<const index>(all.before.data(), {1}),
                              view<const index>(all.pages.data(), {all.count / 2}), all.tokens(), bits};
  task.rows.row = {tokens, 0, 0, 0, group};
  task.logits = {1.0f / std::sqrt(static_cast<float>(head_dim))};
  task.queries = {all.query.data(), {1, group, head_dim}};
  task.out = {all.out.data(), {1, group, head_dim}};
  task.lse = {all.lse.data(), {1, group}};
  task.partial = all.partial.data();
  task.arrived = all.arrived.data();
  gather_attend<bfloat16, head_dim, group>(task, all.splits(), the_stream());
}

void move(const fragments& all, way how) {
  switch (how) {
    case way::copies:
      return copy_one_by_one(all);
    case way::batch:
      return copy_in_a_batch(all);
    case way::kernel:
      return launch(
          {dim3(static_cast<unsigned>(std::min<index>(all.count, transfer_plan{}.fetch_blocks))), dim3(fetch_threads)},
          the_stream(), copy_fragments_kernel, static_cast<const bfloat16*>(all.sent), all.device.data(),
          static_cast<const index*>(all.order_there.data()), all.count, all.bytes / 2);
    case way::attention_far:
      return attend(all, true);
    case way::attention_near:
      return attend(all, false);
  }
}

/// @throws std::runtime_error if something else has come than was sent
void expect_copied(const fragments& all) {
  const std::vector<bfloat16> came = all.device.values();
  for (index i = 0; i < all.count; ++i) {
    const auto* at = reinterpret_cast<const std::byte*>(came.data()) + i * all.bytes;
    if (std::memcmp(at, all.from(i), static_cast<std::size_t>(all.bytes)) != 0) {
      throw std::runtime_error("a fragment is not what was sent");
    }
  }
}

void add_transfer(way how, index kib, index count) {
  const std::string place = "/fragment:" + std::to_string(kib) + "KiB/count:" + std::to_string(count);
  add_row(std::string("transfer/") + name_of(how) + place, 20, [=](int iterations) {
    const auto all = kept<fragments>("fragments" + place,
                                     [=] { return std::make_unique<fragments>(std::int64_t{kib} << 10, count); });
    result of = reading(timed(l2::cold, iterations, [&] { move(*all, how); }), static_cast<double>(all->all()));
    if (how < way::attention_far) expect_copied(*all);
    return of;
  });
}

/// What calibrate_transfers finds for pages of 8 KV heads that are read twice.
void add_calibration() {
  add_row("transfer/calibrated", 1, [](int iterations) {
    constexpr index kv_heads = toy ? 1 : 8;
    const device_buffer<std::byte> memory(calibration_bytes<bfloat16, head_dim, group>(kv_heads));
    pinned_memory details(calibration_host_bytes<bfloat16, head_dim>(kv_heads));
    result of;
    for (int i = 0; i < iterations; ++i) {
      const double from = now();
      const auto found =
          calibrate_transfers<bfloat16, head_dim, group>(kv_heads, 2.0, memory.data(), details.data(), the_stream());
      of.seconds.push_back(now() - from);
      of.figures = {{"fetch_blocks", found.plan.fetch_blocks},
                    {"fetches", found.plan.fetches ? 1 : 0},
                    {"fetch_us", found.times.fetch * 1e6},
                    {"near_us", found.times.near * 1e6},
                    {"far_us", found.times.far * 1e6}};
    }
    return of;
  });
}

}  // namespace

void add_transfer_rows() {
  const std::vector<index> sizes =
      toy ? std::vector<index>{2, 24, 8} : std::vector<index>{2, 4, 8, 16, 24, 28, 32, 64, 256};
  for (const index kib : sizes) {
    for (const index count : toy ? std::vector<index>{2, 6} : std::vector<index>{32, 256}) {
      for (const way how : {way::copies, way::batch, way::kernel, way::attention_far, way::attention_near}) {
        const bool of_attention = how == way::attention_far || how == way::attention_near;
        if (of_attention && (kib & (kib - 1)) != 0) continue;  // pages have 2^n tokens
        add_transfer(how, kib, count);
      }
    }
  }
  add_calibration();
}

}  // namespace zoomr_bench
