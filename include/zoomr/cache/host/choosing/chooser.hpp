// SPDX-License-Identifier: Apache-2.0
// L6. One choice: query, score, aggregate, select. It reads summaries only, or keys only.
//
//   asked    = query source(query of the head, sum over the open segment)
//   score    = scorer(asked, summary of the KV head)               for each head and segment
//           or scorer(logits of asked with the segment's keys)     cache/host/choosing/key_scores.hpp
//   votes   += aggregator(scores of the heads of one layer)        for each layer of the row
//   levels   = selector(segments, best first by votes)
// A score is a logit before its scale, cap and bias; votes are integers, of which the highest are best, ties to the
// lower id. Segments of which nothing is left between the zones are not eligible: they are neither scored nor taken.
#pragma once

#include <zoomr/cache/host/choosing/shortlist.hpp>
#include <zoomr/cache/host/sequence_state.hpp>
#include <zoomr/cache/planning/choice_exchange.hpp>
#include <zoomr/cache/trace.hpp>
#include <zoomr/core/executor.hpp>
#include <zoomr/math/softmax.hpp>
#include <zoomr/policy/posterior_gate.hpp>

#include <algorithm>  // std::fill, std::max, std::min
#include <utility>    // std::move
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// The heads and the row of one choice.
struct choice_row {
  index_t row = 0;
  index_t first_layer = 0;
  index_t last_layer = 0;  // exclusive
  index_t first_head = 0;
  index_t last_head = 0;  // exclusive
};

/// The row that query head `head` of `layer` reads. The row's first layer and first head are the ones that make it.
/// @param head  of the layer, 0 ... model.heads - 1
inline choice_row row_for(const shape& model, scope per, index_t layer, index_t head) {
  const index_t kv_head = head / model.group();
  switch (per) {
    case scope::sequence:
      return {0, 0, model.layers, 0, model.heads};
    case scope::layer:
      return {layer, layer, layer + 1, 0, model.heads};
    case scope::kv_head:
      return {layer * model.kv_heads + kv_head, layer, layer + 1, kv_head * model.group(),
              (kv_head + 1) * model.group()};
    case scope::head:
      break;
  }
  return {layer * model.heads + head, layer, layer + 1, head, head + 1};
}

/// Queries of one token by which the heads [first, last) of a layer choose. The views hold all heads of the layer,
/// rotated.
struct head_queries {
  index_t layer = 0;
  index_t first = 0;
  index_t last = 0;
  view<const float, 2> queries;  // [heads, head_dim]
  view<const float, 2> sums;     // [heads, head_dim]  over the open segment; unused if the query source does not sum
  index_t count = 1;             // queries in the sums
};

/// What one choice counts for the statistics.
struct choice_counts {
  std::int64_t chosen = 0;
  std::int64_t zooms = 0;
  votes_t votes = 0;   // of all segments, where votes add up
  votes_t agreed = 0;  // of the chosen ones
  bool posterior = false;
  bool unsure = false;  // it is one of everything, and names no segment
  votes_t entropy = 0;  // of a posterior, in units of 2^-40 bits

  void add_to(statistics& stats) const {
    ++stats.refreshes;
    stats.chosen += chosen;
    stats.zooms += zooms;
    stats.unsure += unsure ? 1 : 0;
    // Agreeability is the share of votes that the taken segments got: it has a meaning only where votes add up.
    if (votes > 0 && !unsure) {
      stats.agreeability_sum += static_cast<double>(agreed) / static_cast<double>(votes);
      ++stats.agreeability_count;
    }
    if (!posterior) return;
    stats.entropy_sum += static_cast<double>(sum_of_units(entropy));
    ++stats.entropy_count;
  }
};

/// Working memory for choices, shared by all sequences, and the steps of a choice in their order: `begin`, then `add`
/// for each layer that takes part, or `add_shares`, then `finish`. All that is kept of a choice between them is here.
/// Rows that are in one KV head may be chosen at the same time, each with a chooser of its own.
class chooser {
 public:
  chooser(const layout& sizes, const any_policy& policy, const score_logits& logits)
      : policy_(policy), sizes_(sizes), logits_(logits), list_(sizes, policy, logits) {
    const auto segments = static_cast<std::size_t>(sizes.most_segments);
    const auto heads = static_cast<std::size_t>(row_heads(sizes, policy));
    tokens_.resize(segments);
    votes_.resize(segments);
    order_.resize(segments);
    scores_.resize(segments * heads);
    queries_.resize(heads * static_cast<std::size_t>(sizes.model.head_dim));
    levels_.resize(segments);
    if (policy.score.reads_keys) {
      ones_.assign(segments, 1);
      details_.resize(segments);
    }
    if (const byte_count bytes = policy.select.work_bytes(sizes.most_segments); bytes > 0) {
      work_ = buffer<std::byte>(bytes);
    }
  }

