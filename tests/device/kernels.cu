// SPDX-License-Identifier: Apache-2.0
// The kernels whose registers, stack and spills are gated: the sizes that models have.
#include <zoomr/device_transfer.cuh>
#include <zoomr/policy/placement/engine_pages.hpp>
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/zoomr.cuh>

#include "../support/row_top_k.cuh"
#include "../support/score_kernel.cuh"

namespace zoomr::inline v0 {

struct rows_of_ranges {
  view<const attending_row<tokens_of_ranges>> rows;
  index_t count = 0;
  ZOOMR_HD attending_row<tokens_of_ranges> at(index_t i) const { return rows[i]; }
};

template <class T, class Logits>
using task = gather_task<T, bfloat16, rows_of_ranges, Logits>;

#define ZOOMR_GATHER(T, HeadDim, Group) \
  template __global__ void gather_attend_kernel<T, HeadDim, Group>(task<T, scaled_logits>);

#define ZOOMR_GATHER_GROUPS(T, HeadDim) \
  ZOOMR_GATHER(T, HeadDim, 1) ZOOMR_GATHER(T, HeadDim, 4) ZOOMR_GATHER(T, HeadDim, 8) ZOOMR_GATHER(T, HeadDim, 16)

ZOOMR_GATHER_GROUPS(bfloat16, 64)
ZOOMR_GATHER_GROUPS(bfloat16, 128)
ZOOMR_GATHER_GROUPS(float8, 128)
ZOOMR_GATHER(bfloat16, 96, 4)
ZOOMR_GATHER(bfloat16, 256, 4)
ZOOMR_GATHER(float, 128, 4)
ZOOMR_GATHER(float16, 128, 4)
ZOOMR_GATHER(int8, 128, 4)
template __global__ void gather_attend_kernel<bfloat16, 128, 4>(task<bfloat16, layer_logits>);

// On tensor cores, as are the groups of 4 and more above whose queries have the type of keys, or these 8 bits.
ZOOMR_GATHER(bfloat16, 96, 8)
ZOOMR_GATHER(bfloat16, 256, 8)
ZOOMR_GATHER(int8, 128, 8)
template __global__ void gather_attend_kernel<float16, 128, 8>(
    gather_task<float16, float16, rows_of_ranges, scaled_logits>);
template __global__ void gather_attend_kernel<bfloat16, 128, 8>(task<bfloat16, layer_logits>);

// Latents of MLA, and values that are narrower than keys.
template __global__ void gather_attend_kernel<bfloat16, 576, 16, task<bfloat16, scaled_logits>, values_in_keys<512>>(
    task<bfloat16, scaled_logits>);
template __global__ void gather_attend_kernel<float8, 576, 16, task<float8, scaled_logits>, values_in_keys<512>>(
    task<float8, scaled_logits>);
template __global__ void gather_attend_kernel<bfloat16, 192, 8, task<bfloat16, scaled_logits>, values_apart<128>>(
    task<bfloat16, scaled_logits>);

// Keys that voters score, beside those of 128 numbers in bfloat16.
#define ZOOMR_VOTERS_KEYS(T, HeadDim)                                          \
  template __global__ void detail::score_by_keys_kernel<HeadDim, key_mass, T>( \
      key_mass, detail::common_arrays<T>, detail::voter_arrays, detail::key_logits);
ZOOMR_VOTERS_KEYS(bfloat16, 64)
ZOOMR_VOTERS_KEYS(float8, 128)

// Whole steps: every kernel of a cache for each way to choose.
template <index_t Group = 4, class Ranks = one_rank, class Policy>
void step_of(const Policy& policy) {
  device_cache<Policy, bfloat16, 128, Group, values_apart<128>, Ranks> cache({1, Group, 1, 128}, policy, config{},
                                                                             nullptr, nullptr);
  auto step = cache.begin(cache.open(), {});
  step.start(nullptr);
  step.append(0, view<const bfloat16, 3>{}, view<const bfloat16, 3>{}, nullptr);
  step.attend(0, view<const bfloat16, 3>{}, view<bfloat16, 3>{}, {}, nullptr);
  step.attend(0, view<const bfloat16, 3>{}, view<const bfloat16, 3>{}, view<const bfloat16, 3>{}, view<bfloat16, 3>{},
              {}, nullptr);
  step.commit(1, nullptr);
}

// What an engine with kernels of its own calls, forks, and sequences that move.
void others(any_kv_cache<bfloat16>& host) {
  constexpr auto in_engine = with_placement(presets::sentence_kv, engine_pages{});
  device_cache<std::remove_const_t<decltype(in_engine)>, bfloat16, 128, 4> cache({1, 4, 1, 128}, in_engine, config{},
                                                                                 nullptr, nullptr);
  cache.block_table(cache.fork(cache.open(), nullptr), {}, nullptr);
  auto step = cache.begin(cache.open(), {});
  step.append(0);
  step.append_slots({}, nullptr);
  step.list_slots(0, view<const bfloat16, 3>{}, {}, {}, nullptr);
  constexpr auto by_sums = compose(sentences{}, key_mean{}, mean_dot{}, running_mean{}, fill_budget{}, boundaries{});
  device_cache<std::remove_const_t<decltype(by_sums)>, bfloat16, 128, 4> moving({1, 4, 1, 128}, by_sums, config{},
                                                                                nullptr, nullptr);
  to_device(host, to_host(moving, moving.open(), host, nullptr), moving, nullptr);
}

// A model with MLA, alone and as one group of layers.
template <class Policy>
void latents_of(const Policy& policy) {
  using cache_type = device_cache<Policy, bfloat16, 576, 16, values_in_keys<512>>;
  cache_type cache({1, 16, 1, 576, 512, true}, policy, config{}, nullptr, nullptr);
  auto step = cache.begin(cache.open(), {});
  step.start(nullptr);
  step.append(0, view<const bfloat16, 3>{}, nullptr);
  step.attend(0, view<const bfloat16, 3>{}, view<const bfloat16, 3>{}, view<bfloat16, 3>{}, {}, nullptr);
  step.commit(1, nullptr);
}

void steps() {
  latents_of(presets::sentence_box);
  step_of(presets::zoomr_one_pass);
  step_of(presets::zoomr_mass);
  step_of(presets::zoomr_focus);
  step_of(presets::sentence_box);
  step_of(compose(fixed_pages{.longest = 8}, key_mean{}, mean_dot{}, pooled_mass{}, top_k{.segments = 256},
                  every_token{}, zones{.recent = 32, .open = unlimited}, placement{.details_on_host = true}));
  step_of(
      compose(sentences{}, stored_as<bfloat16>(key_mean{}), mean_dot{}, running_mean{}, fill_budget{}, boundaries{}));
  step_of(presets::sentence_kv);
  step_of(presets::r_kv);
  step_of(with_placement(presets::quest, tiered<>{}));
  step_of(presets::zoomr_voters);
  step_of<1>(presets::quest);
  step_of<4, several_ranks>(presets::zoomr_focus);
  step_of<4, several_ranks>(presets::zoomr_voters);
}

}  // namespace zoomr::inline v0

namespace zoomr_test {

using namespace zoomr;

// Scores, as layer_kernel makes them too.
template __global__ void
    score_kernel<4, 128, running_mean, mean_dot, detail::rows_to_score<bfloat16, bfloat16, bfloat16>>(
        running_mean, mean_dot, detail::rows_to_score<bfloat16, bfloat16, bfloat16>);
template __global__ void
    score_kernel<4, 128, running_mean, mean_dot, detail::rows_to_score<bfloat16, bfloat16, float8>>(
        running_mean, mean_dot, detail::rows_to_score<bfloat16, bfloat16, float8>);

// The best k of rows of floats.
template __global__ void top_k_kernel<float>(view<const float, 2>, view<index_t, 2>, view<index_t>);

}  // namespace zoomr_test
