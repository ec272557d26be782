// SPDX-License-Identifier: Apache-2.0
// A device scene in the middle of a step that chooses, and what its kernels have left on the device: for layer.cuh and
// score.cuh, each of which is one launch of it.
#pragma once

#include <memory>  // std::unique_ptr

#include "device_scene.hpp"

namespace zoomr_bench {

/// One layer; keys are appended, the index is up to date.
template <class Policy, head_count Heads>
class choosing {
 public:
  using policy_type = Policy;
  using scene_type = device_scene<Policy, Heads>;
  using arrays_type = zoomr::detail::device_arrays<Policy, zoomr::bfloat16>;
  static constexpr index_t batch = Heads.batch, kv_heads = Heads.kv_heads, group = Heads.group;
  static constexpr index_t heads = kv_heads * group;

  choosing(const Policy& with, const text& says) : policy(with), held_(with, says, 1) {
    while (!chooses_next()) {
      auto before = held_.begin(false);
      held_.enqueue(before, 0);
      if (before.needs_second_pass(held_.accepted(1))) held_.enqueue(before, 1);
      wait();
      held_.commit(before);
    }
    step_ = std::make_unique<typename scene_type::step_type>(held_.begin(false));
    held_.enqueue(*step_, 0);
    wait();
  }

  const arrays_type& arrays() const { return held_.cache().arrays(); }
  view<const zoomr::bfloat16, 3> queries() const { return held_.inputs().queries(); }
  /// Of layer 0.
  zoomr::detail::layer_inputs<zoomr::bfloat16> layer_inputs() const {
    return {0, queries(), held_.inputs().keys(), held_.inputs().values()};
  }
  /// Of a token of the step: one of each sequence, in order.
  float query(index_t token, index_t head, index_t d) const {
    return held_.inputs().query(token, held_.position(), head, d);
  }
  index_t segments() const { return held_.cache().segments({0}).size(); }

  template <class T>
  std::vector<T> on_host(const T* from, std::int64_t count) const {
    std::vector<T> made(static_cast<std::size_t>(count));
    copy_to_host(made.data(), from, count * static_cast<std::int64_t>(sizeof(T)));
    return made;
  }
  zoomr::detail::device_token token(index_t t) const { return on_host(arrays().table.tokens + t, 1)[0]; }
  /// Of one layer, [heads][head_dim]; `position` the token's or the one before.
  std::vector<float> sums(const zoomr::detail::device_token& of, index_t position) const {
    return on_host(arrays().sums_of(of.sequence, position, 0).data(), std::int64_t{heads} * head_dim);
  }
  /// Of some heads, [heads][segments].
  std::vector<float> scores(index_t t, index_t first, index_t last, index_t count) const {
    std::vector<float> made;
    for (index_t head = first; head < last; ++head) {
      const float* from = arrays().scores + (std::int64_t{t} * heads + head) * arrays().sizes.segments;
      const std::vector<float> of_head = on_host(from, count);
      made.insert(made.end(), of_head.begin(), of_head.end());
    }
    return made;
  }

  Policy policy;

 private:
  bool chooses_next() const { return policy.refresh.each_token() || held_.says().ends_sentence(held_.position()); }

  scene_type held_;
  std::unique_ptr<typename scene_type::step_type> step_;
};

}  // namespace zoomr_bench
