// SPDX-License-Identifier: Apache-2.0
// L5. A policy as the caches see it at run time: its functions, not the types that it is made of. So the host cache is
// compiled once for all policies, and each component once (a scorer once for each summarizer that it reads).
//
// Each interface is one concept of policy/concepts.hpp, with the same arguments; what a component has as a constant
// (`T::observes`, `T::least`) is a member here, set once when it is made. Calls are virtual where the work behind one
// is that of a token or of a head, and never inside a loop over dimensions. No component is deleted through its
// interface: any_policy_of owns them.
#pragma once

#include <zoomr/math/order.hpp>
#include <zoomr/policy/zones.hpp>

#include <cstddef>      // std::byte, std::size_t
#include <string_view>  // std::string_view

namespace zoomr::inline v0::detail {

/// A segmenter. The state of a stream is `state_bytes` bytes in the caller's memory, without alignment. Positions
/// ascend by one from call to call; `closed` receives the segments that the token at `position` closes.
class any_segmenter {
 public:
  bool splits = false;  // false: there are no segments but those of spans
  bool cuts = false;    // it can end a segment where a span begins or ends: it has `cut`
  index_t longest = 0;
  index_t shortest = 1;  // tokens of a segment, at least
  std::size_t state_bytes = 0;

  /// The state of a new stream.
  virtual void open(std::byte* state) const = 0;
  /// A token whose class is `cut` begins a segment, if it `cuts`.
  virtual void feed(std::byte* state, token_class of_token, index_t position, closings& closed) const = 0;
  /// After `feed` of the prompt's last token, whose position it is.
  virtual void end_of_prompt(std::byte* state, index_t position, closings& closed) const = 0;
  /// First position of the open segment; one after the last token that was fed if it is empty, 0 if nothing
  /// ever closes.
  virtual index_t open_begin(const std::byte* state) const = 0;

 protected:
  ~any_segmenter() = default;
};

/// An evictor. All but `kept` is for those that observe.
class any_evictor {
 public:
  bool observes = false;
  bool accumulates = false;
  bool reads_keys = false;
  bool while_decoding = false;
  bool updates_importance = false;  // false: attention probabilities are added up
  index_t every = 0;                // tokens, while decoding

  /// Tokens from one time that eviction is due to the next; 1 for those that do nothing while decoding.
  index_t spacing() const { return while_decoding ? every : 1; }
  /// How many of so many tokens each KV lane keeps.
  virtual index_t kept(index_t tokens) const = 0;
  /// Of so many tokens, the queries of the last ones that count.
  virtual index_t observed(index_t tokens) const = 0;
  /// Of so many tokens, the last ones that are kept in any case.
  virtual index_t safe(index_t tokens) const = 0;
  /// Writes what each of the first `seen.scored` tokens is worth; the highest stay.
  /// @param importance  [tokens]  out; it may be used as working memory
  virtual void rate(const kv_lane_attention& seen, view<float> importance) const = 0;
  /// If `updates_importance`.
  /// @param received  [tokens]  what they have received through this query head so far
  virtual void update_importance(const observed_query& observed, view<float> received) const = 0;

 protected:
  ~any_evictor() = default;
};

/// A summarizer. Either it folds one key after the other, or it makes a summary from all keys at once.
class any_summarizer {
 public:
  index_t rows = 0;
  std::size_t number_bytes = 0;  // of one number as the index keeps it
  std::size_t scale_bytes = 0;   // of what a summary's numbers are multiplied by, after them; 0: they are not
  bool at_once = false;

  /// Unless at_once.
  /// @param cells  [head_dim, rows], contiguous
  virtual void open(view<float, 2> cells) const = 0;
  /// @param key  [head_dim]
  virtual void fold(view<float, 2> cells, const float* key) const = 0;
  /// @param count  keys that were folded
  virtual void close(view<float, 2> cells, index_t count) const = 0;
  /// If at_once; arguments as of a `block_summarizer`.
  virtual void make(view<const float, 2> keys, view<index_t> order, view<float> work, view<float, 2> cells) const = 0;
  /// Writes what was made as the index keeps it.
  /// @param out  [head_dim, rows] numbers of `number_bytes`, then their scale
  virtual void store(view<const float, 2> cells, std::byte* out) const = 0;

 protected:
  ~any_summarizer() = default;
};

/// A query source.
class any_query_source {
 public:
  bool sums = false;

  /// Makes the query of one head by which segments are scored.
  /// @param query, query_sum, out  [head_dim]; query_sum is not read unless it `sums`
  /// @param count                  queries in the sum
  virtual void ask(view<const float> query, const float* query_sum, index_t count, float* out) const = 0;

 protected:
  ~any_query_source() = default;
};

/// A scorer, together with the summaries that it reads; or one that reads keys.
class any_scorer {
 public:
  bool reads_keys = false;
  bool linear = false;  // of summaries in float

  /// Scores the segments for the heads of one KV head. Scores of what is not eligible mean nothing.
  /// @param queries    [heads, head_dim]
  /// @param summaries  [segments] of [head_dim, rows] numbers and their scale, as `any_summarizer::store` writes them
  /// @param votes      [segments]
  /// @param scores     [heads, segments]  out, products before any scale
  virtual void score(view<const float, 2> queries, const std::byte* summaries, view<const votes_t> votes,
                     view<float, 2> scores) const = 0;
  /// If `linear`: what a score multiplies each number of a summary with.
  /// @param query    [head_dim]
  /// @param weights  [head_dim, rows]  out, contiguous
  virtual void weigh(view<const float> query, view<float> weights) const = 0;
  /// If `reads_keys`: the score of one segment for one head.
  /// @param logits  [keys]  natural; they may be overwritten
  virtual float score_keys(view<float> logits) const = 0;

