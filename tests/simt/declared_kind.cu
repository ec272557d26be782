// SPDX-License-Identifier: Apache-2.0
// A source of an engine that makes one kind of device cache, which another source compiles where DECLARED is defined.
#include <zoomr/any_device_cache.cuh>
#include <zoomr/presets/quest.hpp>

using namespace zoomr;
using quest_8 = device_cache<policy_of<presets::quest>, float, 8, 2>;
#ifdef DECLARED
extern template struct zoomr::compiled_device_cache<float, quest_8>;
#endif

any_device_cache<float> open(const shape& model, const config& limits, void* memory) {
  return device_caches<float, quest_8>::make(model, presets::quest, limits, memory, stream_ref{});
}
void step(any_device_cache<float>& cache, view<const float, 3> queries, view<float, 3> out) {
  auto step = cache.begin(cache.open(), {});
  step.start(stream_ref{});
  step.attend(0, queries, out, {}, stream_ref{});
  step.commit(1, stream_ref{});
}
