// SPDX-License-Identifier: Apache-2.0
// Steps of a device scene, launch by launch and as replayed graphs, timed and counted.
#pragma once

#include <cstring>  // std::memcmp

#include "device_scene.hpp"

namespace zoomr_bench {

enum class mode { eager, graph };

/// One way of making steps of one scene.
struct stepping {
  mode how = mode::eager;
  l2 state = l2::cold;

  std::string name() const { return std::string(how == mode::eager ? "eager/" : "graph/") + name_of(state); }
};

/// Enqueues one pass, as calls or as a graph that the first call captures.
template <class Scene, class Step>
void pass(Scene& scene, Step& step, mode how, index_t number) {
  const auto enqueue = [&] { scene.enqueue(step, number), step.join(the_stream()); };
  if (how == mode::eager) return enqueue();
  step.upload(the_stream());  // no part of a graph
  if (!scene.captured[number]) scene.graphs[number].capture(enqueue);
  scene.captured[number] = true;
  scene.graphs[number].launch();
}
template <class Scene, class Step>
void all_passes(Scene& scene, Step& step, mode how) {
  pass(scene, step, how, 0);
  if (step.needs_second_pass(scene.accepted(1))) pass(scene, step, how, 1);
}

inline double mean(const std::vector<double>& of) {
  double sum = 0;
  for (const double each : of) sum += each;
  return sum / static_cast<double>(of.size());
}

/// Tokens that a query attended in the last layer of the last step, on average.
template <class Scene>
double attended(const Scene& scene) {
  const auto& a = scene.cache().arrays();
  std::vector<zoomr::attended_size> sizes(static_cast<std::size_t>(Scene::batch * a.sizes.layer_rows));
  copy_to_host(sizes.data(), a.read, static_cast<std::int64_t>(sizes.size() * sizeof(zoomr::attended_size)));
  double sum = 0;
  for (const zoomr::attended_size& size : sizes) sum += size.tokens;
  return sum / static_cast<double>(sizes.size());
}

/// What the arena of a tiered store has done so far.
template <class Scene>
zoomr::arena_statistics tiers(const Scene& scene) {
  zoomr::arena_statistics made;
  if constexpr (Scene::tiered) {
    zoomr::arena_counts counts;
    scene.cache().read_tiers(counts, the_stream());
    wait();
    made = scene.cache().tiers(counts);
  }
  return made;
}
/// Adds what it has done since `before` to a repetition of some steps.
template <class Scene>
void count_tiers(const Scene& scene, const zoomr::arena_statistics& before, int steps, result& of) {
  const zoomr::arena_statistics after = tiers(scene);
  const auto ahead = static_cast<double>(after.prefetched - before.prefetched);
  const double fetched = static_cast<double>(after.stalls - before.stalls) + ahead;
  const auto hits = static_cast<double>(after.hits - before.hits);
  const auto misses = static_cast<double>(after.misses - before.misses);
  if (hits + misses == 0) return;
  of.figures.push_back({"arena_hits", hits / (hits + misses)});
  of.figures.push_back({"prefetched", fetched > 0 ? ahead / fetched : 0});
  of.figures.push_back({"fetched_mb", static_cast<double>(after.bytes_in - before.bytes_in) * 1e-6 / steps});
}

/// Steps of a whole number of sentences: the choices and second passes that they make are counted.
template <class Scene>
result timed_steps(Scene& scene, stepping way, int iterations) {
  static zoomr::stream_timer clock;
  result of;
  const zoomr::arena_statistics before_all = tiers(scene);
  double host = 0, all_attended = 0, passes = 0;
  for (int i = 0; i < iterations; ++i) {
    double before = now();
    auto step = scene.begin(way.how == mode::graph);
    host += now() - before;
    passes += step.passes();
    if (way.state == l2::cold) flush_l2();
    clock.start(the_stream());
    before = now();
    all_passes(scene, step, way.how);
    host += now() - before;
    clock.stop(the_stream());
    of.seconds.push_back(clock.seconds());
    all_attended += attended(scene);
    before = now();
    scene.commit(step);
    host += now() - before;
  }
  of.tokens = Scene::batch;
  of.figures = {{"p50_us", quantile(of.seconds, 0.5) * 1e6},
                {"p90_us", quantile(of.seconds, 0.9) * 1e6},
                {"us_per_layer", mean(of.seconds) * 1e6 / scene.model().layers},
                {"host_us", host * 1e6 / iterations},
                {"passes", passes / iterations},
                {"attended", all_attended / iterations},
                {"context", scene.position()}};
  count_tiers(scene, before_all, iterations, of);
  return of;
}

}  // namespace zoomr_bench
