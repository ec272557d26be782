// SPDX-License-Identifier: Apache-2.0
// gather_attend that reads keys and values where they lie in pinned memory of the host: what a page costs that is not
// fetched.
//   transfer/attention_far/fragment:F/count:N    one KV head, 4 query heads, head_dim 128, bf16; a fragment is the keys
//                                                or the values of F / 256 tokens (powers of two only)
//   transfer/attention_near/...                  the same on the device
// bytes_per_second: keys and values, once. Ceiling: the bus for `far`; of_copy is the share of a copy on the device.
// Checked: the first head over all tokens against attention in double.
#include <zoomr/attention/gather.cuh>

#include <cmath>  // std::sqrt

#include "../support/fragments.hpp"
#include "../support/kernels.hpp"
#include "../support/reference.hpp"

namespace zoomr_bench {

namespace {

using zoomr::bfloat16;

constexpr index_t head_dim = 128;
constexpr index_t group = 4;
constexpr std::int64_t token_bytes = head_dim * 2;

using row_type = zoomr::attending_row<zoomr::tokens_of_ranges>;

struct one_row {
  row_type row;
  index_t count = 1;
  ZOOMR_HD row_type at(index_t) const { return row; }
};

/// Fragments as the pages of one sequence: keys, then values.
struct scene {
  std::shared_ptr<fragments> all;
  bool far;
  index_t page_tokens = static_cast<index_t>(all->bytes / token_bytes);
  index_t tokens = page_tokens * (all->count / 2);
  index_t splits = splits_for(1, tokens);
  std::vector<index_t> order = fragments::shuffled(all->count / 2);
  device_buffer<index_t> pages{order}, before{std::vector<index_t>{0}};
  device_buffer<zoomr::token_range> ranges{std::vector<zoomr::token_range>{{0, tokens}}};
  device_buffer<bfloat16> query{group * head_dim}, out{group * head_dim};
  device_buffer<float> lse{group};
  device_buffer<float> partial{zoomr::gather_workspace_bytes<bfloat16, head_dim, group>(1, splits) / 4};
  device_buffer<unsigned> arrived{16};

  void prepare() const {
    fill_with_noise(query.data(), query.size(), 3, query_scale);
    zoomr::zero_on_device(arrived.data(), arrived.bytes(), the_stream());
    wait();  // for whoever has filled the device's memory
    if (!far) copy_to_device(all->device.data(), all->sent, all->all());
  }

  void attend() const {
    index_t bits = 0;
    while ((1 << bits) < page_tokens) ++bits;
    const std::int64_t numbers = all->bytes / 2;
    const auto* keys = far ? all->sent : all->device.data();
    zoomr::gather_task<bfloat16, bfloat16, one_row, zoomr::scaled_logits> task;
    task.layer = {keys, keys + numbers, 2 * numbers, numbers, head_dim, bits};
    task.rows.row = {
        {{ranges.data(), {1}}, {before.data(), {1}}, {pages.data(), {all->count / 2}}, tokens, bits}, 0, 0, 0, group};
    task.logits = {1.0f / std::sqrt(static_cast<float>(head_dim))};
    task.queries = {query.data(), {1, group, head_dim}};
    task.out = {out.data(), {1, group, head_dim}};
    task.lse = {lse.data(), {{1, group}}};
    task.partial = partial.data();
    task.arrived = arrived.data();
    zoomr::gather_attend<bfloat16, head_dim, group>(task, splits, the_stream());
  }

  void expect_right() const {
    attend();
    const std::vector<bfloat16> given = out.values(), asked = query.values();
    const auto number = [&](index_t t, index_t d, index_t value) {
      const std::int64_t fragment = 2 * order[static_cast<std::size_t>(t / page_tokens)] + value;
      return zoomr::to_float(all->sent[fragment * all->bytes / 2 + t % page_tokens * head_dim + d]);
    };
    std::vector<float> first;
    for (std::size_t d = 0; d < head_dim; ++d) first.push_back(zoomr::to_float(asked[d]));
    const auto expected = attention(
        first, tokens, [&](index_t t, index_t d) { return number(t, d, 0); },
        [&](index_t t, index_t d) { return number(t, d, 1); });
    expect_lse(expected, lse.values()[0]);
    expect_outputs(expected, [&](index_t d) { return zoomr::to_float(given[static_cast<std::size_t>(d)]); },
                   {tolerance::rounded(7), tolerance::rounded_weights(7, 0)});
  }
};

}  // namespace

void device::add_attend_far() {
  for (const index_t kib : fragment_kib()) {
    if ((kib & (kib - 1)) != 0) continue;  // pages have 2^n tokens
    for (const index_t count : fragment_counts()) {
      for (const bool far : {true, false}) {
        const std::string name =
            std::string("transfer/attention_") + (far ? "far" : "near") + fragments::place(kib, count);
        add_row(name, 20, [=](int iterations) {
          const scene made{fragments::of_size(kib, count), far};
          made.prepare();
          check_once(name, [&] { made.expect_right(); });
          return reading(timed(l2::cold, iterations, [&] { made.attend(); }), static_cast<double>(made.all->all()));
        });
      }
    }
  }
}

}  // namespace zoomr_bench
