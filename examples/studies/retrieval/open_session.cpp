// SPDX-License-Identifier: Apache-2.0
#include "open_session.hpp"

#include "controls.hpp"

namespace decode::retrieval {

opened_session open_session(model& net, const contender& policy, const control_form& controls,
                            const std::vector<index_t>& needed, index_t tokens, const class_tables& classes) {
  net.set_voters(policy.voters, policy.bounds, policy.voter_keys);
  net.set_anchors(policy.anchors);
  net.set_streaming(policy.streaming);
  opened_session opened;
  with_named(policy.choice, controls.cut_as, needed, controls.zone, [&](const auto& named) {
    opened.one_row = named.aggregate.per == zoomr::scope::sequence;
    opened.run = std::make_unique<session<>>(net, named, 1, tokens, classes.read_by(named.segment));
  });
  return opened;
}

std::vector<index_t> segments_holding(session<>& run, std::span<const index_t> positions) {
  std::vector<index_t> found(positions.size(), -1);
  with_policy_cache(run, [&](const auto& cache, zoomr::sequence at) {
    const zoomr::view<const zoomr::segment> segments = cache.segments(at);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      for (index_t id = 0; id < segments.size(); ++id) {
        if (segments[id].begin <= positions[i] && positions[i] < segments[id].split) found[i] = id;
      }
    }
  });
  return found;
}

}  // namespace decode::retrieval
