// SPDX-License-Identifier: Apache-2.0
// By how much the host's attention may be off beside float's own arithmetic, where a path rounds its weights.
#pragma once

#include <zoomr/attention/gather.hpp>

#include <type_traits>  // std::is_same_v

#include "tolerance.hpp"

namespace zoomr_test::tolerance {

/// A path that multiplies bfloat16 in pairs rounds weights to bfloat16: by rounded_weights, else nothing.
/// @tparam T  in which keys and values are stored
template <class T>
double of_path(zoomr::kv_widths widths, zoomr::cpu_path path = zoomr::fastest_cpu_path()) {
  const bool rounds = std::is_same_v<T, zoomr::bfloat16> && zoomr::detail::multiplies_pairs(path, widths);
  return rounds ? rounded_weights(7, 0) : 0.0;
}
template <class T>
double of_path(zoomr::index_t head_dim, zoomr::cpu_path path = zoomr::fastest_cpu_path()) {
  return of_path<T>(zoomr::kv_widths{head_dim, head_dim}, path);
}

}  // namespace zoomr_test::tolerance
