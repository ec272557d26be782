// SPDX-License-Identifier: Apache-2.0
// L6. What is copied on the device: a page that sequences share, before one of them writes there; and of a sequence
// that is forked all but its pages.
//
// Everything is enqueued on the caller's stream, outside of graphs: page copies after the upload of the table that
// lists them, before the kernels of its pass; a fork after the steps that have made the sequence what it is.
#pragma once

#include <zoomr/cache/device/launching/pass.cuh>
#include <zoomr/cache/device/tiers/fetching.cuh>

namespace zoomr::inline v0::detail {

inline constexpr index_t copy_threads = 256;

/// Copies the pages that the table lists, in one layer in each block, and enters them into the sequences' page tables:
/// blockIdx.x is the copy, blockIdx.y the layer. Over tiers pages are the host's; where the arena still has what the
/// page held before, it gets the copy too.
/// @cost  page_numbers() numbers read and written for each copy and layer
template <class T>
__global__ void copy_shared_pages_kernel(common_arrays<T> a) {
  const device_page_copy& listed = a.table.copies()[blockIdx.x];
  const auto layer = static_cast<index_t>(blockIdx.y);
  const std::int64_t numbers = a.sizes.page_numbers();
  if (layer == 0 && threadIdx.x == 0) a.page_entry(listed.sequence, listed.at) = listed.to;
  copy_page(a.page(layer, listed.from), a.page(layer, listed.to), numbers);
  for (index_t part = 0; part < a.sizes.page_parts; ++part) {
    const index_t frame = a.in_arena(layer, listed.to, part);
    if (frame >= 0) copy_to_arena(a, a.page(layer, listed.from), part, frame);
  }
}

/// Entries of one sequence's page table, as a kernel takes them.
struct some_pages {
  static constexpr index_t most = 512;
  index_t sequence = 0;
  index_t first = 0;
  index_t count = 0;
  index_t pages[std::size_t{most}];
};

/// Enters them. One block of `copy_threads`.
template <class T>
__global__ void set_pages_kernel(common_arrays<T> a, some_pages part) {
  for (auto i = static_cast<index_t>(threadIdx.x); i < part.count; i += copy_threads) {
    a.page_entry(part.sequence, part.first + i) = part.pages[i];
  }
}

/// Empties the frames of the arena that still have what pages of one sequence held before: blockIdx.x is the entry of
/// its page table, blockIdx.y the layer; a thread for each part.
template <class T>
__global__ void empty_arena_kernel(common_arrays<T> a, index_t sequence) {
  const auto layer = static_cast<index_t>(blockIdx.y);
  const index_t page = a.pages_of(sequence)[static_cast<index_t>(blockIdx.x)];
  for (auto part = static_cast<index_t>(threadIdx.x); page >= 0 && part < a.sizes.page_parts; part += copy_threads) {
    const index_t frame = a.in_arena(layer, page, part);
    if (frame < 0) continue;
    a.arena.block_frames[a.sizes.block_of(layer, page, part)] = 0;
    a.arena.block_in[frame] = 0;
    a.arena.used[frame] = 0;
  }
}

/// Rows of bytes, equally far apart at both ends.
struct rows_to_copy {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t row_bytes = 0;
  std::int64_t stride = 0;
  std::int64_t rows = 1;
};

/// What is copied of one sequence to another.
struct arrays_to_copy {
  // Enough for copy_sequence: a policy that hears voters has their queries, but neither summaries nor scales of these.
  rows_to_copy arrays[9];
  index_t count = 0;

