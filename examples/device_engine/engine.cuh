// SPDX-License-Identifier: Apache-2.0
// From what is known when the program runs, a policy's name and a model's shape, to a session of a type known at
// compile time.
#pragma once

#include <zoomr/policy/placement/tiered.hpp>

#include "../decode/input_error.hpp"
#include "../decode/policies.hpp"
#include "session.cuh"

namespace decode::device {

/// A shape of attention: heads of `HeadDim` dimensions, `Group` of them to a KV head; in models with sliding windows in
/// some layers, or in those without.
template <index_t HeadDim, index_t Group, bool Windows = false>
struct attention_shape {
  static constexpr index_t head_dim = HeadDim;
  static constexpr index_t group = Group;
  static constexpr bool windows = Windows;

  static bool has(const model_config& c) {
    return c.head_dim == HeadDim && c.heads == Group * c.kv_heads && (c.window > 0) == Windows;
  }
};

inline constexpr const char* shapes =
    "heads of 64 dimensions, 1, 2, 3, 4, 7 or 8 of them to a KV head; of 128, 1, 2, 4, 6 or 8; and with sliding "
    "windows 4 of 256";

/// Calls visit(attention_shape) if the program is compiled for that shape. One more costs a few seconds of compile time
/// for all policies together.
/// @return whether it is
template <class Visit>
bool with_shape(const model_config& c, Visit visit) {
  bool known = false;
  const auto try_shapes = [&](auto... shape) { ((shape.has(c) ? (known = true, visit(shape)) : void()), ...); };
  try_shapes(attention_shape<64, 1>{}, attention_shape<64, 2>{}, attention_shape<64, 3>{}, attention_shape<64, 4>{},
             attention_shape<64, 7>{}, attention_shape<64, 8>{});
  try_shapes(attention_shape<128, 1>{}, attention_shape<128, 2>{}, attention_shape<128, 4>{}, attention_shape<128, 6>{},
             attention_shape<128, 8>{});
  try_shapes(attention_shape<256, 4, true>{});
  return known;
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
      with_shape(c, [&](auto shape) {
        if constexpr (Tiered && shape.windows) {
          expect_layers_alike(c, "tiers");
        } else {
          using session_type = device_session<policy_type, shape.head_dim, shape.group, shape.windows>;
          made = std::make_unique<session_type>(net, policy, tokens, classes, room);
        }
      });
    }
  });
  return made;
}

/// open_session<true>; in a file of its own, since nvcc takes as long for it as for all the rest (tiers.cu).
std::unique_ptr<decoder> open_tiered(device_model& net, const policy_choice& choice, index_t tokens,
                                     std::span<const zoomr::token_class> classes, const details_room& room);

}  // namespace decode::device
