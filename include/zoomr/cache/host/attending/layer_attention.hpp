// SPDX-License-Identifier: Apache-2.0
// L6. One item's attention in one layer: a chunk of a prompt page by page, a generated token by what is chosen.
//
//   out = value_scale * sum of softmax(logit) * value,   logit = key_scale / sqrt(head_dim) * q . key
// over the attended slots, with keys and values as they are stored; with the model's own scale, soft cap and bias by
// distance where config.logits has them, and its sink in the denominator, added last. Each token's slots are added in
// ascending order, page by page, and stretch by stretch (attention/stretches.hpp), in either way: so the bits are the
// same for any chunks, drafts, tiers and threads.
// `step.attend` calls it once for each item, layer and pass.
#pragma once

#include <zoomr/cache/host/attending/item_attention.hpp>
#include <zoomr/cache/host/choosing/due_choices.hpp>

#include <algorithm>  // std::max, std::min, std::sort

namespace zoomr::inline v0::detail {

template <class Pool>
class layer_attention : item_attention<Pool> {
  using base = item_attention<Pool>;
  using base::all_stretches, base::begin, base::core_, base::counts, base::finish, base::gather, base::item_,
      base::layer_, base::packed, base::queries_, base::second_, base::token_at;

 public:
  using base::base;

  /// Makes the choices that are due in this layer, too.
  /// @pre     the item's keys were appended in this layer, in this pass
  /// @throws  error(storage) if pages do not come; some of the rows are written then
  /// @cost    no allocation; key and value read of each attended slot and KV head, or query head where each chooses
  /// alone. In the prompt so much for each few tokens of the chunk, but a page is brought once for all of them
  void attend() {
    core_.pool.begin_layer(core_.donors.stored(layer_));
    item_.prompt ? attend_prompt() : attend_chosen();
  }

 private:
  // All tokens and heads have a state of their own, [tokens, heads], so that a chunk costs its context one visit.
  void attend_prompt() {
    const shape& model = core_.sizes.model;
    begin({0, item_.tokens}, {0, model.heads});
    if constexpr (Pool::may_fail) {
      visit_prompt_over_tiers();
    } else {
      visit_prompt();
    }
    for (index_t t = 0; t < item_.tokens; ++t) {
      for (index_t head = 0; head < model.heads; ++head) finish(core_.heads.join(t, head), item_.packed + t, head);
    }
  }

  // Tokens of a piece of work: so many that it pays to widen the pages for them.
  static constexpr index_t piece_tokens = 128;
  // Tokens of a chunk for each of which a key costs as much as for a token alone: a page is widened once for all. A
  // guess, not a measurement.
  static constexpr index_t tokens_at_cost = 4;

  // Pieces of work are some tokens of one KV head; without other threads it is one for all of the chunk.
  void visit_prompt() {
    const executor workers = core_.threads_for(std::int64_t{item_.tokens} * slot(item_.tokens) / tokens_at_cost);
    const index_t size = workers.threads() == 1 ? item_.tokens : piece_tokens;
    const index_t parts = (item_.tokens + size - 1) / size;
    for_each_piece(workers, core_.sizes.model.kv_heads * parts, [&](index_t piece, index_t thread) {
      const index_t first = piece % parts * size;
      const token_range tokens{first, (std::min)(first + size, item_.tokens)};
      prompt_tile& tile = core_.of_thread[static_cast<std::size_t>(thread)].tile;
      for (index_t at = first_page_seen(first); at < slot(tokens.last); at = tile_end(at)) {
        attend_tile(tile, piece / parts, at, tokens);
      }
    });
  }

  // A page comes once for all tokens and KV heads. Chunks before this one may be in the file, so that the next two of
  // their pages are requested ahead.
  void visit_prompt_over_tiers() {
    const token_range every_kv_head{0, core_.sizes.model.kv_heads};
    prompt_tile& tile = core_.of_thread.front().tile;
    for (index_t at = first_page_seen(0); at < slot(item_.tokens); at = tile_end(at)) {
      core_.pool.prefetch(core_.donors.stored(layer_), every_kv_head, view<const index_t>(core_.state_of(item_).pages),
                          {at + page_tokens, (std::min)(at + 3 * page_tokens, slot(0))});
      for (index_t head = 0; head < every_kv_head.last; ++head) attend_tile(tile, head, at, {0, item_.tokens});
    }
  }

  // The first slot of the first page that a token of the chunk sees, and with it all that come after.
  index_t first_page_seen(index_t token) const { return window().first(slot(token)) / page_tokens * page_tokens; }
  seen_window window() const { return core_.window_of(core_.state_of(item_)); }

