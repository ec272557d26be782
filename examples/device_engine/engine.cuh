// SPDX-License-Identifier: Apache-2.0
// From what is known when the program runs, a policy's name and a model's shape, to a session over one of the caches
// that the program is compiled for.
#pragma once

#include <zoomr/policy/placement/tiered.hpp>

#include "../decode/input_error.hpp"
#include "../decode/policies.hpp"
#include "session.cuh"

namespace decode::device {

/// A policy's caches for the heads of models: of those without sliding windows, and of those with some.
template <class Policy>
using caches_of =
    zoomr::device_caches<float, zoomr::device_cache<Policy, float, 64, 1>, zoomr::device_cache<Policy, float, 64, 2>,
                         zoomr::device_cache<Policy, float, 64, 3>, zoomr::device_cache<Policy, float, 64, 4>,
                         zoomr::device_cache<Policy, float, 64, 7>, zoomr::device_cache<Policy, float, 64, 8>,
                         zoomr::device_cache<Policy, float, 128, 1>, zoomr::device_cache<Policy, float, 128, 2>,
                         zoomr::device_cache<Policy, float, 128, 4>, zoomr::device_cache<Policy, float, 128, 6>,
                         zoomr::device_cache<Policy, float, 128, 8>>;
template <class Policy>
using caches_with_windows = zoomr::device_caches<float, zoomr::device_cache<Policy, float, 256, 4>>;

using full_policy = zoomr::policy_of<zoomr::presets::full>;

inline constexpr const char* shapes =
    "heads of 64 dimensions, 1, 2, 3, 4, 7 or 8 of them to a KV head; of 128, 1, 2, 4, 6 or 8; and with sliding "
    "windows 4 of 256";

/// Whether the program is compiled for a model's heads.
inline bool has_shape(const model_config& c) {
  const zoomr::shape model = shape_of(c, c.layers);
  return c.window > 0 ? caches_with_windows<full_policy>::has<full_policy>(model)
                      : caches_of<full_policy>::has<full_policy>(model);
}

/// The policy with the store that `--tiers` asks for.
template <bool Tiered, class Policy>
constexpr auto stored_as_asked(const Policy& policy) {
  if constexpr (Tiered) {
    return with_placement(policy, zoomr::tiered<>{});
  } else {
    return policy;
  }
}

/// The session of a policy; policies that a device does not know are refused.
/// @tparam Tiered  details lie in pinned memory, with an arena on the device
/// @throws input_error if the policy or the shape is not supported
template <bool Tiered>
std::unique_ptr<decoder> open_session(device_model& net, const policy_choice& choice, index_t tokens,
                                      std::span<const zoomr::token_class> classes, const details_room& room) {
  std::unique_ptr<decoder> made;
  const model_config& c = net.config();
  with_policy(choice, [&](const auto& chosen) {
    const auto policy = stored_as_asked<Tiered>(chosen);
    using policy_type = std::remove_cv_t<decltype(policy)>;
    if constexpr (unsupported<policy_type>() != nullptr) {
      fail(choice.name, ": ", unsupported<policy_type>());
    } else {
      if constexpr (Tiered) {
        expect_layers_alike(c, "tiers");
        made = std::make_unique<device_session>(caches_of<policy_type>{}, caches_of<policy_type>{}, net, policy, tokens,
                                                classes, room);
      } else if (c.window > 0) {
        made = std::make_unique<device_session>(caches_with_windows<policy_type>{}, caches_with_windows<full_policy>{},
                                                net, policy, tokens, classes, room);
      } else {
        made = std::make_unique<device_session>(caches_of<policy_type>{}, caches_of<full_policy>{}, net, policy, tokens,
                                                classes, room);
      }
    }
  });
  return made;
}

/// open_session<true>; in a file of its own, since nvcc takes as long for it as for all the rest (tiers.cu).
std::unique_ptr<decoder> open_tiered(device_model& net, const policy_choice& choice, index_t tokens,
                                     std::span<const zoomr::token_class> classes, const details_room& room);

}  // namespace decode::device
