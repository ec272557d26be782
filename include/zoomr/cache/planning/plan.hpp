// SPDX-License-Identifier: Apache-2.0
// L6. What a step will do, decided before it starts, on the host, from token ids and counts alone. `begin` of host and
// device calls it for each item. No score is read, so that nothing waits for the device, and the number of passes is
// known from the start.
#pragma once

#include <zoomr/cache/planning/layout.hpp>
#include <zoomr/cache/sequence.hpp>
#include <zoomr/cache/tokens/token_state.hpp>

#include <algorithm>  // std::max, std::min
#include <string>     // std::to_string
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// A choice for all layers that no second pass reads: it is made after the last layer, for the tokens after it.
inline bool chooses_for_next_tokens(const any_policy& policy) {
  return policy.selects && policy.aggregate.per == scope::sequence && !policy.refresh.second_pass;
}

/// The plan of one token of a step. All but the last field is the same in both passes.
struct planned_token {
  token_class classes = token_class::plain;
  refresh_action action = refresh_action::keep;
  index_t asks_from = 0;            // first position of the segment that the token belongs to
  std::int64_t kv_lane_tokens = 0;  // attended in this pass so far, summed over KV lanes
};

/// The plan of one sequence's part of a step. The places `packed`, `planned`, `draft` and `remembered` are counts of
/// what the items before it have; `step_plan::add` sets them.
struct planned_item {
  index_t seq = -1;
  index_t first = 0;       // position of its first token
  index_t tokens = 0;      // taken of the ids that were given
  index_t packed = 0;      // of its first token, in the present pass
  index_t planned = 0;     // of its first token, in the step's table of tokens
  index_t draft = 0;       // of its first token, in the step's query memory
  index_t open_begin = 0;  // of the open segment, before the step
  bool prompt = false;
  bool prompt_begins = false;  // a later prompt does
  bool prompt_ends = false;
  bool chooses = false;        // its last token makes a choice that stays active
  bool chosen = false;         // and some row of it has been made
  bool observed = false;       // of a prompt: the queries of all its tokens were seen, in each layer
  index_t remembered = 0;      // of a prompt: where its queries are remembered until commit
  bool second_pass = false;    // its last token is in the second pass
  bool failed = false;         // pages that it needs did not come
  index_t floor_before = 0;    // the sequence's rollback_floor, before its commit began
  index_t queries_before = 0;  // its queries_from, likewise
  index_t announced = -1;      // how many tokens will be accepted, as given to `needs_second_pass`
  index_t draft_end = -1;      // of one passed whole: the position at which a draft would have ended; -1: it would not
  index_t due_from = -1;       // of one that goes on after a draft's end: first position at which a choice has become
                               // due, which waits for the commit; -1: none

  index_t last() const { return first + tokens - 1; }
  /// Tokens come after the one at which a draft would have ended.
  bool goes_on() const { return draft_end >= 0; }
  /// A choice waits for the commit of the item's first `accepted` tokens.
  /// @param of_part  that of a part of them can be made
  bool waits(index_t accepted, bool of_part) const {
    return due_from >= 0 && due_from < first + accepted && (of_part || accepted == tokens);
  }
};

/// An item that is passed whole goes on where a draft ends, unless that is its last token: what has become due waits.
/// @param evicts  tokens are evicted there
/// @return  false if it is the last one
/// @throws precondition_error if tokens are evicted in the middle: those after it would read what is gone
[[gnu::cold, gnu::noinline]] inline bool goes_on_whole(planned_item& planned, bool evicts, bool last) {
  ZOOMR_EXPECTS(!evicts || last,
                "begin: an item cannot be passed whole where the policy evicts tokens in its middle: it "
                "would have to end after " +
                    std::to_string(planned.tokens) + " tokens");
  if (!last && !planned.goes_on()) planned.draft_end = planned.last();
  if (!planned.goes_on()) return false;
  if (planned.chooses && planned.due_from < 0) planned.due_from = planned.last();
  planned.chooses = false;
  return !last;
}
/// The zones of a token of an item, in its pass. Where an item that is passed whole goes on after the end of a draft,
/// the back zone begins where it did there: what no segment holds yet is read.
/// @param zone_at  zone_at(position)  those of a token that comes alone
template <class ZoneAt>
zone_bounds zone_in(const planned_item& item, index_t position, ZoneAt zone_at) {
  zone_bounds zone = zone_at(position);
  if (!item.goes_on() || position <= item.draft_end) return zone;
  zone.back = (std::max)(zone.front, (std::min)(zone.back, zone_at(item.draft_end).back));
  return zone;
}
[[noreturn, gnu::cold, gnu::noinline]] inline void refuse_whole(index_t tokens, index_t most) {
  raise_precondition("begin: an item that is passed whole has " + std::to_string(tokens) +
                     " tokens, config.max_draft_tokens is " + std::to_string(most) +
                     ": raise it, or begin a later prompt");
}

