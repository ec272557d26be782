// SPDX-License-Identifier: Apache-2.0
// FlashInfer where the build was given none of its headers: every row that asks fails with the same sentence.
#include <stdexcept>  // std::runtime_error

#include "flashinfer.hpp"

namespace zoomr_bench::peer {

struct flashinfer_decode::plan {};

flashinfer_decode::flashinfer_decode(const paged_attention&, flashinfer_kernels) { expect_flashinfer(); }
flashinfer_decode::~flashinfer_decode() = default;
void flashinfer_decode::enqueue(stream_ref) const { expect_flashinfer(); }

void expect_flashinfer() {
  throw std::runtime_error(
      "this build has no FlashInfer: configure it with -DZOOMR_FLASHINFER=DIR (bench/README.md, Peers)");
}

}  // namespace zoomr_bench::peer
