// SPDX-License-Identifier: Apache-2.0
// L6. Device twin of grouped_step.hpp: a step over layers that are in several device caches, one step in each of them.
#pragma once

#include <zoomr/cache/state/layer_groups.hpp>
#include <zoomr/device_step.cuh>

#include <tuple>    // std::apply, std::get, std::tuple
#include <utility>  // std::move
#include <vector>   // std::vector

namespace zoomr::inline v0 {

/// One forward pass over new tokens of some sequences, through the layers of all groups; made by
/// `grouped_device_cache::begin`. Everything is as of `device_step`: layers are those of the model, tokens are packed
/// alike in all groups, and a layer's arrays have the shape of its group.
template <class... Caches>
class grouped_device_step {
 public:
  grouped_device_step(grouped_device_step&&) noexcept = default;
  grouped_device_step(const grouped_device_step&) = delete;
  grouped_device_step& operator=(const grouped_device_step&) = delete;
  grouped_device_step& operator=(grouped_device_step&&) = delete;

  index_t tokens() const { return any().tokens(); }
  index_t taken(index_t item) const { return any().taken(item); }
  index_t position(index_t item) const { return any().position(item); }
  index_t model_position(index_t item) const { return any().model_position(item); }
  bool active(index_t item) const { return any().active(item); }
  index_t packed(index_t item) const { return any().packed(item); }
  index_t items() const { return any().items(); }
  /// 2 if some group may need a second pass.
  index_t passes() const {
    index_t most = 1;
    each([&](const auto& in) { most = (std::max)(most, in.passes()); });
    return most;
  }

  /// The step of one group, for what differs between them: `append_slots`, `list_slots`.
  template <index_t Group>
  auto& group() {
    return std::get<std::size_t{Group}>(steps_);
  }

  /// As of `device_step`, in each group.
  /// @cost  that of each group
  void upload(stream_ref stream) {
    each([&](auto& in) { in.upload(stream); });
  }
  void start(stream_ref stream) {
    each([&](auto& in) { in.start(stream); });
  }
  void restart(stream_ref stream) {
    each([&](auto& in) { in.restart(stream); });
  }

  /// In the layer's group: with the arguments that `device_step` takes after the layer.
  template <class... Arguments>
  void append(index_t layer, Arguments... arguments) {
    in_layer("append", layer, [&](auto& in, index_t own) { in.append(own, arguments...); });
  }
  template <class... Arguments>
  void attend(index_t layer, Arguments... arguments) {
    in_layer("attend", layer, [&](auto& in, index_t own) { in.attend(own, arguments...); });
  }
  template <class... Arguments>
  void observe(index_t layer, Arguments... arguments) {
    in_layer("observe", layer, [&](auto& in, index_t own) { in.observe(own, arguments...); });
  }

  /// Call after the last layer: true if some items' last tokens must be passed once more, through the layers of all
  /// groups. Groups that do not need it attend with the choices that they have.
  /// @param accepted  [items]  as of `device_step`
  bool needs_second_pass(view<const index_t> accepted) {
    bool first = true;
    each([&](auto& in) { first = in.ends_first_pass(accepted, in.queries_needed()) && first; });
    if (!first) return false;
    const auto takes_part = [&](index_t i) {
      bool again = false;
      each([&](auto& in) { again = again || in.chooses_again(i, accepted[i]); });
      return again;
    };
    std::vector<bool> part;
    for (index_t i = 0; i < items(); ++i) part.push_back(takes_part(i));
    bool again = false;
    each([&](auto& in) {
      again = in.pass_again(accepted, [&](index_t i) { return static_cast<bool>(part[static_cast<std::size_t>(i)]); });
    });
    return again;
  }
  bool needs_second_pass(index_t accepted) { return needs_second_pass(view<const index_t>(&accepted, {1})); }

  /// As of `device_step`, in each group.
  void join(stream_ref stream) {
    each([&](auto& in) { in.join(stream); });
  }

  /// Makes the first `accepted` tokens of each item part of its sequence, in all groups. The step is over.
  void commit(view<const index_t> accepted, stream_ref stream) {
    each([&](auto& in) { in.expect_commit(accepted, in.queries_needed()), in.expect_uploaded(accepted, stream); });
    each([&](auto& in) { in.commit(accepted, stream); });
  }
  void commit(index_t accepted, stream_ref stream) { commit(view<const index_t>(&accepted, {1}), stream); }

 private:
  template <class...>
  friend class grouped_device_cache;
  using steps = std::tuple<typename Caches::step_type...>;

  grouped_device_step(const detail::layer_groups& layers, steps&& group_steps)
      : layers_(&layers), steps_(std::move(group_steps)) {}

  const auto& any() const { return std::get<0>(steps_); }
  // work(step of a group), with failures that name the group.
  template <class Work>
  void each(Work work) {
    index_t g = 0;
    const auto in_turn = [&](auto& in) { detail::naming_group(g, [&] { work(in); }), ++g; };
    std::apply([&](auto&... in) { (in_turn(in), ...); }, steps_);
  }
  template <class Work>
  void each(Work work) const {
    std::apply([&](const auto&... in) { (work(in), ...); }, steps_);
  }
  // work(step, layer) in the group that has this layer. What a group's types cannot take is refused there.
  template <class Work>
  void in_layer(const char* call, index_t layer, Work work) {
    layers_->in_layer(call, layer, [&](grouped_layer at, const detail::layer_rows&) {
      index_t g = 0;
      const auto in_turn = [&](auto& in) {
        if (g++ == at.group) work(in, at.layer);
      };
      std::apply([&](auto&... in) { (in_turn(in), ...); }, steps_);
    });
  }

  const detail::layer_groups* layers_;
  steps steps_;
};

}  // namespace zoomr::inline v0
