// SPDX-License-Identifier: Apache-2.0
// L4. Exact attention over the chosen tokens: one pass over the ranges, page by page, for all query heads that
// share a KV head, so that each key and value is read once. KV heads that read the same ranges may share the pass.
//
// cache/host/attending/layer_attention.hpp calls it for the ranges of one KV head, or of several; a prompt has tiles of
// its own (cache/host/attending/prompt_attention.hpp). A KV lane over tiers brings the page in `key`, and keeps it
// until a few others are reached: two are, before a page is done with.
#pragma once

#include <zoomr/attention/page_run.hpp>
#include <zoomr/attention/stretches.hpp>
#include <zoomr/paging/stored_rows.hpp>
#include <zoomr/policy/segment.hpp>

#include <algorithm>    // std::max, std::min
#include <type_traits>  // std::is_same_v, std::remove_cv_t

namespace zoomr::inline v0 {

namespace detail {

/// What some queries read of one KV lane.
template <class Lane, class Hook>
struct lane_queries {
  const Lane* kv_lane = nullptr;
  view<const run_query> queries;  // [any number]
  float scale = 1.0f;             // of the logits
  const Hook* hook = nullptr;     // what they go through
  index_t first_query = 0;        // the number of the first query, for the hook
};

/// Where keys and values of a run are; those of values only where their distances are not those of keys.
struct run_places {
  row_places keys, values;

  run_places() = default;
  /// Evenly apart.
  run_places(const kv_rows& rows, index_t tokens) : keys(rows.key_stride, tokens) {
    if (!values_follow_keys(rows)) values = row_places(rows.value_stride, tokens);
  }
  /// Rows that are looked up one by one.
  /// @param slots  up to 16
  template <class Lane>
  run_places(const Lane& kv_lane, token_range slots) {
    const auto* const first = kv_lane.key(slots.first);
    const auto* const first_value = kv_lane.value_of(first, slots.first);
    for (index_t r = 0; r < page_tokens; ++r) {
      const index_t slot = (std::min)(slots.first + r, slots.last - 1);
      const auto* const key = kv_lane.key(slot);
      keys.at[r] = key - first;
      if (!values_follow_keys(kv_lane.rows)) values.at[r] = kv_lane.value_of(key, slot) - first_value;
    }
  }
};

/// Queries that are numbers of bfloat16 are multiplied with the keys of a lane in pairs.
template <class Lane>
bool pairs_of_keys(const Lane& kv_lane, cpu_path path) {
  if constexpr (std::is_same_v<std::remove_cv_t<typename Lane::number>, bfloat16>) {
    return multiplies_pairs_of_keys(path, {kv_lane.rows.key_width, kv_lane.rows.value_width});
  }
  return false;
}
/// @param pairs  as pairs_of_keys
inline run_query kept_in_pairs(run_query query, bool pairs, index_t key_width) {
  query.pairs = pairs && is_bfloat16({query.query, {key_width}});
  return query;
}

/// All that is read is one stretch.
struct one_stretch {};

/// Adds the tokens of `ranges` that are within `bounds` to the state of each query. As gather_attend, for queries that
/// are anywhere: heads that share a KV head, of one token or of several; and for several KV lanes, page by page, whose
/// rows may be side by side.
/// @param bounds       slots; where they cut a range, at the border of a page, so that the runs are the same
/// @param lanes        of the same pages, with the same distances in them: at least one
/// @param end_stretch  end_stretch(state): called for each query where a stretch of `ranges` ends within `bounds`; or
///                     one_stretch
template <class Lane, class Hook, class End = one_stretch>
void gather_within(view<const token_range> ranges, token_range bounds, view<const lane_queries<Lane, Hook>> lanes,
                   cpu_path path = fastest_cpu_path(), End end_stretch = {}) {
  using number = std::remove_cv_t<typename Lane::number>;
  constexpr bool ends = !std::is_same_v<End, one_stretch>;  // else nothing is called where stretches end
  struct asked_run {
    page_run<number> run;
    const lane_queries<Lane, Hook>* lane = nullptr;
    index_t slot = 0;     // of the first token; only for a hook
    bool begins = false;  // a stretch, which is not the first
  };
  constexpr index_t ahead = 2;                  // runs between the one that is read and the one that is prefetched
  asked_run last_ones[std::size_t{ahead + 1}];  // the last ones found
  const Lane& any_lane = *lanes[0].kv_lane;
  const bool whole = any_lane.whole_pages();
  const kv_widths widths{any_lane.rows.key_width, any_lane.rows.value_width};
  const bool follow = values_follow_keys(any_lane.rows);
  const run_places of_page(any_lane.rows, page_tokens);
  run_places of_others[std::size_t{ahead + 1}];  // of the last runs that are not whole pages
  index_t found = 0, others = 0;
  const auto attend = [&](const asked_run& current, const asked_run& next) {
    const lane_queries<Lane, Hook>& lane = *current.lane;
    if constexpr (ends) {
      for (index_t q = 0; current.begins && q < lane.queries.size(); ++q) end_stretch(*lane.queries[q].state);
    }
    attend_run(path, current.run, next.run, lane.queries, widths, lane.scale,
               hooked<Hook>{*lane.hook, current.slot, lane.first_query});
  };
  const auto at = [&](index_t run) -> asked_run& { return last_ones[run % (ahead + 1)]; };
  [[maybe_unused]] stretch_walk walk;
  for (const token_range& r : ranges) {
    const index_t end = (std::min)(r.last, bounds.last);
    if constexpr (ends) walk.pass({r.first, (std::min)(end, bounds.first)}, [](index_t) {});
    for (index_t first = (std::max)(r.first, bounds.first); first < end;) {
      const index_t last = (std::min)(end, (first / page_tokens + 1) * page_tokens);
      const run_places* places = &of_page;
      if (!whole || last - first < page_tokens) {
        run_places& own_places = of_others[others++ % (ahead + 1)];
        own_places = whole ? run_places(any_lane.rows, last - first) : run_places(any_lane, {first, last});
        places = &own_places;
      }
      bool begins = false;
      if constexpr (ends) walk.pass({first, last}, [&](index_t) { begins = true; });
      for (const lane_queries<Lane, Hook>& lane : lanes) {
        const number* const keys = lane.kv_lane->key(first);
        const page_run<number> run{keys,
                                   lane.kv_lane->value_of(keys, first),
                                   last - first,
                                   places->keys.at,
                                   follow ? places->keys.at : places->values.at,
                                   first % page_tokens};
        at(found) = {run, &lane, first, begins};
        if (found >= ahead) attend(at(found - ahead), at(found));
        ++found;
      }
      first = last;
    }
  }
  for (index_t run = (std::max)(0, found - ahead); run < found; ++run) attend(at(run), at(run));
}

/// Some KV lanes whose queries attend the same ranges: they are collected, as many as there is room for, and attend
/// together.
template <class Lane, class Hook, class End>
class lanes_together {
 public:
  /// @param ranges, bounds, end_stretch  as of gather_within
  lanes_together(view<const token_range> ranges, token_range bounds, End end_stretch)
      : ranges_(ranges), bounds_(bounds), end_stretch_(end_stretch) {}

