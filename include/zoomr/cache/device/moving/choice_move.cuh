// SPDX-License-Identifier: Apache-2.0
// L6. Choices that stay active, on their way between a host's cache and a device's (moving.cuh). The host has them in a
// log of words, the device each in a place of the sequence's ring.
#pragma once

#include <zoomr/cache/device/core.cuh>
#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/saving/saved_parts.hpp>
#include <zoomr/core/device/streams.cuh>

#include <algorithm>  // std::copy, std::copy_n, std::max, std::min
#include <cstring>    // std::memcmp
#include <utility>    // std::exchange
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Both caches, and the choices of one sequence.
template <class Policy, class T>
class choice_move {
 protected:
  using device_type = device_core<Policy, T>;
  using host_type = cache_core<page_pool<T>>;

  choice_move(host_type& host, device_type& device, stream queue) : host_(host), device_(device), queue_(queue) {}

  void choices_to_host(const device_sequence& from, const remembered_parts& parts, sequence_state& to) {
    const index_t rows = device_.sizes.place_rows;
    to.active_selection.clear();
    to.log.clear();
    if (!device_.sizes.persists) return;
    references(from.choices, parts, to, [&](const float* of_device, float* of_host, std::int64_t count) {
      this->enqueue(of_host, of_device, count);
    });
    std::vector<float> queries, queries_before;
    std::vector<selection_row> of_choice(static_cast<std::size_t>(rows));
    std::vector<level> levels(room_of_levels());
    for (const placed_choice& choice : from.choices) {
      // Where nothing has drifted a device copies the choice before, a host keeps it.
      if (device_.sizes.drifts) {
        queries.resize(static_cast<std::size_t>(asked_numbers()));
        enqueue(queries.data(), asked_at(choice), asked_numbers());
        wait();
        if (same_bits(std::exchange(queries_before, queries), queries)) continue;
      }
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

  void choices_to_device(sequence_state& from, const remembered_parts& parts, device_sequence& to, index_t id) {
    to.choices.clear();
    to.dropped = false;
    if (!device_.sizes.persists) return;
    const index_t rows = device_.sizes.place_rows, ring = device_.sizes.ring;
    selection scratch(rows, host_.sizes.most_segments);
    // Where choices depend on drift, those whose queries no record has any more are left: no rollback comes to them.
    index_t entries = 0, known = 0, next = unlimited;
    from.log.each(scratch, level::summary, [&](index_t position) {
      ++entries;
      known += !device_.sizes.drifts || next > parts.records.first ? 1 : 0;
      next = position;
    });
    const index_t used = (std::min)(known, ring - 1);
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
    references(to.choices, parts, from, [&](float* of_device, const float* of_host, std::int64_t count) {
      this->enqueue(of_device, of_host, count);
    });
  }

  template <class To, class From>
  void enqueue(To* to, const From* from, std::int64_t count) const {
    static_assert(sizeof(To) == sizeof(From));
    if (count > 0) copy_anywhere(to, from, count * static_cast<byte_count>(sizeof(To)), queue_);
  }
  void wait() {
    done_.record(queue_);
    done_.wait();
  }

  host_type& host_;
  device_type& device_;
  stream queue_;

 private:
  // A host remembers with each token the query of the choice that was active then, a device with each choice its own.
  // visit(on the device, on the host, numbers) of the layers that choose.
  template <class Visit>
  void references(const std::vector<placed_choice>& choices, const remembered_parts& parts, sequence_state& of_host,
                  Visit visit) const {
    if (!device_.sizes.drifts) return;
    const index_t part = reference_part(host_.policy, host_.sizes), first = device_.policy.zone.dense_layers;
    for (std::size_t c = 0; c < choices.size(); ++c) {
      const index_t end = c + 1 < choices.size() ? choices[c + 1].position : parts.records.last;
      for (index_t p = (std::max)(choices[c].position, parts.records.first); p < end; ++p) {
        visit(asked_at(choices[c]), of_host.queries.at(p, part, first).data(), asked_numbers());
      }
    }
  }
  float* asked_at(const placed_choice& choice) const {
    return device_.arrays.reference_of(choice.place, device_.policy.zone.dense_layers).data();
  }
  std::int64_t asked_numbers() const {
    return (device_.sizes.model.layers - device_.policy.zone.dense_layers) * device_.sizes.query_numbers();
  }

  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }

  // Of one place: [place_rows][segments].
  std::size_t room_of_levels() const {
    return static_cast<std::size_t>(device_.sizes.place_rows) * static_cast<std::size_t>(device_.sizes.segments);
  }
  // Layers that never choose have rows, where each layer has its own; nothing writes them.
  index_t first_chosen_row() const {
    const bool for_all = device_.host_policy.aggregate.per == scope::sequence;
    return for_all ? 0 : device_.policy.zone.dense_layers * device_.sizes.layer_rows;
  }

  stream_event done_;
};

}  // namespace zoomr::inline v0::detail
