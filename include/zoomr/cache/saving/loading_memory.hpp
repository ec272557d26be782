// SPDX-License-Identifier: Apache-2.0
// L6. The last section of a saved sequence: what its policy remembers beside tokens, keys and values. Under another
// policy nothing of it can be used; it is read past, so that damage is found all the same.
//
// A checksum is no protection from who writes a file on purpose. So each number is checked before it is used, and what
// the code relies on (ascending lists, levels, counts) before it becomes part of the state.
#pragma once

#include <zoomr/cache/host/core.hpp>
#include <zoomr/cache/saving/saved_parts.hpp>
#include <zoomr/cache/saving/section_reader.hpp>

#include <algorithm>  // std::clamp, std::fill, std::fill_n, std::max
#include <string>     // std::string

namespace zoomr::inline v0::detail {

/// Reads sums, queries and selections into a state whose tokens, segments and lists of kept positions are loaded.
template <class Pool>
class memory_loader {
 public:
  /// @param same_policy  that of the cache chooses as the one that has saved it
  memory_loader(cache_core<Pool>& core, sequence_state& state, section_reader& in, bool same_policy)
      : core_(core),
        policy_(core.policy),
        sizes_(core.sizes),
        state_(state),
        in_(in),
        same_(same_policy),
        tokens_(state.tokens()),
        parts_(remembered_of(core.policy, core.sizes, state)) {}

  /// @throws error(format) if the file is damaged; error(capacity) if it lacks what this cache's config needs; whatever
  ///         the source throws
  void load() {
    in_.begin("memory");
    if (same_) {
      sums();
      prompted();
      noted();
      records();
      selections();
    } else {
      begin_anew();
      in_.skip(in_.left());
    }
    in_.end();
  }
  /// Fewer tokens can be rolled back to only where nothing is needed of them; known after `load`.
  index_t known_from() const { return known_from_; }

 private:
  bool generated() const { return !state_.in_prompt() && tokens_ > 0; }
  std::int64_t record_elements() const { return query_memory::elements(sizes_.model, 1); }
  // Queries, each of so many numbers.
  void skip(std::int64_t count, std::int64_t numbers) { in_.skip(4 * numbers * count); }

  // Under another policy none is known. The last token's record says that nothing was summed.
  void begin_anew() {
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
    const auto saved = in_.get<index_t>();
    const index_t rows = sizes_.model.layers * sizes_.model.heads;
    in_.expect(saved >= 0 && saved <= tokens_, "it has sums of more slots than there are");
    if (sizes_.carried == 0) return skip(saved, rows);
    if (saved == 0 && parts_.summed > 0) lacks("attention that its tokens got");
    in_.expect(saved == parts_.summed, "its sums are of other slots");
    for (index_t row = 0; row < rows; ++row) {
      in_.get(state_.received.committed.data() + std::int64_t{row} * sizes_.carried, saved);
    }
  }

  // The first position of queries that are there from it up to `last`.
  index_t first_before(index_t last) {
    const auto first = in_.get<index_t>();
    const auto count = in_.get<index_t>();
    in_.expect(first >= 0 && first <= last && count == last - first, "positions of queries cannot be");
    return first;
  }
  // Queries of the positions [first, last), of which those from `wanted` on are kept.
  void get_queries(query_memory& memory, token_range positions, index_t wanted, std::int64_t each) {
    wanted = std::clamp(wanted, positions.first, positions.last);
    skip(wanted - positions.first, each);
    for (index_t p = wanted; p < positions.last; ++p) in_.get(memory.at(p, 0, 0).data(), each);
  }

  // Without them `queries_from` says that none is known: the end of the prompt is refused if it needs them. Those of
  // other voters than this cache's are of no use.
  void prompted() {
    const auto voters = in_.get<index_t>();
    const index_t all = sizes_.model.layers * sizes_.model.heads;
    in_.expect(voters >= 0 && voters <= all, "its voters cannot be");
    const bool of_use = asked_same(voters) && sizes_.remembered > 0;
    const token_range saved{first_before(parts_.prompted.last), parts_.prompted.last};
    const index_t wanted = of_use ? (std::max)(saved.first, saved.last - sizes_.remembered) : saved.last;
    state_.queries_from = sizes_.remembered > 0 ? wanted : 0;
    get_queries(state_.last_queries, saved, wanted,
                std::int64_t{sizes_.heard > 0 ? voters : all} * sizes_.model.head_dim);
  }
  // Reads whose queries they are: none named are all heads.
  bool asked_same(index_t voters) {
    const index_t heads = sizes_.model.heads;
    bool same = voters == sizes_.voters;
    index_t before = -1;
    for (index_t i = 0; i < voters; ++i) {
      const auto found = in_.get<index_t>();
      in_.expect(found > before && found < sizes_.model.layers * heads, "its voters cannot be");
      same = same && core_.voters.number_of(found / heads, found % heads) == i;
      before = found;
    }
    return same;
  }

