// SPDX-License-Identifier: Apache-2.0
// L6. The tokens of one sequence, its segments and its pages: what the caches of host and device keep alike.
#pragma once

#include <zoomr/cache/tokens/moved_positions.hpp>
#include <zoomr/cache/tokens/pinned_segments.hpp>
#include <zoomr/cache/tokens/query_positions.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>
#include <zoomr/policy/any_policy.hpp>

#include <algorithm>  // std::any_of, std::copy_n, std::count_if, std::max, std::min
#include <cstddef>    // std::byte, std::ptrdiff_t
#include <cstdint>    // std::uint32_t
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// How many of the tokens before `compacted_end` each KV lane holds; 0: all of them. On the host what is pending is
/// set while the last chunk of a prompt is observed, and is gone when its step ends; a device has no use for it.
struct kept_tokens {
  index_t committed = 0;
  index_t pending = 0;  // if the step that ends the prompt is committed
};

/// What is committed of a sequence, as far as the host needs it to plan the next step. Tables have room for the longest
/// sequence from the start, so that nothing here allocates later.
struct token_state {
  bool open = false;
  std::uint32_t generation = 0;        // of the sequences that have had this place
  bool stale_summaries = false;        // some were made for a commit that has failed
  bool unclassified = false;           // some tokens were loaded that no table of classes has seen
  index_t prompt_end = -1;             // first position after the first prompt; -1 while it is still coming
  table<token_range> later_prompts;    // [later prompts]  ascending; the last may be `open_prompt`: still coming
  moved_positions moved;               // model positions that differ from positions
  table<token_class> classes;          // [tokens]
  table<index_t> pages;                // [pages]  -1: given back, unreachable
  table<segment> segments;             // [segments]
  std::vector<std::byte> after_close;  // [segments, state_bytes]  the segmenter's state after each close
  std::vector<std::byte> segmenting;   // [state_bytes]  its state now
  index_t freed_pages = 0;             // pages before this one were given back, or looked at (unreachable_pages.hpp)
  index_t dealt_pages = 0;             // pages of other ranks before this one were given back
  index_t rollback_floor = 0;          // rollback_tokens before the longest that it ever was, or where queries went
  kept_tokens kept_each;
  index_t compacted_end = 0;   // first position after what has been compacted
  index_t observed_end = 0;    // tokens when some were last evicted, or when attention was last added up
  index_t evictions_from = 0;  // as of `evictions_begin`, but for later prompts: the first one's end, or later
  index_t queries_from = 0;    // the last prompt's queries from this position on are remembered for its end
  index_t heard = 0;           // more than 0: those after it too, and a choice is made by so many of the last ones
  index_t always_heard = 0;    // of these, how many count where no question is among them
  index_t turned = 0;          // tokens of a question farther back that count; 0: none does
  bool marked = false;         // some token is in a span, or begins a message
  pinned_segments pins;        // beside those of pinned spans

  /// A new sequence, with room for the longest.
  token_state(const any_policy& policy, index_t most_tokens, index_t most_pages, index_t most_segments)
      : moved(most_tokens), segmenting(policy.segment.state_bytes), pins(policy.zone.preamble, policy.zone.question) {
    const any_segmenter& segmenter = policy.segment;
    always_heard = policy.aggregate.queries;
    classes.reserve(most_tokens);
    later_prompts.reserve(most_later_prompts(most_tokens));
    pages.reserve(most_pages);
    segments.reserve(most_segments);
    after_close.reserve(static_cast<std::size_t>(most_segments) * segmenter.state_bytes);
    segmenter.open(segmenting.data());
  }

  index_t tokens() const { return classes.size(); }
  index_t segment_count() const { return segments.size(); }
  /// Of a token; of `tokens()`: that of the next one.
  index_t model_position(index_t position) const { return moved.map().at(position); }
  /// The end of a later prompt that is still coming.
  static constexpr index_t open_prompt = unlimited;
  /// Each has a token at least, and so has the first one.
  static constexpr index_t most_later_prompts(index_t most_tokens) { return most_tokens > 0 ? most_tokens - 1 : 0; }

