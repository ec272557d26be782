// SPDX-License-Identifier: Apache-2.0
// L6. Scores that segments get from their keys: by the token's own query, or, where heads vote, by the last ones.
//
//   score(head, segment) = scorer(logits of the head's query with the segment's keys between the zones)
//   share(head, segment) = ln of exp(score) / sum of exp(score) over the segments that the query may choose from
// A query scores the segments whose details come before it.
#pragma once

#include <zoomr/attention/run_logits.hpp>
#include <zoomr/cache/host/core.hpp>

#include <algorithm>  // std::copy_n, std::fill, std::min

namespace zoomr::inline v0::detail {

/// Scores segments for some query heads of one KV head.
template <class Pool>
class key_scores {
 public:
  /// @param thread  whose working memory
  key_scores(cache_core<Pool>& core, const sequence_state& state, index_t layer, index_t kv_head, index_t thread)
      : core_(core), state_(state), layer_(layer), kv_head_(kv_head), memory_(core.of_thread[thread].keys) {}

  /// Takes the queries of some query heads of the KV head.
  /// @param heads    of the layer, ascending: a range, or a table
  /// @param queries  [heads, head_dim]  in the order of `heads`
  void ask(token_range heads, view<const float, 2> queries) {
    count_ = 0;
    for (index_t head = heads.first; head < heads.last; ++head) ask_one(head, queries[head - heads.first]);
  }
  void ask(view<const index_t> heads, view<const float, 2> queries) {
    count_ = 0;
    for (index_t i = 0; i < heads.size(); ++i) ask_one(heads[i], queries[i]);
  }

  /// Calls take(number of the head, segment, score) for each head in use and each segment to be scored.
  /// @param position  from which the queries score
  /// @param details   [segments]  slots; at least one of a segment to be scored
  /// @cost  reads the keys of these segments once for each four heads, and those of up to 64 slots between
  template <class IsScored, class Take>
  void score(index_t position, view<const token_range> details, IsScored is_scored, Take take) {
    for (index_t id = 0; id < details.size();) {
      if (!is_scored(id)) {
        ++id;
        continue;
      }
      const index_t first = details[id].first / page_tokens * page_tokens;
      index_t last = details[id].last;
      index_t end = id + 1;
      for (index_t next = end; next < details.size() && details[next].first <= last + most_gap(); ++next) {
        if (!is_scored(next)) continue;
        if (details[next].last - first > memory_.most_slots()) break;
        last = details[next].last;
        end = next + 1;
      }
      const view<float, 2> logits = memory_.logits(count_, last - first);
      make_logits(position, {first, last}, logits);
      for (; id < end; ++id) {
        if (!is_scored(id)) continue;
        const token_range in_row{details[id].first - first, details[id].last - first};
        for (index_t h = 0; h < count_; ++h) {
          take(h, id, core_.policy.score.score_keys(logits[h].slice(in_row.first, in_row.last)));
        }
      }
    }
  }

 private:
  // Slots between two segments whose keys are read, too. Where slots are dealt out they may be elsewhere.
  index_t most_gap() const { return core_.limits.token_ranks.alone() ? 64 : 0; }
  // @param slots   the first is that of a page
  // @param logits  [heads, slots]  out
  void make_logits(index_t position, token_range slots, view<float, 2> logits) {
    const shape& model = core_.sizes.model;
    const view<const float, 2> queries = memory_.queries(count_, model.head_dim);
    const auto each_page = [&](auto multiply) {
      for (index_t slot = slots.first; slot < slots.last; slot += page_tokens) {
        const index_t count = (std::min)(page_tokens, slots.last - slot);
        multiply(slot, view<float, 2>(&logits(0, slot - slots.first), {count_, count}, {logits.stride(0), 1}));
      }
    };
    // Over tiers voters' keys are always beside the pages.
    if (const index_t lane = core_.kept_lane(layer_, kv_head_); lane >= 0) {
      each_page([&](index_t slot, view<float, 2> of_page) {
        core_.keys.products(lane, view<const index_t>(state_.pages), queries, slot, of_page);
      });
    } else if constexpr (!Pool::may_fail) {
      const auto kv_lane = core_.kv_lane(state_, layer_, kv_head_);
      each_page([&](index_t slot, view<float, 2> of_page) { key_products(kv_lane, queries, slot, of_page); });
    }
    const token_range group{kv_head_ * model.group(), (kv_head_ + 1) * model.group()};
    const model_logits hook = core_.logits_of(state_, layer_, group, position);
    const float scale = core_.limits.logit_scale(layer_, kv_head_, model.head_dim);
    for (index_t h = 0; h < count_; ++h) {
      scale_row(fastest_cpu_path(), hook, memory_.heads(count_)[h], scale, logits[h], slots.first);
    }
  }
  void ask_one(index_t head, view<const float> query) {
    const index_t number = count_++;
    memory_.heads(count_)[number] = head - kv_head_ * core_.sizes.model.group();
    std::copy_n(query.data(), query.size(), memory_.queries(count_, query.size())[number].data());
  }