  static byte_count bytes(const layout& sizes, const any_policy& policy) {
    const auto each = [](std::size_t bytes) { return static_cast<byte_count>(bytes); };
    const byte_count fixed = each(sizeof(level) + sizeof(votes_t) + 2 * sizeof(index_t)) +
                             (policy.score.reads_keys ? each(sizeof(index_t) + sizeof(token_range)) : 0);
    const byte_count for_heads = row_heads(sizes, policy) * static_cast<byte_count>(sizeof(float));
    return sizes.most_segments * (fixed + for_heads) + for_heads * sizes.model.head_dim +
           policy.select.work_bytes(sizes.most_segments) + shortlist::bytes(sizes);
  }
  /// How many may be in use at the same time: where rows are in one KV head as many as there are threads.
  static index_t most_at_once(const any_policy& policy, index_t threads) {
    return policy.selects && within_kv_head(policy) ? threads : 1;
  }

  /// Counts the tokens that each segment has left between the zones. A segment without any is not eligible: its summary
  /// is not scored, and no head can choose it.
  ///
  /// Zones' slots and the summary tokens of all segments between them take room before anything is chosen, whether or
  /// not these will be attended.
  /// @param zone   of the token that chooses, in positions
  /// @param slots  of the row's KV lane
  /// @cost  O(segments), and O(kept) where a KV lane has been compacted; none yet where `choose_listed` follows
  void begin(sequence_state& state, zone_bounds zone, const slot_map& slots) {
    segments_ = static_cast<index_t>(state.segments.size());
    room_used_ = zone.tokens(slots);
    offered_ = {state.segments, zone, slots};
    counted_ = listed_ = false;
    if (sizes_.rounded_cells == 0 || trace != nullptr || state.summary_tokens) count_tokens();
  }

  /// Scores the segments for some heads of one layer, each KV head on its own, and adds what they agree on.
  /// @param score  score(kv_head, heads of it, asked [heads, head_dim], scores [heads, segments], thread)
  /// @cost  the summaries of each KV head are read once, segments * head_dim * rows numbers, or once for each four of
  /// its heads, or all keys; then what the aggregator costs
  template <class Score>
  void add(const head_queries& who, const executor& workers, Score score) {
    const view<float, 2> scores(scores_.data(), {who.last - who.first, segments_});
    const index_t group = sizes_.model.group();
    const index_t first_kv_head = who.first / group;
    for_each_piece(workers, (who.last - 1) / group + 1 - first_kv_head, [&](index_t piece, index_t thread) {
      const index_t kv_head = first_kv_head + piece;
      const index_t head = (std::max)(who.first, kv_head * group);
      const index_t last = (std::min)(who.last, (kv_head + 1) * group);
      score(kv_head, token_range{head, last}, ask(who, {head, last}), scores.slice(head - who.first, last - who.first),
            thread);
    });
    const view<const float, 2> all = gathers() ? exchange->gather(scores, about()) : scores;
    policy_.aggregate.add(all, weighed_tokens(), logits_of_scores(), votes(), order());
  }
  /// Makes the choice of heads of one KV head, unless a trace wants all votes.
  /// @param rounded    of the KV lane
  /// @param summaries  [segments, head_dim, rows]
  /// @return  false where too much would be scored: nothing is chosen, and `add` may follow
  bool choose_listed(const head_queries& who, const rounded_lane& rounded, const float* summaries) {
    if (trace != nullptr) return false;
    listed_ = rounded.segments > 0 && list_.choose(ask(who, {who.first, who.last}), rounded, summaries,
                                                   policy_.select.limits(room_used_), offered_);
    if (!listed_ && !counted_) count_tokens();
    return listed_;
  }
  /// The same for the voters among the heads of one layer, for each KV head that one of them reads.
  /// @param who    all heads of the layer
  /// @param score  score(kv_head, voters of it, asked [voters, head_dim], scores [voters, segments], thread)
  template <class Score>
  void add_voters(const head_queries& who, const voter_table& voters, const executor& workers, Score score) {
    const view<const voter_table::kv_lane> lanes = voters.kv_lanes_in(who.layer);
    if (lanes.size() == 0) return;
    const voter_table::kv_lane& back = lanes[lanes.size() - 1];
    const token_range numbers{lanes[0].first, back.first + static_cast<index_t>(back.heads.size())};
    const view<float, 2> scores(scores_.data(), {numbers.size(), segments_});
    const view<float, 2> queries(queries_.data(), {numbers.size(), sizes_.model.head_dim});
    for_each_piece(workers, lanes.size(), [&](index_t piece, index_t thread) {
      const voter_table::kv_lane& lane = lanes[piece];
      const index_t first = lane.first - numbers.first;
      const auto last = first + static_cast<index_t>(lane.heads.size());
      for (index_t v = first; v < last; ++v) {
        const index_t head = lane.heads[static_cast<std::size_t>(v - first)];
        policy_.query.ask(who.queries[head], who.sums[head].data(), who.count, queries[v].data());
      }
      score(lane.kv_head, view<const index_t>(lane.heads), view<const float, 2>(queries.slice(first, last)),
            scores.slice(first, last), thread);
    });
    policy_.aggregate.add_weighted(scores, voters.votes().slice(numbers.first, numbers.last), weighed_tokens(),
                                   logits_of_scores(), votes(), order());
  }
  /// Adds what the heads that vote have found: arguments as of a `share_aggregator`. If the gate finds the posterior
  /// unsure, the row will be one of everything.
  void add_shares(view<float, 2> shares, view<const float> weights, const posterior_gate& gate) {
    if (gathers()) shares = exchange->gather(shares, about()), weights = exchange->weights();
    none_ = policy_.aggregate.add_shares(shares, weights, votes(), gate.none);
    const votes_t largest = gate.bounds() ? largest_votes() : not_eligible;
    if (largest == not_eligible) none_ = 0;
    entropy_ = entropy();
    unsure_ = policy_.aggregate.gate && gate.unsure(entropy_, none_, largest);
  }