  bool in_prompt() const { return in_first_prompt() || in_later_prompt(); }
  bool in_first_prompt() const { return prompt_end < 0; }
  bool in_later_prompt() const { return !later_prompts.empty() && later_prompts.back().last == open_prompt; }
  /// True if a rollback to so many tokens would open a later prompt again.
  bool inside_later_prompt(index_t to) const {
    const auto has = [to](token_range later) { return later.first < to && to < later.last; };
    return std::any_of(later_prompts.begin(), later_prompts.end(), has);
  }
  view<const token_range> ended_later_prompts() const {
    const view<const token_range> begun(later_prompts);
    return begun.slice(0, begun.size() - (in_later_prompt() ? 1 : 0));
  }
  /// First position of the last prompt.
  index_t last_prompt_begin() const { return later_prompts.empty() ? 0 : later_prompts.back().first; }
  /// First position after the last prompt; while it is still coming no position is.
  index_t last_prompt_end() const { return later_prompts.empty() ? prompt_end : later_prompts.back().last; }
  /// Tokens of all prompts.
  index_t prompt_tokens() const {
    index_t count = in_first_prompt() ? tokens() : prompt_end;
    for (const token_range& later : later_prompts) count += (std::min)(later.last, tokens()) - later.first;
    return count;
  }
  /// Pages that it has: those that were given back count no more.
  index_t held_pages() const {
    return static_cast<index_t>(std::count_if(pages.begin(), pages.end(), [](index_t page) { return page >= 0; }));
  }
  /// Slots of each KV lane that hold committed tokens, or those before `position`. All KV lanes keep as many, so that
  /// the host has the number although each has a list of its own.
  /// @pre  position >= compacted_end, unless nothing was evicted
  index_t slots() const { return slot_end(tokens()); }
  index_t slot_end(index_t position) const {
    return kept_each.committed == 0 ? position : kept_each.committed + position - compacted_end;
  }
  /// Tokens when some were evicted while decoding, or would have been: what is summed and noted counts from there.
  /// In a later prompt all is summed.
  index_t last_eviction(index_t every) const {
    return in_later_prompt() ? tokens() : tokens() - (tokens() - evictions_begin()) % every;
  }
  /// While decoding, tokens are evicted every so many from here on: the last prompt's end, or later where a span was
  /// erased.
  index_t evictions_begin() const { return (std::max)(evictions_from, last_prompt_end()); }
  /// Tokens at the front of each KV lane that are never evicted: the first prompt, if the zones pin it. Their slots are
  /// their positions.
  index_t pinned(const any_zones& zone) const { return zone.prompt ? (std::max)(prompt_end, 0) : 0; }

  /// The tokens that come are those of a later prompt. Unless choices read the queries of all tokens, those before it
  /// are no longer kept.
  void begin_later_prompt() {
    later_prompts.push_back({tokens(), open_prompt});
    if (heard == 0) queries_from = (std::max)(queries_from, tokens());
  }
  /// The prompt in progress ends with the token that comes next.
  /// @param closed  what this token closes already
  void end_prompt(const any_segmenter& segmenter, closings& closed) {
    const index_t end = tokens() + 1;
    if (in_first_prompt()) {
      segmenter.end_of_prompt(segmenting.data(), tokens(), closed);
      prompt_end = evictions_from = end;
    } else {
      later_prompts.back().last = end;
    }
  }
  /// Makes the next token part of the sequence, with the segments that it closes. At most three: those of the token,
  /// then that which the end of the first prompt closes; the state that is kept is the one after all of them.
  void add(const any_segmenter& segmenter, token_class of_token, bool prompt_ends) {
    closings closed;
    segmenter.feed(segmenting.data(), of_token, tokens(), closed);
    if (prompt_ends) end_prompt(segmenter, closed);
    classes.push_back(of_token);
    marked = marked || has(of_token, token_class::message | span_classes);
    for (index_t c = 0; c < closed.count; ++c) {
      segments.push_back(closed.at[c]);
      after_close.insert(after_close.end(), segmenting.begin(), segmenting.end());
    }
    if (marked && (closed.count > 0 || prompt_ends)) pin_closed(segmenter, closed, prompt_ends);
  }

