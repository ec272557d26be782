// SPDX-License-Identifier: Apache-2.0
#include "open_cache.hpp"

#include <zoomr/presets/table.hpp>

#include <optional>   // std::optional
#include <stdexcept>  // std::runtime_error
#include <utility>    // std::move

zoomr::any_kv_cache<> open_cache(const std::string& policy, const zoomr::shape& model, const zoomr::config& limits,
                                 zoomr::index_t budget) {
  std::optional<zoomr::any_kv_cache<>> cache;
  zoomr::presets::with_name(policy, [&](const auto& preset) {
    if (budget != 0 && budget < preset.least_budget(preset.policy))
      throw std::runtime_error(policy + ": a budget of " + std::to_string(budget) + " tokens is too small");
    cache = zoomr::kv_cache{model, preset.with_budget(budget), limits};
  });
  if (!cache) throw std::runtime_error("there is no policy " + policy);
  return *std::move(cache);
}

std::vector<zoomr::token_class> classes_of(const std::vector<std::string>& words) {
  using enum zoomr::token_class;
  std::vector<zoomr::token_class> classes;
  for (const std::string& word : words) {
    classes.push_back(word == ";"            ? delimiter
                      : word == "<thought>"  ? thought_begin
                      : word == "</thought>" ? thought_end
                      : word == "<summary>"  ? summary_begin
                      : word == "</summary>" ? summary_end
                                             : plain);
  }
  return classes;
}
