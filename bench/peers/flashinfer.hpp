// SPDX-License-Identifier: Apache-2.0
// What the rows need of FlashInfer: paged decode in bf16, by both of its kernels. One of three files is linked:
//   flashinfer.cu            FlashInfer itself; the only file that includes its headers
//   flashinfer_missing.cu    where the build has no headers of it: a sentence for each row that asks
//   flashinfer_stand_in.cpp  under the SIMT shim: plain loops over the same arguments, which are thus checked
#pragma once

#include <memory>  // std::unique_ptr
#include <vector>  // std::vector

#include "../support/device.hpp"

namespace zoomr_bench::peer {

using zoomr::bfloat16;

/// cuda_cores: its batch decode; tensor_cores: its batch prefill, with one query token for each sequence.
enum class flashinfer_kernels { cuda_cores, tensor_cores };

/// Attention of one query token of each sequence to tokens in pages; head_dim 128, logits scaled by 1/sqrt(128).
/// All memory is on the device but for `first_pages`, and stays as long as the work that reads it.
struct paged_attention {
  index_t sequences = 0, kv_heads = 0;
  index_t group = 0;                           // query heads of a KV head: 1, 4, 8 or 16
  index_t page_tokens = 0;                     // 1, or more
  const bfloat16* keys = nullptr;              // of page 0
  const bfloat16* values = nullptr;            // of page 0
  index_t page = 0, head = 0, token = 0;       // from one to the next, in numbers; of keys and of values
  std::vector<index_t> first_pages;            // [sequences + 1]  where those of each begin in `pages`
  const index_t* pages = nullptr;              // [first_pages.back()]
  const index_t* first_pages_there = nullptr;  // [sequences + 1]  the same on the device
  const index_t* last_tokens = nullptr;        // [sequences]      tokens of the last page of each
  const bfloat16* queries = nullptr;           // [sequences, kv_heads * group, 128]
  bfloat16* out = nullptr;                     // as queries
  float* lse = nullptr;                        // [sequences, kv_heads * group]  log to base 2 of the sum of exp(logit)
};

/// @throws std::runtime_error  if this build has no FlashInfer: said before memory is taken for it
void expect_flashinfer();

/// One plan of FlashInfer, to be run again and again.
class flashinfer_decode {
 public:
  /// Plans on the host, which allocates and waits: no part of what is timed.
  /// @throws std::runtime_error  if this build has no FlashInfer, or if it cannot plan this
  flashinfer_decode(const paged_attention& wanted, flashinfer_kernels which);
  ~flashinfer_decode();
  /// @throws std::runtime_error  if a kernel cannot be started
  void enqueue(stream_ref on) const;

  struct plan;

 private:
  std::unique_ptr<plan> plan_;
};

}  // namespace zoomr_bench::peer