/// Slots of each KV lane that are left if a prompt ends with `end` tokens: all, or as many as its evictor keeps. A
/// first prompt that is pinned loses none.
inline index_t kept_after_prompt(const any_policy& policy, const token_state& state, index_t end) {
  const index_t held = state.slot_end(end);
  const index_t pinned = !policy.zone.prompt ? 0 : state.in_first_prompt() ? end : state.prompt_end;
  return pinned + policy.evict.kept(held - pinned);
}

/// Checks that `call` is given a number of accepted tokens for each item.
/// @throws precondition_error if not
inline void expect_counts(const char* call, index_t items, view<const index_t> accepted) {
  ZOOMR_EXPECTS(accepted.size() == items, std::string(call) + ": accepted has " + std::to_string(accepted.size()) +
                                              " numbers, wanted one for each of the " + std::to_string(items) +
                                              " items");
}
/// Checks the one of `item`: of a draft any number of those taken, of a prompt all tokens or none.
/// @throws precondition_error if it is another
inline void expect_count(const char* call, index_t item, const planned_item& plan, index_t accepted) {
  if (accepted == 0 || accepted == plan.tokens || (!plan.prompt && accepted > 0 && accepted < plan.tokens)) return;
  const std::string sentence =
      std::string(call) + ": " + std::to_string(accepted) + " tokens of item " + std::to_string(item) + " are accepted";
  const std::string tokens = std::to_string(plan.tokens);
  const bool part = plan.prompt && accepted > 0 && accepted < plan.tokens;
  detail::raise_precondition(
      sentence + (part ? ", but of a prompt all " + tokens + " or none can be; `prompt_ends` has not been set yet"
                       : ", wanted 0 ... " + tokens));
}

/// True if a later prompt begins with an item. For a sequence's first tokens the flag has no meaning.
inline bool begins_later_prompt(const token_state& state, const step_item& item) {
  return item.prompt_begins && state.tokens() > 0;
}

/// Gives the tokens of an item the classes of their spans, one after the other.
class span_marks {
 public:
  /// @param before  class of the token before the item's first
  span_marks(view<const token_span> spans, token_class before) : spans_(spans), before_(before) {}

  /// False: no token has such a class.
  bool any() const { return spans_.size() > 0 || has(before_, span_classes); }
  /// @param id  number of the token in the item
  [[gnu::cold, gnu::noinline]] token_class mark(index_t id, token_class of_token) {
    while (next_ < spans_.size() && spans_[next_].ids.last <= id) ++next_;
    if (next_ < spans_.size() && spans_[next_].ids.first <= id) {
      const bool pinned = spans_[next_].role == span_role::pinned;
      of_token = of_token | (pinned ? token_class::pinned : token_class::question);
    }
    return before_ = cut_between(before_, of_token);
  }

 private:
  view<const token_span> spans_;
  token_class before_;
  index_t next_ = 0;
};

/// Working memory of whoever feeds tokens to a segmenter, so that none of it is made for each token.
struct feeding_memory {
  std::vector<std::byte> state;
  closings closed;  // by one token
};

