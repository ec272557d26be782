// SPDX-License-Identifier: Apache-2.0
// L6. Choices that stay active, on their way between a host's cache and a device's (sequence_move.cuh). The host has
// them in a log of words, the device each in a place of the sequence's ring.
#pragma once

#include <zoomr/cache/device/core.cuh>
#include <zoomr/cache/host/core.hpp>
#include <zoomr/core/device/streams.cuh>

#include <algorithm>  // std::copy, std::copy_n, std::min
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Both caches, and the choices of one sequence.
template <class Policy, class T>
class choice_move {
 protected:
  using device_type = device_core<Policy, T>;
  using host_type = cache_core<page_pool<T>>;

  choice_move(host_type& host, device_type& device, stream_ref stream)
      : host_(host), device_(device), stream_(stream) {}

  void choices_to_host(const device_sequence& from, sequence_state& to) {
    const index_t rows = device_.sizes.place_rows;
    to.active_selection.clear();
    to.log.clear();
    if (!device_.sizes.persists) return;
    std::vector<selection_row> of_choice(static_cast<std::size_t>(rows));
    std::vector<level> levels(room_of_levels());
    for (const placed_choice& choice : from.choices) {
      const std::int64_t first = std::int64_t{choice.place} * rows;
      enqueue(of_choice.data(), device_.arrays.rows + first, rows);
      enqueue(levels.data(), device_.arrays.levels_of(first, 0).data(), static_cast<std::int64_t>(levels.size()));
      wait();
      for (index_t r = first_chosen_row(); r < rows; ++r) {
        const selection_row& source = of_choice[static_cast<std::size_t>(r)];
        selection_row& row = to.active_selection.renew(r, source.levels.size());
        std::copy_n(levels.begin() + std::int64_t{r} * device_.sizes.segments, row.levels.size(), row.levels.begin());
        row.cut_segment = source.cut_segment;
        row.cut_tokens = source.cut_tokens;
      }
      to.log.push(choice.position, to.active_selection, level::summary);
    }
    if (from.dropped) to.log.mark_dropped();
  }

  void choices_to_device(sequence_state& from, device_sequence& to, index_t id) {
    to.choices.clear();
    to.dropped = false;
    if (!device_.sizes.persists) return;
    const index_t rows = device_.sizes.place_rows, ring = device_.sizes.ring;
    selection scratch(rows, host_.sizes.most_segments);
    index_t entries = 0;
    from.log.each(scratch, level::summary, [&](index_t) { ++entries; });
    const index_t used = (std::min)(entries, ring - 1);
    to.choices.resize(static_cast<std::size_t>(used));
    to.dropped = from.log.dropped() || used < entries;
    std::vector<selection_row> of_choice(static_cast<std::size_t>(rows));
    std::vector<level> levels(room_of_levels());
    index_t at = used;
    from.log.each(scratch, level::summary, [&](index_t position) {
      if (at == 0) return;
      placed_choice& choice = to.choices[static_cast<std::size_t>(--at)];
      choice = {position, id * ring + at};
      const std::int64_t first = std::int64_t{choice.place} * rows;
      for (index_t r = first_chosen_row(); r < rows; ++r) {
        const selection_row& row = scratch.row(r);
        std::copy(row.levels.begin(), row.levels.end(), levels.begin() + std::int64_t{r} * device_.sizes.segments);
        of_choice[static_cast<std::size_t>(r)] = {device_.arrays.levels_of(first + r, row.levels.size()),
                                                  row.cut_segment, row.cut_tokens};
      }
      enqueue(device_.arrays.rows + first, of_choice.data(), rows);
      enqueue(device_.arrays.levels_of(first, 0).data(), levels.data(), static_cast<std::int64_t>(levels.size()));
      wait();
    });
  }

  template <class To, class From>
  void enqueue(To* to, const From* from, std::int64_t count) const {
    static_assert(sizeof(To) == sizeof(From));
    if (count > 0) copy_anywhere(to, from, count * static_cast<byte_count>(sizeof(To)), stream_);
  }
  void wait() {
    done_.record(stream_);
    done_.wait();
  }

  host_type& host_;
  device_type& device_;
  stream_ref stream_;

 private:
  // Of one place: [place_rows][segments].
  std::size_t room_of_levels() const {
    return static_cast<std::size_t>(device_.sizes.place_rows) * static_cast<std::size_t>(device_.sizes.segments);
  }
  // Layers that never choose have rows, where each layer has its own; nothing writes them.
  index_t first_chosen_row() const {
    const bool for_all = device_.policy.aggregate.per == scope::sequence;
    return for_all ? 0 : device_.policy.zone.dense_layers * device_.sizes.layer_rows;
  }

  stream_event done_;
};

}  // namespace zoomr::inline v0::detail
