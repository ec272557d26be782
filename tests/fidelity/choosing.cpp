// SPDX-License-Identifier: Apache-2.0
// Presets that choose among sentences, pages and blocks at every token.
#include <zoomr/policies/arkvale.hpp>
#include <zoomr/policies/infllm.hpp>
#include <zoomr/policies/quest.hpp>
#include <zoomr/policies/sentence_kv.hpp>
#include <zoomr/policies/shadowkv.hpp>

#include "driver.hpp"

namespace fidelity {

std::vector<preset> choosing_presets() {
  namespace policies = zoomr::policies;
  return {preset_of<policies::sentence_kv>("sentence_kv"),
          preset_of<policies::sentence_kv_published>("sentence_kv_published"),
          preset_of<policies::quest>("quest"),
          preset_of<policies::arkvale>("arkvale"),
          preset_of<policies::infllm>("infllm"),
          preset_of<policies::shadowkv>("shadowkv")};
}

}  // namespace fidelity
