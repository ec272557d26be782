// SPDX-License-Identifier: Apache-2.0
// L6. The way of a step's tables to the device. A copy reads its pinned memory when the device comes to it, which may
// be long after it was enqueued: after each copy stands an event, and the host writes there no more before it has seen
// that event.
//
// `begin` checks `ready` for the three tables of a step, `upload` packs and sends them, each at most once; the end of
// the step moves on. Constants, which a cache gets when it is made, go the same way, in memory of their own.
#pragma once

#include <zoomr/cache/device/memory/layout.cuh>
#include <zoomr/core/device/streams.cuh>

#include <cstring>  // std::memcpy
#include <deque>    // std::deque
#include <utility>  // std::exchange
#include <vector>   // std::vector

namespace zoomr::inline v0::detail {

/// Copies of the constants that a cache gets when it is made: from pinned memory of its own, so that the caller's may
/// change or go as soon as the constructor returns. What CUDA does with memory that is not pinned depends on the
/// machine.
class constant_copies {
 public:
  constant_copies() = default;
  constant_copies(const constant_copies&) = delete;
  constant_copies& operator=(const constant_copies&) = delete;
  /// Waits for the copies that are under way.
  ~constant_copies() { copied_.settle(); }

  /// @throws error(device) without as much pinned memory
  template <class Number>
  void copy(Number* to, const std::vector<Number>& from, stream_ref stream) {
    if (from.empty()) return;
    const std::size_t bytes = from.size() * sizeof(Number);
    void* const pinned = memory_.emplace_back(static_cast<byte_count>(bytes)).data();
    std::memcpy(pinned, from.data(), bytes);
    copy_to_device(to, pinned, static_cast<byte_count>(bytes), stream);
    copied_.record(stream);
  }

 private:
  std::deque<pinned_memory> memory_;
  stream_event copied_;  // after the last one
};

/// Copies the sinks and slopes of the model's logits to the device.
template <class Core>
void copy_logits(Core& core, stream_ref stream) {
  const logit_rule& rule = core.limits.logits;
  std::vector<float> sinks;  // [layers, heads]
  for (index_t layer = 0; layer < rule.sinks.extent(0); ++layer) {
    const view<const float> row = rule.sinks[layer];
    sinks.insert(sinks.end(), row.begin(), row.end());
  }
  core.constants.copy(core.arrays.sinks, sinks, stream);
  const std::vector<float> slopes(rule.alibi_slopes.begin(), rule.alibi_slopes.end());
  core.constants.copy(core.arrays.slopes, slopes, stream);
}

/// Pinned memory for the tables of a few steps, which is used in turn.
class table_ring {
 public:
  static constexpr index_t steps = 4;  // whose copies may be waiting

  /// @throws error(device) without pinned memory for 12 tables, or without events
  explicit table_ring(const device_sizes& sizes) : pinned_(steps * step_tables * room(sizes)) {
    auto* from = static_cast<std::byte*>(pinned_.data());
    for (auto& step : slots_) {
      for (slot& table_slot : step.values) table_slot.packed = std::exchange(from, from + room(sizes));
    }
  }
  table_ring(const table_ring&) = delete;
  table_ring& operator=(const table_ring&) = delete;
  /// Waits for the copies that are under way.
  ~table_ring() {
    for (auto& step : slots_) {
      for (slot& table_slot : step.values) {
        if (table_slot.under_way) table_slot.copied.settle();
      }
    }
  }

  /// True if there is room for the tables of the next step: those of the step that had it before are copied.
  /// @throws error(device) if something that was enqueued before has failed
  bool ready() {
    bool all_free = true;
    for (slot& table_slot : current().values) all_free = table_slot.is_free() && all_free;
    return all_free;
  }
  /// Waits until there is.
  void wait() {
    for (slot& table_slot : current().values) table_slot.await();
  }

  /// Packs a table of the step in progress, and enqueues its copy. Outside of a capture: a graph would copy from here
  /// again whenever it is launched.
  /// @cost  a copy of what the lists hold, and an event
  void upload(step_table table, const table_lists& lists, const device_table& to, stream_ref stream) {
    slot& from = current()[table];
    lists.pack(from.packed);
    copy_to_device(reinterpret_cast<std::byte*>(to.counts), from.packed, table_lists::bytes(lists.counts()), stream);
    from.under_way = true;
    from.copied.record(stream);
  }

  /// The step is over.
  void advance() { current_ = (current_ + 1) % steps; }

 private:
  // Of a table that was never uploaded, as that of a dropped step, the memory is free at once.
  struct slot {
    std::byte* packed = nullptr;
    stream_event copied;     // after the last copy
    bool under_way = false;  // that copy has not been seen to be made

    bool is_free() {
      if (under_way && copied.done()) under_way = false;
      return !under_way;
    }
    void await() {
      if (under_way) copied.wait();
      under_way = false;
    }
  };
  using tables_of_step = step_table_values<slot>;

  static byte_count room(const device_sizes& sizes) { return table_lists::bytes(sizes.most_listed()); }
  tables_of_step& current() { return slots_[current_]; }

  pinned_memory pinned_;
  tables_of_step slots_[std::size_t{steps}];
  std::size_t current_ = 0;
};

}  // namespace zoomr::inline v0::detail
