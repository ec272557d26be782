// SPDX-License-Identifier: Apache-2.0
// decoder.hpp without CUDA: it says so.
#include "decoder.hpp"

#include "../decode/input_error.hpp"

namespace decode::device {

void expect_present() { fail("--device cuda: this build has no CUDA; configure with -DZOOMR_CUDA=ON"); }

std::unique_ptr<engine> load(const std::filesystem::path&, const model_config&, index_t) {
  expect_present();
  return nullptr;
}

}  // namespace decode::device
