// SPDX-License-Identifier: Apache-2.0
// L6. Queries of the heads that vote, on their way between a host's cache and a device's (sequence_move.cuh), which
// keep them alike. Their scores are computed again.
#pragma once

#include <zoomr/cache/device/core.cuh>
#include <zoomr/cache/host/sequence_state.hpp>

#include <algorithm>  // std::max

namespace zoomr::inline v0::detail {

/// @throws precondition_error if other heads vote, or with other weights, or their posterior is unsure elsewhere
inline void expect_same_voters(const voter_table& host, const voter_table& device) {
  bool same = host.kv_lanes().size() == device.kv_lanes().size() && host.weights().size() == device.weights().size();
  for (index_t v = 0; same && v < host.weights().size(); ++v) same = host.weights()[v] == device.weights()[v];
  for (index_t i = 0; same && i < host.kv_lanes().size(); ++i) {
    const voter_table::kv_lane &of_host = host.kv_lanes()[i], &of_device = device.kv_lanes()[i];
    same = of_host.layer == of_device.layer && of_host.kv_head == of_device.kv_head && of_host.heads == of_device.heads;
  }
  ZOOMR_EXPECTS(same, "a sequence moves only between caches of the same config.voters");
  ZOOMR_EXPECTS(host.gate() == device.gate(),
                "a sequence moves only between caches of the same config.voters_unsure, voters_none and its slope");
}

/// visit(on the device, on the host, numbers) for the voters' queries at each position that both remember.
template <class Policy, class T, class Visit>
void each_voter_query(const device_core<Policy, T>& device, index_t id, token_range positions, sequence_state& host,
                      Visit visit) {
  const voter_arrays& voting = device.arrays.voting;
  const index_t first = (std::max)(positions.first, positions.last - device.sizes.remembered);
  for (index_t position = first; position < positions.last; ++position) {
    visit(voting.queries_at(id, position).data(), host.last_queries.at(position, 0, 0).data(), voting.query_numbers());
  }
}

template <class Policy, class T, class Visit>
void voters_to_host(const device_core<Policy, T>& device, index_t id, token_range positions, sequence_state& host,
                    Visit visit) {
  if constexpr (hears_voters<Policy>) each_voter_query(device, id, positions, host, visit);
}
template <class Policy, class T, class Visit>
void voters_to_device(const device_core<Policy, T>& device, index_t id, token_range positions, sequence_state& host,
                      stream_ref stream, Visit visit) {
  if constexpr (hears_voters<Policy>) {
    each_voter_query(device, id, positions, host, visit);
    device.arrays.voting.forget_masses(id, 1, stream);
  }
}

}  // namespace zoomr::inline v0::detail
