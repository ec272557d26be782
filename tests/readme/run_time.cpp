// SPDX-License-Identifier: Apache-2.0
// How docs/engine.md chooses a policy at run time, for each preset: it gives what the preset's own cache gives.
// [readme]
#include <cstdio>
#include <optional>
#include <string_view>
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

// A budget of 0 is the preset's own. Nothing: there is no preset of that name.
std::optional<zoomr::any_kv_cache<>> open_preset(std::string_view name, zoomr::index_t budget,
                                                 const zoomr::shape& model, const zoomr::config& limits) {
  std::optional<zoomr::any_kv_cache<>> cache;
  zoomr::presets::with_name(name, [&](const auto& preset) {
    cache = zoomr::kv_cache{model, preset.with_budget(budget), limits};
  });
  return cache;
}
void list_presets() {
  zoomr::presets::each([](const auto& preset) {
    std::printf("%-22s %s; the budget limits %s\n", preset.name, preset.what, preset.limits);
  });
}
// [readme]

#include <vector>

namespace {

using zoomr::index_t;
using zoomr::view;

constexpr zoomr::shape model{.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 8};

/// The outputs of a made-up text of 80 tokens, 50 of them prompt.
std::vector<float> outputs_of(zoomr::any_kv_cache<>& cache) {
  std::vector<float> all;
  const zoomr::sequence seq = cache.open();
  const auto pass = [&](const std::vector<zoomr::token_id>& ids, bool prompt_ends) {
    auto step = cache.begin(seq, ids, prompt_ends);
    do {
      const index_t tokens = step.tokens();
      std::vector<float> queries(static_cast<std::size_t>(tokens * 32)), out(queries.size());
      for (std::size_t i = 0; i < queries.size(); ++i) {
        queries[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(ids.back()) * 5) % 11) - 5.0f;
      }
      for (index_t layer = 0; layer < model.layers; ++layer) {
        const view<const float, 3> keys(queries.data() + layer, {tokens, 2, 8}, {32, 8, 1});
        step.append(layer, keys, keys);
        step.attend(layer, view<const float, 3>(queries.data(), {tokens, 4, 8}), {out.data(), {tokens, 4, 8}});
        all.insert(all.end(), out.begin(), out.end());
      }
    } while (step.needs_second_pass(step.taken(0)));
    step.commit();
  };
  std::vector<zoomr::token_id> prompt;
  for (zoomr::token_id id = 0; id < 50; ++id) prompt.push_back(id % 9);
  pass(prompt, true);
  for (zoomr::token_id id = 50; id < 80; ++id) pass({id % 9}, false);
  return all;
}

}  // namespace

int main() {
  list_presets();
  std::vector<zoomr::token_class> classes(9);
  classes[3] = zoomr::token_class::delimiter;
  const std::vector<float> voters(8, 0.5f);  // for presets that ask heads
  zoomr::config limits{.max_tokens = 128, .classes = classes};
  limits.voters = {voters.data(), {model.layers, model.heads}};
  int different = 0;
  zoomr::presets::each([&](const auto& preset) {
    const index_t budget = preset.least_budget(preset.policy) + 3;
    zoomr::kv_cache expected{model, preset.with_budget(budget), limits};
    std::optional<zoomr::any_kv_cache<>> found = open_preset(preset.name, budget, model, limits);
    const bool same = found && outputs_of(*found) == outputs_of(expected);
    if (!same) std::printf("%s: opened by its name it gives something else\n", preset.name);
    different += same ? 0 : 1;
  });
  const bool none = !open_preset("no such preset", 0, model, limits);
  return different == 0 && none ? 0 : 1;
}
