// SPDX-License-Identifier: Apache-2.0
// L6. A file behind the pinned memory of a tiered placement. Which page of a layer is needed is found on the device, or
// planned by `begin`; functions of the host, enqueued between kernels, then see to it that it is in pinned memory
// (pinned_blocks), and a kernel enters where into `host_pages`. A graph holds these functions like any kernel.
//
// Pages that a step may write, summarise or evict from are held in all layers from its upload to that of the next step.
// What a layer reads beside them, and the arena has not, is asked for in front of the kernels that give frames.
//
// All of it is ordered by the stream: a function comes after the kernels that fill its list, and in front of those
// that read its answer. So at most one function goes on at a time; the side stream is joined before the next.
#pragma once

#include <zoomr/cache/device/layout.cuh>
#include <zoomr/cache/device/sequence.cuh>
#include <zoomr/cache/device/uploads.cuh>
#include <zoomr/cache/state/shared_writes.hpp>
#include <zoomr/paging/pinned_blocks.hpp>

#include <algorithm>  // std::min
#include <string>     // std::string, std::to_string
#include <utility>    // std::exchange, std::pair
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Pages of one layer that are asked for, and where they are then: pinned memory that host and device see.
struct page_requests {
  index_t* count = nullptr;
  index_t* pages = nullptr;   // [entries]
  index_t* places = nullptr;  // [entries]  in blocks
};

/// Lists the pages that a pass requests. Blocks take requests in turn.
template <class T>
__global__ void list_requests_kernel(common_arrays<T> a, page_requests to) {
  const index_t requests = a.arena.counts->requests;
  const auto first = static_cast<index_t>(blockIdx.x * blockDim.x + threadIdx.x);
  for (index_t i = first; i < requests; i += static_cast<index_t>(gridDim.x * blockDim.x)) {
    to.pages[i] = a.arena.requests[i].block / a.sizes.page_parts;
  }
  if (first == 0) *to.count = requests;
}

/// Enters where they are now. Blocks take requests in turn; several of one page write the same.
/// @param ahead  the places of the layer that is being read stay as they are
template <class T>
__global__ void place_requests_kernel(common_arrays<T> a, page_requests from, index_t layer, bool ahead) {
  const index_t requests = a.arena.counts->requests;
  const auto first = static_cast<index_t>(blockIdx.x * blockDim.x + threadIdx.x);
  for (index_t i = first; i < requests; i += static_cast<index_t>(gridDim.x * blockDim.x)) {
    a.arena.host_pages[a.sizes.page_of(layer, from.pages[i])] = from.places[i];
    if (!ahead) a.arena.places[a.arena.requests[i].entry] = a.host_place(from.places[i]);
  }
}

/// Enters where pages are that are held in all layers. Blocks take them in turn.
/// @param pages   [count]
/// @param places  [count][layers]
template <class T>
__global__ void place_held_kernel(common_arrays<T> a, const index_t* pages, const index_t* places, index_t count) {
  const index_t layers = a.sizes.model.layers;
  const auto first = static_cast<index_t>(blockIdx.x * blockDim.x + threadIdx.x);
  for (index_t i = first; i < count * layers; i += static_cast<index_t>(gridDim.x * blockDim.x)) {
    a.arena.host_pages[a.sizes.page_of(i % layers, pages[i / layers])] = places[i];
  }
}

/// How many blocks pinned memory holds in front of a file; 0: there is no file.
/// @throws precondition_error if a tier is too small, with the bytes that would do; or if the file has no path
template <class T>
index_t blocks_before_file(const device_sizes& sizes, const config& limits, bool prefetches) {
  const tier_bytes& tiers = limits.tiers;
  if (tiers.file == 0) return 0;
  const byte_count block = sizes.page_numbers() * static_cast<byte_count>(sizeof(T));
  const std::int64_t all = std::int64_t{sizes.model.layers} * sizes.pages;
  // A token after the longest context: its page and the one before in all layers, and all of one layer.
  const std::int64_t one_layer = std::int64_t{prefetches ? 2 : 1} * sizes.sequence_pages;
  const std::int64_t least = (std::min)(all, 2 * std::int64_t{sizes.model.layers} + one_layer);
  const auto expect = [](const char* tier, byte_count has, byte_count needs, const char* for_what) {
    ZOOMR_EXPECTS(has >= needs, "config: tiers." + std::string(tier) + " is " + std::to_string(has) +
                                    " bytes; it must be at least " + std::to_string(needs) + ", for " + for_what);
  };
  ZOOMR_EXPECTS(tiers.path != nullptr && tiers.path[0] != '\0', "config: tiers.file needs tiers.path");
  expect("file", tiers.file, all * block, "all pages of the pool");
  expect("host", tiers.host, (least + pinned_spares) * block,
         "one layer of the longest sequence, and what a token writes");
  const std::int64_t fit = (std::min)(tiers.host / block - pinned_spares, std::int64_t{device_sizes::most_tiered});
  return static_cast<index_t>((std::min)(fit, all));
}