  void noted() {
    const index_t first = first_before(tokens_);
    if (parts_.noted.size() > 0 && first > parts_.noted.first) lacks("queries that eviction will observe");
    get_queries(state_.noted, {first, tokens_}, parts_.noted.first, record_elements());
  }

  void records() {
    const bool needed = sizes_.query_parts > 0 && generated();
    const auto first = in_.get<index_t>();
    in_.expect(needed ? first >= state_.last_prompt_end() - 1 && first < tokens_ : first == tokens_,
               "positions of records cannot be");
    const std::int64_t parts = saved_record_parts(sizes_, state_, {first, tokens_});
    in_.expect(in_.get<std::int64_t>() == parts, "it has more records than positions, or fewer");
    for (index_t p = first; p < tokens_; ++p) {
      for (index_t part = p < state_.last_prompt_end() ? sizes_.query_parts : 0; part < sizes_.query_parts; ++part) {
        if (p < tokens_ - sizes_.records) {
          skip(1, record_elements());
        } else {
          in_.get(state_.queries.at(p, part, 0).data(), record_elements());
        }
      }
    }
    known_from_ = needed && first >= state_.last_prompt_end() ? first + 1 : before_later_prompt();
  }
  // Records of tokens before a later prompt are not saved: fewer tokens than this can only be inside of it.
  index_t before_later_prompt() const {
    return sizes_.query_parts > 0 && !state_.later_prompts.empty() ? state_.last_prompt_begin() + 1 : 0;
  }

  void selections() {
    const auto dropped = in_.get<index_t>();
    in_.expect(dropped == 0 || dropped == 1, "what it says of older choices cannot be");
    if (policy_.persists()) {
      while (in_.left() > 0) logged();
      if (dropped == 1) state_.log.mark_dropped();
    } else if (policy_.selects) {
      in_.expect(choice().position == -1, "a choice that serves its own token only has a position");
    }
  }

  struct read_choice {
    index_t position = 0;
    index_t segments = 0;  // of the longest row
    std::int64_t words = 0;
  };
  // One choice of the log, which becomes the active selection for now.
  void logged() {
    const index_t before = (std::max)(state_.log.last_position(), state_.prompt_end - 2);
    const read_choice entry = choice();
    in_.expect(!state_.in_first_prompt() && entry.position > before && entry.position < tokens_,
               "a choice's position cannot be");
    in_.expect(entry.words <= sizes_.log_entry_words, "a choice has more than its policy can take");
    const bool closed = entry.segments == 0 ||
                        state_.segments[static_cast<std::size_t>(entry.segments) - 1].closed_at <= entry.position;
    in_.expect(closed, "a choice knows segments of later tokens");
    state_.log.push(entry.position, state_.active_selection, level::summary);
  }
  read_choice choice() {
    read_choice result;
    for (index_t r = 0; r < sizes_.selection_rows; ++r) {
      const auto segments = in_.get<index_t>(), cut_segment = in_.get<index_t>();
      const auto cut_tokens = in_.get<index_t>(), count = in_.get<index_t>();
      in_.expect(segments >= 0 && segments <= state_.segment_count() && cut_segment >= -1 && cut_segment < segments &&
                     cut_tokens >= 0 && count >= 0 && count <= segments,
                 "a row of a choice cannot be");
      selection_row& row = state_.active_selection.renew(r, segments);
      row.cut_segment = cut_segment;
      row.cut_tokens = cut_tokens;
      std::fill(row.levels.begin(), row.levels.end(), level::summary);
      index_t last = -1;
      for (index_t i = 0; i < count; ++i) {
        const auto word = in_.get<index_t>();
        const index_t id = word / 4;
        const auto at = static_cast<level>(word % 4);
        in_.expect(word >= 0 && id > last && id < segments && (at == level::dropped || at == level::details),
                   "a level of a choice cannot be");
        row.levels[id] = at;
        last = id;
      }
      result.segments = (std::max)(result.segments, segments);
      result.words += 4 + count;
    }
    result.words += 2;
    result.position = in_.get<index_t>();
    in_.expect(in_.get<index_t>() == result.words, "a choice has another length than its contents");
    return result;
  }

  cache_core<Pool>& core_;
  const any_policy& policy_;
  const layout& sizes_;
  sequence_state& state_;
  section_reader& in_;
  bool same_;
  index_t tokens_;
  remembered_parts parts_;
  index_t known_from_ = 0;
};

}  // namespace zoomr::inline v0::detail