 protected:
  ~any_scorer() = default;
};

/// An aggregator.
class any_aggregator {
 public:
  scope per = scope::sequence;
  votes_t least = 0;
  bool counts = false;
  index_t queries = 0;   // more than 0: so many count, by `add_shares`; 0: by `add`
  index_t question = 0;  // so many may count where spans name a question
  bool weighs = false;   // voters alone, by `add_weighted`
  bool pools = false;    // scores, as `pooled_score`:
  pool over_group = pool::mean;
  bool gate = false;  // an unsure choice is one of everything

  /// It counts heads that have a weight in `config.voters` alone.
  bool asks_voters() const { return queries > 0 || weighs; }

  /// Adds what the heads of one layer agree on to the votes of the segments that are eligible.
  /// @param scores  [heads, segments]  products before any scale
  /// @param tokens  [segments]  details between the zones
  /// @param votes   [segments]  not_eligible: leave alone
  /// @param order   [segments]  working memory
  virtual void add(view<const float, 2> scores, view<const index_t> tokens, const score_logits& logits,
                   view<votes_t> votes, view<index_t> order) const = 0;
  /// The same for one that weighs.
  /// @param scores   [voters of the layer, segments]
  /// @param weights  [voters of the layer]  as of a `weight_taker`
  virtual void add_weighted(view<const float, 2> scores, view<const votes_t> weights, view<const index_t> tokens,
                            const score_logits& logits, view<votes_t> votes, view<index_t> order) const = 0;
  /// Arguments as of a `gated_aggregator`.
  /// @return  the votes of the class none; 0 of one without a gate
  virtual votes_t add_shares(view<float, 2> shares, view<const float> weights, view<votes_t> votes,
                             none_class none) const = 0;

 protected:
  ~any_aggregator() = default;
};

/// A selector.
class any_selector {
 public:
  index_t most_segments = unlimited;
  bool walks = false;  // it is a walk to limits, without a share of the votes, and nothing else

  /// If it `walks`.
  /// @param room_used  tokens attended in any case
  virtual take_limits limits(index_t room_used) const = 0;

  /// Bytes of `selection_input::work` for so many segments, aligned to 64.
  virtual byte_count work_bytes(index_t segments) const = 0;
  /// Raises the levels of what it takes in `row`, where each segment has one already.
  virtual void choose(best_first& best, const selection_input& input, selection_row& row) const = 0;

 protected:
  ~any_selector() = default;
};

/// A refresh rule.
class any_refresh {
 public:
  bool second_pass = false;
  bool each_token = false;
  bool only_after_prefill = false;  // there is no choice but that at the end of the prompt

  /// What the token at hand makes due, from counts and classes alone.
  virtual refresh_action due(const token_event& event) const = 0;

 protected:
  ~any_refresh() = default;
};

/// Zones. A query at `position` attends [0, front) and [back, position + 1) in any case.
class any_zones {
 public:
  index_t sinks = 0;
  bool prompt = false;
  summaries_attended summaries = summaries_attended::all;
  bool own_summary = false;
  index_t dense_layers = 0;
  index_t preamble = 0;
  index_t question = 0;

  virtual index_t front(index_t position, index_t prompt_end) const = 0;
  virtual index_t back(index_t position, index_t prompt_end, index_t open_begin) const = 0;

 protected:
  ~any_zones() = default;
};

/// What a placement has beside its type.
struct any_placement {
  bool prefetch = false;
  bool details_on_host = false;
  bool frees_unreachable = false;
};

/// Takes a text, piece by piece.
class text_taker {
 public:
  virtual void take(std::string_view piece) = 0;

 protected:
  ~text_taker() = default;
};

/// The ten components of a policy, and what follows from them.
class any_policy {
 public:
  const any_segmenter& segment;
  const any_evictor& evict;
  const any_summarizer& summarize;
  const any_query_source& query;
  const any_scorer& score;
  const any_aggregator& aggregate;
  const any_selector& select;
  const any_refresh& refresh;
  const any_zones& zone;
  const any_placement placement;

  bool selects = false;           // segments are scored and chosen
  bool reads_classes = false;     // some component reads the classes of tokens
  const char* problem = nullptr;  // a sentence: why it cannot work

  any_policy(const any_policy&) = delete;
  any_policy& operator=(const any_policy&) = delete;
  virtual ~any_policy() = default;

  /// The policy as text: policies that have the same choose alike (policy/policy_text.hpp).
  virtual void write_text(text_taker& out) const = 0;

  /// What an aggregator adds are scores of keys. Where several queries of voters count, keys are scored for these.
  bool adds_scores_of_keys() const { return score.reads_keys && aggregate.queries == 0; }
  /// A choice needs the scores of those segments alone that it may take.
  bool shortlists() const {
    return selects && score.linear && aggregate.pools && !aggregate.weighs && aggregate.per >= scope::kv_head &&
           select.walks;
  }
  /// A choice stays active for the following tokens, rather than for its own token only.
  bool persists() const { return selects && (!refresh.each_token || aggregate.per == scope::sequence); }

 protected:
  any_policy(const any_segmenter& s, const any_evictor& e, const any_summarizer& m, const any_query_source& q,
             const any_scorer& r, const any_aggregator& a, const any_selector& c, const any_refresh& f,
             const any_zones& z, any_placement p)
      : segment(s),
        evict(e),
        summarize(m),
        query(q),
        score(r),
        aggregate(a),
        select(c),
        refresh(f),
        zone(z),
        placement(p) {}
};

}  // namespace zoomr::inline v0::detail
