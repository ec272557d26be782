// SPDX-License-Identifier: Apache-2.0
// L5. A policy is ten components, one for each question; compose() puts them together in any order, gives
// defaults to what is not named, and says in a sentence what does not fit.
#pragma once

#include <zoomr/policy/aggregate/pooled_score.hpp>
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

namespace zoomr {
inline namespace v0 {

/// What compose() makes. Members can be read and changed like those of any value.
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

  /// Segments are scored and chosen; otherwise the zones and summaries are all there is.
  static constexpr bool selects = Summarizer::summary::rows > 0 && !std::same_as<Selector, select_none>;

  /// nullptr, or the sentence that says which option, or which pair of options, cannot work.
  constexpr const char* problem() const;

  /// visit(component) for each of the ten.
  static constexpr void each_component(auto& self, auto visit) {
    visit(self.segment), visit(self.evict), visit(self.summarize), visit(self.query), visit(self.score);
    visit(self.aggregate), visit(self.select), visit(self.refresh), visit(self.zone), visit(self.placement);
  }
  friend constexpr bool operator==(const policy&, const policy&) = default;
};

namespace detail {

/// Is this argument of compose() a component of that role?
template <class T, class Role>
inline constexpr bool plays = false;
template <class T, class Role>
requires requires { typename T::role; }
inline constexpr bool plays<T, Role> = std::same_as<typename T::role, Role>;

/// The argument that plays `Role`, or `fallback`.
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

template <class T>
constexpr bool has_role() {
  if constexpr (requires { typename T::role; }) {
    return plays<T, role::segmenter> || plays<T, role::evictor> || plays<T, role::summarizer> ||
           plays<T, role::query_source> || plays<T, role::scorer> || plays<T, role::aggregator> ||
           plays<T, role::selector> || plays<T, role::refresh> || plays<T, role::zones> || plays<T, role::placement>;
  } else {
    return false;
  }
}

template <class Role, class... Components>
inline constexpr int players = (0 + ... + (plays<Components, Role> ? 1 : 0));

template <class T>
constexpr void check_evictor() {
  static_assert(evictor<T>, "compose: an evictor needs `observes` and `kept(prompt_tokens)`");
  if constexpr (evictor<T>) {
    if constexpr (T::observes) {
      static_assert(observer<T> || !observer<T, T>, "compose: a member function of this evictor is not const");
      static_assert(observer<T>,
                    "compose: an evictor that observes attention needs `accumulates`, `reads_keys`, `while_decoding`, "
                    "`observed(tokens)`, `safe(tokens)` and `rate(const kv_lane_attention&, view<float>)`");
      if constexpr (observer<T>) {
        static_assert(!T::while_decoding || decoding_observer<T>,
                      "compose: an evictor that works while decoding needs `every`, a number of tokens");
      }
    }
  }
}

/// One sentence for each thing that a foreign component may lack.
template <class T>
constexpr bool check_component() {
  static_assert(has_role<T>(), "compose: this argument is not a component; it needs `using role = zoomr::role::...`");
  static_assert(std::regular<T> && std::is_trivially_copyable_v<T>,
                "compose: a component must be a value: default constructible, copyable as bytes, with ==");
  if constexpr (plays<T, role::segmenter>) {
    static_assert(segmenter<T> || !segmenter<T, T>, "compose: a member function of this segmenter is not const");
    static_assert(segmenter<T>,
                  "compose: a segmenter needs `state`, `longest`, `feed(state&, token_class, position, closings&)`, "
                  "`end_of_prompt(state&, position, closings&)` and `open_begin(state)`, all const");
  } else if constexpr (plays<T, role::evictor>) {
    static_assert(evictor<T> || !evictor<T, T>, "compose: a member function of this evictor is not const");
    check_evictor<T>();
  } else if constexpr (plays<T, role::summarizer>) {
    static_assert(summarizer<T> || !summarizer<T, T>, "compose: a member function of this summarizer is not const");
    static_assert(summarizer<T>,
                  "compose: a summarizer needs `summary` (a tag with rows), `open()`, `fold(cells&, key)` and "
                  "`close(cells&, count)`, all const; or `make(keys, order, work, out)`");
  } else if constexpr (plays<T, role::query_source>) {
    static_assert(query_source<T> || !query_source<T, T>,
                  "compose: a member function of this query source is not const");
    static_assert(query_source<T>, "compose: a query source needs `sums` and `query(query, sum, count)`");
  } else if constexpr (plays<T, role::scorer>) {
    static_assert(scorer<T> || !scorer<T, T>, "compose: a member function of this scorer is not const");
    static_assert(scorer<T>,
                  "compose: a scorer needs `summary` (what it reads) and `term(acc, query, cells)`; if it has several "
                  "`sums`, `finish(score_sums)` too");
  } else if constexpr (plays<T, role::aggregator>) {
    static_assert(aggregator<T> || !aggregator<T, T>, "compose: a member function of this aggregator is not const");
    static_assert(aggregator<T>,
                  "compose: an aggregator needs `per`, `least`, `counts` and "
                  "`add(scores, tokens, head_dim, votes, order)`");
  } else if constexpr (plays<T, role::selector>) {
    static_assert(selector<T> || !selector<T, T>, "compose: a member function of this selector is not const");
    static_assert(selector<T>,
                  "compose: a selector needs `choose(best_first&, const selection_input&, selection_row&)`");
  } else if constexpr (plays<T, role::refresh>) {
    static_assert(refresh_rule<T> || !refresh_rule<T, T>,
                  "compose: a member function of this refresh rule is not const");
    static_assert(refresh_rule<T>,
                  "compose: a refresh rule needs `due(event)`, `second_pass`, `each_token` and `drift()`");
  }
  return true;
}

template <class... Components>
constexpr bool check_roles() {
  static_assert(players<role::segmenter, Components...> <= 1, "compose: two segmenters were given");
  static_assert(players<role::evictor, Components...> <= 1, "compose: two evictors were given");
  static_assert(players<role::summarizer, Components...> <= 1, "compose: two summarizers were given");
  static_assert(players<role::query_source, Components...> <= 1, "compose: two query sources were given");
  static_assert(players<role::scorer, Components...> <= 1, "compose: two scorers were given");
  static_assert(players<role::aggregator, Components...> <= 1, "compose: two aggregators were given");
  static_assert(players<role::selector, Components...> <= 1, "compose: two selectors were given");
  static_assert(players<role::refresh, Components...> <= 1, "compose: two refresh rules were given");
  static_assert(players<role::zones, Components...> <= 1, "compose: zones were given twice");
  static_assert(players<role::placement, Components...> <= 1, "compose: two placements were given");
  return true;
}

/// Named so that the compiler, saying where it was, names both tags.
template <class Read, class Made>
struct scorer_reads_but_summarizer_makes {
  static_assert(std::same_as<Read, Made>, "compose: this scorer cannot read the summaries that this summarizer makes");
  static constexpr bool checked = true;
};

template <class Summarizer, class Scorer, class Aggregator, class Selector>
constexpr bool check_pairs() {
  if constexpr (requires { Selector::needs_counts; }) {
    static_assert(!Selector::needs_counts || Aggregator::counts,
                  "compose: this selector needs an aggregator whose votes add up, like head_mass");
  }
  if constexpr (Summarizer::summary::rows > 0) {
    static_assert(scorer_reads_but_summarizer_makes<typename Scorer::summary, typename Summarizer::summary>::checked);
  } else {
    static_assert(std::same_as<Selector, select_none>,
                  "compose: a selector needs a summarizer: without summaries no segment can be scored");
  }
  return true;
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
  if constexpr (Evictor::observes) {
    if (aggregate.per == scope::sequence || aggregate.per == scope::layer) {
      return "each KV head keeps tokens of its own, so the selection must be per KV head or query head";
    }
  }
  if (refresh.second_pass && refresh.drift() >= -1.0f) {
    return "a refresh that depends on drift cannot have a second pass: whether it chooses is known only after the pass";
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

/// visit("component.option", value) for each option of each component, which may be changed.
template <class Policy, class Visit>
void each_option(Policy& policy, Visit visit) {
  std::remove_const_t<Policy>::each_component(policy, [&](auto& part) {
    const std::string component = name_of<std::remove_cvref_t<decltype(part)>>();
    each_field_of(part, [&](const char* option, auto& value) { visit(component + "." + option, value); });
  });
}

/// The same policy with another placement.
template <component Placement, class Segmenter, class Evictor, class Summarizer, class QuerySource, class Scorer,
          class Aggregator, class Selector, class Refresh, class Zones, class Old>
constexpr auto with_placement(
    const policy<Segmenter, Evictor, Summarizer, QuerySource, Scorer, Aggregator, Selector, Refresh, Zones, Old>& of,
    Placement placement) {
  return policy<Segmenter, Evictor, Summarizer, QuerySource, Scorer, Aggregator, Selector, Refresh, Zones, Placement>{
      of.segment, of.evict, of.summarize, of.query, of.score, of.aggregate, of.select, of.refresh, of.zone, placement};
}

/// Puts a policy together from components in any order; what is not named has a default.
///
/// Defaults: unsegmented, keep_all, no_summary, last_query, mean_dot, pooled_score per KV head,
/// select_none, after_prefill, zones{}, placement{}.
template <class... Components>
constexpr auto compose(Components... components) {
  constexpr bool each_is_one = (detail::check_component<Components>() && ...);
  if constexpr (each_is_one && detail::check_roles<Components...>()) {
    const auto summarize = detail::pick<role::summarizer>(no_summary{}, components...);
    const auto score = detail::pick<role::scorer>(mean_dot{}, components...);
    const auto select = detail::pick<role::selector>(select_none{}, components...);
    const auto aggregate = detail::pick<role::aggregator>(pooled_score{}, components...);
    static_assert(
        detail::check_pairs<std::remove_const_t<decltype(summarize)>, std::remove_const_t<decltype(score)>,
                            std::remove_const_t<decltype(aggregate)>, std::remove_const_t<decltype(select)>>());
    const auto segment = detail::pick<role::segmenter>(unsegmented{}, components...);
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

}  // namespace v0
}  // namespace zoomr
