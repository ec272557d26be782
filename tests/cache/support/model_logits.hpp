// SPDX-License-Identifier: Apache-2.0
// What models do to their logits, as configs of a cache: each by itself, and all together.
#pragma once

#include <support/inputs.hpp>
#include <zoomr/cache/config.hpp>

#include <cmath>    // std::exp2
#include <string>   // std::string
#include <utility>  // std::move
#include <vector>   // std::vector

namespace zoomr_test {

/// A rule with its tables.
class model_rule {
 public:
  /// @param sink  logits of sinks lie up to 2 below this
  model_rule(std::string what, const shape& of, float scale, float soft_cap, bool sinks, bool slopes, float sink = 1.0f)
      : name(std::move(what)), rule_{scale, soft_cap, {}, {}} {
    dice random(static_cast<std::uint64_t>(of.heads));
    for (index_t i = 0; sinks && i < of.layers * of.heads; ++i) {
      sinks_.push_back(i == 1 ? -zoomr::infinity : sink - 0.01f * static_cast<float>(random.between(0, 200)));
    }
    for (index_t head = 0; slopes && head < of.heads; ++head) {  // as ALiBi has them
      slopes_.push_back(std::exp2(-8.0f * static_cast<float>(head + 1) / static_cast<float>(of.heads)));
    }
    layers_ = of.layers;
  }

  /// The tables are this object's.
  zoomr::logit_rule rule() const {
    zoomr::logit_rule made = rule_;
    const auto heads = static_cast<index_t>(sinks_.size()) / layers_;
    if (!sinks_.empty()) made.sinks = zoomr::view<const float, 2>(sinks_.data(), {layers_, heads});
    if (!slopes_.empty()) made.alibi_slopes = zoomr::view<const float>(slopes_);
    return made;
  }

  std::string name;

 private:
  zoomr::logit_rule rule_;
  index_t layers_;
  std::vector<float> sinks_, slopes_;
};

/// @param cap  of a soft cap: logits far above it are all the same
inline std::vector<model_rule> all_model_rules(const shape& of, float cap = 0.8f) {
  return {{"a scale", of, 0.21f, 0.0f, false, false}, {"a soft cap", of, 0.0f, cap, false, false},
          {"sinks", of, 0.0f, 0.0f, true, false},     {"sinks that dominate", of, 0.0f, 0.0f, true, false, 30.0f},
          {"ALiBi", of, 0.0f, 0.0f, false, true},     {"all of them", of, 0.35f, 2 * cap, true, true}};
}

}  // namespace zoomr_test
