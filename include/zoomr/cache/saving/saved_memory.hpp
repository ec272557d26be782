// SPDX-License-Identifier: Apache-2.0
// L6. The last section of a saved sequence: what its policy remembers beside tokens, keys and values. Under another
// policy nothing of it can be used; it is read past, so that damage is found all the same.
//
// A checksum is no protection from who writes a file on purpose. So each number is checked before it is used, and what
// the code relies on (ascending lists, levels, counts) before it becomes part of the state.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/saving/saved_parts.hpp>

#include <algorithm>  // std::clamp, std::fill, std::fill_n, std::max
#include <string>     // std::string

namespace zoomr::inline v0::detail {

/// Sums, queries and selections of a state whose tokens, segments and lists of kept positions are there.
/// @tparam Archive  section_writer or section_reader
template <class Pool, class Archive>
class saved_memory {
  static constexpr bool reads = Archive::reads;

 public:
  saved_memory(cache_core<Pool>& core, sequence_state& state, Archive& archive)
      : core_(core),
        policy_(core.policy),
        sizes_(core.sizes),
        state_(state),
        archive_(archive),
        tokens_(state.tokens()),
        parts_(remembered_of(core.policy, core.sizes, state)) {}

  /// @param same_policy  that of the cache chooses as the one that has saved it
  /// @throws error(format) if it is damaged; error(capacity) if it lacks what this cache's config needs; whatever the
  ///         archive throws
  void section(bool same_policy) {
    archive_.section("memory", [&] {
      if (same_policy) {
        sums();
        prompted();
        questions();
        noted();
        records();
        selections();
      } else if constexpr (reads) {
        begin_anew();
        archive_.skip(archive_.left());
      }
    });
  }
  /// Fewer tokens can be rolled back to only where nothing is needed of them; set by `section`.
  index_t known_from() const { return known_from_; }

 private:
  bool generated() const { return !state_.in_prompt() && tokens_ > 0; }
  index_t heads() const { return sizes_.model.layers * sizes_.model.heads; }
  std::int64_t record_elements() const { return query_memory::elements(sizes_.model, 1); }
  // Queries, each of so many numbers.
  void skip(std::int64_t count, std::int64_t numbers) { archive_.skip(4 * numbers * count); }

  // Under another policy there are none. The last token's record is of no summed queries.
  void begin_anew() {
    state_.questions.forget();
    state_.queries_from = sizes_.remembered > 0 ? parts_.prompted.last : 0;
    known_from_ = before_later_prompt();
    if (sizes_.query_parts == 0 || !generated()) return;
    for (index_t part = 0; part < sizes_.query_parts; ++part) {
      std::fill_n(state_.queries.at(tokens_ - 1, part, 0).data(), record_elements(), 0.0f);
    }
    known_from_ = tokens_;
  }

  // Where the sequence was saved, all tokens that it could ever have would have been kept.
  [[noreturn]] void lacks(const std::string& what) const {
    raise(errc::capacity, "load: the sequence was saved without the " + what +
                              ", since no token could ever be evicted under its config.max_tokens; here that is " +
                              std::to_string(core_.limits.max_tokens) + ", and some may be");
  }

  void sums() {
    index_t summed = parts_.summed;
    archive_.number(summed);
    archive_.expect(summed >= 0 && summed <= tokens_, "it has sums of more slots than there are");
    const index_t rows = sizes_.stored.layers * sizes_.model.heads;
    if (sizes_.carried == 0) return skip(summed, rows);
    if (summed == 0 && parts_.summed > 0) lacks("attention that its tokens got");
    archive_.expect(summed == parts_.summed, "its sums are of other slots");
    for (index_t row = 0; row < rows; ++row) {
      archive_.numbers(state_.received.committed.data() + std::int64_t{row} * sizes_.carried, summed);
    }
  }

  // The positions of queries that are there, which go up to the same end here and there.
  token_range positions(token_range range) {
    index_t count = range.size();
    archive_.number(range.first);
    archive_.number(count);
    archive_.expect(range.first >= 0 && range.first <= range.last && count == range.last - range.first,
                    "positions of queries cannot be");
    return range;
  }
  // Queries of some positions, of which those from `first` on are remembered here.
  void queries(query_memory& memory, token_range positions, index_t first, std::int64_t width) {
    first = std::clamp(first, positions.first, positions.last);
    skip(first - positions.first, width);
    for (index_t p = first; p < positions.last; ++p) archive_.numbers(memory.at(p, 0, 0).data(), width);
  }

