// SPDX-License-Identifier: Apache-2.0
// Spans that an engine names before their tokens come: by position, since it cuts its batches later.
#pragma once

#include <algorithm>  // std::any_of, std::lower_bound, std::max, std::min, std::sort
#include <limits>     // std::numeric_limits
#include <map>        // std::map
#include <string>     // std::to_string
#include <utility>    // std::move
#include <vector>     // std::vector

#include "sequences.hpp"

namespace adaptor {

/// Tokens of one sequence whose positions are in [first, last).
struct named_span {
  static constexpr std::int32_t prompt_end = std::numeric_limits<std::int32_t>::max();  // of `last`: where that ends

  std::int32_t first;
  std::int32_t last;
  zoomr::span_role role;
};

/// The spans of all sequences whose tokens are still to come.
class named_spans {
 public:
  /// @throws refusal if tokens of it are in another span
  void add(std::int32_t id, named_span span) {
    std::vector<named_span>& all = spans_[id];
    const auto overlaps = [&](const named_span& other) { return other.first < span.last && span.first < other.last; };
    if (std::any_of(all.begin(), all.end(), overlaps)) {
      throw refusal("seq_span: tokens of sequence " + std::to_string(id) + " would be in two spans");
    }
    all.push_back(span);
    std::sort(all.begin(), all.end(), [](const named_span& a, const named_span& b) { return a.first < b.first; });
  }
  /// Those of an item, by its ids.
  /// @param positions  of the ids, ascending
  std::vector<zoomr::token_span> in(std::int32_t id, const std::vector<std::int32_t>& positions) const {
    std::vector<zoomr::token_span> found;
    const auto all = spans_.find(id);
    if (all == spans_.end()) return found;
    const auto place = [&](std::int32_t position) {
      const auto at = std::lower_bound(positions.begin(), positions.end(), position);
      return static_cast<index_t>(at - positions.begin());
    };
    for (const named_span& span : all->second) {
      const zoomr::token_range ids{place(span.first), place(span.last)};
      if (ids.size() > 0) found.push_back({ids, span.role});
    }
    return found;
  }
  /// Tokens with the positions [p0, p1) are in no span any more.
  void remove(std::int32_t id, std::int32_t p0, std::int32_t p1) {
    const auto all = spans_.find(id);
    if (all == spans_.end()) return;
    std::vector<named_span> left;
    for (const named_span& span : all->second) {
      const named_span before{span.first, (std::min)(span.last, p0), span.role},
          after{(std::max)(span.first, p1), span.last, span.role};
      if (before.first < before.last) left.push_back(before);
      if (after.first < after.last) left.push_back(after);
    }
    all->second = std::move(left);
  }
  void remove_everywhere(std::int32_t p0, std::int32_t p1) {
    for (auto& [id, all] : spans_) remove(id, p0, p1);
  }
  /// Tokens up to a position are held. Nothing of it can fail.
  /// @param prompt_ends  with them: so do spans that go on to its end
  void pass(std::int32_t id, std::int32_t position, bool prompt_ends) {
    const auto all = spans_.find(id);
    if (all == spans_.end()) return;
    for (named_span& span : all->second) span.first = (std::max)(span.first, position + 1);
    std::erase_if(all->second, [&](const named_span& span) {
      return span.first >= span.last || (prompt_ends && span.last == named_span::prompt_end);
    });
  }
  void forget(std::int32_t id) { spans_.erase(id); }
  void clear() { spans_.clear(); }
  void keep(std::int32_t id) {
    std::erase_if(spans_, [&](const auto& of) { return of.first != id; });
  }

 private:
  std::map<std::int32_t, std::vector<named_span>> spans_;  // by sequence; ascending
};

}  // namespace adaptor