  /// The pins that classes, prompts and segments call for, of segments that are closed.
  pinned_segments pins_due() const {
    pinned_segments due(pins.most_preamble, pins.most_question);
    const view<const token_class> known(classes);
    if (!in_first_prompt()) due.find(known, view<const segment>(segments), {0, prompt_end}, ended_later_prompts());
    return due;
  }
  /// Pins the segments that are due, and no others but those of pinned spans.
  /// @param all  of all segments it is unknown whether they are pinned
  /// @cost  O(tokens of the last prompts that have ended); where other segments are due than before, all tokens are fed
  /// again
  void renew_pins(const any_segmenter& segmenter, bool all = false) {
    if (!marked) return;
    const pinned_segments due = pins_due();
    if (due == pins && !all) return;
    pins = due;
    index_t id = 0;
    feed_again(segmenter, 0, {}, segmenting, [&](const segment& closed) {
      segments[id] = closed;
      if (pins.has(id) || is_pinned(closed)) segments[id].split = closed.begin;
      ++id;
    });
  }

  /// Positions of the prompt whose queries are remembered for its end; where choices read the last queries, of all
  /// tokens. They are kept after the prompt, since a rollback may open it again; not where tokens were evicted, since
  /// such a prompt cannot be opened again.
  token_range known_queries() const {
    const index_t last = in_prompt() || heard > 0 ? tokens() : last_prompt_end();
    return {kept_each.committed == 0 || in_prompt() ? (std::min)(queries_from, last) : last, last};
  }
  /// After a commit: the queries of the last tokens are remembered.
  /// @param first    position of the first token that was committed
  /// @param known    not if it is a chunk of a prompt whose queries some layer has not seen: then none before its end
  ///                 count, and what was remembered of those before it is lost
  /// @param records  of how many tokens
  void remember_queries(index_t first, bool known, index_t records) {
    if (!known && heard > 0 && queries_from < first) rollback_floor = (std::max)(rollback_floor, first + 1);
    queries_from = (std::max)(queries_from, tokens() - (known ? records : 0));
  }
  /// Whose queries score the segments where the token at `position` chooses.
  query_positions scoring_queries(index_t position) const {
    return query_positions::at(position, always_heard, heard, pins.named, queries_from, turned);
  }
  /// The fewest tokens at which the next one chooses by as many queries as if no more had ever come.
  index_t least_with_queries() const { return queries_from > 0 ? queries_from + heard - 1 : 0; }
  /// True if choices after a rollback to so many tokens would miss queries that were remembered then. With no tokens
  /// none is missed; from `rollback_floor` on fewer may count, but no fewer than did.
  bool loses_queries(index_t to) const {
    return heard > 0 && to > 0 && to < rollback_floor && to < least_with_queries();
  }

  /// Of a prompt that has ended: no rollback leaves fewer, and pages are freed that such a sequence would not reach.
  index_t least_tokens() const { return (std::max)(prompt_end, rollback_floor); }

  /// Before a rollback into the first prompt: what came after its end is forgotten. Queries that choices count are not
  /// remembered farther back for that.
  void reopen_prompt(index_t to, index_t rollback_depth) {
    if (heard == 0) rollback_floor = (std::max)(0, to - rollback_depth);
    observed_end = (std::min)(observed_end, to);
  }
  /// Before a rollback into a later prompt: after its end everything will be new. What was before its begin stays as
  /// far away as it was.
  void reopen_later_prompt(index_t to, index_t rollback_depth) {
    if (!inside_later_prompt(to)) return;
    auto later = later_prompts.rbegin();
    while (later->first >= to) ++later;
    const index_t with_queries = heard == 0 ? 0 : floor_with_queries(to);
    rollback_floor = (std::max)({to - rollback_depth, (std::min)(rollback_floor, later->first + 1), with_queries});
  }

