// SPDX-License-Identifier: Apache-2.0
// FlashInfer's paged decode in this process, over the memory, queries and tokens of the rows attend/bf16:
//   flashinfer/page:P/attend/bf16/...      its batch decode, on CUDA cores
//   flashinfer_tc/page:P/attend/bf16/...   its batch prefill with one query token of each sequence, on tensor cores
//   .../step/full/context:N/layers:1/graph/cold   one layer's full attention of 8 sequences, replayed: nothing is
//                                                 appended or chosen. What whole steps are compared with
// The rest of a name is the row of ours that does the same work. Ranges of 24 tokens are pages of one token there, one
// range is pages of 16. Its plan is made on the host before anything is timed; ours has none.
// bytes_per_second, times, and what is checked are those of gather_attend.cu. More rounding is allowed: of states in
// bf16 between blocks that share a row, and, of lse, of what is added up on tensor cores. Without FlashInfer each row
// is an error (peers/flashinfer.hpp).
#include "../peers/flashinfer.hpp"

#include "../support/attention_scene.hpp"
#include "../support/graph.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

using zoomr::bfloat16;
using kernels = peer::flashinfer_kernels;
using pages = page_memory<bfloat16>;

/// The attended tokens of all sequences as FlashInfer's lists.
struct page_lists {
  index_t page_tokens = 0;
  std::vector<index_t> pages, first_pages{0}, last_tokens;
};

page_lists lists_of(const problem& p, const pages& held) {
  page_lists made;
  made.page_tokens = p.scattered ? 1 : zoomr::page_tokens;
  for (index_t sequence = 0; sequence < p.sequences; ++sequence) {
    const auto page = [&](index_t slot) {
      return held.order[static_cast<std::size_t>(sequence * held.sequence_pages + slot / zoomr::page_tokens)];
    };
    for (const zoomr::token_range& r : p.ranges()) {
      for (index_t slot = r.first; slot < r.last; slot += made.page_tokens) {
        // A page of one token begins at a key of the first KV head.
        constexpr auto rows = static_cast<index_t>(pages::page / pages::head_dim);
        made.pages.push_back(p.scattered ? page(slot) * rows + slot % zoomr::page_tokens : page(slot));
      }
    }
    made.first_pages.push_back(static_cast<index_t>(made.pages.size()));
    made.last_tokens.push_back(p.scattered ? 1 : (p.tokens - 1) % zoomr::page_tokens + 1);
  }
  return made;
}

class scene {
 public:
  scene(const problem& of, index_t group, kernels which, const pages& in)
      : p_(of),
        group_(group),
        which_(which),
        held_(in),
        lists_(lists_of(of, in)),
        pages_(lists_.pages),
        first_pages_(lists_.first_pages),
        last_tokens_(lists_.last_tokens),
        queries_(std::int64_t{of.sequences} * pages_kv_heads * group * pages::head_dim),
        out_(queries_.size()),
        lse_(std::int64_t{of.sequences} * pages_kv_heads * group),
        decode_(arguments(), which) {
    fill_with_noise(queries_.data(), queries_.size(), 3, query_scale);
  }

  void enqueue() const { decode_.enqueue(the_stream()); }

  /// @throws wrong
  void expect_right() const {
    fill_with_noise(out_.data(), out_.size(), 98), fill_with_noise(lse_.data(), lse_.size(), 99);
    enqueue();
    std::vector<float> lse = lse_.values();
    for (float& each : lse) each *= 0.693147181f;  // from base 2
    // On tensor cores it adds up weights that are rounded.
    const double rounded = tolerance::rounded_weights(7, p_.tokens);
    expect_attended(p_, held_, queries_, out_, lse, 2 * rounded, which_ == kernels::tensor_cores ? rounded : 0.0);
  }

  double bytes() const {
    return 2.0 * p_.sequences * p_.tokens * pages_kv_heads * pages::head_dim * static_cast<double>(sizeof(bfloat16));
  }

