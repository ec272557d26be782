// SPDX-License-Identifier: Apache-2.0
// L3. What a component of each role must have (the roles: policy/component.hpp).
//
// Components are called by the planner (segmenter, refresh rule), by choices (query source, scorer, aggregator,
// selector), by commit (summarizer, evictor) and by attention (zones). None of them allocates, or keeps anything.
#pragma once

#include <zoomr/math/order.hpp>
#include <zoomr/policy/component.hpp>
#include <zoomr/policy/kv_lane_attention.hpp>
#include <zoomr/policy/posterior_gate.hpp>
#include <zoomr/policy/segment.hpp>
#include <zoomr/policy/summary.hpp>

#include <concepts>     // std::regular, std::same_as
#include <cstddef>      // std::byte
#include <type_traits>  // std::is_trivially_copyable_v

namespace zoomr::inline v0 {

/// Splits the stream. `feed` sees each committed token once; what it remembers between tokens is `state`,
/// which after a close depends only on the tokens since. `longest` bounds every segment.
///
/// Tokens that may not be committed are fed to a copy of the state, and after a rollback those since the last close
/// again. `end_of_prompt` comes after the first prompt's last token was fed, with its position; `open_begin` is the
/// position at which the open segment begins. `out` takes the segments that close, in ascending order.
///
/// Optional: `void cut(state&, index_t position, closings& out) const`, before `feed` of the token at `position`,
/// closes what is open there, so that a segment begins with it. Without it an engine cannot name spans.
template <class T, class Value = const T>
concept segmenter = component<T> && std::same_as<typename T::role, role::segmenter> &&
    std::regular<typename T::state> && std::is_trivially_copyable_v<typename T::state> &&
    requires(Value t, typename T::state state, token_class classes, index_t position, closings out) {
  { t.longest } -> std::convertible_to<index_t>;
  { t.feed(state, classes, position, out) } -> std::same_as<void>;
  { t.end_of_prompt(state, position, out) } -> std::same_as<void>;
  { t.open_begin(state) } -> std::same_as<index_t>;
};

template <class T, class Value = const T>
concept cutting_segmenter = segmenter<T, Value> &&
    requires(Value t, typename T::state state, index_t position, closings out) {
  { t.cut(state, position, out) } -> std::same_as<void>;
};

/// What an evictor that `observes` needs beside the rest. Of the last tokens, the queries of `observed(tokens)` count
/// and `safe(tokens)` are kept in any case; `rate` writes the importance of the scored ones to the front of [tokens].
/// If it `accumulates`, attention adds up since the first token, rather than over the last `observed` ones; `observed`
/// must then be all of them. If it `reads_keys`, it receives them. Counts are tokens of one KV lane; importance is
/// compared within a KV lane only, the highest is kept, NaN is lowest, and of equals the earlier token stays. It must
/// be below infinity, which is that of pinned tokens.
template <class T, class Value = const T>
concept observer = requires(Value t, index_t tokens, const kv_lane_attention& seen, view<float> importance) {
  { T::accumulates } -> std::convertible_to<bool>;
  { T::reads_keys } -> std::convertible_to<bool>;
  { T::while_decoding } -> std::convertible_to<bool>;
  { t.observed(tokens) } -> std::same_as<index_t>;
  { t.safe(tokens) } -> std::same_as<index_t>;
  { t.rate(seen, importance) } -> std::same_as<void>;
};

/// An observer that goes on after the prompt: every `every` tokens.
template <class T>
concept decoding_observer = observer<T> && requires(const T t) {
  { t.every } -> std::convertible_to<index_t>;
};

/// An observer that makes more, or less, of a query than the attention that it pays: `update_importance` changes what
/// the tokens have received so far from that query head [tokens]. It must read keys. One that observes a group as a
/// whole does so when its first head comes, and leaves the others alone.
template <class T>
concept importance_updater = observer<T> && requires(const T t, const observed_query& observed, view<float> received) {
  { t.update_importance(observed, received) } -> std::same_as<void>;
};

/// Decides how many of so many tokens each KV lane keeps, not counting a prompt that the zones pin: never more than
/// there are, and never fewer than are `safe`. If it `observes`, the cache measures the attention that each token gets
/// from later queries, at the end of the prompt and, if it works `while_decoding`, after every `every` tokens from
/// there; each KV lane keeps its sinks, its last tokens, and those that are rated highest.
template <class T, class Value = const T>
concept evictor = component<T> && std::same_as<typename T::role, role::evictor> && requires(Value t, index_t tokens) {
  { T::observes } -> std::convertible_to<bool>;
  { t.kept(tokens) } -> std::same_as<index_t>;
};

/// Makes a segment's summary, dimension by dimension, from the keys of its cue in ascending order: `open`, then `fold`
/// for each key, then `close` with their number, which is 0 where eviction has left none: what it makes then must rank
/// last.
template <class T, class Value = const T>
concept dimension_summarizer = component<T> && std::same_as<typename T::role, role::summarizer> &&
    requires(Value t, cells<T::summary::rows> c, float key, index_t count) {
  { t.open() } -> std::same_as<cells<T::summary::rows>>;
  { t.fold(c, key) } -> std::same_as<void>;
  { t.close(c, count) } -> std::same_as<void>;
};

/// Makes a segment's summary from all keys of its cue at once: keys [count, head_dim], at least one, in ascending
/// order; order [count] and work [count] working memory; out [head_dim, rows]. Where there is no key the host's cache
/// writes NaN itself.
template <class T, class Value = const T>
concept block_summarizer = component<T> && std::same_as<typename T::role, role::summarizer> &&
    requires(Value t, view<const float, 2> keys, view<index_t> order, view<float> work, view<float, 2> out) {
  T::summary::rows;
  { t.make(keys, order, work, out) } -> std::same_as<void>;
};

/// Optional: `using number = bfloat16`, the type in which the index keeps what it makes; without it, float.
template <class T, class Value = const T>
concept summarizer = dimension_summarizer<T, Value> || block_summarizer<T, Value>;

namespace detail {
template <class Summarizer>
struct number_of_summaries {
  using type = float;
};
template <class Summarizer>
requires requires { typename Summarizer::number; }
struct number_of_summaries<Summarizer> {
  using type = typename Summarizer::number;
};
}  // namespace detail

template <class Summarizer>
using summary_number = typename detail::number_of_summaries<Summarizer>::type;

/// Makes the query by which segments are scored from the token's own query and the sum over the open segment's queries,
/// dimension by dimension; the third argument is how many queries the sum has, this token's included. Unless it `sums`,
/// the second and third argument mean nothing.
template <class T, class Value = const T>
concept query_source = component<T> && std::same_as<typename T::role, role::query_source> &&
    requires(Value t, float value, index_t count) {
  { T::sums } -> std::convertible_to<bool>;
  { t.query(value, value, count) } -> std::same_as<float>;
};

/// A scorer whose score is one sum: `term` adds one dimension of the match between a query and a summary to `acc`. It
/// must add: it is called for 32 partial sums, each from 0 on, which are then added up (math/dot.hpp). Scores are in
/// the unit of q . k, before any scale; NaN ranks last.
template <class T, class Value = const T>
concept one_sum_scorer = component<T> && std::same_as<typename T::role, role::scorer> &&
    requires(Value t, float acc, float query, cells<T::summary::rows> c) {
  { t.term(acc, query, c) } -> std::same_as<float>;
};

/// A scorer whose `term` is `fused(query, c.row[0], acc)`, declared by `static constexpr bool product = true`. The
/// host's cache makes such scores itself, several heads and segments at a time, with the same bits.
template <class T>
concept product_scorer = one_sum_scorer<T> && T::product;

/// A scorer whose score is the sum of `weight(query, row)` times each number of the summary, but for rounding: what a
/// rounded number changes is known then. The host's cache scores only those segments exactly that a choice may take.
template <class T, class Value = const T>
concept linear_scorer = one_sum_scorer<T, Value> && requires(Value t, float query, index_t row) {
  { t.weight(query, row) } -> std::same_as<float>;
};

/// Sums over dimensions that one score is made of.
template <index_t Count>
struct score_sums {
  float at[std::size_t{Count}] = {};
};

/// A scorer whose score is made of `sums` sums: `term` adds one dimension to each, none of which may depend on another;
/// `finish` makes the score of them: the largest of several products, for example, or a mean and its deviation.
template <class T, class Value = const T>
concept several_sums_scorer = component<T> && std::same_as<typename T::role, role::scorer> &&
    requires(Value t, score_sums<T::sums> acc, float query, cells<T::summary::rows> c) {
  requires T::sums >= 1;
  { t.term(acc, query, c) } -> std::same_as<score_sums<T::sums>>;
  { t.finish(acc) } -> std::same_as<float>;
};

/// A scorer that reads a segment's keys instead of a summary, declared by `static constexpr bool reads_keys = true`.
/// logits [keys] are those of one query head with the keys between the zones, at least one: natural, with the model's
/// scale, cap and bias; they may be overwritten. The score is a natural logit of the segment as a whole. Its `summary`
/// is `summary::none`. On a device only with a `share_aggregator` (policy/score/key_mass.cuh).
template <class T, class Value = const T>
concept key_scorer = component<T> && std::same_as<typename T::role, role::scorer> && T::reads_keys &&
    std::same_as<typename T::summary, summary::none> && requires(Value t, view<float> logits) {
  { t.score(logits) } -> std::same_as<float>;
};

/// Scores how well a query matches a segment; the highest score is best.
template <class T, class Value = const T>
concept scorer = one_sum_scorer<T, Value> || several_sums_scorer<T, Value> || key_scorer<T, Value>;

/// A scorer of which a summary times a positive number gets its score times that number: a product, or one with `static
/// constexpr bool homogeneous = true`. Its scores are multiplied by a summary's scale; others receive products.
template <class T>
concept homogeneous_scorer = product_scorer<T> ||(scorer<T>&& T::homogeneous);

/// Sums of a scorer.
template <class T>
ZOOMR_HD constexpr index_t sums_of() {
  if constexpr (several_sums_scorer<T>) return T::sums;
  return 1;
}

/// A scorer that reads what this summarizer makes.
template <class Scorer, class Summarizer>
concept scorer_for =
    scorer<Scorer> && summarizer<Summarizer> && std::same_as<typename Scorer::summary, typename Summarizer::summary>;

/// How the numbers of several query heads become one.
enum class pool : std::uint8_t { mean, max };

/// Turns the scores of some heads into votes, shared by everyone in `per`.
///
/// scores [heads, segments] are products of queries with summaries, not scaled; tokens [segments] attendable details;
/// logits(score, more) is a score's natural logit plus `more`, by the model's scale and soft cap. An aggregator that
/// does not weigh may take `index_t head_dim` in its place.
/// votes [segments] (not_eligible: leave alone); order [segments] working memory.
/// Votes begin at 0. With `scope::sequence`, `add` comes once for each layer, in ascending order; else once for a row.
/// Scores of a segment that is not eligible mean nothing. Of a `key_scorer` they are logits already, of whole segments:
/// `tokens` are all 1 then, and `logits` changes nothing.
template <class T, class Value = const T>
concept score_aggregator = requires(Value t, view<const float, 2> scores, view<const index_t> tokens,
                                    const score_logits& logits, view<votes_t> votes, view<index_t> order) {
  { t.add(scores, tokens, logits, votes, order) } -> std::same_as<void>;
};

/// One that can count voters alone (policy/aggregate/weighted.hpp): `add_weighted` is `add` with the scores of heads
/// that have a weight in `config.voters`, and weights [heads] in 65536ths of the largest, at least 1. Votes of layers
/// add up.
template <class T, class Value = const T>
concept weight_taker = score_aggregator<T, Value> &&
    requires(Value t, view<const float, 2> scores, view<const votes_t> weights, view<const index_t> tokens,
             const score_logits& logits, view<votes_t> votes, view<index_t> order) {
  { t.add_weighted(scores, weights, tokens, logits, votes, order) } -> std::same_as<void>;
};

/// It counts voters alone.
template <class T>
concept weighing_aggregator = weight_taker<T> && T::weighs;

/// An aggregator of several queries: the last `queries` ones, those of the token that chooses included, each of the
/// heads that have a weight in `config.voters`. Called once for a sequence, with a `key_scorer`.
///
/// shares [voters, segments]: for each such head, in ascending order, the natural logarithm of the largest share of its
/// softmax over the eligible segments that one of these queries gave the segment; NaN if none did. They may be
/// overwritten. weights [voters]; votes [segments] (not_eligible: leave alone), 0 before.
template <class T, class Value = const T>
concept share_aggregator = requires(Value t, view<float, 2> shares, view<const float> weights, view<votes_t> votes) {
  { t.queries } -> std::convertible_to<index_t>;
  { t.add_shares(shares, weights, votes) } -> std::same_as<void>;
};

/// One whose votes are a posterior that may be unsure (policy/posterior_gate.hpp): where `gate` is set, what an unsure
/// choice serves attends everything. `add_shares` takes the class none too, and returns its votes, 0 if there is none.
template <class T, class Value = const T>
concept gated_aggregator = share_aggregator<T, Value> &&
    requires(Value t, view<float, 2> shares, view<const float> weights, view<votes_t> votes, none_class none) {
  { t.gate } -> std::convertible_to<bool>;
  { t.add_shares(shares, weights, votes, none) } -> std::same_as<votes_t>;
};

template <class T, class Value = const T>
concept aggregator = component<T> && std::same_as<typename T::role, role::aggregator> &&
    (score_aggregator<T, Value> || share_aggregator<T, Value>)&&requires(Value t) {
  { t.per } -> std::convertible_to<scope>;
  { T::least } -> std::convertible_to<votes_t>;  // below this a segment is not taken
  { T::counts } -> std::convertible_to<bool>;    // votes add up over heads and layers
};

/// What a selector reads beside the order, best first, of the segments. `tokens` [segments] counts what of each can be
/// attended; `room_used` is what is attended already, zones and summaries; `least` is the smallest number of votes that
/// counts; `position` and `sequence` are those of the token that chooses; `work` is the selector's own memory, or
/// nullptr.
struct selection_input {
  view<const index_t> tokens;
  index_t room_used = 0;
  votes_t least = 0;
  index_t position = 0;
  index_t sequence = 0;
  std::byte* work = nullptr;
};

/// Takes segments: raises them in `row`, where each is at its summary or dropped, to details. What the order does not
/// offer is not eligible, and must not be taken.
///
/// Optional:
///   constexpr byte_count work_bytes(index_t segments) const   working memory for that many segments; without it, none.
///       It is allocated with the cache, aligned to 64 bytes, and counted in `kv_cache::bytes`; nothing of it is kept
///       from one choice to the next. Host only: on a device a selector is a walk with limits (`limited_selector`).
///   constexpr index_t most_segments() const                   most segments that it takes; without it, all
///   static constexpr bool needs_counts                        true if votes must add up
///   constexpr const char* problem_with(const Zones&) const    what cannot work with these zones
template <class T, class Value = const T>
concept selector = component<T> && std::same_as<typename T::role, role::selector> &&
    requires(Value t, best_first& order, const selection_input input, selection_row row) {
  { t.choose(order, input, row) } -> std::same_as<void>;
};

/// Bytes that a selector works in.
template <class T>
constexpr byte_count work_bytes_of(const T& select, index_t segments) {
  if constexpr (requires { select.work_bytes(segments); }) return select.work_bytes(segments);
  return 0;
}

/// Decides from counts and classes alone when the selection is made again. `due` is called once for each token after
/// the prompt, each time that it is planned, before any query has come.
template <class T, class Value = const T>
concept refresh_rule = component<T> && std::same_as<typename T::role, role::refresh> &&
    requires(Value t, token_event event) {
  { t.due(event) } -> std::same_as<refresh_action>;
  { t.second_pass } -> std::convertible_to<bool>;   // one selection for all layers: pass the token once more
  { t.each_token() } -> std::convertible_to<bool>;  // a choice for one layer or less serves its own token only
};

}  // namespace zoomr::inline v0