/// The file of one cache, the pinned memory in front of it, and how steps ask for both.
template <class T, replacement Replacement>
class file_tier {
 public:
  pinned_blocks<T, Replacement> blocks;

  /// @param memory  [sizes.host_blocks + 1] pages of one layer, pinned
  /// @throws error(storage) if there can be no file, error(device) without pinned memory
  file_tier(const device_sizes& sizes, T* memory, const char* path)
      : blocks(memory, sizes.host_blocks, sizes.model.layers, sizes.pages, sizes.page_numbers(), path),
        layers_(sizes.model.layers),
        all_(std::int64_t{layers_} * sizes.pages),
        entries_(sizes.arena_entries()),
        most_held_(sizes.host_blocks / sizes.model.layers),
        pinned_(static_cast<byte_count>(sizeof(index_t)) *
                (1 + 2 * entries_ + holds * std::int64_t{most_held_} * (1 + layers_))),
        held_by_(static_cast<std::size_t>(sizes.pages)) {
    auto* at = static_cast<index_t*>(pinned_.data());
    const auto take = [&](std::int64_t count) { return std::exchange(at, at + count); };
    requests_ = {take(1), take(entries_), take(entries_)};
    for (held_pages& each : held_) {
      each.in = &blocks;
      each.pages.reserve(static_cast<std::size_t>(most_held_));
      each.known.reserve(static_cast<std::size_t>(sizes.sequences));
      each.numbers = take(most_held_);
      each.places = take(std::int64_t{most_held_} * layers_);
    }
    for (index_t layer = 0; layer < layers_; ++layer) {
      for (const bool ahead : {false, true}) layers_to_read_.push_back({this, layer, ahead});
    }
  }
  file_tier(const file_tier&) = delete;
  file_tier& operator=(const file_tier&) = delete;

  /// @param held  pages that a step holds
  /// @param read  pages of one layer that it may read at a time, beside them
  /// @throws error(capacity) if pinned memory has no room for them
  void expect_room(std::int64_t held, std::int64_t read) const {
    const std::int64_t needed = (std::min)(held * layers_ + read, all_);
    if (needed > blocks.most()) {
      raise(errc::capacity, "begin: the step needs " + std::to_string(needed) +
                                " pages of one layer in pinned memory at a time, there is room for " +
                                std::to_string(blocks.most()) +
                                ": raise config.tiers.host, or take fewer tokens or sequences");
    }
  }

  /// Enqueues that the pages of a step come and stay. Outside of a capture: a graph would hold the same ones again.
  /// @param each   each(visit): visit(held_page) for all of them
  /// @param known  each(visit): visit(sequence, segments that are summarised before the step)
  /// @pre   `expect_room` has let the step pass
  /// @cost  a function of the host and 1 launch
  template <class Each, class Known>
  void hold(const common_arrays<T>& a, Each each, Known known, stream queue) {
    held_pages& now = held_[turn_];
    turn_ = (turn_ + 1) % holds;
    now.pages.clear();
    now.known.clear();
    known([&](index_t sequence, index_t segments) { now.known.push_back({sequence, segments}); });
    ++held_so_far_;
    each([&](const held_page& one) {
      if (std::exchange(held_by_[static_cast<std::size_t>(one.page)], held_so_far_) == held_so_far_) return;
      now.numbers[now.pages.size()] = one.page;
      now.pages.push_back(one);
    });
    const auto count = static_cast<index_t>(now.pages.size());
    enqueue_call(
        [](void* argument) {
          auto& held = *static_cast<held_pages*>(argument);
          held.in->hold(view<const held_page>(held.pages), held.places);
        },
        &now, queue);
    launch({dim3(8), dim3(threads)}, queue, place_held_kernel<T>, a, static_cast<const index_t*>(now.numbers),
           static_cast<const index_t*>(now.places), count);
  }

  /// If a page could not be read or written, summaries of the steps since may have been made of what means nothing:
  /// they are forgotten, to be made again. No earlier step can have failed: `begin` has asked when it was told of the
  /// step whose list was in the place of the oldest.
  /// @param known  known(sequence): the segments that are summarised, to be lowered
  /// @throws error(storage) then
  template <class Known>
  void expect_no_fault(Known known) {
    const std::string said = blocks.take_fault();
    if (said.empty()) return;
    for (const held_pages& step : held_) {
      for (const auto& [sequence, segments] : step.known) known(sequence) = (std::min)(known(sequence), segments);
    }
    raise(errc::storage, "a page of details cannot be moved: " + said);
  }

