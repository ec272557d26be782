// SPDX-License-Identifier: Apache-2.0
// The program of docs/device.md, with an engine around it. check.py compares what lies between the marks.
// [readme]
#include <zoomr/zoomr.cuh>
using namespace zoomr;

constexpr auto zooming = presets::zoomr_focus;  // bfloat16 keys, head_dim 64, 4 query heads to each KV head:
using cache_on_device = device_cache<policy_of<zooming>, bfloat16, 64, 4>;

// The memory is the engine's: cache_on_device::bytes(model, zooming, limits) bytes on the device. A pass plans on the
// host, enqueues on a stream, and waits for nothing. With begin(..., fixed) and step.upload(stream), what follows can
// be a CUDA graph, if step.join(stream) ends it. zoomr_focus has no second pass; examples/engines/cuda_graph.cu serves
// policies that have one, too.
template <class Engine>
void pass(cache_on_device& cache, Engine& engine, sequence seq, view<const token_id> ids, bool prompt_ends,
          stream_ref stream) {
  auto step = cache.begin(seq, ids, prompt_ends);
  step.start(stream);
  for (int layer = 0; layer < cache.model().layers; ++layer) {
    auto [queries, keys, values, out, lse] = engine.project(layer, step.tokens(), stream);
    step.attend(layer, queries, keys, values, out, lse, stream);
    engine.feed_forward(layer, step.tokens(), stream);
  }
  step.commit(step.taken(0), stream);
}
// [readme]

#include <doctest/doctest.h>
#include <support/device_memory.hpp>

namespace {

/// Stands for an engine: all its keys are the same, so that attention gives the value that they all have.
struct toy_engine_on_device {
  shape model;
  zoomr_test::device_array<float> numbers{4096 * 8, 0.5f};
  zoomr_test::device_array<float> result{4096 * 8, 0.0f};
  zoomr_test::device_array<float> lse{4096, 0.0f};

  struct projected {
    view<const float, 3> queries, keys, values;
    view<float, 3> out;
    view<float, 2> lse;
  };
  projected project(int, int tokens, stream_ref) {
    const extents<3> of_heads{{tokens, model.heads, model.head_dim}};
    const extents<3> of_kv_heads{{tokens, model.kv_heads, model.head_dim}};
    return {{numbers.data(), of_heads},
            {numbers.data(), of_kv_heads},
            {numbers.data(), of_kv_heads},
            {result.data(), of_heads},
            {lse.data(), {tokens, model.heads}}};
  }
  void feed_forward(int, int, stream_ref) {}
};

}  // namespace

TEST_CASE("the pass on a device that docs/device.md shows attends") {
  const shape model{2, 4, 1, 64};
  config limits;
  limits.max_tokens = 64;
  const std::vector<token_class> classes(16);
  limits.classes = classes;
  zoomr_test::device_array<std::byte> memory(cache_on_device::bytes(model, zooming, limits) + 256, std::byte{});
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  cache_on_device cache(model, zooming, limits, memory.data() + (256 - at % 256) % 256, stream_ref{});
  toy_engine_on_device engine{model};
  const sequence seq = cache.open();
  const std::vector<token_id> prompt{1, 2, 3};
  pass(cache, engine, seq, view<const token_id>(prompt), true, stream_ref{});
  for (token_id id = 4; id < 9; ++id) {
    CHECK(engine.result.values()[0] == doctest::Approx(0.5));  // an engine reads what a pass gives, and knows a token
    pass(cache, engine, seq, view<const token_id>(&id, {1}), false, stream_ref{});
  }
  CHECK(cache.tokens(seq) == 8);
  const auto out = engine.result.values();
  for (std::size_t i = 0; i < 4 * 64; ++i) CHECK(out[i] == doctest::Approx(0.5));
}
