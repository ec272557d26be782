// SPDX-License-Identifier: Apache-2.0
// Where details live, as the command line says it, and what moving them has cost.
#pragma once

#include <zoomr/cache/config.hpp>
#include <zoomr/cache/statistics.hpp>

#include <string>  // std::string

#include <nlohmann/json_fwd.hpp>

#include "../device_engine/decoder.hpp"

namespace decode {

using zoomr::index_t;

/// Bytes of each tier; `path` is kept here for as long as caches are made.
struct tier_options {
  zoomr::tier_bytes bytes;
  std::string path;
  index_t segments = 0;  // room in the index; 0: for as many as there are tokens

  bool given() const { return bytes.device > 0 || bytes.host > 0; }
  /// As a config wants them.
  zoomr::tier_bytes limits() const {
    zoomr::tier_bytes made = bytes;
    made.path = path.c_str();
    return made;
  }
};

/// "host=64MiB,file=PATH:16GiB,segments=100": memory over a file; "device=64MiB,host=4GiB": a device over pinned
/// memory.
/// @throws input_error if it says something else
tier_options parse_tiers(const std::string& text);

/// What was moved, for the report.
nlohmann::ordered_json to_json(const zoomr::tier_statistics& of, const zoomr::memory_use& capacity);

/// One line on a terminal.
std::string in_words(const zoomr::tier_statistics& of, const zoomr::memory_use& capacity);

/// What the arena of a device has done; what it waits for is not measured.
/// @param device, host  bytes of the cache in both
nlohmann::ordered_json to_json(const zoomr::arena_statistics& of, zoomr::byte_count device, zoomr::byte_count host);
std::string in_words(const zoomr::arena_statistics& of, zoomr::byte_count device, zoomr::byte_count host);

}  // namespace decode
