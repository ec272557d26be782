// SPDX-License-Identifier: Apache-2.0
// L6. Sequences that move between a host's cache and a device's, with all that a cache keeps of them: to be saved,
// loaded, edited or swapped out there, and to go on here. Both caches have the same policy.
//
// Everything is enqueued on the caller's stream, and waited for before the call returns: so both sides may go on at
// once. Segments and summaries follow from tokens and keys: the host makes them again, and the device receives its
// copies.
#pragma once

#include <zoomr/cache/device/moving/sequence_move.cuh>
#include <zoomr/device_cache.cuh>
#include <zoomr/kv_cache.hpp>

namespace zoomr::inline v0 {

/// A new sequence of a host's cache that is what one of the device's is: tokens, keys and values, choices, what a
/// rollback needs. The device's stays.
/// @code  cache.save(to_host(device, seq, cache, stream), file_sink("/path"));  @endcode
/// @param to  of the same policy, model, scales and logits; its other limits may differ
/// @throws precondition_error while a step is in progress, or if the caches differ; error(capacity) if there is no
///         room; error(device) if something that was enqueued before has failed. Nothing has changed then
/// @cost   waits for the stream; 2 copies for each page and layer, and one for each row of a choice; all summaries are
///         made again
template <class Policy, class T, index_t HeadDim, index_t Group, class Values>
sequence to_host(device_cache<Policy, T, HeadDim, Group, Values>& from, sequence seq, any_kv_cache<T>& to,
                 stream_ref stream) {
  const detail::device_sequence& moved = detail::cache_access::unused(from, seq);
  auto& into = detail::cache_access::core(to);
  into.step.expect_idle();
  return detail::open_sequence_as(into, [&](detail::sequence_state& state, index_t) {
    detail::sequence_move<Policy, T>(into, detail::cache_access::typed<Policy>(from), stream)
        .to_host(moved, seq.id, state);
  });
}

/// A new sequence of a device's cache that is what one of the host's is. The host's stays.
/// @param to  of the same policy, model, scales and logits; its other limits may differ
/// @throws as to_host
/// @cost   waits for the stream; 2 copies for each page and layer, one for each KV lane's summaries, and each row of a
///         choice
template <class Policy, class T, index_t HeadDim, index_t Group, class Values>
sequence to_device(any_kv_cache<T>& from, sequence seq, device_cache<Policy, T, HeadDim, Group, Values>& to,
                   stream_ref stream) {
  detail::sequence_state& moved = detail::cache_access::unused(from, seq);
  auto& into = detail::cache_access::typed<Policy>(to);
  into.step.expect_idle();
  return detail::open_sequence_as(into, [&](detail::device_sequence& state, index_t id) {
    detail::sequence_move<Policy, T>(detail::cache_access::core(from), into, stream).to_device(moved, state, id);
  });
}

}  // namespace zoomr::inline v0
