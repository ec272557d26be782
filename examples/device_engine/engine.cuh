// SPDX-License-Identifier: Apache-2.0
// From what is known when the program runs, a policy's name and a model's shape, to a session of a type known at
// compile time.
#pragma once

#include <zoomr/policy/placement/tiered.hpp>

#include "../decode/input_error.hpp"
#include "../decode/policies.hpp"
#include "session.cuh"

namespace decode::device {

/// A shape of attention: heads of `HeadDim` dimensions, `Group` of them to a KV head.
template <index_t HeadDim, index_t Group>
struct attention_shape {
  static constexpr index_t head_dim = HeadDim;
  static constexpr index_t group = Group;
};

inline constexpr const char* shapes = "heads of 64 or 128 dimensions, 1, 2, 4 or 8 of them to a KV head";

/// Calls visit(attention_shape) if the program is compiled for that shape. One more costs a few seconds of compile time
/// for all policies together.
/// @return whether it is
template <class Visit>
bool with_shape(index_t head_dim, index_t group, Visit visit) {
  bool known = false;
  const auto try_shape = [&](auto shape) {
    if (head_dim != shape.head_dim || group != shape.group) return;
    known = true;
    visit(shape);
  };
  try_shape(attention_shape<64, 1>{});
  try_shape(attention_shape<64, 2>{});
  try_shape(attention_shape<64, 4>{});
  try_shape(attention_shape<64, 8>{});
  try_shape(attention_shape<128, 1>{});
  try_shape(attention_shape<128, 2>{});
  try_shape(attention_shape<128, 4>{});
  try_shape(attention_shape<128, 8>{});
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
      with_shape(index_t(c.head_dim), index_t(c.heads / c.kv_heads), [&](auto shape) {
        using session_type = device_session<policy_type, shape.head_dim, shape.group>;
        made = std::make_unique<session_type>(net, policy, tokens, classes, room);
      });
    }
  });
  return made;
}

/// open_session<true>; in a file of its own, since nvcc takes as long for it as for all the rest (tiers.cu).
std::unique_ptr<decoder> open_tiered(device_model& net, const policy_choice& choice, index_t tokens,
                                     std::span<const zoomr::token_class> classes, const details_room& room);

}  // namespace decode::device
