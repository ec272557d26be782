// SPDX-License-Identifier: Apache-2.0
// L5. A policy is ten components, one for each question; compose() puts them together in any order, gives defaults to
// what is not named, and refuses in a sentence what does not fit.
#pragma once

#include <zoomr/policy/aggregate/pooled_score.hpp>
#include <zoomr/policy/checks.hpp>
#include <zoomr/policy/evict/keep_all.hpp>
#include <zoomr/policy/placement/placement.hpp>
#include <zoomr/policy/query/last_query.hpp>
#include <zoomr/policy/refresh/after_prefill.hpp>
#include <zoomr/policy/score/mean_dot.hpp>
#include <zoomr/policy/segment/unsegmented.hpp>
#include <zoomr/policy/select/select_none.hpp>
#include <zoomr/policy/summarize/no_summary.hpp>
#include <zoomr/policy/zones.hpp>

#include <string>  // std::string

namespace zoomr::inline v0 {

/// What compose() makes. Members can be read and changed like those of any value: a change of an option is a change of
/// the policy, whose `problem` a cache checks again when it is constructed.
template <segmenter Segmenter, evictor Evictor, summarizer Summarizer, query_source QuerySource, scorer Scorer,
          aggregator Aggregator, selector Selector, refresh_rule Refresh, component Zones, component Placement>
struct policy {
  Segmenter segment;
  Evictor evict;
  Summarizer summarize;
  QuerySource query;
  Scorer score;
  Aggregator aggregate;
  Selector select;
  Refresh refresh;
  Zones zone;
  Placement placement;

  /// Segments are scored and chosen; false: the zones and summaries are all that is attended.
  static constexpr bool selects =
      (Summarizer::summary::rows > 0 || key_scorer<Scorer>)&&!std::same_as<Selector, select_none>;

  /// nullptr, or a sentence: which option, or which pair of options, cannot work.
  constexpr const char* problem() const;