  /// The votes so far: what is not eligible can be seen here.  [segments]
  view<const votes_t> votes_so_far() const { return {votes_.data(), {segments_}}; }
  /// If keys are read: the slots of each segment's details between the zones; none if it is not eligible.  [segments]
  view<const token_range> details() const { return {details_.data(), {segments_}}; }

  /// Makes `row` of `into` from the votes. It begins with each segment at the level of its summary, or dropped if the
  /// zones want summaries of candidates alone and it has too few votes; the selector raises what it takes to details.
  /// @param before  the row that was active, for the statistics; it may be the one that is made
  /// @cost  O(segments), and O(log segments) for each that the selector visits; after `choose_listed`, O(taken)
  choice_counts finish(index_t position, index_t sequence, selection& into, index_t row, const selection_row& before) {
    if (exchange != nullptr && !exchange->gathers()) exchange->add_up(votes(), about());
    if (listed_) return finish_listed(into, row, before);
    const votes_t least = policy_.aggregate.least;
    const votes_t least_of_candidates = policy_.aggregate.counts ? 1 : least;  // where votes add up, any one will do
    selection_row choice{{levels_.data(), {segments_}}};
    for (index_t id = 0; id < segments_; ++id) {
      const bool unwanted = votes()[id] != not_eligible && votes()[id] < least_of_candidates;
      const bool only_candidates = policy_.zone.summaries == summaries_attended::candidates;
      choice.levels[id] = only_candidates && unwanted ? level::dropped : level::summary;
    }
    best_first best(segments_, by_votes{votes()}, order());
    const selection_input input{tokens(), room_used_, least, position, sequence, work_.data()};
    if (!unsure_ || trace != nullptr) policy_.select.choose(best, input, choice);
    if (trace != nullptr) record({sequence, position, row, {}, {}, {}, unsure_}, choice);
    const choice_counts counted = count(choice, before);
    if (unsure_) take_everything(choice);
    into.assign(row, choice);
    return counted;
  }

  /// Makes `row` of `into` one of everything, whatever the heads say.
  void finish_with_everything(selection& into, index_t row) {
    selection_row choice{{levels_.data(), {segments_}}};
    take_everything(choice);
    into.assign(row, choice);
  }

  choice_trace* trace = nullptr;        // the caller's, if choices are to be recorded
  choice_exchange* exchange = nullptr;  // if other ranks' heads take part

 private:
  bool gathers() const { return exchange != nullptr && exchange->gathers(); }
  // What other ranks must find alike, so that one which passes something else is noticed.
  std::int64_t about() const { return (std::int64_t{segments_} << 32) + room_used_; }
  static bool within_kv_head(const any_policy& policy) { return policy.aggregate.per >= scope::kv_head; }
  // Query heads of one layer that may take part in one row.
  static index_t row_heads(const layout& sizes, const any_policy& policy) {
    return within_kv_head(policy) ? sizes.model.group() : sizes.model.heads;
  }

