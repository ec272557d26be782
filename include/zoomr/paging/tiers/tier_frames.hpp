// SPDX-License-Identifier: Apache-2.0
// L3. From bytes of tiers to frames for blocks; what is too small is refused with the number that would do.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/paging/block_shape.hpp>

#include <algorithm>  // std::min
#include <string>     // std::to_string

namespace zoomr::inline v0 {

/// Bytes of each tier, for a placement that has tiers: of a host's cache `host` over `file`, of a device's `device`
/// over `host`.
struct tier_bytes {
  byte_count device = 0;       // of a device's cache: summaries, tables and pages of details together
  byte_count host = 0;         // of a host's cache the same; of a device's pinned pages, all of them; 0: what they take
  byte_count file = 0;         // of a host's cache: all pages
  const char* path = nullptr;  // a folder, or a name in one: where the file is made, without a name (block_file); any
                               // caches and processes may share it
};

/// Where the pages of a pool are, in bytes.
struct pool_bytes {
  byte_count memory = 0;
  byte_count tables = 0;  // of tiers, in memory too
  byte_count file = 0;
};

/// Blocks that fit into memory, and bytes of the tables of tiers.
struct tier_frames {
  index_t frames = 0;
  byte_count tables = 0;
};

/// What is left of the memory for blocks is what summaries and tables do not take. Tables of tiers are for each block a
/// place in memory, a byte that says whether it was written, and its checksum in the file; for each frame its state and
/// its part of the replacement order.
///
/// Memory must hold a few blocks more than stay reachable at a time (`Pool::least_frames`), or all that there are; the
/// file must hold all of them.
/// @param others  bytes of the memory that summaries, tables and working memory take
/// @return  blocks in memory, never more than there are, and the bytes of all tables
/// @throws precondition_error if a tier is too small, with the bytes that would do; if the file has no path; or if a
///         device has bytes, which is no tier of a host's cache
template <class Pool>
tier_frames frames_in_memory(const block_shape& shape, index_t pages, const tier_bytes& limits, byte_count others) {
  using tier_type = typename Pool::tier_type;
  const byte_count block = shape.template bytes<typename Pool::number>();
  const byte_count frame = block + tier_type::frame_table_bytes;
  const byte_count blocks = std::int64_t{pages} * shape.pieces();
  const char* const six = shape.heads == shape.model.kv_heads ? "six pages of one layer" : "six pages of one KV head";
  const auto expect = [&](byte_count has, byte_count needs, const char* tier, const char* for_what,
                          const char* least_pages = "") {
    ZOOMR_EXPECTS(has >= needs, "config: tiers." + std::string(tier) + " is " + std::to_string(has) +
                                    " bytes; it must be at least " + std::to_string(needs) + ", for " + for_what +
                                    least_pages);
  };
  ZOOMR_EXPECTS(limits.device == 0,
                "config: tiers.device is of device_cache; a cache of the host has tiers.host over tiers.file");
  ZOOMR_EXPECTS(blocks <= unlimited, "config: the pool has more than 2^31 blocks");
  const byte_count block_tables =
      blocks * (tier_type::block_table_bytes + 1 + static_cast<byte_count>(sizeof(std::uint64_t)));
  const byte_count least = std::min<byte_count>(Pool::least_frames, blocks);
  expect(limits.host, others + block_tables + least * frame, "host", "summaries, tables and ", six);
  expect(limits.file, blocks * block, "file", "all pages of the pool");
  ZOOMR_EXPECTS(limits.path != nullptr && limits.path[0] != '\0', "config: tiers.file needs tiers.path");
  const auto frames = static_cast<index_t>((std::min)(blocks, (limits.host - others - block_tables) / frame));
  return {frames, block_tables + frames * tier_type::frame_table_bytes};
}

}  // namespace zoomr::inline v0