  /// visit(component) for each of the ten.
  static constexpr void each_component(auto& self, auto visit) {
    visit(self.segment);
    visit(self.evict);
    visit(self.summarize);
    visit(self.query);
    visit(self.score);
    visit(self.aggregate);
    visit(self.select);
    visit(self.refresh);
    visit(self.zone);
    visit(self.placement);
  }
  friend constexpr bool operator==(const policy&, const policy&) = default;
};

namespace detail {

/// The argument that plays `Role`, or `fallback`. That there is at most one has been checked.
template <class Role, class Default>
constexpr Default pick(Default fallback) {
  return fallback;
}
template <class Role, class Default, class First, class... Rest>
constexpr auto pick(Default fallback, First first, Rest... rest) {
  if constexpr (plays<First, Role>) {
    return first;
  } else {
    return pick<Role>(fallback, rest...);
  }
}

}  // namespace detail

template <segmenter Segmenter, evictor Evictor, summarizer Summarizer, query_source QuerySource, scorer Scorer,
          aggregator Aggregator, selector Selector, refresh_rule Refresh, component Zones, component Placement>
constexpr const char* policy<Segmenter, Evictor, Summarizer, QuerySource, Scorer, Aggregator, Selector, Refresh, Zones,
                             Placement>::problem() const {
  const char* found = nullptr;
  each_component(*this, [&](const auto& part) {
    if (found == nullptr) found = problem_of(part);
  });
  if (found != nullptr) return found;
  if constexpr (requires { select.problem_with(zone); }) {
    if (const char* sentence = select.problem_with(zone)) return sentence;
  }
  if (selects && !Aggregator::counts && aggregate.per == scope::sequence) {
    return "votes of different layers cannot be pooled by this aggregator: use one whose votes add up, like head_mass";
  }
  if constexpr (share_aggregator<Aggregator>) {
    if (refresh.second_pass) return "heads that vote by their shares make one choice a token: no second pass";
  }
  if constexpr (Evictor::observes) {
    if (aggregate.per == scope::sequence || aggregate.per == scope::layer) {
      return "each KV head keeps tokens of its own, so the selection must be per KV head or query head";
    }
    if (zone.preamble > 0) {
      return "zones: an evictor that observes keeps no preamble: raise sinks, or name a span, and set preamble to 0";
    }
    if (zone.question > 0 && std::int64_t{zone.sinks} + evict.safe(unlimited) + zone.question > evict.kept(unlimited)) {
      return "zones: sinks, question and the last tokens that the evictor keeps in any case must fit what it keeps";
    }
  }
  if (placement.frees_unreachable) {
    if (selects || Evictor::observes || zone.dense_layers > 0 || !std::same_as<Refresh, after_prefill>) {
      return "a placement that frees what is unreachable evicts for good: it takes no selector, refresh, eviction or "
             "dense layers";
    }
  }
  return nullptr;
}

/// The type of a policy that is a constant: policy_of<presets::quest>.
template <const auto& Policy>
using policy_of = std::remove_cvref_t<decltype(Policy)>;

namespace detail {

template <class T>
inline constexpr bool is_policy = requires(const T& value) {
  value.placement;
  value.problem();
};

/// The placement of a cache's policy.
template <class Policy>
constexpr auto placement_of() {
  static_assert(is_policy<Policy>,
                "kv_cache<Policy, T>: the policy comes first, as in kv_cache<policy_of<mine>, bfloat16>");
  if constexpr (is_policy<Policy>) {
    return Policy{}.placement;
  } else {
    return placement{};
  }
}

inline std::string option_name(const char* component, const char* option) {
  return std::string(component) + "." + option;
}
}  // namespace detail

/// visit("component.option", value) for each option of each component, which may be changed.
template <class Policy, class Visit>
void each_option(Policy& policy, Visit visit) {
  std::remove_const_t<Policy>::each_component(policy, [&](auto& part) {
    each_field_of(part, [&](const char* option, auto& value) {
      visit(detail::option_name(name_of<std::remove_cvref_t<decltype(part)>>(), option), value);
    });
  });
}

/// The same policy with another placement: the same selections and outputs, with other bytes moved or counted.
template <component Placement, class Segmenter, class Evictor, class Summarizer, class QuerySource, class Scorer,
          class Aggregator, class Selector, class Refresh, class Zones, class Old>
constexpr auto with_placement(
    const policy<Segmenter, Evictor, Summarizer, QuerySource, Scorer, Aggregator, Selector, Refresh, Zones, Old>& old,
    Placement placement) {
  return policy<Segmenter, Evictor, Summarizer, QuerySource, Scorer, Aggregator, Selector, Refresh, Zones, Placement>{
      old.segment,   old.evict,  old.summarize, old.query, old.score,
      old.aggregate, old.select, old.refresh,   old.zone,  placement};
}

/// Puts a policy together from components in any order; what is not named has a default.
///
/// Defaults: unsegmented, keep_all, no_summary, last_query, mean_dot, pooled_score per KV head,
/// select_none, after_prefill, zones{}, placement{}. What cannot work whatever the options are does not compile, with a
/// sentence (policy/checks.hpp); what depends on options is `policy::problem`, which a cache checks.
template <class... Components>
constexpr auto compose(Components... components) {
  constexpr bool each_is_one = (detail::check_component<Components>() && ...);
  if constexpr (each_is_one && detail::check_roles<Components...>()) {
    const auto summarize = detail::pick<role::summarizer>(no_summary{}, components...);
    const auto score = detail::pick<role::scorer>(mean_dot{}, components...);
    const auto select = detail::pick<role::selector>(select_none{}, components...);
    const auto aggregate = detail::pick<role::aggregator>(pooled_score{}, components...);
    const auto segment = detail::pick<role::segmenter>(unsegmented{}, components...);
    static_assert(detail::check_pairs<std::remove_const_t<decltype(segment)>, std::remove_const_t<decltype(summarize)>,
                                      std::remove_const_t<decltype(score)>, std::remove_const_t<decltype(aggregate)>,
                                      std::remove_const_t<decltype(select)>, Components...>());
    const auto evict = detail::pick<role::evictor>(keep_all{}, components...);
    const auto query = detail::pick<role::query_source>(last_query{}, components...);
    const auto refresh = detail::pick<role::refresh>(after_prefill{}, components...);
    const auto zone = detail::pick<role::zones>(zones{}, components...);
    const auto place = detail::pick<role::placement>(placement{}, components...);
    return policy<std::remove_const_t<decltype(segment)>, std::remove_const_t<decltype(evict)>,
                  std::remove_const_t<decltype(summarize)>, std::remove_const_t<decltype(query)>,
                  std::remove_const_t<decltype(score)>, std::remove_const_t<decltype(aggregate)>,
                  std::remove_const_t<decltype(select)>, std::remove_const_t<decltype(refresh)>,
                  std::remove_const_t<decltype(zone)>, std::remove_const_t<decltype(place)>>{
        segment, evict, summarize, query, score, aggregate, select, refresh, zone, place};
  }
}

}  // namespace zoomr::inline v0
