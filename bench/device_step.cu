// SPDX-License-Identifier: Apache-2.0
// Whole steps of a device cache, eager and as replayed graphs: full attention, SentenceKV, ZoomR.
#include <device_scene.hpp>

#include <cstring>  // std::memcmp
#include <map>      // std::map

namespace zoomr_bench {

namespace {

enum class mode { eager, graph };

/// One way of making steps of one scene.
struct stepping {
  mode how = mode::eager;
  l2 state = l2::cold;

  std::string name() const { return std::string(how == mode::eager ? "eager/" : "graph/") + name_of(state); }
};

/// Enqueues one pass, as calls or as a graph that the first call captures.
template <class Scene, class Step>
void pass(Scene& scene, Step& step, mode how, index number) {
  const auto enqueue = [&] { scene.enqueue(step, number); };
  if (how == mode::eager) return enqueue();
  step.upload(the_stream());  // no part of a graph
  if (!scene.captured[number]) scene.graphs[number].capture(enqueue);
  scene.captured[number] = true;
  scene.graphs[number].launch();
}
template <class Scene, class Step>
void all_passes(Scene& scene, Step& step, mode how) {
  pass(scene, step, how, 0);
  if (step.again(scene.accepted(1))) pass(scene, step, how, 1);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// A whole sentence of steps, each made eagerly, dropped, and made again by the graph.
/// @throws std::runtime_error if a replay gives other outputs
template <class Scene>
void expect_same_outputs(Scene& scene) {
  for (index steps = 0; steps <= scene.says().sentence; ++steps) {
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
    if (!same_bits(replayed, out) || !same_bits(replayed_lse, lse)) {
      throw std::runtime_error("replaying gives other outputs than stepping");
    }
    scene.commit(step);
  }
}

/// Seconds of full attention's steps by context, layers and way, one for each repetition.
std::map<std::string, std::vector<double>>& full_times() {
  static std::map<std::string, std::vector<double>> all;
  return all;
}

double mean(const std::vector<double>& of) {
  double sum = 0;
  for (const double each : of) sum += each;
  return sum / static_cast<double>(of.size());
}

/// Steps of a whole number of sentences: the choices and second passes that they make are counted.
template <class Scene>
result timed_steps(Scene& scene, stepping way, int iterations) {
  static zoomr::stream_timer clock;
  result of;
  const zoomr::arena_counts tiers = scene.tiers();
  double host = 0, attended = 0, passes = 0;
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
    attended += scene.attended();
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
                {"attended", attended / iterations},
                {"context", scene.position()}};
  const zoomr::arena_counts after = scene.tiers();
  const auto ahead = static_cast<double>(after.prefetched - tiers.prefetched);
  const double fetched = static_cast<double>(after.misses - after.far - tiers.misses + tiers.far) + ahead;
  const auto hits = static_cast<double>(after.hits - tiers.hits);
  const auto misses = static_cast<double>(after.misses - tiers.misses);
  if (hits + misses > 0) {
    of.figures.push_back({"arena_hits", hits / (hits + misses)});
    of.figures.push_back({"prefetched", fetched > 0 ? ahead / fetched : 0});
    of.figures.push_back({"fetched_mb", fetched * scene.block_bytes() * 1e-6 / iterations});
  }
  return of;
}

template <head_count Heads, class Policy>
void add_steps(const std::string& name, const Policy& policy, const text& says, index layers, stepping way) {
  const std::string place = "/context:" + std::to_string(says.timed_from) + "/layers:" + std::to_string(layers) + "/";
  add_row("step/" + name + place + way.name(), 24, [=](int iterations) {
    // Few tokens more make no difference to a long context; to a short one they would.
    const std::string key = "scene " + name + place + (says.timed_from < 16384 ? way.name() : "");
    const auto made = kept<scene<Policy, Heads>>(key, [&] {
      auto fresh = std::make_unique<scene<Policy, Heads>>(policy, says, layers);
      timed_steps(*fresh, {mode::eager, l2::warm}, says.sentence);  // the first choice in force, made by a step
      return fresh;
    });
    if (way.how == mode::graph && !made->captured[0]) expect_same_outputs(*made);
    result of = timed_steps(*made, way, iterations);
    auto& full = full_times()[std::to_string(Heads.group) + place + way.name()];
    if (name.starts_with("full")) full.push_back(mean(of.seconds));
    if (!full.empty()) of.figures.push_back({"times_full", quantile(full, 0.5) / std::max(mean(of.seconds), 1e-12)});
    return of;
  });
}

template <head_count Heads = head_count{}, class Policy>
void add_policy(const std::string& name, const Policy& policy, const text& says, index layers) {
  for (const l2 state : {l2::cold, l2::warm}) {
    if (state == l2::warm && layers > 1) continue;  // other layers' keys have thrown out this one's
    for (const mode how : {mode::eager, mode::graph}) add_steps<Heads>(name, policy, says, layers, {how, state});
  }
}

void add_context(index context, index layers) {
  add_policy("full", full, long_prompt(context), layers);
  add_policy("sentence_kv", sentence_kv, long_prompt(context), layers);
  add_policy("zoomr_mass", zoomr_mass, thoughts_after_prompt(context), layers);
  add_policy("zoomr_focus", zoomr_focus, thoughts_after_prompt(context), layers);
}

// Details on the host, and an arena for 1/8 of them, beside the same with everything on the device.
void add_tiers(index context, index layers) {
  add_policy("full", full, long_prompt(context), layers);
  add_policy("sentence_kv", sentence_kv, long_prompt(context), layers);
  add_policy("sentence_kv_tiers", with_store(sentence_kv, zoomr::tiered<>{}), long_prompt(context), layers);
  add_policy("zoomr_focus", zoomr_focus, thoughts_after_prompt(context), layers);
  add_policy("zoomr_focus_tiers", with_store(zoomr_focus, zoomr::tiered<>{}), thoughts_after_prompt(context), layers);
  add_policy("zoomr_focus_tiers_at_need", with_store(zoomr_focus, zoomr::tiered<>{.prefetch = false}),
             thoughts_after_prompt(context), layers);
}

// One layer of the model that Quest's kernels are measured with.
void add_quest(index context) {
  add_policy<quest_heads>("full_quest_heads", full, long_prompt(context), 1);
  add_policy<quest_heads>("quest_published", quest_published, long_prompt(context), 1);
}

}  // namespace

void add_step_rows() {
  if (toy) {
    add_context(120, 2);
    add_tiers(120, 3);
    add_quest(120);
    return;
  }
  for (const index context : {2048, 8192, 32768, 131072}) add_quest(context);
  for (const index context : {4096, 32768, 131072}) {
    add_context(context, 1);
    add_context(context, context > 65536 ? 8 : 32);  // 8 layers of 131,072 tokens and batch 8 are 34 GB
  }
  add_tiers(32768, 4);  // 4.6 GB of pinned memory
}

}  // namespace zoomr_bench
