// SPDX-License-Identifier: Apache-2.0
// The sessions of `--tiers` on a device.
#include "engine.cuh"

namespace decode::device {

std::unique_ptr<decoder> open_tiered(device_model& net, const policy_choice& choice, index_t tokens,
                                     std::span<const zoomr::token_class> classes, const details_room& room) {
  return open_session<true>(net, choice, tokens, classes, room);
}

}  // namespace decode::device
