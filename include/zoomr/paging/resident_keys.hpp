// SPDX-License-Identifier: Apache-2.0
// L3. Keys that must be at hand while their pages may be anywhere, or that are read often and may be rounded: a second
// copy of some KV lanes, in one memory.
#pragma once

#include <zoomr/core/buffer.hpp>
#include <zoomr/paging/stored_rows.hpp>

#include <algorithm>  // std::copy_n, std::min

namespace zoomr::inline v0 {

/// Keys as they are stored, with the scales of their rows where they have any, or rounded to blocks of q8_0:
/// [page][KV lane][16][width]. Pages have the numbers of a pool beside it, so that the page table of a sequence serves
/// for its keys here too; forks share them, and a page that no table names holds nothing. Whoever writes or copies a
/// key in the pool does so here.
template <class T>
class resident_keys {
 public:
  resident_keys() = default;
  /// @param blocks  they are rounded to q8_0; `width` is a multiple of 32
  resident_keys(index_t lanes, index_t width, index_t pages, bool blocks)
      : lanes_(lanes),
        width_(width),
        stored_(blocks ? 0 : std::int64_t{pages} * page_numbers<T>()),
        rounded_(blocks ? std::int64_t{pages} * page_numbers<q8_0>() : 0) {}

  static byte_count page_bytes(index_t lanes, index_t width, bool blocks) {
    return std::int64_t{lanes} * (blocks ? head_numbers<q8_0>(width) * static_cast<byte_count>(sizeof(q8_0))
                                         : head_numbers<T>(width) * static_cast<byte_count>(sizeof(T)));
  }
  static byte_count bytes(index_t lanes, index_t width, index_t pages, bool blocks) {
    return bounded_product({pages, page_bytes(lanes, width, blocks)});
  }

  /// Products of queries with the keys of adjacent slots, as those of `detail::key_products`. Rounded keys are widened
  /// first, so that no kernel is compiled for them alone.
  /// @param lane     [0, lanes)
  /// @param pages    the sequence's page table
  /// @param queries  [queries, width]
  /// @param first    the first slot of 16
  /// @param out      [queries, slots]  of up to 16
  void products(index_t lane, view<const index_t> pages, view<const float, 2> queries, index_t first,
                view<float, 2> out) {
    if (rounded_.size() == 0) return detail::key_products(kv_lane(stored_, lane, pages), queries, first, out);
    constexpr index_t at_once = 4;
    float numbers[std::size_t{at_once * shape::most_head_dim}];
    const paged_kv_lane<q8_0> keys = rounded(lane, pages);
    for (index_t t = 0; t < out.extent(1); t += at_once) {
      const index_t count = (std::min)(at_once, out.extent(1) - t);
      for (index_t i = 0; i < count; ++i) {
        detail::read_row(keys.key(first + t + i), first + t + i, 1.0f, {numbers + i * width_, {width_}});
      }
      const view<float, 2> products(&out(0, t), {queries.extent(0), count}, {out.stride(0), 1});
      detail::products(fastest_cpu_path(), queries, numbers, width_, products);
    }
  }
  /// One KV lane of rounded keys.
  paged_kv_lane<q8_0> rounded(index_t lane, view<const index_t> pages) { return kv_lane(rounded_, lane, pages); }
  /// Keeps the key of a slot.
  /// @param key  as it is stored in the pool
  void keep(index_t lane, view<const index_t> pages, index_t slot, const T* key) {
    if (rounded_.size() == 0) {
      detail::copy_row(key, slot, kv_lane(stored_, lane, pages).key(slot), slot, width_);
      return;
    }
    float numbers[shape::most_head_dim];
    const view<float> row(numbers, {width_});
    detail::read_row(key, slot, 1.0f, row);
    detail::store_row(view<const float>(row), 1.0f, rounded(lane, pages).key(slot), slot);
  }
  void copy_page(index_t from, index_t to) {
    copy_page(stored_, from, to);
    copy_page(rounded_, from, to);
  }

 private:
  template <class Number>
  std::int64_t page_numbers() const {
    return lanes_ * head_numbers<Number>(width_);
  }
  template <class Number>
  paged_kv_lane<Number> kv_lane(buffer<Number>& memory, index_t lane, view<const index_t> pages) {
    return {memory.data() + lane * head_numbers<Number>(width_),
            page_numbers<Number>(),
            {width_, 0, stored_size<Number>(width_), 0, 0},
            pages};
  }
  template <class Number>
  void copy_page(buffer<Number>& memory, index_t from, index_t to) {
    if (memory.size() == 0) return;
    const std::int64_t numbers = page_numbers<Number>();
    std::copy_n(memory.data() + from * numbers, numbers, memory.data() + to * numbers);
  }

  index_t lanes_ = 0;
  index_t width_ = 0;
  buffer<T> stored_;
  buffer<q8_0> rounded_;
};

}  // namespace zoomr::inline v0