  /// The first `used` of `room` objects in each of `rows` rows of a sequence.
  /// @param first  that of sequence 0; nullptr: there is no such array
  template <class Object>
  void add(Object* first, std::int64_t rows, std::int64_t room, std::int64_t used, index_t from, index_t to) {
    if (first == nullptr || rows * used == 0) return;
    constexpr auto size = static_cast<std::int64_t>(sizeof(Object));
    auto* const bytes = reinterpret_cast<std::byte*>(first);
    const std::int64_t of_sequence = rows * room * size;
    arrays[count++] = {bytes + from * of_sequence, bytes + to * of_sequence, used * size, room * size, rows};
  }
};

/// Copies them: blockIdx.y is the array, blocks of blockIdx.x take its rows in turn.
template <class T>
__global__ void copy_arrays_kernel(arrays_to_copy copies) {
  const rows_to_copy& rows = copies.arrays[blockIdx.y];
  // Where nothing is aligned to words, as levels and summaries of 8 bits may be, bytes are copied one by one.
  const auto misaligned = reinterpret_cast<std::uintptr_t>(rows.from) | reinterpret_cast<std::uintptr_t>(rows.to) |
                          static_cast<std::uintptr_t>(rows.row_bytes) | static_cast<std::uintptr_t>(rows.stride);
  for (std::int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
    const std::byte* const from = rows.from + row * rows.stride;
    std::byte* const to = rows.to + row * rows.stride;
    if (misaligned % sizeof(unsigned) == 0) {
      const auto* words = reinterpret_cast<const unsigned*>(from);
      for (std::int64_t i = threadIdx.x; i < rows.row_bytes / 4; i += copy_threads) {
        reinterpret_cast<unsigned*>(to)[i] = words[i];
      }
    } else {
      for (std::int64_t i = threadIdx.x; i < rows.row_bytes; i += copy_threads) to[i] = from[i];
    }
  }
}

/// Choices of one sequence that go to the same places of another's ring.
struct choices_to_copy {
  index_t from = 0, to = 0;  // sequences
  index_t first = 0;         // of the ring; the others follow, round the ring
};

/// Copies the levels and rows of choices. Grid: choices, rows of a place.
template <class T>
__global__ void copy_choices_kernel(common_arrays<T> a, choices_to_copy copy) {
  const index_t in_ring = (copy.first + static_cast<index_t>(blockIdx.x)) % a.sizes.ring;
  const index_t from = copy.from * a.sizes.ring + in_ring;
  const index_t to = copy.to * a.sizes.ring + in_ring;
  const std::int64_t row = blockIdx.y;
  const selection_row& active = a.rows[std::int64_t{from} * a.sizes.place_rows + row];
  const std::int64_t at = std::int64_t{to} * a.sizes.place_rows + row;
  const view<level> levels = a.levels_of(at, active.levels.size());
  for (auto id = static_cast<index_t>(threadIdx.x); id < levels.size(); id += copy_threads)
    levels[id] = active.levels[id];
  if (threadIdx.x == 0) a.rows[at] = {levels, active.cut_segment, active.cut_tokens};
}

/// Loads what forks, and new tables of an engine's pages, launch.
template <class T>
void load_forking() {
  load_kernel(set_pages_kernel<T>);
  load_kernel(copy_arrays_kernel<T>);
  load_kernel(copy_choices_kernel<T>);
}

/// Enters all pages of one sequence on the device.
/// @cost  a launch for each 512 of them
template <class T>
void set_pages(any_device_core<T>& core, index_t sequence, view<const index_t> pages, stream_ref stream) {
  some_pages part;
  part.sequence = sequence;
  for (; part.first < pages.size(); part.first += part.count) {
    part.count = (std::min)(some_pages::most, pages.size() - part.first);
    std::copy_n(pages.begin() + part.first, part.count, part.pages);
    launch({dim3(1), dim3(copy_threads)}, stream, set_pages_kernel<T>, core.common(), part);
  }
}

/// Makes one sequence on the device what another is by the host's counts: tables, summaries, sums, remembered queries,
/// choices.
/// @pre   nothing is known of `to` on the device; the host's state of `to` is that of `from`
/// @cost  1 launch, 2 where choices stay active: they copy the index, and what a rollback needs. Where heads vote,
/// zeros are written too
template <class Policy, class T>
void copy_sequence(device_core<Policy, T>& core, index_t from, index_t to, stream_ref stream) {
  const device_arrays<Policy, T>& a = core.arrays;
  const device_sizes& sizes = core.sizes;
  const device_sequence& state = core.state(from);
  const std::int64_t layers = sizes.model.layers, kv_lanes = sizes.model.kv_lanes(), heads = sizes.model.heads;
  const std::int64_t queries = layers * sizes.query_numbers();  // numbers of one token's
  arrays_to_copy copies;
  copies.add(a.page_table, 1, sizes.sequence_pages, state.known_pages, from, to);
  copies.add(a.segments, 1, sizes.segments, state.known_segments, from, to);
  copies.add(a.summaries, kv_lanes, std::int64_t{sizes.segments} * sizes.summary_numbers,
             std::int64_t{state.known_segments} * sizes.summary_numbers, from, to);
  copies.add(a.scales, kv_lanes, sizes.segments, a.scales_of(sizes, state.known_segments), from, to);
  copies.add(a.sums, sizes.records, queries, queries, from, to);
  const eviction_arrays& kept = a.eviction;
  copies.add(kept.kept, kv_lanes, kept.most_kept, state.kept_each.committed, from, to);
  copies.add(kept.noted, kept.noted_tokens, queries, queries, from, to);
  copies.add(kept.prompted, kept.prompt_tokens, queries, queries, from, to);
  // One of two halves is current, the same of both sequences; what is in the other is written before it is read.
  float* const carried = kept.carried == nullptr
                             ? nullptr
                             : kept.carried + state.sums.half * sizes.sequences * layers * heads * sizes.carried;
  copies.add(carried, layers * heads, sizes.carried, state.sums.slots, from, to);
  if constexpr (hears_voters<Policy>) {
    const voter_arrays& voting = a.voting;
    copies.add(voting.queries, voting.sizes.records, voting.query_numbers(), voting.query_numbers(), from, to);
    voting.forget_masses(to, 1, stream);  // the next choice measures them again
  }
  if (copies.count > 0) {
    launch({dim3(256, static_cast<unsigned>(copies.count)), dim3(copy_threads)}, stream, copy_arrays_kernel<T>, copies);
  }
  if (state.choices.empty()) return;
  const choices_to_copy chosen{from, to, state.choices.front().place % sizes.ring};
  launch(
      {dim3(static_cast<unsigned>(state.choices.size()), static_cast<unsigned>(sizes.place_rows)), dim3(copy_threads)},
      stream, copy_choices_kernel<T>, core.arrays, chosen);
}

}  // namespace zoomr::inline v0::detail
