// SPDX-License-Identifier: Apache-2.0
// An engine with pages of its own on a device, in any layout and order, and a device cache that attends there.
#pragma once

#include <cache/device/device_driving.hpp>
#include <support/engine_layout.hpp>
#include <zoomr/policy/placement/engine_pages.hpp>

namespace zoomr_test {

/// An engine's pool on the device.
class engine_arrays {
 public:
  engine_arrays(const shape& of, index_t pages, const engine_layout& lies) {
    const std::int64_t page = std::int64_t{lies.page_tokens} * of.kv_heads * of.head_dim;
    const std::int64_t stride = page * (lies.together && !of.values_in_keys ? 2 : 1) + lies.padding;
    for (index_t layer = 0; layer < of.layers; ++layer) {
      const auto array = [&] {
        arrays_.push_back(std::make_unique<device_array<float>>(stride * pages, zoomr::not_a_number));
        return arrays_.back()->data();
      };
      keys_.push_back(array());
      if (of.values_in_keys) continue;
      values_.push_back(lies.together ? static_cast<float*>(keys_.back()) + page : array());
    }
    using made = zoomr::engine_memory;
    const view<void*const> keys(keys_), values(values_);
    memory = lies.heads_first ? made::hnd(keys, values, pages, lies.page_tokens, of)
                              : made::nhd(keys, values, pages, lies.page_tokens, of);
    memory.page_stride = stride, memory.of_values = {};
  }

  zoomr::engine_memory memory;
  std::vector<std::unique_ptr<device_array<float>>> arrays_;

 private:
  std::vector<void*> keys_, values_;
};

inline constexpr engine_layout layouts[] = {
    {16, false, false, 0}, {16, true, true, 8}, {1, false, false, 0}, {64, true, false, 4}, {2, false, true, 0},
};
/// Of the engines that are made from now on.
inline engine_layout layout_of_engines = layouts[0];

/// A device cache in the pages of an engine whose allocator gives them in no order, and now and then moves a sequence.
template <class Policy, index_t HeadDim = 8, class Values = zoomr::values_apart<HeadDim>>
class device_engine : cache_holder<std::unique_ptr<engine_arrays>>,
                      public device_as_host<decltype(with_placement(Policy{}, zoomr::engine_pages{})), float, HeadDim,
                                            2, float, Values> {
  using held = cache_holder<std::unique_ptr<engine_arrays>>;
  using placed = decltype(with_placement(Policy{}, zoomr::engine_pages{}));
  using base = device_as_host<placed, float, HeadDim, 2, float, Values>;

 public:
  device_engine(const shape& of, const Policy& policy, zoomr::config limits)
      : held{std::make_unique<engine_arrays>(of, pages_of(limits), layout_of_engines)},
        base(of, with_placement(policy, zoomr::engine_pages{}), in(limits, held::cache->memory)),
        tables_(static_cast<std::size_t>(limits.max_sequences)) {
    for (index_t p = 0; p < held::cache->memory.pages; ++p) free_.insert(free_.begin() + p * 7 % (p + 1), p);
  }

  engine_arrays& pool() { return *held::cache; }
  const std::vector<index_t>& table(zoomr::sequence seq) const { return tables_[static_cast<std::size_t>(seq.id)]; }

  auto begin(view<const zoomr::step_item> items) {
    std::vector<zoomr::step_item> with_pages(items.begin(), items.end());
    for (zoomr::step_item& item : with_pages) {
      auto& pages = tables_[static_cast<std::size_t>(item.seq.id)];
      const index_t needed = pool().memory.pages_for(base::tokens(item.seq) + item.ids.size());
      for (; static_cast<index_t>(pages.size()) < needed; free_.pop_back()) pages.push_back(free_.back());
      item.pages = view<const index_t>(pages);
    }
    return base::begin(view<const zoomr::step_item>(with_pages));
  }

 private:
  static index_t pages_of(const zoomr::config& limits) {
    return limits.max_sequences * (limits.max_tokens / layout_of_engines.page_tokens + 2);
  }
  static zoomr::config in(zoomr::config limits, const zoomr::engine_memory& memory) {
    limits.engine = memory;
    return limits;
  }

  std::vector<std::vector<index_t>> tables_;
  std::vector<index_t> free_;
};

}  // namespace zoomr_test
