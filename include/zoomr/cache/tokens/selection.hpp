// SPDX-License-Identifier: Apache-2.0
// L6. The active selection of one sequence, and the log that a rollback reads it back from. Both have all their memory
// from the start.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/policy/segment.hpp>

#include <algorithm>  // std::fill, std::copy
#include <vector>     // std::vector

namespace zoomr::inline v0 {

struct inspection;  // of tests: it is defined nowhere else

namespace detail {

/// Rows of levels that stay active until the next choice. A row is a view of memory that the selection owns: so it may
/// be moved or swapped, but not copied.
class selection {
 public:
  selection() = default;
  selection(selection&&) = default;
  selection& operator=(selection&&) = default;
  /// @param lists  choices name what they take (`take`)
  selection(index_t rows, index_t most_segments, bool lists = false)
      : most_segments_(most_segments),
        most_taken_(lists ? most_taken(most_segments) : 0),
        levels_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(most_segments)),
        rows_(rows),
        taken_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(most_taken_)),
        lists_(static_cast<std::size_t>(lists ? rows : 0)) {}
  /// Bytes of one row, and those of its list.
  static byte_count row_bytes(index_t segments, bool lists) {
    return static_cast<byte_count>(sizeof(selection_row)) + segments + (lists ? list_bytes(segments) : 0);
  }
  static byte_count list_bytes(index_t segments) {
    return most_taken(segments) * static_cast<byte_count>(sizeof(index_t)) + static_cast<byte_count>(sizeof(list));
  }

  index_t rows() const { return rows_.size(); }
  const selection_row& row(index_t r) const { return rows_[r]; }
  /// The row has a list of the segments whose details are taken, ascending; all others are at their summary.
  bool listed(index_t r) const { return most_taken_ > 0 && lists_[static_cast<std::size_t>(r)].known; }
  /// @pre  listed(r)
  view<const index_t> taken(index_t r) const {
    return {taken_.data() + std::int64_t{r} * most_taken_, {lists_[static_cast<std::size_t>(r)].count}};
  }

  /// Begins a new choice in row `r` over `segments` segments, without a cut; the caller fills in the levels, which
  /// still are those of the row before.
  /// @pre  segments <= most_segments
  selection_row& renew(index_t r, index_t segments) {
    selection_row& row = rows_[r];
    if (most_taken_ > 0) lists_[static_cast<std::size_t>(r)].known = false;
    const auto offset = static_cast<std::int64_t>(r) * most_segments_;
    row = {view<level>(levels_.data() + offset, {segments}), -1, 0};
    return row;
  }

  /// A new choice in row `r` over `segments` segments, which takes the details of `ids`, ascending, and no others.
  /// @cost  O(ids), and those of the row's last choice, where that was such a one, too; else O(segments)
  void take(index_t r, index_t segments, view<const index_t> ids, index_t cut_segment, index_t cut_tokens) {
    const index_t before = rows_[r].levels.size();
    const bool clears = listed(r) && before <= segments;
    const view<const index_t> taken_before = clears ? taken(r) : view<const index_t>{};
    selection_row& row = renew(r, segments);
    for (const index_t id : taken_before) row.levels[id] = level::summary;
    std::fill(row.levels.begin() + (clears ? before : 0), row.levels.end(), level::summary);
    for (const index_t id : ids) row.take(id);
    row.cut_segment = cut_segment, row.cut_tokens = cut_tokens;
    if (most_taken_ == 0 || ids.size() > most_taken_) return;
    std::copy(ids.begin(), ids.end(), taken_.begin() + std::int64_t{r} * most_taken_);
    lists_[static_cast<std::size_t>(r)] = {true, ids.size()};
  }

  /// One more segment in row `r`, at a level.
  selection_row& add(index_t r, level at) {
    selection_row& row = rows_[r];
    if (most_taken_ > 0) lists_[static_cast<std::size_t>(r)].known = false;
    row.levels = {row.levels.data(), {row.levels.size() + 1}};
    row.levels[row.levels.size() - 1] = at;
    return row;
  }

  /// Row `r` becomes a copy of `source`, whose levels may be anywhere.
  void assign(index_t r, const selection_row& source) {
    selection_row& copy = renew(r, source.levels.size());
    std::copy(source.levels.begin(), source.levels.end(), copy.levels.begin());
    copy.cut_segment = source.cut_segment;
    copy.cut_tokens = source.cut_tokens;
  }

  /// All rows become those of another selection of the same size.
  void assign(const selection& other) {
    for (index_t r = 0; r < rows(); ++r) assign(r, other.row(r));
  }

  /// Nothing has been chosen: each row is empty, so that any segment is at the level of its summary.
  void clear() {
    std::fill(rows_.begin(), rows_.end(), selection_row{});
    std::fill(lists_.begin(), lists_.end(), list{});
  }

 private:
  struct list {
    bool known = false;
    index_t count = 0;
  };
  static index_t most_taken(index_t segments) { return segments / 8; }

  index_t most_segments_ = 0;
  index_t most_taken_ = 0;     // in a list; 0: there are none
  std::vector<level> levels_;  // [rows, most_segments]
  table<selection_row> rows_;
  std::vector<index_t> taken_;  // [rows, most_taken]
  std::vector<list> lists_;     // [rows]
};

/// The choices made so far, newest last, in a bounded number of words: when it is full the oldest are dropped,
/// and a rollback cannot go before them.
class selection_log {
 public:
  selection_log() = default;
  explicit selection_log(std::int64_t words) : capacity_(words) { words_.reserve(static_cast<std::size_t>(words)); }