  // Without them `queries_from` is such that none counts as kept: the end of the prompt is refused if it needs them.
  // Those of other voters than this cache's are of no use.
  void prompted() {
    index_t voters = sizes_.voters;
    archive_.number(voters);
    archive_.expect(voters >= 0 && voters <= heads(), "its voters cannot be");
    const bool of_use = same_voters(voters) && sizes_.remembered > 0;
    record_of_voters_ = std::int64_t{voters} * sizes_.model.head_dim;
    keeps_questions_ = of_use && sizes_.question > 0;
    const token_range saved = positions(parts_.prompted);
    const index_t first = of_use ? (std::max)(saved.first, saved.last - sizes_.remembered) : saved.last;
    if constexpr (reads) state_.queries_from = sizes_.remembered > 0 ? first : 0;
    queries(state_.last_queries, saved, first,
            std::int64_t{sizes_.heard > 0 ? voters : heads()} * sizes_.model.head_dim);
  }
  // Whose queries they are comes before them; none named are all heads.
  bool same_voters(index_t voters) {
    const index_t of_layer = sizes_.model.heads;
    bool same = voters == sizes_.voters;
    index_t before = -1;
    for (index_t i = 0; i < voters; ++i) {
      index_t head = before + 1;
      if constexpr (!reads) {
        while (core_.voters.number_of(head / of_layer, head % of_layer) != i) ++head;
      }
      archive_.number(head);
      archive_.expect(head > before && head < heads(), "its voters cannot be");
      same = same && core_.voters.number_of(head / of_layer, head % of_layer) == i;
      before = head;
    }
    return same;
  }

  // The voters' queries at named tokens. In a cache of other voters, or without a rotary embedding, they are of no use.
  void questions() {
    question_queries& kept = state_.questions;
    index_t dropped = kept.has_dropped() ? 1 : 0, count = reads ? 0 : kept.kept(tokens_), before = -1;
    archive_.number(dropped);
    archive_.number(count);
    archive_.expect(dropped >= 0 && dropped <= 1 && count >= 0 && count <= tokens_ &&
                        (record_of_voters_ > 0 || (count == 0 && dropped == 0)),
                    "its questions cannot be");
    if constexpr (reads) kept.forget(keeps_questions_ && dropped == 1);
    for (index_t i = 0; i < count; ++i) {
      index_t position = reads ? 0 : kept.position(i);
      archive_.number(position);
      archive_.expect(position > before && position < tokens_, "its questions cannot be");
      before = position;
      if (!keeps_questions_) {
        skip(1, record_of_voters_);
      } else if constexpr (reads) {
        archive_.numbers(kept.place(kept.next(position)).data(), record_of_voters_);
        kept.commit(position);
      } else {
        archive_.numbers(kept.queries(i).data(), record_of_voters_);
      }
    }
  }

  void noted() {
    const token_range saved = positions({parts_.noted.first, tokens_});
    if (parts_.noted.size() > 0 && saved.first > parts_.noted.first) lacks("queries that eviction will observe");
    queries(state_.noted, saved, parts_.noted.first, record_elements());
  }

  void records() {
    const bool needed = sizes_.query_parts > 0 && generated();
    index_t first = parts_.records.first;
    archive_.number(first);
    archive_.expect(needed ? first >= state_.last_prompt_end() - 1 && first < tokens_ : first == tokens_,
                    "positions of records cannot be");
    const std::int64_t expected = saved_record_parts(sizes_, state_, {first, tokens_});
    std::int64_t count = expected;
    archive_.number(count);
    archive_.expect(count == expected, "it has more records than positions, or fewer");
    for (index_t p = first; p < tokens_; ++p) {
      index_t part = p < state_.last_prompt_end() ? sizes_.query_parts : 0;
      for (; part < sizes_.query_parts; ++part) {
        if (p < tokens_ - sizes_.records) {
          skip(1, record_elements());
        } else {
          archive_.numbers(state_.queries.at(p, part, 0).data(), record_elements());
        }
      }
    }
    known_from_ = needed && first >= state_.last_prompt_end() ? first + 1 : before_later_prompt();
  }
  // Records of tokens before a later prompt are not saved: fewer tokens than this can only be inside of it.
  index_t before_later_prompt() const {
    return sizes_.query_parts > 0 && !state_.later_prompts.empty() ? state_.last_prompt_begin() + 1 : 0;
  }