  /// Tokens and segments as they were when `to` tokens were committed: the table holds the segmenter's state after the
  /// last close, the tokens since are fed again.
  /// @param every  `any_evictor::spacing`: where a span was erased, what is due before counts back from there, so that
  ///               queries which are observed next are among those that are remembered
  /// @pre   0 <= to <= tokens()
  /// @cost  O(segments that go, and tokens since the last close that stays)
  void go_back(const any_segmenter& segmenter, index_t to, index_t every) {
    if (to < prompt_end) prompt_end = -1;  // the prompt is open again
    if (heard > 0 && in_first_prompt()) rollback_floor = floor_with_queries(to);
    for (; !later_prompts.empty() && later_prompts.back().first >= to; later_prompts.pop_back()) {
      if (evictions_from > later_prompts.back().first) evictions_from = 0;  // a span after it was erased
    }
    if (!later_prompts.empty() && later_prompts.back().last > to) later_prompts.back().last = open_prompt;
    if (to < evictions_from) evictions_from -= (evictions_from - to + every - 1) / every * every;
    evictions_from = (std::max)({evictions_from, prompt_end, 0});
    if (in_first_prompt()) evictions_from = 0;
    unclassified = unclassified && to > 0;
    queries_from = (std::min)(queries_from, to);
    freed_pages = (std::min)(freed_pages, pages_for(to));
    dealt_pages = (std::min)(dealt_pages, pages_for(to));
    moved.cut(to);
    classes.resize(to);
    segments.resize(segments_before(to));
    after_close.resize(static_cast<std::size_t>(segments.size()) * segmenting.size());
    // By construction every close before `to` is in the table.
    feed_again(segmenter, segment_count(), {}, segmenting, [](const segment&) {});
    renew_pins(segmenter);
  }

  /// Segments that were closed before the token at `position`.
  index_t segments_before(index_t position) const {
    index_t count = segment_count();
    while (count > 0 && segments[count - 1].closed_at >= position) --count;
    return count;
  }
  /// Segments that stay as they are without the erased tokens: after them all tokens are fed again, with them the one
  /// that ends the first prompt then, if another did before.
  index_t segments_kept(token_range erased) const {
    return segments_before(erased.first - (ends_prompt_earlier(erased) ? 1 : 0));
  }
  /// Where the segment begins that comes after the first `kept` ones.
  index_t next_begin(const any_segmenter& segmenter, index_t kept) const {
    if (kept > 0)
      return segmenter.open_begin(after_close.data() + static_cast<std::size_t>(kept - 1) * segmenting.size());
    return 0;
  }
  /// The token that ends the first prompt is erased.
  bool ends_prompt_earlier(token_range erased) const { return erased.first < prompt_end && prompt_end <= erased.last; }
  /// The same of a later one.
  bool ends_later_prompt_earlier(token_range erased) const {
    const auto is_cut = [erased](token_range later) { return erased.first < later.last && later.last <= erased.last; };
    return std::any_of(later_prompts.begin(), later_prompts.end(), is_cut);
  }

  /// Feeds all tokens after the close of the last of the first `kept` segments to the segmenter.
  /// @param erased   positions that are passed over, none of them before that close: those after count so many less
  /// @param state    out: the segmenter's state after all tokens
  /// @param closed   closed(segment) for each segment that is closed, when `state` is that after its token
  /// @cost  O(tokens that are fed)
  template <class Closed>
  void feed_again(const any_segmenter& segmenter, index_t kept, token_range erased, std::vector<std::byte>& state,
                  Closed closed) const {
    segmenter.open(state.data());
    index_t position = 0;
    if (kept > 0) {
      std::copy_n(after_close.begin() + static_cast<std::ptrdiff_t>(state.size()) * (kept - 1), state.size(),
                  state.begin());
      position = segments[kept - 1].closed_at + 1;
    }
    const index_t ends = without(erased, prompt_end);
    for (const index_t last = tokens() - erased.size(); position < last; ++position) {
      const index_t before = position < erased.first ? position : position + erased.size();
      const token_class of_token = position == erased.first ? class_behind(erased) : classes[before];
      closings endings;
      segmenter.feed(state.data(), of_token, position, endings);
      if (position + 1 == ends) segmenter.end_of_prompt(state.data(), position, endings);
      for (index_t c = 0; c < endings.count; ++c) closed(endings.at[c]);
    }
  }

