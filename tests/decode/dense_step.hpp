// SPDX-License-Identifier: Apache-2.0
// Causal attention over everything that a layer sees, in double precision and plain loops: what any policy must
// equal when its budget leaves nothing out.
#pragma once

#include <algorithm>  // std::max
#include <cmath>      // std::sqrt
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

#include <zoomr/core/view.hpp>

#include "../support/naive_attention.hpp"
#include "config.hpp"

namespace decode {

/// Keeps all keys and values of one sequence; serves as the `Step` of model::forward.
class dense_step {
 public:
  using tensor = zoomr::view<const float, 3>;

  dense_step() = default;
  /// With the scale and the windows of a model.
  explicit dense_step(const model_config& c) : config_(c) {}

  void append(zoomr::index_t layer, tensor k, tensor v) {  // [tokens, kv_heads, head_dim]
    const auto l = static_cast<std::size_t>(layer);
    keys_.resize(std::max(keys_.size(), l + 1));
    values_.resize(keys_.size());
    const auto size = static_cast<std::ptrdiff_t>(k.extent(0)) * k.extent(1) * k.extent(2);
    keys_[l].insert(keys_[l].end(), k.data(), k.data() + size);
    values_[l].insert(values_[l].end(), v.data(), v.data() + size);
    kv_heads_ = k.extent(1);
  }

  void attend(zoomr::index_t layer, tensor q, zoomr::view<float, 3> out) const {  // [tokens, heads, head_dim]
    const zoomr::index_t tokens = q.extent(0), heads = q.extent(1), dims = q.extent(2);
    const auto l = static_cast<std::size_t>(layer), donor = config_.donors.empty() ? l : config_.donors[l];
    const std::vector<float>&keys = keys_[donor], &values = values_[donor];
    const auto all = static_cast<zoomr::index_t>(keys.size()) / (kv_heads_ * dims);
    for (zoomr::index_t t = 0; t < tokens; ++t) {
      const zoomr::index_t seen = all - tokens + t + 1;
      const zoomr::index_t first =
          config_.has_window(l) ? std::max(0, seen - static_cast<zoomr::index_t>(config_.window)) : 0;
      for (zoomr::index_t head = 0; head < heads; ++head) {
        const auto at = [&](zoomr::index_t token) { return (token * kv_heads_ + head / (heads / kv_heads_)) * dims; };
        const auto logit = [&](zoomr::index_t i) {
          const double dot = zoomr_test::naive_dot(dims, &q(t, head, 0), keys.data() + at(first + i));
          return config_.attention_scale > 0 ? dot * config_.attention_scale : dot / std::sqrt(double(dims));
        };
        const auto value = [&](zoomr::index_t i) { return values.data() + at(first + i); };
        const auto exact = zoomr_test::naive_attention(seen - first, dims, logit, value);
        for (zoomr::index_t d = 0; d < dims; ++d)
          out(t, head, d) = static_cast<float>(exact.out[static_cast<std::size_t>(d)]);
      }
    }
  }

 private:
  model_config config_;
  std::vector<std::vector<float>> keys_, values_;  // [layers][tokens * kv_heads * head_dim]
  zoomr::index_t kv_heads_ = 1;
};

}  // namespace decode
