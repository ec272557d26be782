// SPDX-License-Identifier: Apache-2.0
// L5. What compose() says of arguments that do not fit: a sentence for each thing that a component may lack, and for
// each pair that cannot work together.
#pragma once

#include <zoomr/policy/concepts.hpp>
#include <zoomr/policy/select/select_none.hpp>

namespace zoomr {
inline namespace v0 {
namespace detail {

/// Is this argument of compose() a component of that role?
template <class T, class Role>
inline constexpr bool plays = false;
template <class T, class Role>
requires requires { typename T::role; }
inline constexpr bool plays<T, Role> = std::same_as<typename T::role, Role>;

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

/// The part of check_component for evictors.
template <class T>
constexpr bool check_evictor() {
  static_assert(evictor<T> || !evictor<T, T>, "compose: a member function of this evictor is not const");
  static_assert(evictor<T> || evictor<T, T>, "compose: an evictor needs `observes` and `kept(tokens)`");
  if constexpr (!evictor<T>) {
    return false;
  } else if constexpr (!T::observes) {
    return true;
  } else {
    static_assert(observer<T> || !observer<T, T>, "compose: a member function of this evictor is not const");
    static_assert(observer<T> || observer<T, T>,
                  "compose: an evictor that observes attention needs `accumulates`, `reads_keys`, `while_decoding`, "
                  "`observed(tokens)`, `safe(tokens)` and `rate(const kv_lane_attention&, view<float>)`");
    if constexpr (!observer<T>) {
      return false;
    } else {
      static_assert(!T::while_decoding || decoding_observer<T>,
                    "compose: an evictor that works while decoding needs `every`, a number of tokens");
      static_assert(!importance_updater<T> || T::reads_keys,
                    "compose: an evictor with `update_importance` must read keys: reads_keys = true");
      return !T::while_decoding || decoding_observer<T>;
    }
  }
}

/// One sentence for each thing that a foreign component may lack.
/// @return  true if it lacks nothing
template <class T>
constexpr bool check_component() {
  static_assert(has_role<T>(), "compose: this argument is not a component; it needs `using role = zoomr::role::...`");
  static_assert(std::regular<T> && std::is_trivially_copyable_v<T>,
                "compose: a component must be a value: default constructible, copyable as bytes, with ==");
  if constexpr (plays<T, role::segmenter>) {
    static_assert(segmenter<T> || !segmenter<T, T>, "compose: a member function of this segmenter is not const");
    static_assert(segmenter<T> || segmenter<T, T>,
                  "compose: a segmenter needs `state`, `longest`, `feed(state&, token_class, position, closings&)`, "
                  "`end_of_prompt(state&, position, closings&)` and `open_begin(state)`, all const");
    return segmenter<T>;
  } else if constexpr (plays<T, role::evictor>) {
    return check_evictor<T>();
  } else if constexpr (plays<T, role::summarizer>) {
    static_assert(summarizer<T> || !summarizer<T, T>, "compose: a member function of this summarizer is not const");
    static_assert(summarizer<T> || summarizer<T, T>,
                  "compose: a summarizer needs `summary` (a tag with rows), `open()`, `fold(cells&, key)` and "
                  "`close(cells&, count)`, all const; or `make(keys, order, work, out)`");
    return summarizer<T>;
  } else if constexpr (plays<T, role::query_source>) {
    static_assert(query_source<T> || !query_source<T, T>,
                  "compose: a member function of this query source is not const");
    static_assert(query_source<T> || query_source<T, T>,
                  "compose: a query source needs `sums` and `query(query, sum, count)`");
    return query_source<T>;
  } else if constexpr (plays<T, role::scorer>) {
    static_assert(scorer<T> || !scorer<T, T>, "compose: a member function of this scorer is not const");
    static_assert(scorer<T> || scorer<T, T>,
                  "compose: a scorer needs `summary` (what it reads) and `term(acc, query, cells)`; if it has several "
                  "`sums`, `finish(score_sums)` too");
    return scorer<T>;
  } else if constexpr (plays<T, role::aggregator>) {
    static_assert(aggregator<T> || !aggregator<T, T>, "compose: a member function of this aggregator is not const");
    static_assert(aggregator<T> || aggregator<T, T>,
                  "compose: an aggregator needs `per`, `least`, `counts` and "
                  "`add(scores, tokens, head_dim, votes, order)`");
    return aggregator<T>;
  } else if constexpr (plays<T, role::selector>) {
    static_assert(selector<T> || !selector<T, T>, "compose: a member function of this selector is not const");
    static_assert(selector<T> || selector<T, T>,
                  "compose: a selector needs `choose(best_first&, const selection_input&, selection_row&)`");
    return selector<T>;
  } else if constexpr (plays<T, role::refresh>) {
    static_assert(refresh_rule<T> || !refresh_rule<T, T>,
                  "compose: a member function of this refresh rule is not const");
    static_assert(refresh_rule<T> || refresh_rule<T, T>,
                  "compose: a refresh rule needs `due(event)`, `second_pass`, `each_token` and `drift()`");
    return refresh_rule<T>;
  } else {
    return component<T> && has_role<T>();
  }
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
}  // namespace v0
}  // namespace zoomr
