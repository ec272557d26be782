// SPDX-License-Identifier: Apache-2.0
// L6. Which frames of the arena are given to the pages that were requested. Two kernels of as many blocks, each of
// which looks after a stretch of frames: count_frames_kernel counts them by class, and its last block finds the class
// at which requests run out, and how many frames each stretch gives; give_frames_kernel gives them.
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>
#include <zoomr/core/device/block.cuh>

namespace zoomr::inline v0::detail {

/// In which order frames are given to others: first those that their layer has passed over, the longer ago the sooner;
/// then those that were read in the layer before this, whose turn comes last; never those that this pass reads.
/// As cyclic_mru does (paging/tiers/replacement.hpp).
struct giving_order {
  static constexpr index_t of_age = 16;
  static constexpr index_t classes = 128;

  /// The class of a frame; lower ones are given first. The first `of_age` are of frames that a whole circle of layers
  /// has passed over, by the logarithm of how many; those after them are of frames used in this circle, the last used
  /// first.
  /// @param age  passes since the frame was used, at least 1, and fewer than 2^31
  __device__ static index_t class_of(unsigned age, index_t layers) {
    const unsigned circles = age / static_cast<unsigned>(layers);
    if (circles == 0) return age < classes - of_age ? of_age - 1 + static_cast<index_t>(age) : classes - 1;
    index_t oldness = 0;
    while (oldness < of_age - 1 && circles >> (oldness + 1) != 0) ++oldness;
    return of_age - 1 - oldness;
  }
};

inline constexpr index_t place_threads = 128;  // and more blocks there are never
static_assert(giving_order::classes == arena_classes && most_place_blocks <= place_threads);

/// The frames of one block, in the order of its threads, and their classes in a pass.
template <class T>
struct thread_frames {
  const common_arrays<T>& a;
  bool ahead;
  unsigned pass;
  token_range own;                                        // of this thread
  static constexpr index_t kept = giving_order::classes;  // the class of those that are not given

  __device__ thread_frames(const common_arrays<T>& arrays, bool beforehand, unsigned in_pass)
      : a(arrays), ahead(beforehand), pass(in_pass) {
    const auto at = static_cast<index_t>(blockIdx.x * blockDim.x + threadIdx.x);
    const auto threads = static_cast<index_t>(gridDim.x * blockDim.x);
    const index_t stretch_frames = (a.arena.frames + threads - 1) / threads;
    own = {bounded(at, stretch_frames), bounded(at + 1, stretch_frames)};
  }
  __device__ index_t class_of(index_t frame) const {
    const unsigned age = pass - a.arena.used[frame];
    return age <= (ahead ? 1u : 0u) ? kept : giving_order::class_of(age, a.sizes.model.layers);
  }

