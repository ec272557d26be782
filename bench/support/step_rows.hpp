// SPDX-License-Identifier: Apache-2.0
// Rows of whole steps of a device cache, for the files device/step*.cu: bf16, head_dim 128.
//   step/POLICY/context:N/layers:L/WAY   `start`, then `append` and `attend` of L layers, second passes included, for
//                                        one token of each sequence; not the model
//     eager/cold, /warm   launch by launch
//     graph/cold, /warm   a replayed CUDA graph
// A repetition is 24 steps, so that choices are counted as often as they come. times_full: how many times as fast as
// `full` of the same context, layers and way in this run. No bytes are counted: the ceiling of what a step attends is
// that of the rows attend/.
// Checked, once for each scene: a step by step_check.hpp; before a graph is timed, a sentence of its steps.
#pragma once

#include <map>  // std::map

#include "device_policies.hpp"
#include "step_check.hpp"

namespace zoomr_bench {

/// Seconds of full attention's steps by heads, context, layers and way, one for each repetition.
inline std::map<std::string, std::vector<double>>& full_times() {
  static std::map<std::string, std::vector<double>> all;
  return all;
}

template <head_count Heads, class Policy>
void add_steps(const std::string& name, const Policy& policy, const text& says, index_t layers, stepping way) {
  using scene = device_scene<Policy, Heads>;
  const std::string place = "/context:" + std::to_string(says.timed_from) + "/layers:" + std::to_string(layers) + "/";
  const bool full = name.starts_with("full");
  add_row("step/" + name + place + way.name(), 24, [=](int iterations) {
    // Few tokens more make no difference to a long context; to a short one they would.
    const std::string key = "scene " + name + place + (says.timed_from < 16384 ? way.name() : "");
    const auto made = kept<scene>(key, [&] {
      auto fresh = std::make_unique<scene>(policy, says, layers);
      timed_steps(*fresh, {mode::eager, l2::warm}, says.sentence);  // the active selection, made by a step
      return fresh;
    });
    check_once(key, [&] { expect_right_step(*made, full); });
    if (way.how == mode::graph && !made->captured[0]) expect_same_outputs(*made);
    result of = timed_steps(*made, way, iterations);
    std::vector<double>& of_full = full_times()[std::to_string(Heads.group) + place + way.name()];
    if (full) of_full.push_back(mean(of.seconds));
    if (!of_full.empty()) {
      of.figures.push_back({"times_full", quantile(of_full, 0.5) / std::max(mean(of.seconds), 1e-12)});
    }
    return of;
  });
}

template <head_count Heads = head_count{}, class Policy>
void add_policy(const std::string& name, const Policy& policy, const text& says, index_t layers) {
  for (const l2 state : {l2::cold, l2::warm}) {
    if (state == l2::warm && layers > 1) continue;  // other layers' keys have thrown out this one's
    for (const mode how : {mode::eager, mode::graph}) add_steps<Heads>(name, policy, says, layers, {how, state});
  }
}

}  // namespace zoomr_bench
