// SPDX-License-Identifier: Apache-2.0
// Checkpoints that ZOOMR_CHECKPOINTS names, divided by colons: the device's decoder writes what the host's writes.
#include <zoomr/presets/full.hpp>
#include <zoomr/presets/quest.hpp>
#include <zoomr/presets/voters.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>

#include "device_scenes.cuh"
#include "token_classes.hpp"
#include "tokenizer.hpp"
#include "voters.hpp"

namespace decode {
namespace {

constexpr const char* sentences =
    "The lighthouse on the northern cape was built of grey stone. Its first keeper, a quiet man called Aron, wrote "
    "down each ship that passed. In the winter of that year the sea froze for nine weeks. No ship came, and he wrote "
    "about birds. The supply boat reached him on the fourth of March with oil, flour and letters. One letter said that "
    "his pay would be raised to forty crowns. He read it twice and put it under the lamp. In spring two painters "
    "stayed with him, who liked the light in the morning. They left him a picture of the cape, which hangs there "
    "still. His daughter kept the light after him, and then her son. Today a clock turns the lamp on, and nobody "
    "lives in the tower. Visitors may climb it in summer. The stairs have one hundred and twelve steps. "
    "How much was the keeper's pay?";

/// Policies that choose, of a prompt of some 190 tokens.
auto few_pages() {
  auto policy = zoomr::presets::quest;
  policy.select.segments = 3, policy.zone.recent = 16, policy.zone.dense_layers = 0;
  return policy;
}
auto few_sentences() {
  auto policy = zoomr::presets::sentence_voters;
  policy.zone.recent = 16, policy.zone.turns = 0;
  return policy;
}

template <index_t HeadDim, index_t Group>
void compare_policies(const std::filesystem::path& checkpoint) {
  const auto attended = [&](const auto& policy) {
    scene of(read_config_with_voters(checkpoint, {}), checkpoint);
    const tokenizer words(checkpoint, of.config.vocab);
    of.classes = classify(words, of.config.vocab, {});
    of.prompt = words.encode(sentences);
    return compare<HeadDim, Group>(std::move(of), policy, 64).attended_mean;
  };
  const double all = attended(zoomr::presets::full);
  CHECK(attended(few_pages()) < all);
  CHECK(attended(few_sentences()) < all);
}

}  // namespace

TEST_CASE("pretrained checkpoints write the host's text on a device") {
  const char* const named = std::getenv("ZOOMR_CHECKPOINTS");
  std::istringstream checkpoints(named != nullptr ? named : "");
  for (std::string checkpoint; std::getline(checkpoints, checkpoint, ':');) {
    CAPTURE(checkpoint);
    const model_config config = read_config(checkpoint);
    bool known = false;
    const auto try_heads = [&]<index_t HeadDim, index_t Group>() {
      if (config.head_dim != HeadDim || config.heads != Group * config.kv_heads) return;
      known = true;
      compare_policies<HeadDim, Group>(checkpoint);
    };
    try_heads.template operator()<64, 3>();
    try_heads.template operator()<64, 7>();
    try_heads.template operator()<128, 6>();
    try_heads.template operator()<256, 4>();
    CHECK(known);
  }
}

}  // namespace decode
