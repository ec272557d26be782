// SPDX-License-Identifier: Apache-2.0
// FlashInfer's paged decode, planned and run as its own wrapper does for bf16: a plan for kernels outside of CUDA
// graphs, its own number of splits, programmatic dependent launch where the device has it. The only file that includes
// its headers; written against 0.7.2.
#include "flashinfer.hpp"

#include <flashinfer/attention/decode.cuh>
#include <flashinfer/attention/default_decode_params.cuh>
#include <flashinfer/attention/default_prefill_params.cuh>
#include <flashinfer/attention/mask.cuh>
#include <flashinfer/attention/prefill.cuh>
#include <flashinfer/attention/scheduler.cuh>
#include <flashinfer/attention/variants.cuh>
#include <flashinfer/pos_enc.cuh>

#include <cmath>    // std::sqrt
#include <cstddef>  // std::byte

#include "../support/device_buffer.hpp"

namespace zoomr_bench::peer {

namespace fi = ::flashinfer;

namespace {

using number = __nv_bfloat16;
using id_type = std::int32_t;
using decode_params = fi::BatchDecodeParams<number, number, number, id_type>;
using prefill_params = fi::BatchPrefillPagedParams<number, number, number, id_type>;
using plain_attention = fi::DefaultAttention</*custom_mask=*/false, /*sliding_window=*/false, /*soft_cap=*/false,
                                             /*alibi=*/false>;

constexpr unsigned head_dim = 128;
constexpr auto no_positions = fi::PosEncodingMode::kNone;
const float logit_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));

static_assert(sizeof(bfloat16) == sizeof(number) && sizeof(index_t) == sizeof(id_type));

template <class To, class From>
To* as(const From* from) {
  return reinterpret_cast<To*>(const_cast<From*>(from));  // its parameters are not const
}

/// Where a plan lies: numbers that its kernels pass on, and its lists, on the device and staged.
struct workspace {
  workspace(std::size_t of_numbers, std::size_t of_lists)
      : numbers(static_cast<std::int64_t>(of_numbers)),
        lists(static_cast<std::int64_t>(of_lists)),
        staged(static_cast<zoomr::byte_count>(of_lists) + 1) {}

  template <class T>
  T* list(std::int64_t offset) const {
    return reinterpret_cast<T*>(lists.data() + offset);
  }
  template <class T>
  T* number_at(std::int64_t offset) const {
    return reinterpret_cast<T*>(numbers.data() + offset);
  }

  device_buffer<std::byte> numbers, lists;
  zoomr::pinned_memory staged;
};

fi::paged_kv_t<number, id_type> pages_of(const paged_attention& of) {
  const std::int64_t strides[] = {of.page, of.head, of.token};
  return {static_cast<std::uint32_t>(of.kv_heads),
          static_cast<std::uint32_t>(of.page_tokens),
          head_dim,
          static_cast<std::uint32_t>(of.sequences),
          fi::QKVLayout::kHND,
          as<number>(of.keys),
          as<number>(of.values),
          strides,
          strides,
          as<id_type>(of.pages),
          as<id_type>(of.first_pages_there),
          as<id_type>(of.last_tokens)};
}

bool can_launch_early() { return attribute(cudaDevAttrComputeCapabilityMajor) >= 9; }

}  // namespace

struct flashinfer_decode::plan {
  explicit plan(const paged_attention& wanted) : of(wanted), early(can_launch_early()) {}
  virtual ~plan() = default;
  virtual void enqueue(stream_ref on) const = 0;

  std::uint32_t heads() const { return static_cast<std::uint32_t>(of.kv_heads * of.group); }

  /// What the parameters of both kernels have, with the lists of a plan.
  template <class Params, class Info>
  void fill(Params& p, const Info& info, const workspace& at) const {
    p.q = as<number>(of.queries);
    p.paged_kv = pages_of(of);
    p.o = as<number>(of.out);
    p.lse = of.lse;
    p.num_qo_heads = heads();
    p.q_stride_n = static_cast<id_type>(heads() * head_dim);
    p.q_stride_h = head_dim;
    p.window_left = -1;
    p.sm_scale = logit_scale;
    p.rope_rcp_scale = p.rope_rcp_theta = 1.0f;
    p.padded_batch_size = static_cast<std::uint32_t>(info.padded_batch_size);
    p.request_indices = at.list<id_type>(info.request_indices_offset);
    p.kv_tile_indices = at.list<id_type>(info.kv_tile_indices_offset);
    p.o_indptr = at.list<id_type>(info.o_indptr_offset);
    p.kv_chunk_size_ptr = at.list<id_type>(info.kv_chunk_size_ptr_offset);
  }

  paged_attention of;
  bool early;  // programmatic dependent launch, its wrapper's default
};

namespace {

class by_cuda_cores : public flashinfer_decode::plan {
 public:
  explicit by_cuda_cores(const paged_attention& wanted) : plan(wanted) {
    DISPATCH_GQA_GROUP_SIZE(of.group, GROUP_SIZE, { make<GROUP_SIZE>(); });
  }

  void enqueue(stream_ref on) const override {
    decode_params p;
    fill(p, info_, *at_);
    auto* states = info_.split_kv ? at_->number_at<number>(info_.v_offset) : nullptr;
    auto* sums = info_.split_kv ? at_->number_at<float>(info_.s_offset) : nullptr;
    must((fi::BatchDecodeWithPagedKVCacheDispatched<head_dim, no_positions, plain_attention>(p, states, sums, early,
                                                                                             on)),
         "FlashInfer's batch decode");
  }

