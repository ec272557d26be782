// SPDX-License-Identifier: Apache-2.0
// L3. The roles of a policy: one question each. A component is a small regular value that answers one of
// them; `using role = ...` says which, so that compose() takes components in any order.
#pragma once

#include <zoomr/attention.hpp>
#include <zoomr/math/order.hpp>
#include <zoomr/segment.hpp>
#include <zoomr/summaries.hpp>

#include <concepts>     // std::regular, std::same_as
#include <type_traits>  // std::is_trivially_copyable_v

namespace zoomr {
inline namespace v0 {

namespace role {
struct segmenter {};   ///< where does a segment end?
struct retainer {};    ///< which of its tokens are kept after the prompt?
struct summarizer {};  ///< what stands for it?
struct asker {};       ///< which query asks?
struct scorer {};      ///< how well does it match?
struct consensus {};   ///< who must agree?
struct selector {};    ///< what is taken?
struct refresh {};     ///< when is that redone?
struct zones {};       ///< what else is attended?
struct store {};       ///< where does it live?
}  // namespace role

/// A value: copied to a kernel, compared, printed. State lives in the cache, never here.
template <class T>
concept component = std::regular<T> && std::is_trivially_copyable_v<T> && requires {
  typename T::role;
};

/// A component that looks at the classes of tokens says so: `static constexpr bool reads_classes = true`. A cache of
/// such a policy needs config.classes.
template <class T>
concept class_reader = requires {
  requires T::reads_classes;
};

/// Splits the stream. `feed` sees each committed token once; what it remembers between tokens is `state`,
/// which after a close depends only on the tokens since. `longest` bounds every segment.
template <class T>
concept segmenter = component<T> && std::same_as<typename T::role, role::segmenter> &&
    std::regular<typename T::state> && std::is_trivially_copyable_v<typename T::state> &&
    requires(const T t, typename T::state state, token_class classes, index position, closings out) {
  { t.longest } -> std::convertible_to<index>;
  { t.feed(state, classes, position, out) } -> std::same_as<void>;
  { t.end_of_prompt(state, position, out) } -> std::same_as<void>;
  { t.open_begin(state) } -> std::same_as<index>;
};

/// What a retainer that `observes` needs beside the rest. Of the last tokens, the queries of `observed(tokens)` count
/// and `safe(tokens)` are kept in any case; `rate` writes the importance of the scored ones to the front of [tokens].
/// If it `accumulates`, attention adds up since the first token, rather than over the last `observed` ones; `observed`
/// must then be all of them. If it `reads_keys`, it is shown them.
template <class T>
concept observer = requires(const T t, index tokens, const lane_attention& seen, view<float> importance) {
  { T::accumulates } -> std::convertible_to<bool>;
  { T::reads_keys } -> std::convertible_to<bool>;
  { T::while_decoding } -> std::convertible_to<bool>;
  { t.observed(tokens) } -> std::same_as<index>;
  { t.safe(tokens) } -> std::same_as<index>;
  { t.rate(seen, importance) } -> std::same_as<void>;
};

/// An observer that goes on after the prompt: every `every` tokens.
template <class T>
concept decoding_observer = observer<T> && requires(const T t) {
  { t.every } -> std::convertible_to<index>;
};

/// An observer that makes more, or less, of a query than the attention that it pays: `hear` changes what the tokens
/// have received so far from that query head [tokens]. It must read keys. One that hears a group as a whole does so
/// when its first head is heard, and leaves the others alone.
template <class T>
concept hearing_observer = observer<T> && requires(const T t, const heard_query& heard, view<float> received) {
  { t.hear(heard, received) } -> std::same_as<void>;
};

/// Says how many of so many tokens each lane keeps, not counting a prompt that the zones pin. If it `observes`, the
/// cache measures the attention that each token gets from later queries, at the end of the prompt and, if it works
/// `while_decoding`, after every `every` tokens from there; each lane keeps its sinks, its last tokens, and those that
/// are rated highest.
template <class T>
concept retainer = component<T> && std::same_as<typename T::role, role::retainer> && requires(const T t, index tokens) {
  { T::observes } -> std::convertible_to<bool>;
  { t.kept(tokens) } -> std::same_as<index>;
};

/// Makes a segment's summary, dimension by dimension, from the keys of its cue in ascending order.
template <class T>
concept dimension_summarizer = component<T> && std::same_as<typename T::role, role::summarizer> &&
    requires(const T t, cells<T::summary::rows> c, float key, index count) {
  { t.open() } -> std::same_as<cells<T::summary::rows>>;
  { t.fold(c, key) } -> std::same_as<void>;
  { t.close(c, count) } -> std::same_as<void>;
};

/// Makes a segment's summary from all keys of its cue at once: keys [count, head_dim], at least one, in ascending
/// order; order [count] and work [count] working memory; out [head_dim, rows].
template <class T>
concept block_summarizer = component<T> && std::same_as<typename T::role, role::summarizer> &&
    requires(const T t, view<const float, 2> keys, view<index> order, view<float> work, view<float, 2> out) {
  T::summary::rows;
  { t.make(keys, order, work, out) } -> std::same_as<void>;
};

template <class T>
concept summarizer = dimension_summarizer<T> || block_summarizer<T>;

namespace composing {
template <class Summarizer>
struct number_of_summaries {
  using type = float;
};
template <class Summarizer>
requires requires { typename Summarizer::number; }
struct number_of_summaries<Summarizer> {
  using type = typename Summarizer::number;
};
}  // namespace composing

/// The type in which the index keeps what a summarizer makes: its `number`, or float.
template <class Summarizer>
using summary_number = typename composing::number_of_summaries<Summarizer>::type;

/// Makes the query that asks from the token's own query and the sum over the open segment's queries.
template <class T>
concept asker = component<T> && std::same_as<typename T::role, role::asker> &&
    requires(const T t, float value, index count) {
  { T::sums } -> std::convertible_to<bool>;
  { t.ask(value, value, count) } -> std::same_as<float>;
};

/// Adds one dimension of the match between a query and a summary to `acc`; highest sum is best.
template <class T>
concept scorer = component<T> && std::same_as<typename T::role, role::scorer> &&
    requires(const T t, float acc, float query, cells<T::summary::rows> c) {
  { t.term(acc, query, c) } -> std::same_as<float>;
};

/// A scorer that reads what this summarizer makes.
template <class Scorer, class Summarizer>
concept scorer_for =
    scorer<Scorer> && summarizer<Summarizer> && std::same_as<typename Scorer::summary, typename Summarizer::summary>;

/// How the numbers of several query heads become one.
enum class pool : std::uint8_t { mean, max };

/// Turns the scores of some heads into tallies, shared by everyone in `per`.
///
/// scores [heads, segments] in logits times sqrt(head_dim); tokens [segments] attendable details;
/// tallies [segments] (not_eligible: leave alone); order [segments] working memory.
template <class T>
concept consensus = component<T> && std::same_as<typename T::role, role::consensus> &&
    requires(const T t, view<const float, 2> scores, view<const index> tokens, index head_dim, view<tally> tallies,
             view<index> order) {
  { t.per } -> std::convertible_to<scope>;
  { T::least } -> std::convertible_to<tally>;  // below this a segment is not wanted
  { T::counts } -> std::convertible_to<bool>;  // tallies add up over heads and layers
  { t.add(scores, tokens, head_dim, tallies, order) } -> std::same_as<void>;
};

/// Takes segments, best first. `tokens` [segments] counts what of each can be attended; `room_used` is what
/// is attended already, zones and summaries; `least` is the smallest tally that counts; `position` and
/// `sequence` are the asking token's.
struct selection_input {
  view<const index> tokens;
  index room_used = 0;
  tally least = 0;
  index position = 0;
  index sequence = 0;
};

template <class T>
concept selector = component<T> && std::same_as<typename T::role, role::selector> &&
    requires(const T t, best_first& order, const selection_input input, selection_row row) {
  { t.choose(order, input, row) } -> std::same_as<void>;
};

/// Decides from counts and classes alone when the selection is made again.
template <class T>
concept refresh_rule = component<T> && std::same_as<typename T::role, role::refresh> &&
    requires(const T t, token_event event) {
  { t.due(event) } -> std::same_as<refresh_action>;
  { t.ask_again } -> std::convertible_to<bool>;    // one selection for all layers: pass the token once more
  { T::each_token } -> std::convertible_to<bool>;  // a choice serves its own token only
  { t.drift() } -> std::convertible_to<float>;     // cosine below which choose_if_drifted chooses; -2: unused
};

}  // namespace v0
}  // namespace zoomr
