// SPDX-License-Identifier: Apache-2.0
// Whether the steps of a device scene are right: against attention in double, and replayed graphs against calls.
#pragma once

#include "reference.hpp"
#include "stepping.hpp"

namespace zoomr_bench {

template <class T>
std::vector<T> on_host(const T* from, std::int64_t count) {
  std::vector<T> made(static_cast<std::size_t>(count));
  copy_to_host(made.data(), from, count * static_cast<std::int64_t>(sizeof(T)));
  return made;
}

/// The positions that a head of a sequence attended in the last layer of the step in progress, as its table says.
template <class Scene>
std::vector<index_t> attended_positions(const Scene& scene, index_t sequence, index_t head) {
  const auto& a = scene.cache().arrays();
  const index_t row = head * a.sizes.layer_rows / scene.model().heads;
  const std::int64_t at = a.token_row(sequence, row);  // a step's tokens are one of each sequence, in order
  const zoomr::attended_size size = on_host(a.read + at, 1)[0];
  std::vector<index_t> made;
  for (const zoomr::token_range& r : on_host(a.ranges + at * a.sizes.most_ranges(), size.ranges)) {
    for (index_t position = r.first; position < r.last; ++position) made.push_back(position);
  }
  comparison("attended").same(static_cast<std::int64_t>(made.size()), size.tokens);
  return made;
}

/// Makes a step and compares its last layer: the first head of the first sequence and the last head of the last one
/// with attention in double over the positions that they attended; of all others only that they are finite. Which
/// positions those must be is what the rows `choose/` compare; of `full` all.
/// @throws wrong
template <class Scene>
void expect_right_step(Scene& scene, bool full) {
  scene.forget();
  auto step = scene.begin(false);
  all_passes(scene, step, mode::eager);
  const auto [out, lse] = scene.answers();
  const index_t heads = scene.model().heads, position = scene.position();
  for (const bool last : {false, true}) {
    const index_t sequence = last ? Scene::batch - 1 : 0, head = last ? heads - 1 : 0, kv_head = head / Scene::group;
    const std::vector<index_t> positions = attended_positions(scene, sequence, head);
    if (full) comparison("attended").same(static_cast<std::int64_t>(positions.size()), position + 1);
    std::vector<float> query;
    for (index_t d = 0; d < head_dim; ++d) query.push_back(scene.inputs().query(sequence, position, head, d));
    const auto expected = attention(
        query, static_cast<index_t>(positions.size()),
        [&](index_t t, index_t d) {
          return scene.inputs().key(sequence, positions[static_cast<std::size_t>(t)], kv_head, d);
        },
        [&](index_t t, index_t d) {
          return scene.inputs().value(sequence, positions[static_cast<std::size_t>(t)], kv_head, d);
        });
    const auto row = static_cast<std::size_t>(sequence * heads + head);
    expect_lse(expected, lse[row]);
    const auto* given = out.data() + row * head_dim;
    expect_outputs(expected, [&](index_t d) { return zoomr::to_float(given[d]); },
                   {tolerance::rounded(7), tolerance::rounded_weights(7, 0)});
  }
  comparison finite("out is finite");
  for (const zoomr::bfloat16 number : out) finite.same(std::isfinite(zoomr::to_float(number)), true);
  scene.commit(step);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// A whole sentence of steps, each made eagerly, dropped, and made again by the graph.
/// @throws wrong  if a replay gives other bits
template <class Scene>
void expect_same_outputs(Scene& scene) {
  for (index_t steps = 0; steps <= scene.says().sentence; ++steps) {
    {
      auto step = scene.begin(false);
      all_passes(scene, step, mode::eager);
      wait();
    }
    const auto [out, lse] = scene.answers();
    scene.forget();
    auto step = scene.begin(true);
    all_passes(scene, step, mode::graph);
    const auto [replayed, replayed_lse] = scene.answers();
    comparison("replaying gives the bits of stepping")
        .same(same_bits(replayed, out) && same_bits(replayed_lse, lse), true);
    scene.commit(step);
  }
}

}  // namespace zoomr_bench