 private:
  __device__ index_t bounded(index_t at, index_t stretch_frames) const {
    const std::int64_t first = std::int64_t{at} * stretch_frames;
    return first < a.arena.frames ? static_cast<index_t>(first) : a.arena.frames;
  }
};

/// Counts frames by class, and in the block that comes last plans what each block will give: the lowest classes whole,
/// the one at which requests run out in ascending frames. So which frames are given follows from their uses; which
/// request gets one is a matter of the order of atomics, and changes no result.
/// @param ahead  while the pass before goes on: what that reads stays, and no more than half of the frames are given,
///               so that what was not foreseen finds room
template <class T>
__global__ void __launch_bounds__(place_threads) count_frames_kernel(common_arrays<T> a, bool ahead) {
  __shared__ shared_array<index_t, giving_order::classes> of_class;
  __shared__ shared_array<index_t, 2> cut;  // the class that is given in part, and how many of it
  __shared__ shared_array<index_t, 1> last;
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const auto& arena = a.arena;
  const unsigned pass = arena.counts->pass + 1;
  const index_t missing = arena.counts->requests;
  const index_t room = !arena.plan.fetches ? 0 : ahead ? arena.frames / 2 : arena.frames;
  const index_t requests = missing < room ? missing : room;
  const auto blocks = static_cast<index_t>(gridDim.x);
  for (index_t c = block.thread(); c < giving_order::classes; c += block.size()) of_class[c] = 0;
  __syncthreads();
  const thread_frames<T> frames(a, ahead, pass);
  for (index_t frame = frames.own.first; frame < frames.own.last && requests > 0; ++frame) {
    const index_t c = frames.class_of(frame);
    if (c < giving_order::classes) atomicAdd(&of_class[c], 1);
  }
  __syncthreads();
  index_t* const counted = arena.of_class + static_cast<index_t>(blockIdx.x) * giving_order::classes;
  for (index_t c = block.thread(); c < giving_order::classes; c += block.size()) counted[c] = of_class[c];
  if (!comes_last(&arena.counts->counted, blocks, last)) return;

  for (index_t c = block.thread(); c < giving_order::classes; c += block.size()) {
    index_t class_frames = 0;
    for (index_t b = 0; b < blocks; ++b) class_frames += arena.of_class[b * giving_order::classes + c];
    of_class[c] = class_frames;
  }
  __syncthreads();
  if (block.thread() == 0) {
    index_t left = requests;
    index_t c = 0;
    for (; c < giving_order::classes && of_class[c] <= left; ++c) left -= of_class[c];
    cut[0] = c;
    cut[1] = left;
  }
  __syncthreads();
  const index_t b = block.thread();
  arena_stretch stretch{0, 0, cut[0], cut[1]};
  index_t whole = 0, in_part = 0;
  if (b < blocks) {
    const index_t* class_counts = arena.of_class + b * giving_order::classes;
    for (index_t c = 0; c < cut[0]; ++c) whole += class_counts[c];
    in_part = cut[0] < giving_order::classes ? class_counts[cut[0]] : 0;
  }
  const scanned<index_t> wholes = block.sum_before(whole), parts = block.sum_before(in_part);
  const auto of_cut = [&](index_t before) { return before < cut[1] ? before : static_cast<index_t>(cut[1]); };
  stretch.given_before = wholes.before + of_cut(parts.before);
  stretch.cut_before = parts.before;
  if (b < blocks) arena.stretches[b] = stretch;
  if (b > 0) return;
  const index_t granted = requests > 0 ? wholes.all + of_cut(parts.all) : 0;
  arena_counts& counts = *arena.counts;
  counts.fetched = granted;
  counts.requests = 0;
  if (ahead) {
    counts.prefetched += static_cast<unsigned>(granted);
    return;
  }
  counts.hits += counts.found;
  counts.misses += static_cast<unsigned>(missing);
  counts.in_place += static_cast<unsigned>(missing - granted);
  counts.found = 0;
  counts.pass = pass;
}

/// Gives the frames that count_frames_kernel has planned, with as many blocks. After it the arena's tables hold what
/// will be where once fetch_pages_kernel has run.
template <class T>
__global__ void __launch_bounds__(place_threads) give_frames_kernel(common_arrays<T> a, index_t layer, bool ahead) {
  __shared__ block_scratch scratch;
  const auto& arena = a.arena;
  if (arena.counts->fetched == 0) return;
  block_threads block(scratch);
  const thread_frames<T> frames(a, ahead, arena.counts->pass + (ahead ? 1u : 0u));
  const arena_stretch plan = arena.stretches[blockIdx.x];
  index_t of_cut = 0, going = 0;
  for (index_t frame = frames.own.first; frame < frames.own.last; ++frame)
    of_cut += frames.class_of(frame) == plan.cut ? 1 : 0;
  index_t cut_before = plan.cut_before + block.sum_before(plan.cut < giving_order::classes ? of_cut : 0).before;
  const auto each_going = [&](auto visit) {
    index_t seen = cut_before;
    for (index_t frame = frames.own.first; frame < frames.own.last; ++frame) {
      const index_t c = frames.class_of(frame);
      const bool at_cut = c == plan.cut && c < giving_order::classes;
      if (c < plan.cut || (at_cut && seen < plan.of_cut)) visit(frame);
      seen += at_cut ? 1 : 0;
    }
  };
  each_going([&](index_t) { ++going; });
  index_t i = plan.given_before + block.sum_before(going).before;
  each_going([&](index_t frame) {
    const arena_request request = arena.requests[i];
    arena.grants[i++] = frame;
    // Forks that share a page may have fetched it twice: then the block is still where the other one is.
    const index_t before = arena.block_in[frame] - 1;
    if (before >= 0 && arena.block_frames[before] == frame + 1) arena.block_frames[before] = 0;
    const auto block_number = static_cast<index_t>(a.sizes.block_of(layer, 0, 0) + request.block);
    arena.block_in[frame] = block_number + 1;
    arena.block_frames[block_number] = frame + 1;
    arena.used[frame] = frames.pass;
    if (ahead) {
      arena.came_for[frame] = frames.pass;
    } else {
      arena.places[request.entry] = a.place_of(frame);
    }
  });
}

}  // namespace zoomr::inline v0::detail