  cache_core<Pool>& core_;
  const sequence_state& state_;
  index_t layer_;
  index_t kv_head_;
  key_memory& memory_;
  index_t count_ = 0;  // heads in use
};

/// Scores the segments that begin in this rank's slots by the last queries of the heads that vote, and gathers the
/// scores of the others: all of them are in `state.masses` then.
/// @param is_due  is_due(query, segment, scores known)  it is to be scored: the same on all ranks
/// @throws error(ranks); no score is known any more then, since other ranks may know other ones
template <class Pool, class Queries, class IsDue>
[[gnu::cold, gnu::noinline]] void gather_scores(cache_core<Pool>& core, sequence_state& state,
                                                const query_positions& scoring, view<const token_range> details,
                                                const executor& workers, Queries& queries, const IsDue& is_due) {
  choice_exchange& exchange = core.exchange;
  const index_t segments = details.size();
  const rank_tokens& dealt = core.limits.token_ranks;
  const view<const voter_table::kv_lane> lanes = core.voters.kv_lanes();
  const auto owner = [&](index_t id) { return dealt.owner(state.segments[id].begin); };
  const auto known = [&](scoring_query query, const voter_table::kv_lane& lane) {
    return view<const float>(state.masses.at(query, lane.first));
  };
  const view<index_t> counts = exchange.counts(), firsts = exchange.firsts();
  for (index_t at = 0; at < lanes.size(); ++at) {
    firsts[at] = counts[dealt.group.rank()];
    scoring.each([&](scoring_query query) {
      for (index_t id = 0; id < segments; ++id) {
        if (is_due(query, id, known(query, lanes[at])))
          counts[owner(id)] += static_cast<index_t>(lanes[at].heads.size());
      }
    });
  }
  const view<float> sent = exchange.scores();
  for_each_piece(workers, lanes.size(), [&](index_t piece, index_t thread) {
    const voter_table::kv_lane& lane = lanes[piece];
    const auto count = static_cast<index_t>(lane.heads.size());
    key_scores<Pool> scores(core, state, lane.layer, lane.kv_head, thread);
    const view<float> own = core.of_thread[thread].keys.masses(segments);  // 1: to be scored here
    index_t to = firsts[piece];
    scoring.each([&](scoring_query query) {
      for (index_t id = 0; id < segments; ++id)
        own[id] = owner(id) == dealt.group.rank() && is_due(query, id, known(query, lane)) ? 1.0f : 0.0f;
      scores.ask(view<const index_t>(lane.heads), queries.of_voters(query).slice(lane.first, lane.first + count));
      scores.score(
          queries.place(query), details, [&](index_t id) { return own[id] == 1.0f; },
          [&](index_t h, index_t id, float score) { state.masses.at(query, lane.first + h)[id] = score; });
      for (index_t id = 0; id < segments; ++id) {
        for (index_t h = 0; own[id] == 1.0f && h < count; ++h) sent[to++] = state.masses.at(query, lane.first + h)[id];
      }
    });
  });
  number_hash about;
  for (const index_t number : {scoring.last.last, segments}) about.add(std::int64_t{number});
  for (const index_t count : counts) about.add(std::int64_t{count});
  const auto take = [&](index_t rank, view<const float> received) {
    index_t from = 0;
    for (const voter_table::kv_lane& lane : lanes) {
      scoring.each([&](scoring_query query) {
        for (index_t id = 0; rank != dealt.group.rank() && id < segments; ++id) {
          if (owner(id) != rank || !is_due(query, id, known(query, lane))) continue;
          for (std::size_t h = 0; h < lane.heads.size(); ++h)
            state.masses.at(query, lane.first + static_cast<index_t>(h))[id] = received[from++];
        }
      });
    }
  };
  ZOOMR_TRY { exchange.gather_scores(about.value(), take); }
  ZOOMR_CATCH_ALL {
    state.masses.forget();
    rethrow();
  }
}

/// Shares of the segments by each of the last queries of the heads that vote.
/// @param scoring   the queries
/// @param queries   token_queries: of_voters(query) is [voters, head_dim], place(query) the position it scores from
/// @param details   [segments]  slots between the zones of the token that chooses; none if not eligible
/// @return  [voters, segments]  ln of the largest share; NaN where no query scores the segment. In memory of the cache
/// @cost  reads the keys once for the query of the token that chooses; for each query those of segments that reach into
/// a zone, and after a fork, an erased span or a load those of all; an exponential for each query, voter and segment
template <class Pool, class Queries>
view<float, 2> shares_of_voters(cache_core<Pool>& core, sequence_state& state, const query_positions& scoring,
                                view<const token_range> details, const executor& workers, Queries& queries) {
  const index_t segments = details.size();
  voter_table& voters = core.voters;
  const view<float, 2> shares = voters.shares(segments);
  const auto seen = [&](scoring_query query, index_t id) {
    return details[id].size() > 0 && state.segments[id].split <= queries.place(query) + 1;
  };
  const auto whole = [&](index_t id) {
    const segment& s = state.segments[id];
    return details[id].size() == s.split - s.begin;
  };
  const auto is_due = [&](scoring_query query, index_t id, const view<const float>& known) {
    return seen(query, id) && (is_nan(known[id]) || !whole(id));
  };
  scoring.each([&](scoring_query query) { state.masses.open(query, segments); });
  const bool gathers = core.exchange.gathers_scores();
  if (gathers) gather_scores(core, state, scoring, details, workers, queries, is_due);
  for_each_piece(workers, voters.kv_lanes().size(), [&](index_t piece, index_t thread) {
    const voter_table::kv_lane& lane = voters.kv_lanes()[piece];
    const auto count = static_cast<index_t>(lane.heads.size());
    key_scores<Pool> scores(core, state, lane.layer, lane.kv_head, thread);
    key_memory& memory = core.of_thread[thread].keys;
    for (index_t v = lane.first; v < lane.first + count; ++v) {
      std::fill(shares[v].begin(), shares[v].end(), not_a_number);
    }
    scoring.each([&](scoring_query query) {
      if (!gathers) {
        scores.ask(view<const index_t>(lane.heads), queries.of_voters(query).slice(lane.first, lane.first + count));
        const view<const float> known = state.masses.at(query, lane.first);
        scores.score(
            queries.place(query), details, [&](index_t id) { return is_due(query, id, known); },
            [&](index_t h, index_t id, float score) { state.masses.at(query, lane.first + h)[id] = score; });
      }
      for (index_t v = lane.first; v < lane.first + count; ++v) {
        const view<float> masses = state.masses.at(query, v);
        const view<float> some = memory.masses(segments);
        index_t taking_part = 0;
        for (index_t id = 0; id < segments; ++id) {
          if (seen(query, id) && !is_nan(masses[id])) some[taking_part++] = masses[id];
        }
        const float log_total = log_sum_of_exponentials(fastest_cpu_path(), some.slice(0, taking_part));
        for (index_t id = 0; id < segments; ++id) {
          if (!seen(query, id)) continue;
          const float share = masses[id] == log_total ? 0.0f : masses[id] - log_total;  // of an infinity too
          if (is_nan(shares(v, id)) || share > shares(v, id)) shares(v, id) = share;
          if (!whole(id)) masses[id] = not_a_number;  // of the part between the zones now
        }
      }
    });
  });
  return shares;
}

}  // namespace zoomr::inline v0::detail
