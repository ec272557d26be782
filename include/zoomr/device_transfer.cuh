// SPDX-License-Identifier: Apache-2.0
// L6. Sequences that move between a host's cache and a device's, with all that a cache keeps of them: to be saved,
// loaded, edited or swapped out there, and to go on here. Both caches have the same policy.
//
// Everything is enqueued on the caller's stream, and waited for before the call returns: so both sides may go on at
// once. Segments and summaries follow from tokens and keys: the host makes them again, and the device receives its
// copies.
#pragma once

#include <zoomr/any_device_cache.cuh>
#include <zoomr/cache/device/moving/sequence_move.cuh>
#include <zoomr/kv_cache.hpp>

#include <optional>     // std::optional
#include <type_traits>  // std::type_identity

namespace zoomr::inline v0 {

namespace detail {

template <class Policy, class T>
sequence move_to_host(cache_base<any_device_core<T>>& from, sequence seq, any_kv_cache<T>& to, stream_ref stream) {
  const device_sequence& moved = cache_access::unused(from, seq);
  auto& into = cache_access::core(to);
  into.step.expect_idle();
  return open_sequence_as(into, [&](sequence_state& state, index_t) {
    sequence_move<Policy, T>(into, cache_access::typed<Policy>(from), stream).to_host(moved, seq.id, state);
  });
}
template <class Policy, class T>
sequence move_to_device(any_kv_cache<T>& from, sequence seq, cache_base<any_device_core<T>>& to, stream_ref stream) {
  sequence_state& moved = cache_access::unused(from, seq);
  auto& into = cache_access::typed<Policy>(to);
  into.step.expect_idle();
  return open_sequence_as(into, [&](device_sequence& state, index_t id) {
    sequence_move<Policy, T>(cache_access::core(from), into, stream).to_device(moved, state, id);
  });
}

/// move(std::type_identity<Policy>)  with the type of the cache's policy, which is in the list.
template <class T, class Number, class... Caches, class Move>
sequence move_any(device_caches<Number, Caches...>, const any_device_cache<T, Number>& cache, Move move) {
  std::optional<sequence> moved;
  const auto try_policy = [&]<class Policy>(std::type_identity<Policy> policy) {
    if (moved || !cache.template has_policy<Policy>()) return;
    if constexpr (pool_of<decltype(Policy::placement), T>::owns_pages) moved = move(policy);
  };
  (try_policy(std::type_identity<typename kind_of<Caches>::policy>{}), ...);
  ZOOMR_EXPECTS(moved.has_value(), "to_host, to_device: the list has no cache of this policy with pages of its own");
  return *moved;
}

}  // namespace detail

/// A new sequence of a host's cache that is what one of the device's is: tokens, keys and values, choices, what a
/// rollback needs. The device's stays.
/// @code  cache.save(to_host(device, seq, cache, stream), file_sink("/path"));  @endcode
/// @param to  of the same policy, model, scales and logits; its other limits may differ
/// @throws precondition_error while a step is in progress, or if the caches differ; error(capacity) if there is no
///         room; error(device) if something that was enqueued before has failed. Nothing has changed then
/// @cost   waits for the stream; 2 copies for each page and layer, and one for each row of a choice; all summaries are
///         made again
template <class Policy, class T, index_t HeadDim, index_t Group, class Values, class Ranks>
sequence to_host(device_cache<Policy, T, HeadDim, Group, Values, Ranks>& from, sequence seq, any_kv_cache<T>& to,
                 stream_ref stream) {
  return detail::move_to_host<Policy>(from, seq, to, stream);
}

/// A new sequence of a device's cache that is what one of the host's is. The host's stays.
/// @param to  of the same policy, model, scales and logits; its other limits may differ
/// @throws as to_host
/// @cost   waits for the stream; 2 copies for each page and layer, one for each KV lane's summaries, and each row of a
///         choice
template <class Policy, class T, index_t HeadDim, index_t Group, class Values, class Ranks>
sequence to_device(any_kv_cache<T>& from, sequence seq, device_cache<Policy, T, HeadDim, Group, Values, Ranks>& to,
                   stream_ref stream) {
  return detail::move_to_device<Policy>(from, seq, to, stream);
}

/// The same of a cache that was chosen from a list at run time.
/// @code  cache.save(to_host(served{}, device, seq, cache, stream), file_sink("/path"));  @endcode
/// @param list  device_caches<...>, which has the cache's policy
template <class Number, class... Caches, class T>
sequence to_host(device_caches<Number, Caches...> list, any_device_cache<T, Number>& from, sequence seq,
                 any_kv_cache<T>& to, stream_ref stream) {
  return detail::move_any(list, from, [&]<class Policy>(std::type_identity<Policy>) {
    return detail::move_to_host<Policy, T>(from, seq, to, stream);
  });
}
template <class Number, class... Caches, class T>
sequence to_device(device_caches<Number, Caches...> list, any_kv_cache<T>& from, sequence seq,
                   any_device_cache<T, Number>& to, stream_ref stream) {
  return detail::move_any(list, to, [&]<class Policy>(std::type_identity<Policy>) {
    return detail::move_to_device<Policy, T>(from, seq, to, stream);
  });
}

}  // namespace zoomr::inline v0