 private:
  template <std::uint32_t Group>
  void make() {
    const auto estimate = fi::BatchDecodeWithPagedKVCacheWorkEstimationDispatched<Group, head_dim, no_positions,
                                                                                  plain_attention, decode_params>;
    const auto sequences = static_cast<std::uint32_t>(of.sequences);
    const auto page_tokens = static_cast<std::uint32_t>(of.page_tokens);
    std::size_t of_numbers = 0, of_lists = 0;
    must((fi::DecodePlanWorkspaceSize<head_dim, no_positions, plain_attention, decode_params>(
             of_numbers, of_lists, of.first_pages.data(), sequences, heads(), page_tokens, /*cuda_graph=*/false,
             the_stream(), estimate)),
         "FlashInfer's plan of a batch decode");
    at_ = std::make_unique<workspace>(of_numbers, of_lists);
    must((fi::DecodePlan<head_dim, no_positions, plain_attention, decode_params>(
             at_->numbers.data(), of_numbers, at_->lists.data(), at_->staged.data(), of_lists, info_,
             of.first_pages.data(), sequences, heads(), page_tokens, /*cuda_graph=*/false, the_stream(), estimate)),
         "FlashInfer's plan of a batch decode");
    wait();
  }

  fi::DecodePlanInfo info_;
  std::unique_ptr<workspace> at_;
};

class by_tensor_cores : public flashinfer_decode::plan {
 public:
  explicit by_tensor_cores(const paged_attention& wanted) : plan(wanted) {
    std::vector<index_t> first_queries;
    for (index_t s = 0; s <= of.sequences; ++s) first_queries.push_back(s);
    first_queries_ = device_buffer<index_t>(first_queries);
    const auto sequences = static_cast<std::uint32_t>(of.sequences);
    const auto kv_heads = static_cast<std::uint32_t>(of.kv_heads);
    const auto page_tokens = static_cast<std::uint32_t>(of.page_tokens);
    constexpr int no_window = -1, no_fixed_split = -1;
    std::size_t of_numbers = 0, of_lists = 0;
    must(fi::PrefillPlanWorkspaceSize<id_type>(
             of_numbers, of_lists, first_queries.data(), of.first_pages.data(), sequences, sequences, heads(), kv_heads,
             head_dim, head_dim, page_tokens, /*cuda_graph=*/false, sizeof(number), no_window, no_fixed_split,
             /*disable_split_kv=*/false,
             /*num_colocated_ctas=*/0, /*uniform_q_len=*/0, the_stream(), sizeof(number)),
         "FlashInfer's plan of a batch prefill");
    at_ = std::make_unique<workspace>(of_numbers, of_lists);
    must(fi::PrefillPlan<id_type>(at_->numbers.data(), of_numbers, at_->lists.data(), at_->staged.data(), of_lists,
                                  info_, first_queries.data(), of.first_pages.data(), sequences, sequences, heads(),
                                  kv_heads, head_dim, head_dim, page_tokens, /*cuda_graph=*/false, sizeof(number),
                                  no_window, no_fixed_split, /*disable_split_kv=*/false, /*num_colocated_ctas=*/0,
                                  /*uniform_q_len=*/0, the_stream(), sizeof(number)),
         "FlashInfer's plan of a batch prefill");
    wait();
    if (info_.cta_tile_q != tile_queries) throw std::runtime_error("FlashInfer plans another tile than one of 16");
  }

  void enqueue(stream_ref on) const override {
    prefill_params p;
    fill(p, info_, *at_);
    p.q_indptr = as<id_type>(first_queries_.data());
    p.group_size = fi::uint_fastdiv(static_cast<std::uint32_t>(of.group));
    p.max_total_num_rows = static_cast<std::uint32_t>(info_.total_num_rows);
    p.qo_tile_indices = at_->list<id_type>(info_.qo_tile_indices_offset);
    if (info_.split_kv) p.merge_indptr = at_->list<id_type>(info_.merge_indptr_offset);
    auto* states = info_.split_kv ? at_->number_at<number>(info_.v_offset) : nullptr;
    auto* sums = info_.split_kv ? at_->number_at<float>(info_.s_offset) : nullptr;
    must((fi::BatchPrefillWithPagedKVCacheDispatched</*SAME_KV_STRIDES=*/true, tile_queries, head_dim, head_dim,
                                                     no_positions, /*fp16_qk_reduction=*/false, fi::MaskMode::kNone,
                                                     plain_attention>(p, states, sums, early, on)),
         "FlashInfer's batch prefill");
  }

 private:
  static constexpr std::uint32_t tile_queries = 16;  // its choice up to groups of 16, of one query token

  device_buffer<index_t> first_queries_;
  fi::PrefillPlanInfo info_;
  std::unique_ptr<workspace> at_;
};

}  // namespace

void expect_flashinfer() {}

flashinfer_decode::flashinfer_decode(const paged_attention& wanted, flashinfer_kernels which) {
  if (which == flashinfer_kernels::cuda_cores) {
    plan_ = std::make_unique<by_cuda_cores>(wanted);
  } else {
    plan_ = std::make_unique<by_tensor_cores>(wanted);
  }
}
flashinfer_decode::~flashinfer_decode() = default;
void flashinfer_decode::enqueue(stream_ref on) const { plan_->enqueue(on); }

}  // namespace zoomr_bench::peer