  /// Words of an entry, at most.
  /// @param most_segments  of a row, that are not at the usual level
  static std::int64_t entry_words(index_t rows, index_t most_segments) {
    return 3 + std::int64_t{rows} * (4 + most_segments);
  }

  /// Position of the token that made the newest choice; -1 if none is logged.
  index_t last_position() const { return words_.empty() ? -1 : words_[words_.size() - entry_end]; }

  /// Remembers `choice`, chosen at `position`. Levels equal to `usual` take no space, nor does a row of everything.
  /// @pre   position > last_position(), and the log has room for one entry
  /// @cost  O(rows * segments); now and then half of the log is moved
  void push(index_t position, const selection& choice, level usual) {
    std::int64_t needed = entry_end;
    for (index_t r = 0; r < choice.rows(); ++r) needed += row_words(choice.row(r), usual);
    make_room(needed);
    const std::size_t entry = words_.size();
    for (index_t r = 0; r < choice.rows(); ++r) push_row(choice.row(r), usual);
    words_.push_back(position);
    words_.push_back(static_cast<index_t>(words_.size() - entry + 1));
  }

  /// True if what was active before the token at `position` can be restored: nothing was ever dropped, or an entry made
  /// before it is left.
  bool reaches(index_t position) const { return !dropped_ || find(position) > 0; }

  /// Forgets choices made at or after `position`, and puts the last one left into `choice`; if none is left, nothing is
  /// chosen.
  /// @param usual  as of `push`
  void restore(index_t position, selection& choice, level usual) {
    words_.resize(find(position));
    choice.clear();
    if (!words_.empty()) read(words_.size(), choice, usual);
  }

  /// visit(position) for each choice, the newest first, when it is in `choice`.
  /// @param usual  as of `push`
  template <class Visit>
  void each(selection& choice, level usual, Visit visit) const {
    for (std::size_t end = words_.size(); end > 0; end -= static_cast<std::size_t>(words_[end - 1])) {
      read(end, choice, usual);
      visit(words_[end - entry_end]);
    }
  }

  byte_count bytes() const { return static_cast<byte_count>(words_.size() * sizeof(index_t)); }
  /// All entries, oldest first, and whether older ones were dropped: what a saved sequence has of them.
  view<const index_t> words() const { return words_; }
  bool dropped() const { return dropped_; }
  /// Older entries than those that are there have been dropped.
  void mark_dropped() { dropped_ = true; }
  void clear() {
    words_.clear();
    dropped_ = false;
  }

 private:
  // An entry: for each row {segments, cut_segment, cut_tokens, count, count times id * 4 + level}; then the
  // position and the number of words of the entry. A row of everything has a count of 0.
  static constexpr std::size_t entry_end = 2;

  static std::int64_t row_words(const selection_row& row, level usual) {
    std::int64_t words = 4;
    if (row.everything()) return words;
    for (const level at : row.levels) words += at != usual ? 1 : 0;
    return words;
  }

  void push_row(const selection_row& row, level usual) {
    words_.push_back(row.levels.size());
    words_.push_back(row.cut_segment);
    words_.push_back(row.cut_tokens);
    const std::size_t count = words_.size();
    words_.push_back(0);
    if (row.everything()) return;
    for (index_t id = 0; id < row.levels.size(); ++id) {
      if (row.levels[id] == usual) continue;
      words_.push_back(id * 4 + static_cast<index_t>(row.levels[id]));
      ++words_[count];
    }
  }

  // The entry that ends there.
  void read(std::size_t end, selection& choice, level usual) const {
    std::size_t word = end - static_cast<std::size_t>(words_[end - 1]);
    for (index_t r = 0; r < choice.rows(); ++r) {
      selection_row& row = choice.renew(r, words_[word]);
      row.cut_segment = words_[word + 1];
      row.cut_tokens = words_[word + 2];
      std::fill(row.levels.begin(), row.levels.end(), row.everything() ? level::details : usual);
      const auto count = static_cast<std::size_t>(words_[word + 3]);
      word += 4;
      for (const std::size_t last = word + count; word < last; ++word) {
        row.levels[words_[word] / 4] = static_cast<level>(words_[word] % 4);
      }
    }
  }

  // Drops the older half when it is full, so that the cost of moving the rest is spread over many choices.
  void make_room(std::int64_t needed) {
    if (static_cast<std::int64_t>(words_.size()) + needed <= capacity_) return;
    std::size_t keep_from = words_.size();
    while (keep_from > words_.size() / 2) keep_from -= static_cast<std::size_t>(words_[keep_from - 1]);
    if (keep_from == 0) keep_from = static_cast<std::size_t>(first_entry_words());
    words_.erase(words_.begin(), words_.begin() + static_cast<std::ptrdiff_t>(keep_from));
    dropped_ = true;
  }

  index_t first_entry_words() const {
    std::size_t end = words_.size();
    while (end > static_cast<std::size_t>(words_[end - 1])) end -= static_cast<std::size_t>(words_[end - 1]);
    return static_cast<index_t>(end);
  }

  // The words of all entries made before `position`.
  std::size_t find(index_t position) const {
    std::size_t end = words_.size();
    while (end > 0 && words_[end - entry_end] >= position) end -= static_cast<std::size_t>(words_[end - 1]);
    return end;
  }

  friend struct zoomr::inspection;

  std::int64_t capacity_ = 0;
  std::vector<index_t> words_;
  bool dropped_ = false;
};

}  // namespace detail
}  // namespace zoomr::inline v0
