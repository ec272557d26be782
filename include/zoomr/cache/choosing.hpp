// SPDX-License-Identifier: Apache-2.0
// L6. Who asks, when, and which row the answer goes to: choices within a step, and what a commit does.
#pragma once

#include <zoomr/cache/core.hpp>

#include <cmath>    // std::sqrt
#include <utility>  // std::swap

namespace zoomr {
inline namespace v0 {

/// @param from, to  [heads, head_dim]
inline void copy_queries(view<const float, 2> from, view<float, 2> to) {
  for (index head = 0; head < from.extent(0); ++head) std::copy_n(from[head].data(), from.extent(1), to[head].data());
}

/// One token of a step whose queries are known, in all layers or in those so far.
template <class Policy, class T>
class asking_token {
 public:
  asking_token(cache_core<Policy, T>& core, planned_item& item, index position)
      : core_(core), item_(item), state_(core.state_of(item)), position_(position) {}

  sequence_state<Policy>& state() const { return state_; }
  planned_token& planned() const {
    return core_.table[static_cast<std::size_t>(item_.planned + position_ - item_.first)];
  }

  /// Makes row `of` of `into`. The queries come from `core.asking` or, in the layer being attended, from `queries`.
  void choose(const choice_row& of, view<const float, 2> queries, selection& into) {
    const index open_begin = item_.prompt ? core_.policy.segment.open_begin(state_.segmenting) : item_.open_begin;
    core_.choice.begin(state_, core_.zone_at(state_, position_, open_begin), state_.slots_of(of.lane));
    for (index layer = of.first_layer; layer < of.last_layer; ++layer)
      core_.choice.add(state_, who(of, layer, queries));
    core_.choice.finish(position_, item_.seq, into, of.row, state_.in_force.row(of.row), state_.stats);
    remember_asked(of, queries);
  }

  /// False if the queries that share this row still point where they did at the last choice. Each head's products are
  /// added in the contract's order, then head after head.
  bool drifted(const choice_row& of, view<const float, 2> queries) {
    float along = 0.0f;
    float now = 0.0f;
    float then = 0.0f;
    for (index layer = of.first_layer; layer < of.last_layer; ++layer) {
      const asking_heads asks = who(of, layer, queries);
      const view<float, 2> reference = record(layer, reference_part());
      for (index head = of.first_head; head < of.last_head; ++head) {
        const index dims = reference.extent(1);
        const auto q = [&](index d) { return chooser<Policy>::asked(core_.policy, asks, head, d); };
        along += sum_over_dims(dims, [&](float acc, index d) { return fused(q(d), reference(head, d), acc); });
        now += sum_over_dims(dims, [&](float acc, index d) { return fused(q(d), q(d), acc); });
        then += dot(reference[head].data(), reference[head].data(), dims);
      }
    }
    return !(along >= core_.policy.refresh.drift() * square_root(now) * square_root(then));
  }

  /// Keeps what later choices need of this token's queries in one layer.
  void remember(index layer, view<const float, 2> queries) {
    if constexpr (Policy::selects) {
      if (item_.prompt) return;
      const bool first = position_ == item_.first;
      const index parts = core_.sizes.query_parts;
      for (index part = 0; part < parts; ++part) {
        const view<float, 2> before =
            first ? state_.queries.at(position_ - 1, part, layer) : core_.drafts.at(draft() - 1, part, layer);
        const view<float, 2> after = core_.drafts.at(draft(), part, layer);
        const bool adds = part < reference_part();
        for (index head = 0; head < queries.extent(0); ++head) {
          for (index d = 0; d < queries.extent(1); ++d) {
            const float old = adds && count() == 1 ? 0.0f : before(head, d);
            after(head, d) = adds ? old + queries(head, d) : old;
          }
        }
      }
      if (item_.chooses && position_ == item_.last()) note(layer, queries);
    }
  }

  /// Keeps the queries for a choice that is made after the last layer.
  void note(index layer, view<const float, 2> queries) {
    if (!core_.persists()) return;
    copy_queries(queries, core_.asking.at(item_.seq, 0, layer));
  }

  index draft() const { return item_.draft + position_ - item_.first; }

 private:
  static constexpr index reference_part() { return decltype(Policy::ask)::sums ? 1 : 0; }

  // Queries in the running sum: those of generated tokens of the segment that the token belongs to.
  index count() const { return position_ + 1 - std::max(planned().asks_from, state_.prompt_end); }

  view<float, 2> record(index layer, index part) {
    return item_.prompt ? state_.queries.at(position_, part, layer) : core_.drafts.at(draft(), part, layer);
  }

  asking_heads who(const choice_row& of, index layer, view<const float, 2> queries) {
    const view<const float, 2> asks = queries.data() != nullptr ? queries : core_.asking.at(item_.seq, 0, layer);
    if (item_.prompt || reference_part() == 0) return {layer, of.first_head, of.last_head, asks, asks, 1};
    return {layer, of.first_head, of.last_head, asks, record(layer, 0), count()};
  }

  void remember_asked(const choice_row& of, view<const float, 2> queries) {
    if (!layout<Policy>::drifts(core_.policy)) return;
    for (index layer = of.first_layer; layer < of.last_layer; ++layer) {
      const asking_heads asks = who(of, layer, queries);
      const view<float, 2> reference = record(layer, reference_part());
      for (index head = of.first_head; head < of.last_head; ++head) {
        for (index d = 0; d < reference.extent(1); ++d) {
          reference(head, d) = chooser<Policy>::asked(core_.policy, asks, head, d);
        }
      }
    }
  }

  cache_core<Policy, T>& core_;
  planned_item& item_;
  sequence_state<Policy>& state_;
  index position_;
};

/// One token in one layer: which runs does each of its heads read?
template <class Policy, class T>
class choosing {
 public:
  choosing(cache_core<Policy, T>& core, planned_item& item, index position, index layer, bool second_pass)
      : core_(core),
        item_(item),
        token_(core, item, position),
        position_(position),
        layer_(layer),
        second_(second_pass) {
    const planned_token& planned = token_.planned();
    const bool short_context = position < core.limits.dense_below;
    dense_ = item.prompt || short_context || layer < core.policy.zone.dense_layers ||
             planned.action == refresh_action::everything;
    per_ = core.policy.agree.per;
  }

  sequence_state<Policy>& state() const { return token_.state(); }
  index layer() const { return layer_; }

  /// Query heads of one KV head that read the same runs.
  index heads_together() const {
    return Policy::selects && !dense_ && per_ == scope::head ? 1 : core_.sizes.model.group();
  }

  /// Sees the token's queries [heads, head_dim] before any of its runs is asked for.
  void see(view<const float, 2> queries) {
    queries_ = queries;
    token_.remember(layer_, queries);
    if (!item_.prompt && core_.sizes.noted > 0) copy_queries(queries, core_.noting.at(token_.draft(), 0, layer_));
  }

  /// The runs, in slots, that query head `head` and those together with it read; valid until the next call.
  view<const run> runs_of(index kv_head, index head) {
    choose_row(head);
    if (list_.tokens() == 0 || !same_for_all()) list_ = resolved(kv_head, head);
    count_.attended += std::int64_t{list_.tokens()} * heads_together();
    add_to_union(list_);
    record(kv_head, head);
    return list_.runs();
  }

  /// Starts bringing what will be read, if the selection in force says it: for tiered stores.
  void prefetch() {
    const bool open = Policy::selects && !second_ && per_ != scope::sequence &&
                      (!core_.persists() || (item_.chooses && position_ == item_.last()));
    if (open && !dense_) return;  // it is chosen when the queries are there
    const index group = core_.sizes.model.group();
    const index together = same_for_all() ? core_.sizes.model.heads : heads_together();
    for (index head = 0; head < core_.sizes.model.heads; head += together) {
      const run heads{head / group, (head + together - 1) / group + 1};
      for (const run& r : resolved(heads.first, head).runs()) core_.expect_soon(state(), layer_, heads, r);
    }
  }

  /// Slots that full attention would read.
  index slots() const { return state().slot_end(position_ + 1); }

  /// Counts what one query head has captured: ln of its share of full attention's mass.
  void audit(float log_share) {
    if (item_.prompt) return;
    state().stats.captured_sum += std::exp(static_cast<double>(log_share));
    ++state().stats.captured_count;
  }

  /// After all heads of one KV head: counts what was read.
  void count() {
    if (!item_.prompt) {
      state().stats.attended += count_.attended;
      token_.planned().lane_tokens += union_tokens();
    }
    count_ = {};
  }

 private:
  struct counts {
    std::int64_t attended = 0;
    std::size_t joined = 0;
  };

  // All heads read the same slots.
  bool same_for_all() const { return dense_ || core_.sizes.heads_together(core_.policy); }
  // Makes the choice of the row that `head` reads, if one is due and has not been made.
  void choose_row(index head) {
    if constexpr (Policy::selects) {
      if (item_.prompt || second_ || layer_ < core_.policy.zone.dense_layers) return;
      const choice_row of = row_for(core_.sizes.model, per_, layer_, head);
      if (per_ == scope::sequence || head != of.first_head) return;
      const refresh_action action = token_.planned().action;
      if (!core_.persists()) {
        if (action == refresh_action::choose && !dense_) token_.choose(of, queries_, state().in_force);
        return;
      }
      if (!item_.chooses || position_ != item_.last()) return;
      selection& pending = core_.pending[static_cast<std::size_t>(item_.seq)];
      if (action == refresh_action::choose || token_.drifted(of, queries_)) {
        token_.choose(of, queries_, pending);
        item_.chosen = true;
      } else {
        pending.assign(of.row, state().in_force.row(of.row));
      }
    }
  }

  const selection_row& row_of(index head) const {
    const index row = row_for(core_.sizes.model, per_, layer_, head).row;
    const bool same_pass = per_ != scope::sequence && core_.persists() && item_.chooses && position_ == item_.last();
    return same_pass || second_ ? core_.pending[static_cast<std::size_t>(item_.seq)].row(row)
                                : state().in_force.row(row);
  }

  run_list resolved(index kv_head, index head) {
    run_list list{view<run>(core_.runs)};
    if (dense_) {
      list.add({0, slots()});
      return list;
    }
    const zone_bounds zone = core_.zone_at(state(), position_, item_.open_begin);
    const slot_map slots = state().slots_of(layer_ * core_.sizes.model.kv_heads + kv_head);
    const selection_row all_summaries{};
    if constexpr (Policy::selects) {
      resolve(state().segments, row_of(head), zone, core_.policy.zone.own_summary, slots, list);
    } else {
      resolve(state().segments, all_summaries, zone, true, slots, list);
    }
    return list;
  }

  void add_to_union(const run_list& list) {
    std::copy(list.runs().begin(), list.runs().end(),
              core_.joined.begin() + static_cast<std::ptrdiff_t>(count_.joined));
    count_.joined += static_cast<std::size_t>(list.runs().size());
  }

  // Different tokens that the KV head's query heads have read.
  std::int64_t union_tokens() {
    const auto first = core_.joined.begin();
    const auto last = first + static_cast<std::ptrdiff_t>(count_.joined);
    if (heads_together() == 1) std::sort(first, last, [](run a, run b) { return a.first < b.first; });
    std::int64_t tokens = 0;
    index reached = 0;
    for (auto r = first; r != last; ++r) {
      tokens += std::max(0, r->last - std::max(r->first, reached));
      reached = std::max(reached, r->last);
    }
    return tokens;
  }

  void record(index kv_head, index head) {
    if (core_.trace == nullptr || item_.prompt) return;
    const slot_map slots = state().slots_of(layer_ * core_.sizes.model.kv_heads + kv_head);
    for (index h = head; h < head + heads_together(); ++h) {
      attended_record made{item_.seq, position_, layer_, h, second_, {}};
      for (const run& r : list_.runs()) {
        for (index slot = r.first; slot < r.last; ++slot) made.positions.push_back(slots.position_of(slot));
      }
      core_.trace->push_back(std::move(made));
    }
  }

  cache_core<Policy, T>& core_;
  planned_item& item_;
  asking_token<Policy, T> token_;
  index position_;
  index layer_;
  bool second_;
  bool dense_ = false;
  scope per_ = scope::sequence;
  view<const float, 2> queries_;
  run_list list_;
  counts count_;
};

}  // namespace v0
}  // namespace zoomr
