// SPDX-License-Identifier: Apache-2.0
// Compiles only if each component plays its role and no other, and if the concepts refuse what lacks something.
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/zoomr.hpp>

namespace zoomr {

static_assert(segmenter<fixed_pages> && segmenter<sentences> && segmenter<thoughts> && segmenter<unsegmented>);
static_assert(segmenter<code_segments>);
static_assert(evictor<keep_all> && evictor<observation_window>);
static_assert(evictor<accumulated_attention> && evictor<redundancy_aware>);
static_assert(importance_updater<redundancy_aware> && !importance_updater<observation_window>);
static_assert(observer<observation_window> && !decoding_observer<observation_window> && !observer<keep_all>);
static_assert(decoding_observer<accumulated_attention> && decoding_observer<redundancy_aware>);
static_assert(summarizer<key_mean> && summarizer<key_box> && summarizer<key_cuboid> && summarizer<no_summary>);
static_assert(block_summarizer<key_cuboid> && !block_summarizer<key_mean> && !dimension_summarizer<key_cuboid>);
static_assert(query_source<last_query> && query_source<running_mean>);
static_assert(scorer<mean_dot> && scorer<box_bound>);
static_assert(weighing_aggregator<decltype(weighted(head_mass{}))> && !weighing_aggregator<head_mass>);
static_assert(weight_taker<head_votes> && !weight_taker<pooled_mass> && !weight_taker<head_posterior>);
static_assert(aggregator<head_votes> && aggregator<head_mass> && aggregator<pooled_score> && aggregator<pooled_mass>);
static_assert(selector<top_k> && selector<fill_budget> && selector<select_none>);
static_assert(refresh_rule<boundaries> && refresh_rule<every_token> && refresh_rule<after_prefill>);
static_assert(component<zones> && component<placement> && component<tiered<>>);

/// How many roles does this play?
template <class T>
inline constexpr int roles = segmenter<T> + evictor<T> + summarizer<T> + query_source<T> + scorer<T> + aggregator<T> +
                             selector<T> + refresh_rule<T>;
static_assert(roles<fixed_pages> == 1 && roles<sentences> == 1 && roles<thoughts> == 1 && roles<unsegmented> == 1);
static_assert(roles<code_segments> == 1);
static_assert(roles<keep_all> == 1 && roles<observation_window> == 1);
static_assert(roles<accumulated_attention> == 1 && roles<redundancy_aware> == 1);
static_assert(roles<key_cuboid> == 1 && roles<key_mean> == 1 && roles<key_box> == 1 && roles<no_summary> == 1);
static_assert(roles<last_query> == 1 && roles<running_mean> == 1);
static_assert(roles<mean_dot> == 1 && roles<box_bound> == 1);
static_assert(roles<head_votes> == 1 && roles<head_mass> == 1 && roles<pooled_score> == 1 && roles<pooled_mass> == 1);
static_assert(roles<top_k> == 1 && roles<fill_budget> == 1 && roles<select_none> == 1);
static_assert(roles<boundaries> == 1 && roles<every_token> == 1 && roles<after_prefill> == 1);
static_assert(roles<zones> == 0 && roles<placement> == 0 && roles<int> == 0);

static_assert(scorer_for<mean_dot, key_mean> && scorer_for<box_bound, key_box> && scorer_for<box_bound, key_cuboid>);
static_assert(!scorer_for<mean_dot, key_box> && !scorer_for<box_bound, key_mean>);
static_assert(!scorer_for<mean_dot, no_summary> && !scorer_for<key_mean, mean_dot>);

// What is missing makes the difference.
struct bare {
  using role = role::query_source;
  friend constexpr bool operator==(bare, bare) = default;
};
struct whole : bare {
  static constexpr bool sums = false;
  constexpr float query(float query, float, index_t) const { return query; }
};
struct in_double : whole {
  constexpr double query(float query, float, index_t) const { return query; }
};
struct changing : whole {
  constexpr float query(float query, float, index_t) { return query; }
};
struct without_role {
  static constexpr bool sums = false;
  constexpr float query(float query, float, index_t) const { return query; }
  friend constexpr bool operator==(without_role, without_role) = default;
};
static_assert(component<bare> && !query_source<bare>);
static_assert(query_source<whole>);
static_assert(!query_source<in_double> && !query_source<changing> && !query_source<without_role> &&
              !component<without_role>);

struct not_comparable {
  using role = role::placement;
};
struct not_copyable_as_bytes {
  using role = role::placement;
  not_copyable_as_bytes() = default;
  not_copyable_as_bytes(const not_copyable_as_bytes&) {}
  not_copyable_as_bytes& operator=(const not_copyable_as_bytes&) = default;
  friend bool operator==(const not_copyable_as_bytes&, const not_copyable_as_bytes&) = default;
};
static_assert(!component<not_comparable> && !component<not_copyable_as_bytes> && !component<int>);

}  // namespace zoomr
