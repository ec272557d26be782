// SPDX-License-Identifier: Apache-2.0
// L6. The device's part of a tiered placement: an arena of blocks, and which of them are there. Plain data.
//
// A block is a page in one layer, or one KV head's part of it where each reads tokens of its own (block_shape.hpp). The
// arena is laid out in pages, so that keys and values of a block are as far apart as they are in the host's: where a
// page has parts, each frame is one part of a page, and takes any part of any page.
//
// Kernels alone read and write it (cache/device/tiers/fetching.cuh), in the order of the stream; the host carves and
// clears it once. All pages are in pinned memory of the host, and what is appended is written to both:
// so a block can be dropped at any time. A pass is the reading of one layer, as in
// paging/tiers/replacement.hpp, and passes are counted from 1.
#pragma once

#include <zoomr/core/carver.hpp>
#include <zoomr/core/device/streams.cuh>
#include <zoomr/paging/tiers/tier_statistics.hpp>

namespace zoomr::inline v0 {

/// A block of a sequence that a pass reads, and that is not in the arena. As many of them as there is room for get a
/// frame.
struct arena_request {
  index_t entry = 0;  // of `places`
  index_t block = 0;  // of its layer: page * page_parts + part
};

/// What an arena has done since the cache was made; the device counts.
struct arena_counts {
  unsigned pass = 0;     // layers that have been read
  index_t requests = 0;  // of this pass
  index_t fetched = 0;   // of the last one
  unsigned found = 0;
  unsigned long long hits = 0;             // blocks that a pass has found in the arena
  unsigned long long misses = 0;           // that it has not
  unsigned long long in_place = 0;         // of these, read where they are, since all of the arena was being read
  unsigned long long prefetched = 0;       // blocks that have come while the layer before was attended
  unsigned long long prefetched_hits = 0;  // hits among them
  unsigned counted = 0;                    // blocks of count_frames_kernel that have come; 0 between launches
};

/// The same as the host counts it. Every miss that is not read in place has come before the layer could be attended:
/// it is a stall too.
inline arena_statistics statistics_of(const arena_counts& counts, byte_count block_bytes) {
  arena_statistics result;
  result.hits = static_cast<std::int64_t>(counts.hits);
  result.misses = static_cast<std::int64_t>(counts.misses);
  result.in_place = static_cast<std::int64_t>(counts.in_place);
  result.prefetched = static_cast<std::int64_t>(counts.prefetched);
  result.prefetched_hits = static_cast<std::int64_t>(counts.prefetched_hits);
  result.stalls = result.misses - result.in_place;
  result.bytes_in = (result.stalls + result.prefetched) * block_bytes;
  return result;
}

/// Frames are given by class. As many blocks as this count them: one for each 64 frames or so.
inline constexpr index_t arena_classes = 128;
inline constexpr index_t most_place_blocks = 128;
inline constexpr index_t place_blocks(index_t frames) {
  return frames / 64 < most_place_blocks ? frames / 64 + 1 : most_place_blocks;
}

/// What one block gives of the frames that it looks after.
struct arena_stretch {
  index_t given_before = 0;  // by the blocks before it
  index_t cut_before = 0;    // frames of class `cut` there
  index_t cut = 0;           // lower classes are given whole, and of this one
  index_t of_cut = 0;        // so many in all
};

/// How pages come to the arena. The default presumes nothing; `calibrate_transfers` measures (bench/tools/).
/// It changes how long a step takes, never what it gives.
struct transfer_plan {
  index_t fetch_blocks = 128;  // of a kernel, that copy pages at the same time
  bool fetches = true;         // false: every page is read where it is, and the arena stays empty

  friend constexpr bool operator==(const transfer_plan&, const transfer_plan&) = default;
};

/// Which blocks are on the device. Zeros are an empty arena.
template <class T>
struct device_arena {
  // in the tables, of which some are for 64 frames
  static constexpr byte_count frame_bytes =
      4 * sizeof(index_t) + (arena_classes * sizeof(index_t) + sizeof(arena_stretch)) / 64 + 1;
  static constexpr index_t tables = 7;  // whose size depends on the frames, with the arena itself

  T* memory = nullptr;              // [frames / page_parts]  pages, laid out as the host's
  index_t* block_frames = nullptr;  // [layers][pages][page_parts]  the block's frame + 1
  index_t* block_in = nullptr;      // [frames]  its block + 1
  unsigned* used = nullptr;         // [frames]  pass of the last use, or of the next, if that is expected
  unsigned* came_for = nullptr;     // [frames]  pass for which the block was prefetched
  index_t* grants = nullptr;        // [frames]  those that this pass's requests get
  // an entry is one part of a page of a sequence: [page_parts][sequences][sequence_pages]
  unsigned* stamps = nullptr;          // [entries]  2 * the pass of the last request, + 1 if that was beforehand
  index_t* places = nullptr;           // [entries]  what this pass reads (common_arrays::place_of)
  arena_request* requests = nullptr;   // [entries]
  index_t* of_class = nullptr;         // [place_blocks][arena_classes]  frames that a block has counted
  arena_stretch* stretches = nullptr;  // [place_blocks]
  arena_counts* counts = nullptr;
  index_t frames = 0;
  transfer_plan plan;

  /// Takes the memory of arena and tables; contents are undefined until `clear`.
  /// @param from           where the memory is, or what only counts it
  /// @param arena_frames   blocks that the arena holds, a multiple of `parts`
  /// @param layers, pages  of the model, of the pool: each pair is `parts` blocks
  /// @param table_entries  of the sequences' page tables; each has `parts` places
  /// @param page_numbers   keys and values of a page, of all KV heads
  void carve(carver& from, index_t arena_frames, index_t layers, index_t pages, index_t parts,
             std::int64_t table_entries, std::int64_t page_numbers) {
    frames = arena_frames;
    blocks_ = std::int64_t{layers} * pages * parts;
    entries_ = table_entries * parts;
    memory = from.take<T>(frames / parts * page_numbers);
    block_frames = from.take<index_t>(blocks_);
    block_in = from.take<index_t>(frames);
    used = from.take<unsigned>(frames);
    came_for = from.take<unsigned>(frames);
    grants = from.take<index_t>(frames);
    stamps = from.take<unsigned>(entries_);
    places = from.take<index_t>(entries_);
    requests = from.take<arena_request>(entries_);
    of_class = from.take<index_t>(place_blocks(frames) * arena_classes);
    stretches = from.take<arena_stretch>(place_blocks(frames));
    counts = from.take<arena_counts>(1);
  }
  /// Enqueues what makes it empty; the copies themselves need no initial value.
  void clear(stream_ref stream) const {
    const auto zero = [&](auto* table, std::int64_t count) {
      zero_on_device(table, count * static_cast<byte_count>(sizeof *table), stream);
    };
    zero(block_frames, blocks_);
    zero(block_in, frames);
    zero(used, frames);
    zero(came_for, frames);
    zero(stamps, entries_);
    zero(counts, 1);
  }

 private:
  std::int64_t blocks_ = 0;
  std::int64_t entries_ = 0;
};

}  // namespace zoomr::inline v0
