// SPDX-License-Identifier: Apache-2.0
// Numbers that host and device make alike from their place in a stream, so that a reference can make them again.
#pragma once

#include <zoomr/core/block_rows.hpp>

#include <cstdint>      // std::int64_t
#include <type_traits>  // std::is_same_v
#include <vector>       // std::vector

namespace zoomr_bench {

/// Queries are this much larger than keys: some tokens then weigh much more than others, and a token that is missing,
/// or another one in its place, shows.
inline constexpr float query_scale = 8.0f;

/// Number `i` of stream `seed`: in [-1, 1).
ZOOMR_HD inline float noise_at(std::int64_t i, std::uint32_t seed) {
  auto x = static_cast<std::uint32_t>(i) * 0x9e3779b9u + static_cast<std::uint32_t>(i >> 32) * 0x85ebca6bu +
           seed * 0x2545f491u;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  x ^= x >> 16;
  return static_cast<float>(static_cast<std::int32_t>(x)) * 4.656612873e-10f;
}

/// The same as it is stored.
template <class T>
ZOOMR_HD T stored_noise(std::int64_t i, std::uint32_t seed, float scale = 1.0f) {
  return zoomr::from_float<T>(noise_at(i, seed) * scale);
}

/// A number as an engine has it that stores keys in `T`: one of bfloat16 rounds its queries, too.
template <class T>
float as_engine_has(float number) {
  if constexpr (std::is_same_v<T, zoomr::bfloat16>) return zoomr::to_float(zoomr::from_float<T>(number));
  return number;
}

/// The first numbers of a stream.
template <class T = float>
std::vector<T> noise(std::int64_t count, std::uint32_t seed, float scale = 1.0f) {
  std::vector<T> made;
  made.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) made.push_back(stored_noise<T>(i, seed, scale));
  return made;
}

/// Pages 0 ... count - 1 in another order.
inline std::vector<zoomr::index_t> shuffled_pages(zoomr::index_t count) {
  std::vector<zoomr::index_t> made;
  std::uint32_t random = 12345;
  for (zoomr::index_t page = 0; page < count; ++page) made.push_back(page);
  for (zoomr::index_t i = count - 1; i > 0; --i) {
    random = random * 1664525u + 1013904223u;
    const std::size_t other = static_cast<std::size_t>(random >> 8) % static_cast<std::size_t>(i + 1);
    const zoomr::index_t page = made[other];
    made[other] = made[static_cast<std::size_t>(i)];
    made[static_cast<std::size_t>(i)] = page;
  }
  return made;
}

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, float>) return "f32";
  if constexpr (std::is_same_v<T, zoomr::bfloat16>) return "bf16";
  if constexpr (std::is_same_v<T, zoomr::float16>) return "f16";
  if constexpr (std::is_same_v<T, zoomr::float8>) return "fp8";
  return zoomr::storage_name<T>();
}

}  // namespace zoomr_bench
