// SPDX-License-Identifier: Apache-2.0
// L6. What the launches of one pass of a step have in common. `device_step` makes one for each call that enqueues, and
// `commit` one of its own; nothing of it outlives the call.
#pragma once

#include <zoomr/cache/device/core.cuh>

#include <algorithm>  // std::any_of

namespace zoomr::inline v0::detail {

/// One pass of a step of a device cache: which of its tables, and how much launches cover.
///
/// Grids cover `deciding` or `deciding + in_prompt` tokens. With `fixed` that is as many as any step after the prompts
/// may have, and kernels read from the table how many there are. Whatever is enqueued goes to the stream of the call,
/// in the order of the calls; nothing waits.
template <class Policy, class T>
struct device_pass {
  device_core<Policy, T>& core;
  step_table table;
  index_t deciding;   // tokens after the prompt that launches cover: those of the pass, or of any step
  index_t in_prompt;  // tokens before its end
  bool fixed;         // for a graph

  device_pass(device_core<Policy, T>& owner, step_table listed, index_t tokens, index_t prompt_tokens = 0,
              bool for_graph = false)
      : core(owner), table(listed), deciding(tokens), in_prompt(prompt_tokens), fixed(for_graph) {}

  static dim3 grid(index_t x, index_t y = 1) { return {static_cast<unsigned>(x), static_cast<unsigned>(y)}; }

  /// The argument of its kernels, by value: the cache's arrays, with this pass's table on the device.
  device_arrays<Policy, T> arrays() const {
    device_arrays<Policy, T> result = core.arrays;
    result.table = core.on_device[table];
    return result;
  }

  /// A token of the pass makes a choice, or in a graph may make one.
  bool may_choose() const {
    const auto& tokens = core.listed[table].tokens;
    return fixed || std::any_of(tokens.begin(), tokens.end(), [](const device_token& t) { return t.chooses >= 0; });
  }

  /// Packs its table, and enqueues the copy.
  void upload(stream_ref stream) const {
    core.uploads.upload(table, core.listed[table], core.on_device[table], stream);
  }
};

}  // namespace zoomr::inline v0::detail
