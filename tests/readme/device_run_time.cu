// SPDX-License-Identifier: Apache-2.0
// The program of docs/device.md that chooses a cache at run time. check.py compares what lies between the marks.
// [readme]
#include <optional>
#include <string_view>
#include <zoomr/any_device_cache.cuh>
#include <zoomr/presets/table.hpp>
using namespace zoomr;

// What the engine is compiled for, in one line; bfloat16 is what its queries are. The engine's code knows `any_cache`.
using focus_64 = device_cache<policy_of<presets::zoomr_focus>, bfloat16, 64, 4>;
using quest_128 = device_cache<policy_of<presets::quest>, bfloat16, 128, 8>;
using served = device_caches<bfloat16, focus_64, quest_128>;
using any_cache = any_device_cache<bfloat16>;

// Nothing: there is no preset of that name. What is not compiled in is refused, with a sentence that says what is.
template <class Allocate>
std::optional<any_cache> open_on_device(std::string_view name, index_t budget, const shape& model, const config& limits,
                                        Allocate allocate, stream_ref stream) {
  std::optional<any_cache> cache;
  presets::with_name(name, [&](const auto& preset) {
    const auto policy = preset.with_budget(budget);
    void* memory = allocate(served::bytes(model, policy, limits));  // on the device, aligned to 256
    cache = served::make(model, policy, limits, memory, stream);
  });
  return cache;
}
// [readme]

#include <doctest/doctest.h>
#include <support/device_memory.hpp>

#include <string>

namespace at_run_time {

/// The output of the first token of a step over one layer, whose values are all the same.
float attend(any_cache& cache, float value) {
  const shape model = cache.model();
  zoomr_test::device_array<bfloat16> numbers(2 * model.heads * model.head_dim, from_float<bfloat16>(value));
  zoomr_test::device_array<bfloat16> out(2 * model.heads * model.head_dim, from_float<bfloat16>(77.0f));
  const view<const bfloat16, 3> kv(numbers.data(), {2, model.kv_heads, model.head_dim});
  const view<const bfloat16, 3> queries(numbers.data(), {2, model.heads, model.head_dim});
  const std::vector<token_id> ids(2, 1);
  const sequence seq = cache.open();
  auto step = cache.begin(seq, view<const token_id>(ids), true);
  step.start(stream_ref{});
  step.attend(0, queries, kv, kv, {out.data(), {2, model.heads, model.head_dim}}, view<float, 2>{}, stream_ref{});
  step.commit(2, stream_ref{});
  return to_float(out.values()[0]);
}

}  // namespace at_run_time

TEST_CASE("the cache that docs/device.md chooses at run time attends; what is not in its list is refused") {
  config limits;
  limits.max_sequences = 2;
  limits.max_tokens = 64;
  const std::vector<token_class> classes(16);
  limits.classes = classes;
  std::optional<zoomr_test::device_array<std::byte>> memory;
  const auto allocate = [&](byte_count bytes) {
    memory.emplace(bytes + 256, std::byte{});
    return memory->data() + (256 - reinterpret_cast<std::uintptr_t>(memory->data()) % 256) % 256;
  };
  const auto open = [&](std::string_view name, const shape& model) {
    return open_on_device(name, 0, model, limits, allocate, stream_ref{});
  };
  for (const auto& [name, model] :
       {std::pair{"quest", shape{1, 8, 1, 128}}, std::pair{"zoomr_focus", shape{1, 8, 2, 64}}}) {
    std::optional<any_cache> cache = open(name, model);
    REQUIRE(cache.has_value());
    CHECK(at_run_time::attend(*cache, 0.5f) == 0.5f);
    CHECK(at_run_time::attend(*cache, 0.25f) == 0.25f);
  }
  CHECK(!open("no_such_preset", {1, 8, 1, 128}).has_value());
  CHECK_THROWS_WITH_AS(
      open("quest", {1, 8, 2, 64}),
      "zoomr: device_caches: this policy is compiled in for heads of 128 dimensions, group 8, not of 64 "
      "dimensions, group 4: add that device_cache to the list",
      precondition_error);
  CHECK_THROWS_AS(open("full", {1, 8, 1, 128}), precondition_error);
}