  /// Tokens and segments as if those of `erased` had never come. Of how far back the sequence can be rolled back the
  /// tokens that are gone are lost.
  /// @param every  `any_evictor::spacing`: what is due counts on from the last time
  /// @param gap    the tokens after them keep their model positions, or else come up to where they began
  /// @pre   some tokens are after them; the table has room for the segments
  /// @cost  O(tokens after the last close before them)
  void erase(const any_segmenter& segmenter, token_range erased, index_t every, bool gap) {
    const index_t kept = segments_kept(erased);
    if (gap || !moved.plain())
      moved.erase(erased, gap ? 0 : model_position(erased.last) - model_position(erased.first));
    evictions_from = without(erased, in_prompt() ? evictions_from : last_eviction(every));
    classes[erased.last] = class_behind(erased);
    classes.erase(classes.begin() + erased.first, classes.begin() + erased.last);
    if (freed_pages > 0) rollback_floor = least_tokens();
    // Nothing is remembered of the token that ends a prompt now.
    if (ends_prompt_earlier(erased) || ends_later_prompt_earlier(erased))
      rollback_floor = (std::max)(rollback_floor, erased.first + 1);
    if (prompt_end > 0) prompt_end = without(erased, prompt_end);
    for (token_range& later : later_prompts) {
      later.first = without(erased, later.first);
      if (later.last != open_prompt) later.last = without(erased, later.last);
    }
    std::erase_if(later_prompts, [](token_range later) { return later.size() == 0; });
    rollback_floor = (std::min)(rollback_floor, tokens());
    observed_end = without(erased, observed_end);
    // Where queries that count are erased, older ones do not come in their place: else it would depend on
    // config.rollback_tokens how many there are. Fewer tokens would have kept these.
    const index_t counted = tokens() + erased.size() - heard;
    if (heard > 0 && queries_from < counted && counted < erased.last) {
      queries_from = counted;
      rollback_floor = tokens();
    }
    queries_from = without(erased, queries_from);
    segments.resize(kept);
    after_close.resize(static_cast<std::size_t>(segments.size()) * segmenting.size());
    feed_again(segmenter, kept, {}, segmenting, [&](const segment& closed) {
      segments.push_back(closed);
      after_close.insert(after_close.end(), segmenting.begin(), segmenting.end());
    });
    renew_pins(segmenter, true);
  }

  /// Makes this new sequence one with the tokens of another; its pages are in two tables from then on: the caller
  /// counts this in their stock.
  /// @cost  copies the tables, which have room for it
  void become(const token_state& other) {
    const std::uint32_t own_generation = generation;
    *this = other;
    generation = own_generation;
    kept_each.pending = 0;
  }

  /// Becomes a new sequence, which no handle of the old one names; pages are the caller's to give back.
  void forget_tokens(const any_segmenter& segmenter) {
    open = stale_summaries = unclassified = marked = false;
    pins = {pins.most_preamble, pins.most_question};
    ++generation;
    prompt_end = -1;
    classes.clear();
    moved.clear();
    later_prompts.clear();
    segments.clear();
    after_close.clear();
    segmenter.open(segmenting.data());
    freed_pages = dealt_pages = rollback_floor = 0;
    kept_each = {};
    compacted_end = observed_end = evictions_from = queries_from = 0;
  }

 private:
  bool is_pinned(const segment& closed) const { return has(classes[closed.begin], token_class::pinned); }
  // Pins closed segments of pinned spans; and what is due at a prompt's end, or as a segment of it closes later.
  [[gnu::cold, gnu::noinline]] void pin_closed(const any_segmenter& segmenter, const closings& closed,
                                               bool prompt_ends) {
    for (index_t c = 0; c < closed.count; ++c) {
      segment& added = segments[segment_count() - closed.count + c];
      if (is_pinned(added)) added.split = added.begin;
    }
    const view<const token_range> later = ended_later_prompts();
    const index_t ended = later.size() > 0 ? later[later.size() - 1].last : prompt_end;
    if (prompt_ends || closed.at[0].begin < ended) renew_pins(segmenter);
  }
  // The class of the token behind a span, if that is erased: spans begin and end where they did.
  token_class class_behind(token_range erased) const {
    const token_class behind = classes[erased.last];
    if (!marked) return behind;
    const token_class before = erased.first > 0 ? classes[erased.first - 1] : token_class::plain;
    return cut_between(before, behind);
  }
  // The rollback floor after a rollback that loses no queries.
  index_t floor_with_queries(index_t to) const {
    return to < rollback_floor ? (std::min)(to, least_with_queries()) : rollback_floor;
  }
};

}  // namespace zoomr::inline v0::detail