 private:
  static constexpr index_t pages_kv_heads = shared_heads::kv_heads;

  peer::paged_attention arguments() const {
    peer::paged_attention made;
    made.sequences = p_.sequences, made.kv_heads = pages_kv_heads, made.group = group_;
    made.page_tokens = lists_.page_tokens;
    made.keys = held_.numbers.data(), made.values = made.keys + pages::to_values * pages::head;
    made.page = lists_.page_tokens == 1 ? pages::head_dim : static_cast<index_t>(pages::page);
    made.head = static_cast<index_t>(pages::head), made.token = pages::head_dim;
    made.first_pages = lists_.first_pages;
    made.pages = pages_.data(), made.first_pages_there = first_pages_.data(), made.last_tokens = last_tokens_.data();
    made.queries = queries_.data(), made.out = out_.data(), made.lse = lse_.data();
    return made;
  }

  problem p_;
  index_t group_;
  kernels which_;
  const pages& held_;
  page_lists lists_;
  device_buffer<index_t> pages_, first_pages_, last_tokens_;
  device_buffer<bfloat16> queries_, out_;
  device_buffer<float> lse_;
  peer::flashinfer_decode decode_;
};

std::string prefix(kernels which, bool scattered) {
  return std::string(which == kernels::cuda_cores ? "flashinfer" : "flashinfer_tc") +
         (scattered ? "/page:1/" : "/page:16/");
}

void add_attend(const problem& p, index_t group, kernels which, l2 state) {
  const std::string place = prefix(which, p.scattered) + "attend/bf16/group:" + std::to_string(group) +
                            "/sequences:" + std::to_string(p.sequences) + "/tokens:" + std::to_string(p.tokens) +
                            (p.scattered ? "/ranges_of_24/" : "/one_range/");
  add_row(place + name_of(state), 30, [=](int iterations) {
    peer::expect_flashinfer();
    const auto held = kept<pages>("pages of attend, bf16", [] { return std::make_unique<pages>(); });
    const scene made(p, group, which, *held);
    check_once(place, [&] { made.expect_right(); });
    return reading(timed(state, iterations, [&] { made.enqueue(); }), made.bytes(), p.sequences);
  });
}

void add_full(index_t sequences, index_t context, kernels which) {
  const std::string name =
      prefix(which, false) + "step/full/context:" + std::to_string(context) + "/layers:1/graph/cold";
  add_row(name, 24, [=](int iterations) {
    peer::expect_flashinfer();
    const auto held = kept<pages>("pages of steps, bf16, context " + std::to_string(context),
                                  [=] { return std::make_unique<pages>(sequences, context); });
    const scene made({sequences, context}, 4, which, *held);
    check_once(name, [&] { made.expect_right(); });
    graph replayed;
    replayed.capture([&] { made.enqueue(); });
    return reading(timed(l2::cold, iterations, [&] { replayed.launch(); }), made.bytes(), sequences);
  });
}

}  // namespace

void device::add_attend_flashinfer() {
  for (const index_t context : toy ? std::vector<index_t>{120} : std::vector<index_t>{4096, 32768, 131072}) {
    for (const kernels which : {kernels::cuda_cores, kernels::tensor_cores}) add_full(toy ? 2 : 8, context, which);
  }
  for (const index_t group : toy ? std::vector<index_t>{1, 4} : std::vector<index_t>{4, 1, 8, 16}) {
    for (const index_t sequences : toy ? std::vector<index_t>{2} : std::vector<index_t>{1, 8, 32}) {
      for (const index_t tokens : toy ? std::vector<index_t>{65} : std::vector<index_t>{512, 2048, 8192}) {
        for (const bool scattered : {true, false}) {
          for (const kernels which : {kernels::cuda_cores, kernels::tensor_cores}) {
            for (const l2 state : {l2::cold, l2::warm}) add_attend({sequences, tokens, scattered}, group, which, state);
          }
        }
      }
    }
  }
}

}  // namespace zoomr_bench
