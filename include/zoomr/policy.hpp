// SPDX-License-Identifier: Apache-2.0
// L5. A policy is ten components, one for each question; compose() puts them together in any order, gives
// defaults to what is not named, and says in a sentence what does not fit.
#pragma once

#include <zoomr/agree/pooled_score.hpp>
#include <zoomr/ask/last_query.hpp>
#include <zoomr/refresh/never.hpp>
#include <zoomr/retain/everything.hpp>
#include <zoomr/score/mean_dot.hpp>
#include <zoomr/segment/none.hpp>
#include <zoomr/select/nothing.hpp>
#include <zoomr/store/placement.hpp>
#include <zoomr/summarize/none.hpp>
#include <zoomr/zones.hpp>

namespace zoomr {
inline namespace v0 {

/// What compose() makes. Members can be read and changed like those of any value.
template <segmenter Segmenter, retainer Retainer, summarizer Summarizer, asker Asker, scorer Scorer,
          consensus Consensus, selector Selector, refresh_rule Refresh, component Zones, component Store>
struct policy {
  Segmenter segment;
  Retainer retain;
  Summarizer summarize;
  Asker ask;
  Scorer score;
  Consensus agree;
  Selector select;
  Refresh refresh;
  Zones zone;
  Store store;

  /// Segments are scored and chosen; otherwise the zones and summaries are all there is.
  static constexpr bool selects = Summarizer::summary::rows > 0 && !std::same_as<Selector, take_nothing>;

  /// nullptr, or the sentence that says which option, or which pair of options, cannot work.
  constexpr const char* problem() const;

  /// visit(component) for each of the ten.
  static constexpr void each_component(auto& self, auto visit) {
    visit(self.segment), visit(self.retain), visit(self.summarize), visit(self.ask), visit(self.score);
    visit(self.agree), visit(self.select), visit(self.refresh), visit(self.zone), visit(self.store);
  }
  friend constexpr bool operator==(const policy&, const policy&) = default;
};

namespace composing {

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
    return plays<T, role::segmenter> || plays<T, role::retainer> || plays<T, role::summarizer> ||
           plays<T, role::asker> || plays<T, role::scorer> || plays<T, role::consensus> || plays<T, role::selector> ||
           plays<T, role::refresh> || plays<T, role::zones> || plays<T, role::store>;
  } else {
    return false;
  }
}

template <class Role, class... Components>
inline constexpr int players = (0 + ... + (plays<Components, Role> ? 1 : 0));

template <class T>
constexpr void check_retainer() {
  static_assert(retainer<T>, "compose: a retainer needs `observes` and `kept(prompt_tokens)`");
  if constexpr (retainer<T>) {
    if constexpr (T::observes) {
      static_assert(observer<T>,
                    "compose: a retainer that observes attention needs `accumulates`, `reads_keys`, `while_decoding`, "
                    "`observed(tokens)`, `safe(tokens)` and `rate(const lane_attention&, view<float>)`");
      if constexpr (observer<T>) {
        static_assert(!T::while_decoding || decoding_observer<T>,
                      "compose: a retainer that works while decoding needs `every`, a number of tokens");
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
    static_assert(segmenter<T>,
                  "compose: a segmenter needs `state`, `longest`, `feed(state&, token_class, position, closings&)`, "
                  "`end_of_prompt(state&, position, closings&)` and `open_begin(state)`, all const");
  } else if constexpr (plays<T, role::retainer>) {
    check_retainer<T>();
  } else if constexpr (plays<T, role::summarizer>) {
    static_assert(summarizer<T>,
                  "compose: a summarizer needs `summary` (a tag with rows), `open()`, `fold(cells&, key)` and "
                  "`close(cells&, count)`, all const; or `make(keys, order, work, out)`");
  } else if constexpr (plays<T, role::asker>) {
    static_assert(asker<T>, "compose: an asker needs `sums` and `ask(query, sum, count)`");
  } else if constexpr (plays<T, role::scorer>) {
    static_assert(scorer<T>, "compose: a scorer needs `summary` (what it reads) and `term(acc, query, cells)`");
  } else if constexpr (plays<T, role::consensus>) {
    static_assert(consensus<T>,
                  "compose: a consensus needs `per`, `least`, `counts` and "
                  "`add(scores, tokens, head_dim, tallies, order)`");
  } else if constexpr (plays<T, role::selector>) {
    static_assert(selector<T>,
                  "compose: a selector needs `choose(best_first&, const selection_input&, selection_row&)`");
  } else if constexpr (plays<T, role::refresh>) {
    static_assert(refresh_rule<T>,
                  "compose: a refresh rule needs `due(event)`, `ask_again`, `each_token` and `drift()`");
  }
  return true;
}

template <class... Components>
constexpr bool check_roles() {
  static_assert(players<role::segmenter, Components...> <= 1, "compose: two segmenters were given");
  static_assert(players<role::retainer, Components...> <= 1, "compose: two retainers were given");
  static_assert(players<role::summarizer, Components...> <= 1, "compose: two summarizers were given");
  static_assert(players<role::asker, Components...> <= 1, "compose: two askers were given");
  static_assert(players<role::scorer, Components...> <= 1, "compose: two scorers were given");
  static_assert(players<role::consensus, Components...> <= 1, "compose: two consensus rules were given");
  static_assert(players<role::selector, Components...> <= 1, "compose: two selectors were given");
  static_assert(players<role::refresh, Components...> <= 1, "compose: two refresh rules were given");
  static_assert(players<role::zones, Components...> <= 1, "compose: zones were given twice");
  static_assert(players<role::store, Components...> <= 1, "compose: two stores were given");
  return true;
}

template <class Summarizer, class Scorer, class Consensus, class Selector>
constexpr bool check_pairs() {
  if constexpr (requires { Selector::needs_counts; }) {
    static_assert(!Selector::needs_counts || Consensus::counts,
                  "compose: this selector needs a consensus whose tallies add up, like head_mass");
  }
  if constexpr (Summarizer::summary::rows > 0) {
    static_assert(scorer_for<Scorer, Summarizer>,
                  "compose: this scorer cannot read the summaries that this summarizer makes");
  } else {
    static_assert(std::same_as<Selector, take_nothing>,
                  "compose: a selector needs a summarizer: without summaries no segment can be scored");
  }
  return true;
}

template <class T>
constexpr const char* problem_of(const T& part) {
  if constexpr (requires { part.problem(); }) {
    return part.problem();
  } else {
    return nullptr;
  }
}

}  // namespace composing

template <segmenter Segmenter, retainer Retainer, summarizer Summarizer, asker Asker, scorer Scorer,
          consensus Consensus, selector Selector, refresh_rule Refresh, component Zones, component Store>
constexpr const char*
policy<Segmenter, Retainer, Summarizer, Asker, Scorer, Consensus, Selector, Refresh, Zones, Store>::problem() const {
  const char* found = nullptr;
  each_component(*this, [&](const auto& part) {
    if (found == nullptr) found = composing::problem_of(part);
  });
  if (found != nullptr) return found;
  if constexpr (requires { select.problem_with(zone); }) {
    if (const char* sentence = select.problem_with(zone)) return sentence;
  }
  if constexpr (Retainer::observes) {
    if (agree.per == scope::sequence || agree.per == scope::layer) {
      return "each KV head retains tokens of its own, so the selection must be per KV head or query head";
    }
  }
  if (refresh.ask_again && refresh.drift() >= -1.0f) {
    return "a refresh that depends on drift cannot ask again: whether it chooses is known only after the pass";
  }
  if constexpr (Store::evicts) {
    if (selects || Retainer::observes || zone.dense_layers > 0 || !std::same_as<Refresh, never>) {
      return "an evicting store gives tokens up for good: it takes no selector, refresh, retention or dense layers";
    }
  }
  return nullptr;
}

/// The same policy with another store.
template <component Store, class Segmenter, class Retainer, class Summarizer, class Asker, class Scorer,
          class Consensus, class Selector, class Refresh, class Zones, class Old>
constexpr auto with_store(
    const policy<Segmenter, Retainer, Summarizer, Asker, Scorer, Consensus, Selector, Refresh, Zones, Old>& of,
    Store store) {
  return policy<Segmenter, Retainer, Summarizer, Asker, Scorer, Consensus, Selector, Refresh, Zones, Store>{
      of.segment, of.retain, of.summarize, of.ask, of.score, of.agree, of.select, of.refresh, of.zone, store};
}

/// Puts a policy together from components in any order; what is not named has a default.
///
/// Defaults: unsegmented, keep_everything, no_summary, last_query, mean_dot, pooled_score per KV head,
/// take_nothing, never, zones{}, resident.
template <class... Components>
constexpr auto compose(Components... components) {
  constexpr bool each_is_one = (composing::check_component<Components>() && ...);
  if constexpr (each_is_one && composing::check_roles<Components...>()) {
    const auto summarize = composing::pick<role::summarizer>(no_summary{}, components...);
    const auto score = composing::pick<role::scorer>(mean_dot{}, components...);
    const auto select = composing::pick<role::selector>(take_nothing{}, components...);
    const auto agree = composing::pick<role::consensus>(pooled_score{}, components...);
    static_assert(
        composing::check_pairs<std::remove_const_t<decltype(summarize)>, std::remove_const_t<decltype(score)>,
                               std::remove_const_t<decltype(agree)>, std::remove_const_t<decltype(select)>>());
    const auto segment = composing::pick<role::segmenter>(unsegmented{}, components...);
    const auto retain = composing::pick<role::retainer>(keep_everything{}, components...);
    const auto ask = composing::pick<role::asker>(last_query{}, components...);
    const auto refresh = composing::pick<role::refresh>(never{}, components...);
    const auto zone = composing::pick<role::zones>(zones{}, components...);
    const auto store = composing::pick<role::store>(resident{}, components...);
    return policy<std::remove_const_t<decltype(segment)>, std::remove_const_t<decltype(retain)>,
                  std::remove_const_t<decltype(summarize)>, std::remove_const_t<decltype(ask)>,
                  std::remove_const_t<decltype(score)>, std::remove_const_t<decltype(agree)>,
                  std::remove_const_t<decltype(select)>, std::remove_const_t<decltype(refresh)>,
                  std::remove_const_t<decltype(zone)>, std::remove_const_t<decltype(store)>>{
        segment, retain, summarize, ask, score, agree, select, refresh, zone, store};
  }
}

}  // namespace v0
}  // namespace zoomr
