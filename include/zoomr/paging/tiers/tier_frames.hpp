// SPDX-License-Identifier: Apache-2.0
// L3. From bytes of tiers to frames for blocks; what is too small is refused with the number that would do.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/paging/block_shape.hpp>

#include <algorithm>  // std::min
#include <string>     // std::to_string

namespace zoomr::inline v0 {

/// Bytes of each tier, for a placement that has tiers.
struct tier_bytes {
  byte_count device = 0;       // summaries, tables and pages of details together; of a host cache in ordinary memory
  byte_count host = 0;         // pages of details, and where all are; 0 without a file: all of them
  byte_count file = 0;         // 0: there is no file
  const char* path = nullptr;  // a folder, or a name in one: where the file is made, without a name (block_file); any
                               // caches and processes may share it
};

/// Where the pages of a pool are, in bytes; those of the host with the tables of tiers.
struct pool_bytes {
  byte_count device = 0;
  byte_count host = 0;
  byte_count file = 0;
};

/// Blocks that fit into a device's memory and a host's, and bytes of the host's tables.
struct tier_frames {
  index_t device = 0;
  index_t host = 0;
  byte_count tables = 0;
};

/// What is left of the device for blocks is what summaries and tables do not take. Of the host's bytes tables come
/// first: for each block a place in both tiers, a byte that says whether it was written, and its checksum in a file;
/// for each frame its state and its part of the replacement order.
///
/// A tier must hold a few blocks more than stay reachable at a time (`Pool::least_frames`), or all that there are;
/// without a file the host must hold all of them, with one the file must.
/// @param others  bytes of the device that summaries, tables and working memory take
/// @return  blocks of device and host, never more than there are, and the bytes of all tables
/// @throws precondition_error if a tier is too small, with the bytes that would do; or if a file has no path
template <class Pool>
tier_frames frames_in_tiers(const block_shape& shape, index_t pages, const tier_bytes& limits, byte_count others) {
  const byte_count block = shape.template bytes<typename Pool::number>();
  using tier_type = typename Pool::tier_type;
  const byte_count frame = tier_type::frame_table_bytes;
  const byte_count blocks = std::int64_t{pages} * shape.pieces();
  const char* const six = shape.heads == shape.model.kv_heads ? "six pages of one layer" : "six pages of one KV head";
  const auto expect = [&](byte_count has, byte_count needs, const char* tier, auto... for_what) {
    ZOOMR_EXPECTS(has >= needs, "config: tiers." + std::string(tier) + " is " + std::to_string(has) +
                                    " bytes; it must be at least " + std::to_string(needs) + ", for " +
                                    (std::string() + ... + for_what));
  };
  ZOOMR_EXPECTS(blocks <= unlimited, "config: the pool has more than 2^31 blocks");
  const byte_count least = std::min<byte_count>(Pool::least_frames, blocks);
  expect(limits.device, others + least * block, "device", "summaries, tables and ", six);
  tier_frames frames;
  frames.device = static_cast<index_t>((std::min)(blocks, (limits.device - others) / block));
  const byte_count sum = limits.file > 0 ? sizeof(std::uint64_t) : 0;  // of a block in the file
  frames.tables = blocks * (2 * tier_type::block_table_bytes + 1 + sum) + frames.device * frame;
  if (limits.file == 0) {
    const byte_count all = frames.tables + blocks * (block + frame);
    if (limits.host != 0) expect(limits.host, all, "host", "all pages of the pool, and tables");
    frames.host = static_cast<index_t>(blocks);
  } else {
    ZOOMR_EXPECTS(limits.path != nullptr && limits.path[0] != '\0', "config: tiers.file needs tiers.path");
    expect(limits.file, blocks * block, "file", "all pages of the pool");
    expect(limits.host, frames.tables + least * (block + frame), "host", six, ", and tables");
    frames.host = static_cast<index_t>((std::min)(blocks, (limits.host - frames.tables) / (block + frame)));
  }
  frames.tables += frames.host * frame;
  return frames;
}

}  // namespace zoomr::inline v0