/// Plans one item: how many of its tokens the step takes, and what each of them makes due.
///
/// After a prompt an item ends at the first token that closes a segment, makes a choice that stays active, or has
/// tokens evicted, so that everything is the same as token by token; unless it is passed whole.
/// @param last_choice  position of the last choice that stays active, or -1
/// @param table        [tokens that the step has room for]  out
/// @param segmenting   working memory
/// @param planned      out: what is planned of the item; where it is among the others is the caller's
/// @param shortage     out, unless something is missing already: the sequence or its segment table would overflow
/// @throws precondition_error if there are more ids than `table` has room for, even if fewer would be taken; or if an
/// item cannot be passed whole
/// @cost  feeds each token that is taken to the segmenter and to the refresh rule; no allocation
inline void plan(planned_item& planned, const any_policy& policy, const token_state& state, index_t last_choice,
                 const step_item& item, const config& limits, index_t most_segments, view<planned_token> table,
                 feeding_memory& segmenting, std::string& shortage) {
  planned.seq = item.seq.id;
  planned.first = state.tokens();
  planned.prompt_begins = begins_later_prompt(state, item);
  planned.prompt = state.in_prompt() || planned.prompt_begins;
  planned.prompt_ends = item.prompt_ends;
  planned.open_begin = policy.segment.open_begin(state.segmenting.data());
  const index_t count = planned.prompt ? item.ids.size() : (std::min)(item.ids.size(), limits.max_draft_tokens);
  if (item.whole && count < item.ids.size()) refuse_whole(item.ids.size(), count);
  ZOOMR_EXPECTS(count <= table.size(),
                "begin: the step has " +
                    std::to_string(std::int64_t{limits.max_batched_tokens} - table.size() + count) +
                    " tokens or more, config.max_batched_tokens is " + std::to_string(limits.max_batched_tokens));
  if (shortage.empty() && count > limits.max_tokens - planned.first) {
    shortage = "sequence " + std::to_string(planned.seq) + " would have " +
               std::to_string(std::int64_t{planned.first} + count) + " tokens, config.max_tokens is " +
               std::to_string(limits.max_tokens) +
               (planned.prompt ? "; all are prompt, since `prompt_ends` has not been set yet" : "");
  }
  std::vector<std::byte>& fed = segmenting.state = state.segmenting;
  index_t segments = state.segment_count();
  span_marks spans(item.spans, state.tokens() > 0 ? state.classes.back() : token_class::plain);
  const bool marks = spans.any();
  last_choice = (std::max)(last_choice, state.last_prompt_end() - 1);
  while (planned.tokens < count) {
    const index_t position = planned.first + planned.tokens;
    planned_token& token = table[planned.tokens++] = {};
    const token_id id = item.ids[planned.tokens - 1];
    token.classes = id < limits.classes.size() ? limits.classes[id] & table_classes : token_class::plain;
    if (marks) token.classes = spans.mark(planned.tokens - 1, token.classes);
    closings& closed = segmenting.closed;
    closed.count = 0;
    policy.segment.feed(fed.data(), token.classes, position, closed);
    const bool ended_by_it = closed.count > 0 && closed.at[closed.count - 1].end == position + 1;
    token.asks_from = ended_by_it ? closed.at[closed.count - 1].begin : policy.segment.open_begin(fed.data());
    if (planned.prompt && item.prompt_ends && planned.tokens == count) {
      if (state.in_first_prompt()) policy.segment.end_of_prompt(fed.data(), position, closed);
      planned.chooses = policy.persists();
    }
    segments += closed.count;
    token.action = refresh_action::keep;
    if (planned.prompt) continue;
    token.action =
        policy.refresh.due({token.classes, position, position + 1 - token.asks_from, position - last_choice});
    planned.chooses = token.action == refresh_action::choose && policy.persists();
    const auto evicts = [&] { return evicts_after(policy, limits, state.evictions_begin(), position); };
    if (closed.count > 0 || planned.chooses || evicts()) {
      if (!item.whole || !goes_on_whole(planned, evicts(), planned.tokens == count)) break;
    }
  }
  if (shortage.empty() && segments > most_segments) {
    shortage = "sequence " + std::to_string(planned.seq) + " would have " + std::to_string(segments) +
               " segments, config.max_segments is " + std::to_string(most_segments);
  }
}

}  // namespace zoomr::inline v0::detail