  // Slots of a tile. Over tiers those of one page: a page that one KV head requests after the other may be gone in
  // between.
  static constexpr index_t at_once = (Pool::may_fail ? 1 : prompt_tile::most_pages) * page_tokens;

  // The end of a tile that begins at a slot: no tile is in two stretches, or of two ranks.
  index_t tile_end(index_t first) const {
    return (std::min)({first + at_once, (first / stretch_tokens + 1) * stretch_tokens, dealt().deal_end(first)});
  }
  const rank_tokens& dealt() const { return core_.limits.token_ranks; }

  // Those tokens of the chunk for which a stretch ends where a tile begins. Each sees all slots from one on, its own
  // the last.
  // @param first  slot of the tile
  void end_stretches(token_range tokens, token_range heads, index_t first) {
    if (first % stretch_tokens != 0 || first == 0) return;
    for (index_t t = (std::max)(tokens.first, first - slot(0)); t < tokens.last; ++t) {
      const bool ends = ends_stretch({window().first(slot(t)), first});
      for (index_t head = heads.first; ends && head < heads.last; ++head) {
        core_.heads.end_stretch(core_.heads.at(t, head));
      }
    }
  }
  // A stretch is over at the end of these slots, a multiple of its length, as stretch_walk finds it.
  bool ends_stretch(token_range seen) const {
    if (dealt().alone()) return seen.size() >= stretch_tokens;
    stretch_walk walk;
    bool ends = false;
    dealt().each_own(seen, [&](token_range own) { walk.pass(own, [](index_t) {}); });
    walk.pass({seen.last, seen.last + 1}, [&](index_t) { ends = true; });
    return ends;
  }

  // Some tokens of the chunk attend the tile of one KV head whose first slot is `first`.
  void attend_tile(prompt_tile& tile, index_t kv_head, index_t first, token_range tokens) {
    const shape& model = core_.sizes.model;
    const float scale = core_.limits.logit_scale(layer_, kv_head, model.head_dim);
    const token_range heads{kv_head * model.group(), (kv_head + 1) * model.group()};
    const auto kv_lane = core_.kv_lane(core_.state_of(item_), layer_, kv_head);
    end_stretches(tokens, heads, first);
    if (!dealt().owns(first)) return;
    tile.begin(kv_lane, first, (std::min)(tile_end(first), slot(tokens.last)), window());
    const index_t group = heads.size(), last = tokens.last * group;
    for (index_t at = (std::max)(tokens.first, first - slot(0)) * group; at < last; at += prompt_tile::together) {
      const index_t t = at / group;
      const auto query = [&](index_t i) -> run_query {
        const index_t token = (at + i) / group, head = heads.first + (at + i) % group;
        return {queries_[item_.packed + token][head].data(), &core_.heads.at(token, head)};
      };
      const index_t count = (std::min)(prompt_tile::together, last - at);
      core_.with_hook(core_.state_of(item_), layer_, heads, item_.first + t,
                      [&](const auto& hook) { tile.attend(kv_lane, slot(t), at % group, count, query, scale, hook); });
    }
  }

  // The slot of a token of the item.
  index_t slot(index_t t) const { return core_.state_of(item_).slot_end(item_.first + t); }

  // Tokens that read the same but for their last ones attend together, so that a draft
  // reads its context once; others one after the other, since what a token chooses may depend on the one before. In a
  // second pass the last alone.
  void attend_chosen() {
    const executor workers = core_.threads_for(token_at(item_.tokens - 1).slots());
    const std::size_t recorded = core_.trace != nullptr ? core_.trace->size() : 0;
    for (index_t t = second_ ? item_.tokens - 1 : 0; t < item_.tokens;) {
      const token_range tokens{t, end_of_draft(t)};
      token_ranges<Pool> reads = choose_due(token_at(t), queries_[packed(t)], workers, counts(t));
      for (++t; t < tokens.last; ++t) choose_due(token_at(t), queries_[packed(t)], workers, counts(t));
      if (tokens.size() == 1) reads.resolve_once();
      const index_t cut = attend_cut(reads, tokens, workers);
      const index_t kv_heads = core_.sizes.model.kv_heads;
      const index_t size = cut > 0 ? 1 : kv_heads_of_piece(reads, tokens, workers);
      const bool done = cut > 0 && tokens.size() == 1 && !core_.limits.audit;  // nothing is left to read
      const executor finishing = done ? executor{} : workers;
      for_each_piece(finishing, (kv_heads + size - 1) / size, [&](index_t piece, index_t thread) {
        const token_range piece_heads{piece * size, (std::min)((piece + 1) * size, kv_heads)};
        const index_t attended = size > 1 ? attend_alike(reads, tokens, piece_heads, thread) : cut;
        for (index_t kv_head = piece_heads.first; kv_head < piece_heads.last; ++kv_head) {
          attend_kv_head(reads, tokens, kv_head, thread, attended);
        }
      });
      for (index_t i = tokens.first; i < tokens.last; ++i) add_counts(token_at(i), counts(i));
    }
    if (core_.trace == nullptr) return;
    std::sort(core_.trace->begin() + static_cast<std::ptrdiff_t>(recorded), core_.trace->end(),
              [](const attended_record& a, const attended_record& b) {
                return a.position != b.position ? a.position < b.position : a.head < b.head;
              });
  }

