// SPDX-License-Identifier: Apache-2.0
// L6. The pinned tables that steps are planned in, and their way to the device. A copy reads its table when the device
// comes to it, which may be long after it was enqueued: behind each copy stands an event, and the host writes no table
// before it has seen that event.
//
// `begin` asks `ready` before it writes table 0; `needs_second_pass` and `commit` write the other two of the same step,
// which are as free; `upload` sends them, each at most once; the end of the step moves on.
#pragma once

#include <zoomr/cache/device/layout.cuh>
#include <zoomr/core/streams.cuh>

namespace zoomr {
inline namespace v0 {
namespace detail {

/// The tables of a few steps, which are used in turn.
class table_ring {
 public:
  static constexpr index_t of_step = 3;  // first pass, second pass, what the commit lists
  static constexpr index_t steps = 4;    // whose copies may be waiting

  /// @throws error(device) without pinned memory for 12 tables, or without events
  explicit table_ring(const device_sizes& sizes) : bytes_(bytes_of_table(sizes)), pinned_(steps * of_step * bytes_) {
    carver from(pinned_.data());
    for (auto& step : slots_) {
      for (slot& each : step) each.table = carve_table(from, sizes);
    }
  }
  table_ring(const table_ring&) = delete;
  table_ring& operator=(const table_ring&) = delete;
  /// Waits for the copies that are under way.
  ~table_ring() {
    for (auto& step : slots_) {
      // a device that has failed copies nothing any more
      for (slot& each : step) ignoring_failures([&] { each.await(); });
    }
  }

  /// True if the host may write the tables of the next step: those of the step that had them before are copied.
  /// @throws error(device) if something that was enqueued before has failed
  bool ready() {
    bool all = true;
    for (slot& each : now()) all = each.is_free() && all;
    return all;
  }
  /// Waits until they are.
  void wait() {
    for (slot& each : now()) each.await();
  }

  /// Table `t` of the step in progress; a pointer to its lists holds good for as long as the ring does.
  const device_table& at(index_t t) const { return slots_[now_][static_cast<std::size_t>(t)].table; }

  /// Enqueues the copy of table `t`. Outside of a capture: a graph would copy from here again whenever it is launched,
  /// and nobody could tell when. The table must not change until `ready` has said so of its step.
  /// @cost  a copy of bytes_of_table(...) bytes, however few entries are in use, and an event
  void upload(index_t t, const device_table& to, stream on) {
    slot& from = now()[static_cast<std::size_t>(t)];
    copy_to_device(to.counts, from.table.counts, bytes_, on);
    from.under_way = true;
    from.copied.record(on);
  }

  /// The step is over.
  void advance() { now_ = (now_ + 1) % steps; }

  /// Of one table, on the host and on the device.
  static byte_count bytes_of_table(const device_sizes& of) {
    carver count;
    carve_table(count, of);
    return count.used();
  }

 private:
  // A table that was never uploaded, as that of a dropped step, is free at once.
  struct slot {
    device_table table;
    stream_event copied;     // behind the last copy
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
  using tables_of_step = slot[std::size_t{of_step}];

  tables_of_step& now() { return slots_[now_]; }

  byte_count bytes_;
  pinned_memory pinned_;
  tables_of_step slots_[std::size_t{steps}];
  std::size_t now_ = 0;
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
