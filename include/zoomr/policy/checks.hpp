// SPDX-License-Identifier: Apache-2.0
// L5. How compose() refuses arguments that do not fit: a sentence for each thing that a component may lack, and for
// each pair that cannot work together.
#pragma once

#include <zoomr/policy/concepts.hpp>
#include <zoomr/policy/segment/unsegmented.hpp>
#include <zoomr/policy/select/select_none.hpp>

namespace zoomr::inline v0::detail {

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
  static_assert(evictor<T> || evictor<T, T>,
                "compose: an evictor needs `static constexpr bool observes` and `index_t kept(index_t tokens) const`");
  if constexpr (!evictor<T>) {
    return false;
  } else if constexpr (!T::observes) {
    return true;
  } else {
    static_assert(observer<T> || !observer<T, T>, "compose: a member function of this evictor is not const");
    static_assert(observer<T> || observer<T, T>,
                  "compose: an evictor that observes attention needs `static constexpr bool accumulates, reads_keys, "
                  "while_decoding`, `index_t observed(index_t tokens) const`, `index_t safe(index_t tokens) const` and "
                  "`void rate(const kv_lane_attention&, view<float> importance) const`");
    if constexpr (!observer<T>) {
      return false;
    } else {
      static_assert(!T::while_decoding || decoding_observer<T>,
                    "compose: an evictor that works while decoding needs `index_t every`, a number of tokens");
      static_assert(!importance_updater<T> || T::reads_keys,
                    "compose: an evictor with `update_importance` must read keys: reads_keys = true");
      static_assert(!importance_updater<T> || !T::accumulates,
                    "compose: an evictor with `update_importance` adds up nothing: accumulates = false");
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
                  "compose: a segmenter needs the type `state` (copyable as bytes, with ==), `index_t longest`, `void "
                  "feed(state&, token_class, index_t position, closings&) const`, `void end_of_prompt(state&, index_t "
                  "position, closings&) const` and `index_t open_begin(const state&) const`");
    return segmenter<T>;
  } else if constexpr (plays<T, role::evictor>) {
    return check_evictor<T>();
  } else if constexpr (plays<T, role::summarizer>) {
    static_assert(summarizer<T> || !summarizer<T, T>, "compose: a member function of this summarizer is not const");
    static_assert(summarizer<T> || summarizer<T, T>,
                  "compose: a summarizer needs `summary` (a tag with rows), `cells<summary::rows> open() const`, `void "
                  "fold(cells<summary::rows>&, float key) const` and `void close(cells<summary::rows>&, index_t count) "
                  "const`; or `void make(view<const float, 2> keys, view<index_t> order, view<float> work, view<float, "
                  "2> out) const`");
    return summarizer<T>;
  } else if constexpr (plays<T, role::query_source>) {
    static_assert(query_source<T> || !query_source<T, T>,
                  "compose: a member function of this query source is not const");
    static_assert(query_source<T> || query_source<T, T>,
                  "compose: a query source needs `static constexpr bool sums` and `float query(float own, float sum, "
                  "index_t count) const`");
    return query_source<T>;
  } else if constexpr (plays<T, role::scorer>) {
    static_assert(scorer<T> || !scorer<T, T>, "compose: a member function of this scorer is not const");
    static_assert(
        scorer<T> || scorer<T, T>,
        "compose: a scorer needs `summary` (the tag of what it reads) and `float term(float acc, float query, "
        "const cells<summary::rows>&) const`, as many cells as the tag has rows; with several `sums`, `acc` and "
        "the result are `score_sums<sums>`, and `float finish(const score_sums<sums>&) const` is needed too");
    return scorer<T>;
  } else if constexpr (plays<T, role::aggregator>) {
    static_assert(aggregator<T> || !aggregator<T, T>, "compose: a member function of this aggregator is not const");
    static_assert(aggregator<T> || aggregator<T, T>,
                  "compose: an aggregator needs `scope per`, `static constexpr votes_t least`, `static constexpr bool "
                  "counts` and `void add(view<const float, 2> scores, view<const index_t> tokens, const score_logits& "
                  "logits, view<votes_t> votes, view<index_t> order) const`");
    return aggregator<T>;
  } else if constexpr (plays<T, role::selector>) {
    static_assert(selector<T> || !selector<T, T>, "compose: a member function of this selector is not const");
    static_assert(selector<T> || selector<T, T>,
                  "compose: a selector needs `void choose(best_first&, const selection_input&, selection_row&) const`");
    return selector<T>;
  } else if constexpr (plays<T, role::refresh>) {
    static_assert(refresh_rule<T> || !refresh_rule<T, T>,
                  "compose: a member function of this refresh rule is not const");
    static_assert(refresh_rule<T> || refresh_rule<T, T>,
                  "compose: a refresh rule needs `refresh_action due(const token_event&) const`, `bool second_pass` "
                  "and `bool each_token() const`");
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

/// Named so that the compiler's message names both tags.
template <class Read, class Made>
struct scorer_reads_but_summarizer_makes {
  static_assert(std::same_as<Read, Made>, "compose: this scorer cannot read the summaries that this summarizer makes");
  static constexpr bool checked = true;
};

/// What cannot work together. A summarizer without a selector was forgotten one, unless `select_none` is among the
/// `Components` that were given.
template <class Segmenter, class Summarizer, class Scorer, class Aggregator, class Selector, class... Components>
constexpr bool check_pairs() {
  if constexpr (requires { Selector::needs_counts; }) {
    static_assert(!Selector::needs_counts || Aggregator::counts,
                  "compose: this selector needs an aggregator whose votes add up, like head_mass");
  }
  static_assert(std::same_as<Selector, select_none> || !std::same_as<Segmenter, unsegmented>,
                "compose: a selector needs a segmenter: without one there is nothing to choose from");
  static_assert(!share_aggregator<Aggregator> || key_scorer<Scorer>,
                "compose: this aggregator needs a scorer that reads keys, like key_mass");
  if constexpr (key_scorer<Scorer>) {
    static_assert(Summarizer::summary::rows == 0,
                  "compose: nothing reads the summaries, since the scorer reads keys: leave the summarizer out");
  } else if constexpr (Summarizer::summary::rows > 0) {
    static_assert(
        players<role::selector, Components...> == 1,
        "compose: a summarizer needs a selector: nothing reads its summaries (`select_none{}` if none shall)");
    static_assert(scorer_reads_but_summarizer_makes<typename Scorer::summary, typename Summarizer::summary>::checked);
  } else {
    static_assert(std::same_as<Selector, select_none>,
                  "compose: a selector needs a summarizer, or a scorer that reads keys: otherwise no segment can be "
                  "scored");
  }
  return true;
}

}  // namespace zoomr::inline v0::detail
