// SPDX-License-Identifier: Apache-2.0
// Compiles only if each component plays its role and no other, and if the concepts refuse what lacks something.
#include <zoomr/zoomr.hpp>

namespace zoomr {

static_assert(segmenter<fixed_pages> && segmenter<sentences> && segmenter<thoughts> && segmenter<unsegmented>);
static_assert(retainer<keep_everything> && retainer<observed_attention>);
static_assert(retainer<accumulated_attention> && retainer<distinct_attention> && retainer<lately_best_pages>);
static_assert(hearing_observer<lately_best_pages> && !hearing_observer<observed_attention>);
static_assert(observer<observed_attention> && !decoding_observer<observed_attention> && !observer<keep_everything>);
static_assert(decoding_observer<accumulated_attention> && decoding_observer<distinct_attention>);
static_assert(summarizer<key_mean> && summarizer<key_box> && summarizer<key_cuboid> && summarizer<no_summary> &&
              summarizer<typical_keys>);
static_assert(block_summarizer<typical_keys> && !block_summarizer<key_mean> && !dimension_summarizer<typical_keys>);
static_assert(asker<last_query> && asker<running_mean>);
static_assert(scorer<mean_dot> && scorer<box_bound>);
static_assert(consensus<head_votes> && consensus<head_mass> && consensus<pooled_score> && consensus<pooled_mass>);
static_assert(selector<best_segments> && selector<fill_budget> && selector<take_nothing>);
static_assert(refresh_rule<boundaries> && refresh_rule<every_token> && refresh_rule<never> && refresh_rule<on_drift>);
static_assert(component<zones> && component<resident> && component<details_on_host> && component<evicting>);

/// How many roles does this play?
template <class T>
inline constexpr int roles =
    segmenter<T> + retainer<T> + summarizer<T> + asker<T> + scorer<T> + consensus<T> + selector<T> + refresh_rule<T>;
static_assert(roles<fixed_pages> == 1 && roles<sentences> == 1 && roles<thoughts> == 1 && roles<unsegmented> == 1);
static_assert(roles<keep_everything> == 1 && roles<observed_attention> == 1);
static_assert(roles<accumulated_attention> == 1 && roles<distinct_attention> == 1);
static_assert(roles<typical_keys> == 1 && roles<key_mean> == 1 && roles<key_box> == 1 && roles<no_summary> == 1);
static_assert(roles<last_query> == 1 && roles<running_mean> == 1);
static_assert(roles<mean_dot> == 1 && roles<box_bound> == 1);
static_assert(roles<head_votes> == 1 && roles<head_mass> == 1 && roles<pooled_score> == 1 && roles<pooled_mass> == 1);
static_assert(roles<best_segments> == 1 && roles<fill_budget> == 1 && roles<take_nothing> == 1);
static_assert(roles<boundaries> == 1 && roles<every_token> == 1 && roles<never> == 1 && roles<on_drift> == 1);
static_assert(roles<zones> == 0 && roles<resident> == 0 && roles<int> == 0);

static_assert(scorer_for<mean_dot, key_mean> && scorer_for<mean_dot, typical_keys> && scorer_for<box_bound, key_box> &&
              scorer_for<box_bound, key_cuboid>);
static_assert(!scorer_for<mean_dot, key_box> && !scorer_for<box_bound, key_mean>);
static_assert(!scorer_for<mean_dot, no_summary> && !scorer_for<key_mean, mean_dot>);

// What is missing makes the difference.
struct bare {
  using role = role::asker;
  friend constexpr bool operator==(bare, bare) = default;
};
struct whole : bare {
  static constexpr bool sums = false;
  constexpr float ask(float query, float, index) const { return query; }
};
struct in_double : whole {
  constexpr double ask(float query, float, index) const { return query; }
};
struct changing : whole {
  constexpr float ask(float query, float, index) { return query; }
};
struct without_role {
  static constexpr bool sums = false;
  constexpr float ask(float query, float, index) const { return query; }
  friend constexpr bool operator==(without_role, without_role) = default;
};
static_assert(component<bare> && !asker<bare>);
static_assert(asker<whole>);
static_assert(!asker<in_double> && !asker<changing> && !asker<without_role> && !component<without_role>);

struct not_comparable {
  using role = role::store;
};
struct not_copyable_as_bytes {
  using role = role::store;
  not_copyable_as_bytes() = default;
  not_copyable_as_bytes(const not_copyable_as_bytes&) {}
  not_copyable_as_bytes& operator=(const not_copyable_as_bytes&) = default;
  friend bool operator==(const not_copyable_as_bytes&, const not_copyable_as_bytes&) = default;
};
static_assert(!component<not_comparable> && !component<not_copyable_as_bytes> && !component<int>);

}  // namespace zoomr
