// SPDX-License-Identifier: Apache-2.0
// L6. Checks what a device cache is made with, and counts its bytes.
#pragma once

#include <zoomr/cache/device/choosing/rank_choices.cuh>
#include <zoomr/cache/device/core.cuh>

namespace zoomr::inline v0::detail {

/// Of one kind of device cache; the parameters are those of `device_cache`.
template <class Policy, class T, index_t HeadDim, index_t Group, class Values, class Ranks>
struct device_checks {
  using core_type = device_core<Policy, T>;
  using policy_type = any_policy_of<Policy>;
  using placement_type = decltype(Policy::placement);
  static constexpr bool tiered = tiered_placement<placement_type>;
  static constexpr bool in_engine = !pool_of<placement_type, T>::owns_pages;

  /// @throws precondition_error for a shape, policy or config that cannot work, or 2^60 bytes or more
  static byte_count bytes(const shape& model, const policy_type& policy, const config& limits, index_t splits) {
    expect(model, policy, limits, splits);
    const byte_count total = core_type::bytes_of(core_type::sized(model, policy, limits, splits));
    ZOOMR_EXPECTS(total < too_many_bytes, "config: a cache of this shape would need 2^60 bytes or more");
    return total;
  }

  /// Pinned memory.
  /// @throws precondition_error as `bytes`
  static byte_count host_bytes(const shape& model, const policy_type& policy, const config& limits) {
    expect_possible(model, policy, limits);
    if (!tiered) return 0;
    const byte_count page = bounded_product({model.kv_heads, page_tokens, model.head_dim + model.stored_value_width(),
                                             static_cast<std::int64_t>(sizeof(T))});
    return bounded_product({pages_for(pool_tokens(policy, limits)), model.layers, page});
  }

 private:
  static void expect(const shape& model, const policy_type& policy, const config& limits, index_t splits) {
    expect_possible(model, policy, limits);
    const char* problem = device_sizes::problem(policy, limits);
    if (limits.key_scale.each.data() != nullptr || limits.value_scale.each.data() != nullptr) {
      problem = "device_cache: it has one scale for all keys and one for all values, no tables";
    }
    if (problem == nullptr && limits.audit) problem = "device_cache: config.audit is for caches of the host";
    if (problem == nullptr && limits.voter_keys != voter_storage::as_cache) {
      problem = "device_cache: config.voter_keys = q8_0 is for caches of the host";
    }
    if (problem == nullptr && in_engine) problem = engine_problem(model, limits);
    if (problem == nullptr && (model.head_dim != HeadDim || model.group() != Group)) {
      problem = "device_cache: the model's head_dim and group must be those of the template";
    }
    if (problem == nullptr && (model.value_width() != Values::width || model.values_in_keys != Values::in_keys)) {
      problem = "device_cache: the model's values must be as wide, and lie, as the template says";
    }
    if (problem == nullptr) problem = choices_problem(policy.value, HeadDim, tiered);
    if (problem == nullptr && tiered) {
      problem = device_sizes::tiers_problem(model, policy, limits);
      if (problem == nullptr && limits.tiers.file != 0) {
        problem = "device_cache: all pages are in pinned memory, with no file under it: config.tiers.file must be 0";
      }
      if (problem == nullptr && limits.tiers.host != 0 && limits.tiers.host < host_bytes(model, policy, limits)) {
        problem = "config: tiers.host must be 0 or at least device_cache::host_bytes(...)";
      }
    }
    if (problem == nullptr && (splits < 0 || splits > 1024)) problem = "device_cache: splits must lie in 0 ... 1024";
    if (problem == nullptr && !limits.ranks.alone()) problem = ranks_problem(policy, limits);
    ZOOMR_EXPECTS(problem == nullptr, problem);
    ZOOMR_EXPECTS(limits.token_ranks.alone(),
                  "config: token_ranks are for host caches: a device's has all tokens of its sequences");
    ZOOMR_EXPECTS(limits.rotary.frequencies.size() == 0 || policy.aggregate.question == 0,
                  "config: rotary, by which a question before a long text scores, is for host caches");
    ZOOMR_EXPECTS(limits.anchors.layers.data() == nullptr,
                  "config: anchors are for host caches: in a device's each layer chooses for itself");
    ZOOMR_EXPECTS(limits.donors.data() == nullptr,
                  "config: donors are for host caches: in a device's each layer has keys of its own");
  }

  // Of ranks that divide heads. A choice of one KV head or less is a rank's own.
  static const char* ranks_problem(const policy_type& policy, const config& limits) {
    if (!policy.selects || policy.aggregate.per >= scope::kv_head) return nullptr;
    if (!policy.aggregate.counts) {
      return "config: on a device ranks add up votes; scores that are pooled over a layer would be gathered, as host "
             "caches do";
    }
    if (!may_share_choices<Policy, Ranks>()) {
      return "device_cache: ranks choose together where its last parameter is several_ranks";
    }
    return limits.ranks.group.adds_up() ? nullptr
                                        : "config: ranks of a device's caches need a communicator with add_up, like "
                                          "nccl_ranks: this one is for host caches";
  }

  // What an engine's pages must satisfy beside the conditions of a host cache.
  static const char* engine_problem(const shape& model, const config& limits) {
    const engine_memory& engine = limits.engine;
    if (const char* problem = engine.problem(model, sizeof(T))) return problem;
    if ((engine.page_tokens & (engine.page_tokens - 1)) != 0) {
      return "device_cache: engine.page_tokens must be a power of 2";
    }
    if (std::int64_t{engine.pages} * engine.page_tokens > unlimited ||
        std::int64_t{limits.max_batched_tokens} + 2 * std::int64_t{limits.max_sequences} + limits.max_tokens >
            unlimited) {
      return "device_cache: the engine's pages must hold fewer than 2^31 tokens, as must max_batched_tokens + "
             "2 sequences + max_tokens";
    }
    if (!Values::in_keys && !(engine.strides_of_values() == engine.strides_of_keys())) {
      return "device_cache: keys and values of an engine must have the same strides";
    }
    const auto whole = [](std::int64_t numbers) { return numbers * static_cast<std::int64_t>(sizeof(T)) % 16 == 0; };
    bool aligned = whole(engine.page_stride) && whole(engine.head_stride) && whole(engine.token_stride);
    const auto is_aligned = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
    for (index_t layer = 0; layer < model.layers; ++layer) {
      aligned = aligned && is_aligned(engine.keys[layer]) && (Values::in_keys || is_aligned(engine.values[layer]));
    }
    return aligned ? nullptr : "device_cache: an engine's rows must be aligned to 16 bytes";
  }
};

}  // namespace zoomr::inline v0::detail