  // The log; or where none is kept, since each choice serves its own token only, the last choice in the same form.
  void selections() {
    index_t dropped = state_.log.dropped() ? 1 : 0;
    archive_.number(dropped);
    archive_.expect(dropped == 0 || dropped == 1, "what it says of older choices cannot be");
    if (policy_.persists()) {
      log();
      if (reads && dropped == 1) state_.log.mark_dropped();
    } else if (policy_.selects) {
      archive_.expect(choice().position == -1, "a choice that serves its own token only has a position");
    }
  }
  void log() {
    if constexpr (reads) {
      while (archive_.left() > 0) logged();
    } else {
      const view<const index_t> words = state_.log.words();
      archive_.numbers(words.data(), words.size());
    }
  }

  struct saved_choice {
    index_t position = -1;
    index_t segments = 0;  // of the longest row
    std::int64_t words = 0;
  };
  // One choice of the log, which becomes the active selection for now.
  void logged() {
    const index_t before = (std::max)(state_.log.last_position(), state_.prompt_end - 2);
    const saved_choice entry = choice();
    archive_.expect(!state_.in_first_prompt() && entry.position > before && entry.position < tokens_,
                    "a choice's position cannot be");
    archive_.expect(entry.words <= sizes_.log_entry_words, "a choice has more than its policy can take");
    const bool closed = entry.segments == 0 ||
                        state_.segments[static_cast<std::size_t>(entry.segments) - 1].closed_at <= entry.position;
    archive_.expect(closed, "a choice knows segments of later tokens");
    state_.log.push(entry.position, state_.active_selection, level::summary);
  }
  // The active selection, as `selection_log` has an entry of its own.
  saved_choice choice() {
    saved_choice result;
    for (index_t r = 0; r < sizes_.selection_rows; ++r) {
      selection_row row = state_.active_selection.row(r);
      index_t segments = row.levels.size(), count = 0;
      for (const level at : row.levels) count += at != level::summary && !row.everything() ? 1 : 0;
      for (index_t* word : {&segments, &row.cut_segment, &row.cut_tokens, &count}) archive_.number(*word);
      archive_.expect(segments >= 0 && segments <= state_.segment_count() &&
                          row.cut_segment >= selection_row::of_everything && row.cut_segment < segments &&
                          row.cut_tokens >= 0 && count >= 0 && count <= segments,
                      "a row of a choice cannot be");
      archive_.expect(!row.everything() || (policy_.aggregate.gate && row.cut_tokens == 0 && count == 0),
                      "a choice of everything cannot be");
      if constexpr (reads) {
        selection_row& read = state_.active_selection.renew(r, segments);
        read.cut_segment = row.cut_segment;
        read.cut_tokens = row.cut_tokens;
        std::fill(read.levels.begin(), read.levels.end(), read.everything() ? level::details : level::summary);
        row = read;
      }
      levels(row.levels, count);
      result.segments = (std::max)(result.segments, segments);
      result.words += 4 + count;
    }
    result.words += 2;
    archive_.number(result.position);
    auto words = static_cast<index_t>(result.words);
    archive_.number(words);
    archive_.expect(words == result.words, "a choice has another length than its contents");
    return result;
  }
  // Those of a row that are not the level of a summary, ascending.
  void levels(view<level> of_segment, index_t count) {
    index_t last = -1;
    for (index_t i = 0; i < count; ++i) {
      index_t word = 0;
      if constexpr (!reads) {
        index_t next = last + 1;
        while (of_segment[next] == level::summary) ++next;
        word = next * 4 + static_cast<index_t>(of_segment[next]);
      }
      archive_.number(word);
      const index_t id = word / 4;
      const auto at = static_cast<level>(word % 4);
      archive_.expect(
          word >= 0 && id > last && id < of_segment.size() && (at == level::dropped || at == level::details),
          "a level of a choice cannot be");
      if constexpr (reads) of_segment[id] = at;
      last = id;
    }
  }

  cache_core<Pool>& core_;
  const any_policy& policy_;
  const layout& sizes_;
  sequence_state& state_;
  Archive& archive_;
  index_t tokens_;
  remembered_parts parts_;
  index_t known_from_ = 0;
  std::int64_t record_of_voters_ = 0;  // numbers, as saved
  bool keeps_questions_ = false;
};

}  // namespace zoomr::inline v0::detail
