// SPDX-License-Identifier: Apache-2.0
// An engine with pages of its own, in any layout and order, and a cache that attends through its block tables: what a
// kv_cache is asked, it answers, so that whatever drives the one drives the other.
#pragma once

#include <support/engine_layout.hpp>
#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/placement/engine_pages.hpp>

#include <algorithm>  // std::fill_n
#include <cstring>    // std::memset
#include <utility>    // std::move
#include <vector>     // std::vector

namespace zoomr_test {

/// The memory of such a pool: all of it is NaN, or no sensible number, until somebody writes there.
template <class T>
class engine_pool_memory {
 public:
  engine_pool_memory(const zoomr::shape& model, zoomr::index_t pages, const engine_layout& lies) {
    const std::int64_t rows = std::int64_t{lies.page_tokens} * model.kv_heads;
    const std::int64_t keys_page = rows * model.head_dim, values_page = rows * model.stored_value_width();
    const std::int64_t key_stride = keys_page + (lies.together ? values_page : 0) + lies.padding;
    const std::int64_t value_stride = lies.together ? key_stride : values_page + lies.padding;
    const auto array = [&](std::int64_t stride) {
      const auto size = static_cast<std::size_t>(zoomr::stored_size<T>(stride * pages));
      arrays_.emplace_back(size);
      std::memset(static_cast<void*>(arrays_.back().data()), 0xff, size * sizeof(T));
      return arrays_.back().data();
    };
    for (zoomr::index_t layer = 0; layer < model.layers; ++layer) {
      T* const first = array(key_stride);
      keys_.push_back(first);
      if (model.values_in_keys) continue;
      values_.push_back(lies.together ? first + zoomr::stored_size<T>(keys_page) : array(value_stride));
    }
    using made = zoomr::engine_memory;
    const zoomr::view<void*const> keys(keys_), values(values_);
    memory = lies.heads_first ? made::hnd(keys, values, pages, lies.page_tokens, model)
                              : made::nhd(keys, values, pages, lies.page_tokens, model);
    memory.page_stride = key_stride, memory.of_values.page = value_stride;
  }

  zoomr::engine_memory memory;

 private:
  std::vector<std::vector<T>> arrays_;
  std::vector<void*> keys_, values_;
};

/// The engine.
template <class T>
class paged_engine {
 public:
  using index_t = zoomr::index_t;
  using cache_type = zoomr::any_kv_cache<T, zoomr::engine_pages>;
  using step_type = typename cache_type::step_type;

  template <class Policy>
  paged_engine(const zoomr::shape& model, const Policy& policy, zoomr::config limits, const engine_layout& lies)
      : per_sequence_(limits.max_tokens / lies.page_tokens + 1),
        held_(zoomr::detail::donor_table::stored_shape(model, limits.donors), per_sequence_ * limits.max_sequences,
              lies),
        tables_(static_cast<std::size_t>(limits.max_sequences)),
        cache_(made(model, zoomr::with_placement(policy, zoomr::engine_pages{}), limits, held_.memory)) {
    // Pages come in no order.
    const index_t pages = held_.memory.pages;
    for (index_t p = 0; p < pages; ++p) free_.insert(free_.begin() + p * 7 % (p + 1), p);
  }

  const zoomr::shape& model() const { return cache_.model(); }
  cache_type& cache() { return cache_; }
  index_t free_pages() const { return static_cast<index_t>(free_.size()); }

  zoomr::sequence open() { return cache_.open(); }
  void close(zoomr::sequence seq) {
    cache_.close(seq);
    shrink(seq, 0);
  }
  void rollback(zoomr::sequence seq, index_t to) {
    cache_.rollback(seq, to);
    shrink(seq, cache_.slots(seq));
  }
  template <class... Turn>
  void erase(zoomr::sequence seq, zoomr::token_range span, const Turn&... turn) {
    shrink(seq, cache_.slots(seq));
    cache_.block_table(seq, zoomr::view<const index_t>(table(seq)));  // a fork may have had no step yet
    const zoomr::token_range gone = cache_.erase(seq, span, turn...);
    std::vector<index_t>& pages = table(seq);
    free_.insert(free_.end(), pages.begin() + gone.first, pages.begin() + gone.last);
    pages.erase(pages.begin() + gone.first, pages.begin() + gone.last);
  }
  template <class... Turn>
  void shift(zoomr::sequence seq, zoomr::token_range span, index_t distance, const Turn&... turn) {
    cache_.block_table(seq, zoomr::view<const index_t>(table(seq)));
    cache_.shift(seq, span, distance, turn...);
  }
  /// This engine shares no pages: it copies them.
  zoomr::sequence fork(zoomr::sequence from) {
    const zoomr::sequence made = cache_.fork(from);
    copy_pages(from, made);
    return made;
  }
  void fork(zoomr::sequence from, zoomr::sequence into) {
    cache_.fork(from, into);
    if (from == into) return;
    shrink(into, 0);
    copy_pages(from, into);
  }
  void plan(zoomr::view<const zoomr::step_item> items, zoomr::view<index_t> taken) const { cache_.plan(items, taken); }