  /// Enqueues that what a pass requests comes to pinned memory.
  /// @param ahead  while the layer before is still read
  /// @cost  a function of the host and 2 launches
  void read(const common_arrays<T>& a, index_t layer, bool ahead, stream queue) {
    launch({dim3(8), dim3(threads)}, queue, list_requests_kernel<T>, a, requests_);
    enqueue_call(
        [](void* argument) {
          const auto& [in, which, early] = *static_cast<layer_to_read*>(argument);
          const index_t count = *in->requests_.count;
          in->blocks.read(which, early, {in->requests_.pages, {count}}, {in->requests_.places, {count}});
        },
        &layers_to_read_[static_cast<std::size_t>(2 * layer + (ahead ? 1 : 0))], queue);
    launch({dim3(8), dim3(threads)}, queue, place_requests_kernel<T>, a, requests_, layer, ahead);
  }

 private:
  static constexpr unsigned threads = 128;
  // Lists that may wait for their functions: as many as steps whose tables do (table_ring).
  static constexpr index_t holds = table_ring::steps;

  struct held_pages {
    pinned_blocks<T, Replacement>* in = nullptr;
    std::vector<held_page> pages;
    std::vector<std::pair<index_t, index_t>> known;  // sequences of the step, and their segments that are summarised
    index_t* numbers = nullptr;                      // of the pages, pinned
    index_t* places = nullptr;                       // [pages][layers], pinned
  };
  struct layer_to_read {
    file_tier* in;
    index_t layer;
    bool ahead;
  };

  index_t layers_;
  std::int64_t all_;      // pages of all layers
  std::int64_t entries_;  // pages of all sequences, and parts
  index_t most_held_;
  pinned_memory pinned_;
  page_requests requests_;
  held_pages held_[std::size_t{holds}];
  std::size_t turn_ = 0;
  std::vector<std::int64_t> held_by_;  // [pages]  the hold that has listed it last; of shared pages one is listed
  std::int64_t held_so_far_ = 0;
  std::vector<layer_to_read> layers_to_read_;  // [layers][2]
};

/// The order of replacement of a tiered placement; any, of others.
template <class Placement>
struct replacement_of {
  using type = cyclic_mru;
};
template <class Placement>
requires requires { typename Placement::order; }
struct replacement_of<Placement> {
  using type = typename Placement::order;
};
template <class Policy, class T>
using file_tier_of = file_tier<T, typename replacement_of<decltype(Policy::placement)>::type>;

/// The first page of a sequence that the step of an item must hold. What is written is after the committed tokens;
/// summaries are made of segments that the device does not know, and of the open one, should it close. An evictor reads
/// everything.
inline index_t first_held_page(const any_policy& policy, const device_item& item, const device_sequence& state) {
  if (policy.evict.observes) return 0;
  index_t first = item.first;
  if (policy.selects) {
    first = (std::min)(first, item.open_begin);
    if (state.known_segments < state.segment_count()) {
      const segment& next = state.segments[static_cast<std::size_t>(state.known_segments)];
      first = (std::min)({first, next.begin, next.cue_begin});
    }
  }
  return first / page_tokens;
}

/// Checks that pinned memory has room for what the step in progress needs. It has taken no pages yet.
/// @throws error(capacity) if not
template <class Core>
void expect_pinned_room(Core& core) {
  if (!core.file) return;
  const shared_writes<device_item, device_sequence> shared{core.host_policy, core.limits,     false,
                                                           core.stock,       core.step.items, core.states};
  std::int64_t held = shared.count(), read = 0;
  for (const device_item& item : core.step.items) {
    const device_sequence& state = core.state_of(item);
    const index_t pages = core.sizes.pages_of(state.slot_end(item.first + item.tokens));
    held += pages - first_held_page(core.host_policy, item, state);
    read += pages;
  }
  core.file->expect_room(held, read * (core.beside ? 2 : 1));
}

/// Enqueues that the pages of the step in progress come and stay.
template <class Core>
void hold_pages(Core& core, stream queue) {
  const bool evicts = core.host_policy.evict.observes;
  const auto each = [&](auto visit) {
    for (const device_item& item : core.step.items) {
      const device_sequence& state = core.state_of(item);
      const index_t slots = state.slots();
      for (index_t at = first_held_page(core.host_policy, item, state); at < item.pages; ++at) {
        const bool written = evicts || at >= slots / page_tokens;
        visit(held_page{state.pages[static_cast<std::size_t>(at)], at >= pages_for(slots), written});
      }
    }
    for (const device_page_copy& copy : core.listed[step_table::first_pass].copies) {
      visit(held_page{copy.from, false, false});
    }
  };
  const auto known = [&](auto visit) {
    for (const device_item& item : core.step.items) visit(item.seq, core.state_of(item).known_segments);
  };
  core.file->hold(core.arrays, each, known, queue);
}

}  // namespace zoomr::inline v0::detail
