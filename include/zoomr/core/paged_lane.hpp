// SPDX-License-Identifier: Apache-2.0
// L1. Where keys and values lie: pages of 16 tokens. It owns nothing.
#pragma once

#include <zoomr/core/view.hpp>

namespace zoomr {
inline namespace v0 {

inline constexpr index page_tokens = 16;

/// Pages that hold `tokens` tokens.
constexpr index pages_for(index tokens) { return tokens / page_tokens + (tokens % page_tokens != 0 ? 1 : 0); }

/// One lane's keys and values, by slot.
template <class T>
struct paged_lane {
  using number = T;

  T* base = nullptr;              // the lane's keys in page 0 of its layer
  std::int64_t page_stride = 0;   // elements from page to page
  std::int64_t value_offset = 0;  // elements from a key to its value
  index head_dim = 0;
  view<const index> pages;  // [pages of the sequence] ids in the pool

  T* key(index slot) const {
    return base + pages[slot / page_tokens] * page_stride + static_cast<std::int64_t>(slot % page_tokens) * head_dim;
  }
  T* writable_key(index slot) const { return key(slot); }
  T* value(index slot) const { return key(slot) + value_offset; }
};

}  // namespace v0
}  // namespace zoomr