  float* asked_memory(index_t head) {
    return queries_.data() + std::int64_t{head % row_heads(sizes_, policy_)} * sizes_.model.head_dim;
  }
  // The queries by which some heads of one KV head score.
  view<const float, 2> ask(const head_queries& who, token_range heads) {
    for (index_t h = heads.first; h < heads.last; ++h) {
      policy_.query.ask(who.queries[h], who.sums[h].data(), who.count, asked_memory(h));
    }
    return {asked_memory(heads.first), {heads.size(), sizes_.model.head_dim}};
  }
  // How the aggregator reads scores: those by keys are logits already, of whole segments.
  view<const index_t> weighed_tokens() {
    if (!policy_.adds_scores_of_keys()) return tokens();
    return {ones_.data(), {segments_}};
  }
  score_logits logits_of_scores() const { return policy_.adds_scores_of_keys() ? score_logits{} : logits_; }
  view<index_t> tokens() { return {tokens_.data(), {segments_}}; }
  view<votes_t> votes() { return {votes_.data(), {segments_}}; }
  view<index_t> order() { return {order_.data(), {segments_}}; }

  void count_tokens() {
    counted_ = true;
    ascending_slots ascending(offered_.slots);
    for (index_t id = 0; id < segments_; ++id) {
      const segment& s = offered_.segments[id];
      const token_range details = between_zones(s.begin, s.split, offered_.zone, ascending);
      const index_t left = details.size();
      room_used_ += between_zones(s.split, s.end, offered_.zone, ascending).size();
      if (!details_.empty()) details_[static_cast<std::size_t>(id)] = details;
      tokens()[id] = left;
      votes()[id] = left > 0 ? 0 : not_eligible;
    }
  }
  choice_counts finish_listed(selection& into, index_t row, const selection_row& before) {
    choice_counts counts;
    counts.chosen = list_.taken().size();
    for (const index_t id : list_.taken()) counts.zooms += before.level_at(id) != level::details ? 1 : 0;
    into.take(row, segments_, list_.taken(), list_.cut_segment, list_.cut_tokens);
    return counts;
  }

  // Ranks once more, since the selector has used up the first ranking; the memory of the order is free again.
  void record(choice_record entry, const selection_row& row) {
    best_first best(segments_, by_votes{votes()}, order());
    for (index_t id = best.next(); id >= 0; id = best.next()) {
      (row.level_at(id) == level::details ? entry.chosen : entry.runners_up).push_back(id);
    }
    for (const index_t id : entry.chosen) entry.votes.push_back(votes()[id]);
    for (const index_t id : entry.runners_up) entry.votes.push_back(votes()[id]);
    trace->push_back(std::move(entry));
  }

  choice_counts count(const selection_row& row, const selection_row& before) {
    choice_counts counts;
    for (index_t id = 0; id < segments_; ++id) {
      const bool taken = row.level_at(id) == level::details;
      if (taken) ++counts.chosen;
      if (taken && before.level_at(id) != level::details) ++counts.zooms;
      if (!policy_.aggregate.counts || votes()[id] == not_eligible) continue;
      counts.votes += votes()[id];
      if (taken) counts.agreed += votes()[id];
    }
    if (unsure_) counts.chosen = counts.zooms = counts.agreed = 0;
    counts.unsure = unsure_;
    counts.posterior = policy_.aggregate.queries > 0 && counts.votes + none_ > 0;
    counts.entropy = entropy_;
    return counts;
  }
  static void take_everything(selection_row& row) {
    std::fill(row.levels.begin(), row.levels.end(), level::details);
    row.cut_segment = selection_row::of_everything;
    row.cut_tokens = 0;
  }
  votes_t largest_votes() {
    votes_t largest = not_eligible;
    for (const votes_t each : votes()) largest = (std::max)(largest, each);
    return largest;
  }
  // Of the votes, where they are a posterior.
  votes_t entropy() {
    votes_t units = entropy_units(none_);
    on_fastest_path([&] {
      for (const votes_t share : votes()) units += entropy_units(share);
    });
    return units;
  }

  const any_policy& policy_;
  layout sizes_;
  score_logits logits_;
  index_t segments_ = 0;
  index_t room_used_ = 0;
  votes_t none_ = 0;     // of a posterior: the class none
  votes_t entropy_ = 0;  // of a posterior
  bool unsure_ = false;
  offered_segments offered_;
  bool counted_ = false;              // tokens and votes are there
  bool listed_ = false;               // the shortlist has made the choice
  std::vector<index_t> tokens_;       // [segments]  details between the zones
  std::vector<votes_t> votes_;        // [segments]
  std::vector<index_t> order_;        // [segments]  for rankings
  std::vector<float> scores_;         // [heads of a row, segments]
  std::vector<float> queries_;        // [heads of a row, head_dim]
  std::vector<level> levels_;         // [segments]  the row that is being made
  std::vector<token_range> details_;  // [segments]  slots between the zones, if keys are read
  std::vector<index_t> ones_;         // [segments]  if keys are read: a segment counts as a whole
  buffer<std::byte> work_;            // of the selector
  shortlist list_;
};

}  // namespace zoomr::inline v0::detail