  void save(zoomr::sequence seq, zoomr::byte_sink& to) {
    cache_.block_table(seq, zoomr::view<const index_t>(table(seq)));  // a fork may have had no step yet
    cache_.save(seq, to);
  }
  /// With as many pages as any sequence can need; those that it does not are given back.
  zoomr::sequence load(zoomr::byte_source& from) {
    std::vector<index_t> pages(free_.rbegin(), free_.rbegin() + per_sequence_);
    const zoomr::sequence made = cache_.load(from, zoomr::view<const index_t>(pages));
    free_.resize(free_.size() - pages.size());
    table(made) = pages;
    shrink(made, cache_.slots(made));
    return made;
  }

  step_type begin(zoomr::view<const zoomr::step_item> items) {
    std::vector<zoomr::step_item> with_pages(items.begin(), items.end());
    told_.clear(), told_.reserve(with_pages.size());
    for (zoomr::step_item& item : with_pages) {
      const bool open = item.seq.id >= 0 && item.seq.id < static_cast<index_t>(tables_.size()) && is_open(item.seq);
      if (!open) continue;  // the cache refuses it
      shrink(item.seq, cache_.slots(item.seq));
      grow(item.seq, std::min(cache_.slots(item.seq) + item.ids.size(), per_sequence_ * held_.memory.page_tokens));
      item.pages = zoomr::view<const index_t>(table(item.seq));
      if (!takes_back) continue;
      told_.push_back(table(item.seq));
      const index_t passed = cache_.passed_slots(item.seq) / held_.memory.page_tokens;
      std::fill_n(told_.back().begin(), passed, -1);
      item.pages = zoomr::view<const index_t>(told_.back());
    }
    return cache_.begin(zoomr::view<const zoomr::step_item>(with_pages));
  }

  /// Where the engine itself writes.
  zoomr::engine_kv_lane<T> writable_kv_lane(zoomr::sequence seq, index_t layer, index_t kv_head) {
    return zoomr::engine_pool<T>(cache_.model(), held_.memory)
        .kv_lane(layer, kv_head, zoomr::view<const index_t>(table(seq)));
  }

  index_t tokens(zoomr::sequence seq) const { return cache_.tokens(seq); }
  index_t model_position(zoomr::sequence seq, index_t position) const { return cache_.model_position(seq, position); }
  auto segments(zoomr::sequence seq) const { return cache_.segments(seq); }
  const zoomr::statistics& stats(zoomr::sequence seq) const { return cache_.stats(seq); }
  zoomr::memory_use bytes(zoomr::sequence seq) const { return cache_.bytes(seq); }
  const zoomr::selection_row& selected(zoomr::sequence seq, index_t row) const { return cache_.selected(seq, row); }
  void trace(zoomr::attention_trace* into) { cache_.trace(into); }

  bool takes_back = false;  // pages that a window has passed: the tables that the cache is told do not name them

 private:
  template <class Policy>
  static cache_type made(const zoomr::shape& model, const Policy& policy, zoomr::config limits,
                         const zoomr::engine_memory& memory) {
    limits.engine = memory;
    return zoomr::kv_cache<Policy, T>(model, policy, limits);
  }

  bool is_open(zoomr::sequence seq) const {
    try {
      cache_.tokens(seq);
      return true;
    } catch (const zoomr::precondition_error&) {
      return false;
    }
  }
  // All that a sequence holds, to pages of another one.
  void copy_pages(zoomr::sequence from, zoomr::sequence made) {
    const index_t slots = cache_.slots(from);
    grow(made, slots);
    const zoomr::shape& model = cache_.model();
    const auto pages = [&](zoomr::sequence of) { return zoomr::view<const index_t>(table(of)); };
    zoomr::engine_pool<T> pool(model, held_.memory);
    for (index_t kv_lane = 0; kv_lane < model.kv_lanes(); ++kv_lane) {
      const index_t layer = kv_lane / model.kv_heads, kv_head = kv_lane % model.kv_heads;
      const auto source = pool.kv_lane(layer, kv_head, pages(from)), goal = pool.kv_lane(layer, kv_head, pages(made));
      for (index_t slot = 0; slot < slots; ++slot) {
        std::copy_n(source.key(slot), zoomr::stored_size<T>(model.head_dim), goal.key(slot));
        std::copy_n(source.value(slot), zoomr::stored_size<T>(model.value_width()), goal.value(slot));
      }
    }
  }
  std::vector<index_t>& table(zoomr::sequence seq) { return tables_[static_cast<std::size_t>(seq.id)]; }
  void grow(zoomr::sequence seq, index_t slots) {
    while (static_cast<index_t>(table(seq).size()) < held_.memory.pages_for(slots)) {
      table(seq).push_back(free_.back());
      free_.pop_back();
    }
  }
  void shrink(zoomr::sequence seq, index_t slots) {
    while (static_cast<index_t>(table(seq).size()) > held_.memory.pages_for(slots)) {
      free_.push_back(table(seq).back());
      table(seq).pop_back();
    }
  }

  index_t per_sequence_;
  engine_pool_memory<T> held_;
  std::vector<std::vector<index_t>> tables_;  // [sequences]
  std::vector<index_t> free_;
  std::vector<std::vector<index_t>> told_;  // of the step that begins
  cache_type cache_;
};

}  // namespace zoomr_test