  /// @param ask  ask(i): the run_query with the number i of 0 ... queries - 1
  template <class Ask>
  void add(const Lane& kv_lane, float scale, const Hook& hook, index_t queries, Ask ask) {
    if (lanes_ == most_lanes || asking_ + queries > most_asking) attend();
    for (index_t first = 0; first < queries; first += most_asking) {
      if (first > 0) attend();
      const index_t last = (std::min)(queries, first + most_asking);
      kv_lane_[lanes_] = kv_lane, hook_[lanes_] = hook;
      const view<const run_query> own_queries(queries_ + asking_, {last - first});
      of_lane_[lanes_] = {&kv_lane_[lanes_], own_queries, scale, &hook_[lanes_], first};
      const bool pairs = pairs_of_keys<Lane>(kv_lane, fastest_cpu_path());
      for (index_t i = first; i < last; ++i) queries_[asking_++] = kept_in_pairs(ask(i), pairs, kv_lane.rows.key_width);
      ++lanes_;
    }
  }
  /// Those that were added and have not attended.
  void attend() {
    const view<const lane_queries<Lane, Hook>> lanes(of_lane_, {lanes_});
    if (lanes_ > 0) gather_within(ranges_, bounds_, lanes, fastest_cpu_path(), end_stretch_);
    lanes_ = asking_ = 0;
  }

 private:
  static constexpr index_t most_lanes = 16, most_asking = 128;

  view<const token_range> ranges_;
  token_range bounds_;
  End end_stretch_;
  run_query queries_[std::size_t{most_asking}];
  Lane kv_lane_[std::size_t{most_lanes}];
  Hook hook_[std::size_t{most_lanes}];
  lane_queries<Lane, Hook> of_lane_[std::size_t{most_lanes}];
  index_t asking_ = 0, lanes_ = 0;
};

}  // namespace detail

/// Adds the tokens of `ranges` to one attention state for each query head of the group, as one stretch.
///
/// @param ranges   ascending slots
/// @param kv_lane  `key(slot)` is where a key is, `value_of(key, slot)` its value, those of its page after them as far
///                 apart as in `rows`; where not all rows of 16 slots are so far apart, `whole_pages()` is false, and
///                 each is looked up
/// @param queries  [group, key width]  rotated
/// @param scale    of the logits: that of stored keys / sqrt(head_dim)
/// @param states   [group]  their `out` has as many floats as a value; not yet finished. Logits in them are natural.
/// @param path     which instructions
/// @param hook     what logits go through before their softmax: `model_logits`, or hook(run_logits) of the caller's
///                 own, whose queries are numbered as in `queries`; it changes each logit by itself. On a path of
///                 vectors it is compiled for that path: a product that is added to something is a fma there, as
///                 `fused` is on all
/// @pre   has_cpu_path(path); `out` of a new state is zeros; each slot is added to a state at most once, since
///        nothing looks for repetitions
/// @throws error(storage) if a page over tiers does not come: the states then hold a part, and must be begun again
/// @cost  reads key and value of each token once; 2 flops for each of their numbers and query head
template <class Lane, class Hook = plain_logits>
void gather_attend(view<const token_range> ranges, const Lane& kv_lane, view<const float, 2> queries, float scale,
                   view<attention_state> states, cpu_path path = fastest_cpu_path(), const Hook& hook = {}) {
  constexpr index_t most = 16;  // query heads at a time
  detail::run_query batch[std::size_t{most}];
  const bool pairs = detail::pairs_of_keys<Lane>(kv_lane, path);
  for (index_t head = 0; head < states.size(); head += most) {
    const index_t count = (std::min)(most, states.size() - head);
    for (index_t i = 0; i < count; ++i) {
      batch[i] = detail::kept_in_pairs({queries[head + i].data(), &states[head + i]}, pairs, kv_lane.rows.key_width);
    }
    const detail::lane_queries<Lane, Hook> row_queries{&kv_lane, {batch, {count}}, scale, &hook, head};
    detail::gather_within(ranges, {0, unlimited}, view<const detail::lane_queries<Lane, Hook>>(&row_queries, {1}),
                          path);
  }
}

}  // namespace zoomr::inline v0