  // The end of the tokens that attend together with token `t`: those before the next that makes a choice.
  index_t end_of_draft(index_t t) {
    const layer_token<Pool> first = token_at(t);
    if (first.may_choose() || token_ranges<Pool>(first).reader_heads() != core_.sizes.model.group()) return t + 1;
    const index_t most = (std::min)(item_.tokens, t + tokens_together(core_.sizes.model, core_.limits));
    index_t end = t + 1;
    while (end < most && !token_at(end).may_choose() && token_at(end).dense() == first.dense()) ++end;
    return end;
  }

  // KV heads of a piece of work that is not a stretch. Where all of them read the same slots, a thread attends its
  // share of them page by page: the rows of the others are in between, so that memory is read in order. Those of a
  // draft that lie side by side are attended one after the other: its queries are more than stay near the processor.
  index_t kv_heads_of_piece(const token_ranges<Pool>& reads, token_range tokens, const executor& workers) const {
    if (Pool::may_fail || !reads.same_for_all()) return 1;
    if (tokens.size() > 1 && keys_side_by_side(core_.kv_lane(core_.state_of(item_), layer_, 0))) return 1;
    return (core_.sizes.model.kv_heads + workers.threads() - 1) / workers.threads();
  }

  // Attends what some tokens and KV heads read alike, or all that one token reads.
  // @return  slots before this one are in their states; 0: nothing was done
  index_t attend_alike(const token_ranges<Pool>& reads, token_range tokens, token_range kv_heads, index_t thread) {
    const index_t group = core_.sizes.model.group(), until = alike(reads, tokens);
    if (until == 0) return 0;
    const token_range heads{kv_heads.first * group, kv_heads.last * group};
    const range_list list = reads.list(kv_heads.first, heads.first,
                                       view<token_range>(core_.of_thread[static_cast<std::size_t>(thread)].ranges));
    begin(tokens, heads);
    gather(core_.state_of(item_), tokens, heads, own_ranges(core_, list.ranges(), thread), {0, until});
    return until;
  }
  // Slots before this one are read alike by some tokens and all KV heads, if all heads read the same.
  index_t alike(const token_ranges<Pool>& reads, token_range tokens) const {
    return tokens.size() == 1 ? reads.token().slots() : reads.settled(0, item_.first + tokens.last - 1);
  }

