// SPDX-License-Identifier: Apache-2.0
// Which policies and storage types are compiled, and how one is found by its name.
#include "groups.hpp"

#include <zoomr/policy/summarize/stored_as.hpp>

#include <optional>     // std::optional
#include <string>       // std::string
#include <tuple>        // std::tuple
#include <type_traits>  // std::is_same_v
#include <utility>      // std::move

#include "../../decode/policies.hpp"

namespace adaptor {
namespace {

#ifdef ZOOMR_GGML_POLICIES
namespace chosen {
using namespace zoomr::presets;
constexpr std::tuple policies(full, ZOOMR_GGML_POLICIES);
}  // namespace chosen
#define ZOOMR_GGML_TEXT(...) #__VA_ARGS__
#define ZOOMR_GGML_NAMES(...) ZOOMR_GGML_TEXT(__VA_ARGS__)

/// Some policies are of one type: `expect_compiled` goes by name.
template <class Policy>
constexpr bool is_compiled = std::apply(
    [](const auto&... policy) { return (std::is_same_v<Policy, std::remove_cvref_t<decltype(policy)>> || ...); },
    chosen::policies);

void expect_compiled(const std::string& name) {
  const std::string names = std::string(",") + ZOOMR_GGML_NAMES(ZOOMR_GGML_POLICIES) + ",";
  bool known = false;
  zoomr::presets::with_name(name, [&](const auto&) { known = true; });
  if (!known || name == "full" || names.find("," + name + ",") != std::string::npos) return;
  decode::fail("the policy ", name, " is not compiled: ZOOMR_GGML_POLICIES has full,",
               names.substr(1, names.size() - 2));
}
#else
template <class Policy>
constexpr bool is_compiled = true;
void expect_compiled(const std::string&) {}
#endif

/// The policy, whose boxes are kept in what keys are stored as where that has 16 bits: their sides are such numbers, so
/// that the index takes half of the bytes and its choices are the same.
template <class T, class Policy>
constexpr auto with_index(const Policy& policy) {
  if constexpr (std::is_same_v<decltype(policy.summarize), zoomr::key_box> && zoomr::index_storage<T> &&
                sizeof(T) == 2) {
    return zoomr::compose(policy.segment, policy.evict, zoomr::stored_as<T>(policy.summarize), policy.query,
                          policy.score, policy.aggregate, policy.select, policy.refresh, policy.zone, policy.placement);
  } else {
    return policy;
  }
}

}  // namespace

template <class T>
zoomr::any_kv_cache<T> open_group(const cache_settings& settings) {
  expect_compiled(settings.policy.name);
  std::optional<zoomr::any_kv_cache<T>> opened;
  decode::with_policy(settings.policy, [&](const auto& policy) {
    using policy_type = std::remove_cvref_t<decltype(policy)>;
    if constexpr (is_compiled<policy_type>) {
      const auto held = with_index<T>(policy);
      opened.emplace(zoomr::kv_cache<std::remove_cv_t<decltype(held)>, T>(settings.model, held, settings.limits));
    }
  });
  return *std::move(opened);
}
#ifdef ZOOMR_GGML_F32
template zoomr::any_kv_cache<float> open_group(const cache_settings&);
#endif
#ifdef ZOOMR_GGML_F16
template zoomr::any_kv_cache<zoomr::float16> open_group(const cache_settings&);
#endif
#ifdef ZOOMR_GGML_Q8_0
template zoomr::any_kv_cache<zoomr::q8_0> open_group(const cache_settings&);
#endif
#ifdef ZOOMR_GGML_Q4_0
template zoomr::any_kv_cache<zoomr::q4_0> open_group(const cache_settings&);
#endif

bool frees_unreachable(const decode::policy_choice& choice) {
  bool frees = false;
  decode::with_policy(choice, [&](const auto& policy) { frees = policy.placement.frees_unreachable; });
  return frees;
}

index_t question_tokens(const decode::policy_choice& choice) {
  index_t tokens = 0;
  decode::with_policy(choice, [&](const auto& policy) { tokens = policy.zone.question; });
  return tokens;
}

std::unique_ptr<cache> open_cache(const cache_settings& settings, storage stored) {
#ifdef ZOOMR_GGML_F32
  if (stored == storage::f32) return open_f32(settings);
#endif
#ifdef ZOOMR_GGML_F16
  if (stored == storage::f16) return open_f16(settings);
#endif
#ifdef ZOOMR_GGML_Q8_0
  if (stored == storage::q8_0) return open_q8_0(settings);
#endif
#ifdef ZOOMR_GGML_Q4_0
  if (stored == storage::q4_0) return open_q4_0(settings);
#endif
  decode::fail("type_kv is not compiled: it is not in ZOOMR_GGML_TYPES");
}

}  // namespace adaptor
