// SPDX-License-Identifier: Apache-2.0
// L6. The scores of each segment by the last queries of the voters, so that a choice from several queries reads the
// keys for one only. Each number follows from a query and from keys that the sequence has: a forgotten one is computed
// again.
#pragma once

#include <zoomr/cache/tokens/query_positions.hpp>
#include <zoomr/core/buffer.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/core/types.hpp>
#include <zoomr/core/view.hpp>
#include <zoomr/paging/paged_kv_lane.hpp>

#include <algorithm>  // std::fill, std::max, std::min
#include <cstddef>    // std::size_t
#include <vector>     // std::vector

namespace zoomr::inline v0::detail {

/// Scores of segments by their keys, for the queries of the last tokens: of position p in record p % last ones; and
/// behind these records for turned ones, in the same way. NaN: not computed.
class key_masses {
 public:
  key_masses() = default;
  /// @param last, turned  queries
  key_masses(index_t last, index_t turned, index_t voters, index_t segments)
      : last_(last), voters_(voters), segments_(segments), records_(static_cast<std::size_t>(last + turned)) {
    memory_ = buffer<float>(std::int64_t{last + turned} * voters * segments);
  }
  static byte_count bytes(index_t queries, index_t voters, index_t segments) {
    return bounded_product({queries, std::int64_t{voters} * static_cast<std::int64_t>(sizeof(float)), segments}) +
           queries * static_cast<byte_count>(sizeof(record));
  }

  /// Makes room for the first `segments` segments in the record of a query, which may be another's.
  void open(scoring_query query, index_t segments) {
    record& entry = records_[place(query)];
    if (entry.position != query.position) entry = {query.position, 0};
    for (index_t voter = 0; voter < voters_ && entry.segments < segments; ++voter) {
      const view<float> row = at(query, voter);
      std::fill(row.data() + entry.segments, row.data() + segments, not_a_number);
    }
    entry.segments = entry.segments < segments ? segments : entry.segments;
  }
  /// The scores that one voter's query gave.  [most segments]
  /// @pre  `open` came before
  view<float> at(scoring_query query, index_t voter) {
    const auto number = static_cast<std::int64_t>(place(query));
    return {memory_.data() + (number * voters_ + voter) * segments_, {segments_}};
  }

  /// Forgets those of the tokens from `position` on: others may come in their place.
  void forget_from(index_t position) {
    for (record& entry : records_) {
      if (entry.position >= position) entry = {};
    }
  }
  void forget() { forget_from(-1); }
  /// From now on turned queries are so much farther, in tokens, and by the angle of so many model positions: of others
  /// nothing is known any more.
  void turn(index_t distance, index_t angle) {
    if (distance == distance_ && angle == angle_) return;
    distance_ = distance, angle_ = angle;
    for (std::size_t i = static_cast<std::size_t>(last_); i < records_.size(); ++i) records_[i] = {};
  }

 private:
  struct record {
    index_t position = -1;
    index_t segments = 0;
  };

  std::size_t place(scoring_query query) const {
    const auto last = static_cast<std::size_t>(last_), position = static_cast<std::size_t>(query.position);
    return query.turned ? last + position % (records_.size() - last) : position % last;
  }

  index_t last_ = 0;
  index_t distance_ = 0, angle_ = 0;  // of turned queries
  index_t voters_ = 0;
  index_t segments_ = 0;
  std::vector<record> records_;
  buffer<float> memory_;  // [records, voters, segments]
};

/// Working memory of one thread that scores segments by their keys.
class key_memory {
 public:
  key_memory() = default;
  key_memory(const shape& model, index_t slots, index_t segments)
      : slots_(slots),
        heads_(model.group()),
        queries_(std::int64_t{model.group()} * model.head_dim),
        logits_(std::int64_t{model.group()} * slots),
        masses_(segments) {}
  static byte_count bytes(const shape& model, index_t slots, index_t segments) {
    const std::int64_t of_head = std::int64_t{model.head_dim} + slots;
    return bounded_product({model.group(), of_head, sizeof(float)}) +
           model.group() * static_cast<byte_count>(sizeof(index_t)) + segments * static_cast<byte_count>(sizeof(float));
  }
  /// Slots that are scored together, for segments of `longest` tokens in sequences of `tokens`; the first may be that
  /// of a page which begins before.
  static index_t slots_for(index_t tokens, index_t longest) {
    return (std::min)(tokens, (std::max)(longest, 512)) + page_tokens;
  }

  index_t most_slots() const { return slots_; }
  view<index_t> heads(index_t count) { return {heads_.data(), {count}}; }
  view<float, 2> queries(index_t heads, index_t dims) { return {queries_.data(), {heads, dims}}; }
  view<float, 2> logits(index_t heads, index_t slots) { return {logits_.data(), {heads, slots}, {slots_, 1}}; }
  view<float> masses(index_t segments) { return {masses_.data(), {segments}}; }

 private:
  index_t slots_ = 0;
  buffer<index_t> heads_;  // [group]
  buffer<float> queries_;  // [group, head_dim]
  buffer<float> logits_;   // [group, slots]
  buffer<float> masses_;   // [segments]
};

}  // namespace zoomr::inline v0::detail