  // The same as attend_alike for all KV heads, where it is several stretches and there are several threads. Pieces of
  // work are stretches of some KV heads: all of those that a page holds, unless threads would have few pieces. They
  // come in the order in which they lie in memory.
  // @return  as attend_alike
  index_t attend_cut(const token_ranges<Pool>& reads, token_range tokens, const executor& workers) {
    cut_states& cut = core_.cut;
    if (workers.threads() == 1 || !cut.ready() || !reads.same_for_all()) return 0;
    const index_t until = alike(reads, tokens);
    const view<const token_range> ranges = own_ranges(core_, reads.list(0, 0, cut.ranges()).ranges(), 0);
    const index_t stretches = cut.find(ranges, until);
    if (stretches == 1) return 0;
    const shape& model = core_.sizes.model;
    const sequence_state& state = core_.state_of(item_);
    const auto kv_lane = core_.kv_lane(state, layer_, 0);
    const std::int64_t key_bytes = stored_size<typename decltype(kv_lane)::number>(kv_lane.rows.key_width);
    const index_t size =
        piece_kv_heads(model.kv_heads, stretches, workers.threads(), key_bytes, keys_side_by_side(kv_lane));
    const index_t parts = model.kv_heads / size;
    for_each_piece(workers, stretches * parts, [&](index_t piece, index_t) {
      const index_t stretch = piece / parts, first = piece % parts * size * model.group();
      attend_stretch(state, tokens, {first, first + size * model.group()}, ranges, stretch);
    });
    merge_cut(tokens, workers);
    return until;
  }
  // Brings together what was added up apart. A piece of work is four query heads, whose states are a cache line. The
  // threads have just worked, so that little is worth it.
  void merge_cut(token_range tokens, const executor& workers) {
    const shape& model = core_.sizes.model;
    const index_t group = model.group(), parts = states_apart(group) / 4, stretches = core_.cut.count();
    const std::int64_t numbers = std::int64_t{tokens.size()} * stretches * model.heads * model.value_width();
    const bool few = numbers < executor::usually_worth / 16;
    for_each_piece(few ? executor{} : workers, model.kv_heads * parts, [&](index_t piece, index_t) {
      const index_t first = piece / parts * group, part = first + piece % parts * 4;
      const token_range heads{part, (std::min)(part + 4, first + group)};
      begin(tokens, heads);
      for (index_t t = tokens.first; t < tokens.last; ++t) {
        for (index_t head = heads.first; head < heads.last; ++head) {
          for (index_t s = 0; s < stretches; ++s) {
            core_.heads.take(t, head, core_.cut.at(s, t - tokens.first, head), s + 1 == stretches);
          }
        }
      }
    });
  }
  void attend_stretch(const sequence_state& state, token_range tokens, token_range heads,
                      view<const token_range> ranges, index_t stretch) {
    for (index_t t = 0; t < tokens.size(); ++t) {
      for (index_t head = heads.first; head < heads.last; ++head) core_.cut.begin(stretch, t, head);
    }
    gather(state, tokens, heads, ranges, core_.cut.stretch(stretch), stretch);
  }

  // Some tokens and one KV head, whose rows are made first. What is in memory already is touched before anything is
  // requested, so that it is not replaced.
  // @param reads     of the first token
  // @param tokens    of the item; several if none makes a choice
  // @param attended  as attend_alike has returned
  void attend_kv_head(const token_ranges<Pool>& reads, token_range tokens, index_t kv_head, index_t thread,
                      index_t attended) {
    choose_due(reads.token(), kv_head, queries_[packed(tokens.first)], thread, counts(tokens.first));
    attend_token(reads, tokens, kv_head, thread, attended);
    const index_t settled = reads.settled(kv_head, item_.first + tokens.last - 1);
    for (index_t t = tokens.first + 1; t < tokens.last; ++t) {
      attend_token(token_ranges<Pool>(token_at(t)), {t, t + 1}, kv_head, thread, settled);
    }
  }

  // The first of some tokens, and what all of them read alike.
  // @param attended  slots before this one are in its states already
  void attend_token(const token_ranges<Pool>& reads, token_range tokens, index_t kv_head, index_t thread,
                    index_t attended) {
    const shape& model = core_.sizes.model;
    const sequence_state& sequence = core_.state_of(item_);
    const index_t t = tokens.first, stored = core_.donors.stored(layer_);
    const view<const index_t> pages(sequence.pages);
    const view<head_counts> counted = counts(t);
    kv_head_ranges<Pool> found(reads, kv_head, thread);
    const index_t reader_heads = reads.reader_heads(), first_head = kv_head * model.group();
    for (index_t first = first_head; first < first_head + model.group(); first += reader_heads) {
      const view<const token_range> ranges = found.next(first, counted[first]);
      const token_range lanes{kv_head, kv_head + 1}, heads{first, first + reader_heads};
      const auto left = [=](token_range r) { return token_range{(std::max)(r.first, attended), r.last}; };
      for (const token_range& r : ranges) core_.pool.touch(stored, lanes, pages, left(r));
      for (const token_range& r : ranges) core_.pool.prefetch(stored, lanes, pages, left(r));
      if (attended == 0) {
        begin(tokens, heads);
        if (tokens.size() > 1) attended = reads.settled(kv_head, item_.first + tokens.last - 1);
        if (attended > 0) gather(sequence, tokens, heads, ranges, {0, attended});
      }
      gather(sequence, {t, t + 1}, heads, ranges, {attended, unlimited});
      for (index_t head = heads.first; head < heads.last; ++head) finish(reads.token(), kv_head, head, counted[head]);
    }
    counted[first_head].kv_lane_tokens = found.different();
  }
};

}  // namespace zoomr::inline v0::detail
