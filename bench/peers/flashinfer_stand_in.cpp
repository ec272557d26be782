// SPDX-License-Identifier: Apache-2.0
// In FlashInfer's place under the SIMT shim: attention in plain loops over the arguments that FlashInfer gets, so that
// what the rows give it, and what they make of its outputs, is checked without a GPU. Not what its kernels compute in
// detail.
#include <cmath>  // std::exp2, std::log2, std::sqrt

#include "flashinfer.hpp"

namespace zoomr_bench::peer {

namespace {

constexpr index_t head_dim = 128;

/// Where the keys of each token of a sequence begin, in numbers, but for the head.
std::vector<std::int64_t> places(const paged_attention& of, index_t sequence) {
  std::vector<std::int64_t> made;
  const index_t first = of.first_pages_there[sequence], last = of.first_pages_there[sequence + 1];
  for (index_t at = first; at < last; ++at) {
    const index_t tokens = at + 1 < last ? of.page_tokens : of.last_tokens[sequence];
    for (index_t t = 0; t < tokens; ++t) {
      made.push_back(std::int64_t{of.pages[at]} * of.page + std::int64_t{t} * of.token);
    }
  }
  return made;
}

void attend(const paged_attention& of, index_t sequence, index_t query_head) {
  const std::int64_t row = std::int64_t{sequence} * of.kv_heads * of.group + query_head;
  const std::int64_t of_head = std::int64_t{query_head / of.group} * of.head;
  const bfloat16* query = of.queries + row * head_dim;
  const float scale = 1.44269504f / std::sqrt(static_cast<float>(head_dim));  // of logits to base 2
  const std::vector<std::int64_t> all = places(of, sequence);
  std::vector<float> logits;
  float most = -INFINITY, sum = 0;
  for (const std::int64_t at : all) {
    float logit = 0;
    for (index_t d = 0; d < head_dim; ++d)
      logit += zoomr::to_float(query[d]) * zoomr::to_float(of.keys[at + of_head + d]);
    logits.push_back(logit * scale);
    most = std::max(most, logits.back());
  }
  for (float& logit : logits) sum += logit = std::exp2(logit - most);
  for (index_t d = 0; d < head_dim; ++d) {
    float out = 0;
    for (std::size_t t = 0; t < all.size(); ++t) out += logits[t] * zoomr::to_float(of.values[all[t] + of_head + d]);
    of.out[row * head_dim + d] = zoomr::from_float<bfloat16>(out / sum);
  }
  of.lse[row] = most + std::log2(sum);
}

}  // namespace

struct flashinfer_decode::plan {
  paged_attention of;
};

flashinfer_decode::flashinfer_decode(const paged_attention& wanted, flashinfer_kernels)
    : plan_(std::make_unique<plan>(plan{wanted})) {}
flashinfer_decode::~flashinfer_decode() = default;

void flashinfer_decode::enqueue(stream_ref on) const {
  simt::enqueue(on, [of = plan_->of] {
    for (index_t sequence = 0; sequence < of.sequences; ++sequence) {
      for (index_t head = 0; head < of.kv_heads * of.group; ++head) attend(of, sequence, head);
    }
  });
}

void expect_flashinfer() {}

}  // namespace zoomr_bench::peer
