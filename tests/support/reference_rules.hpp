// SPDX-License-Identifier: Apache-2.0
// The naive reference's rules for who must agree and what is taken: one overload for each component.
#pragma once

#include <support/reference_history.hpp>
#include <zoomr/zoomr.hpp>

#include <algorithm>  // std::ranges::find

namespace reference {

using zoomr::level;

/// One row of a selection.
struct choice {
  std::vector<level> levels;  // of the segments known then; later ones have their summary attended
  index_t cut_segment = -1;
  index_t cut_tokens = 0;
  bool everything = false;  // all tokens are attended

  level level_at(index_t id) const {
    return id < static_cast<index_t>(levels.size()) ? levels[index_of(id)] : level::summary;
  }
  static std::size_t index_of(index_t id) { return static_cast<std::size_t>(id); }
};

/// The scores of some heads of one layer for all segments.
struct scores_of {
  index_t head_dim;
  const logits_of_model& model;
  std::vector<std::vector<estimate>> of_head;  // [head][segment]
  bool natural = false;                        // of keys: logits of whole segments
  std::vector<double> weights = {};            // [head]  of voters, in 65536ths of the largest; empty: all count alike

  double weight(std::size_t head) const { return weights.empty() ? 1 : weights[head]; }

  /// Of a score; no bias by distance.
  double logit(double score) const { return natural ? score : model.capped(model.scaled(score, head_dim)); }
  double scaled(double magnitude) const { return natural ? magnitude : model.scaled(magnitude, head_dim); }

  /// How far float may be off: by the dot product, the mean over the cue, and the mean query.
  double rounding(const estimate& score) const { return tolerance::reduction(head_dim + 300) * score.magnitude; }
};

/// Each agreement rule turns the scores [head][segment] of one layer into votes; `doubtful`: float may count
/// otherwise.
inline void aggregate(const zoomr::head_votes& by, const scores_of& scores, const std::vector<index_t>& eligible,
                      const std::vector<index_t>&, std::vector<estimate>& votes, bool& doubtful) {
  for (std::size_t head = 0; head < scores.of_head.size(); ++head) {
    if (scores.weight(head) == 0) continue;
    const auto& of_head = scores.of_head[head];
    const std::vector<index_t> order = ranked(of_head, eligible);
    for (std::size_t i = 0; i < order.size(); ++i) {
      const estimate& now = of_head[static_cast<std::size_t>(order[i])];
      if (i < static_cast<std::size_t>(by.k)) votes[static_cast<std::size_t>(order[i])].value += scores.weight(head);
      if (i + 1 != static_cast<std::size_t>(by.k) || i + 1 == order.size()) continue;
      const estimate& next = of_head[static_cast<std::size_t>(order[i + 1])];
      doubtful = doubtful || std::abs(now.value - next.value) <= scores.rounding(now) + scores.rounding(next);
    }
  }
}
inline void aggregate(const zoomr::head_mass&, const scores_of& scores, const std::vector<index_t>& eligible,
                      const std::vector<index_t>& tokens, std::vector<estimate>& votes, bool&) {
  for (std::size_t head = 0; head < scores.of_head.size(); ++head) {
    const auto& of_head = scores.of_head[head];
    if (scores.weight(head) == 0) continue;
    std::vector<estimate> logits(of_head.size());
    double largest = -std::numeric_limits<double>::infinity();
    double magnitude = 0;
    for (const index_t id : eligible) {
      const auto i = static_cast<std::size_t>(id);
      logits[i].value =
          scores.logit(of_head[i].value) + (scores.natural ? 0 : std::log(static_cast<double>(tokens[i])));
      if (logits[i].value > largest) largest = logits[i].value;
      if (std::isfinite(of_head[i].magnitude)) magnitude = std::max(magnitude, scores.scaled(of_head[i].magnitude) + 8);
    }
    const auto weight = [&](index_t id) {
      const double logit = logits[static_cast<std::size_t>(id)].value;
      return std::isnan(logit) ? 0.0 : logit == largest ? 1.0 : std::exp(logit - largest);
    };
    double sum = 0;
    for (const index_t id : eligible) sum += weight(id);
    if (sum == 0) continue;
    for (const index_t id : eligible) {
      estimate& mass = votes[static_cast<std::size_t>(id)];
      mass.value += scores.weight(head) * std::floor(weight(id) / sum * 16777216.0 + 0.5);
      mass.magnitude += scores.weight(head) * tolerance::mass(scores.head_dim + 300, magnitude);
    }
  }
}
inline void aggregate(const zoomr::pooled_mass& by, const scores_of& scores, const std::vector<index_t>& eligible,
                      const std::vector<index_t>&, std::vector<estimate>& votes, bool&) {
  const double unit = 1099511627776.0;  // 2^40
  for (const auto& of_head : scores.of_head) {
    const auto logit = [&](index_t id) { return scores.logit(of_head[static_cast<std::size_t>(id)].value); };
    double largest = -std::numeric_limits<double>::infinity(), magnitude = 0;
    for (const index_t id : eligible) {
      if (logit(id) > largest) largest = logit(id);
      const double sum = scores.scaled(of_head[static_cast<std::size_t>(id)].magnitude);
      if (std::isfinite(sum)) magnitude = std::max(magnitude, sum);
    }
    const auto weight = [&](index_t id) {
      return std::isnan(logit(id)) ? 0.0 : logit(id) == largest ? 1.0 : std::exp(logit(id) - largest);
    };
    double sum = 0;
    for (const index_t id : eligible) sum += weight(id);
    if (sum == 0) continue;
    for (const index_t id : eligible) {
      estimate& pooled = votes[static_cast<std::size_t>(id)];
      const double mass = std::floor(weight(id) / sum * unit + 0.5);
      pooled.value = by.over_group == zoomr::pool::mean ? pooled.value + mass : std::max(pooled.value, mass);
      pooled.magnitude += 1 + mass * tolerance::mass(scores.head_dim + 300, magnitude) / 16777216.0;
    }
  }
}
inline void aggregate(const zoomr::pooled_score& by, const scores_of& scores, const std::vector<index_t>& eligible,
                      const std::vector<index_t>&, std::vector<estimate>& votes, bool&) {
  for (const index_t id : eligible) {
    estimate& pooled = votes[static_cast<std::size_t>(id)];
    pooled = scores.of_head[0][static_cast<std::size_t>(id)];
    for (std::size_t head = 1; head < scores.of_head.size(); ++head) {
      const estimate& of_head = scores.of_head[head][static_cast<std::size_t>(id)];
      if (by.over_group == zoomr::pool::mean)
        pooled.value += of_head.value;
      else if (std::isnan(of_head.value) || of_head.value > pooled.value)
        pooled.value = of_head.value;
      pooled.magnitude += of_head.magnitude;
    }
    if (by.over_group == zoomr::pool::mean) pooled.value /= static_cast<double>(scores.of_head.size());
  }
}

inline std::int64_t take_one(index_t id, const std::vector<index_t>& tokens, std::int64_t room, choice& made) {
  made.levels[choice::index_of(id)] = level::details;
  const std::int64_t wanted = tokens[choice::index_of(id)];
  if (wanted > room) made.cut_segment = id, made.cut_tokens = static_cast<index_t>(room);
  return std::min(wanted, room);
}

/// Each selector takes segments, best first, and says how many it looked at.
inline std::size_t take(const zoomr::top_k& by, const std::vector<index_t>& order, const std::vector<index_t>& tokens,
                        index_t, choice& made) {
  std::int64_t room = by.tokens;
  std::size_t taken = 0;
  for (; taken < order.size() && static_cast<index_t>(taken) < by.segments && room > 0; ++taken)
    room -= take_one(order[taken], tokens, room, made);
  return taken;
}
inline std::size_t take(const zoomr::fill_budget& by, const std::vector<index_t>& order,
                        const std::vector<index_t>& tokens, index_t used, choice& made) {
  std::int64_t room = std::int64_t{by.tokens} - used;
  std::size_t looked = 0;
  while (looked < order.size() && room > 0) {
    const index_t id = order[looked++];
    if (!by.cut && tokens[static_cast<std::size_t>(id)] > room) break;
    room -= take_one(id, tokens, room, made);
  }
  return looked;
}
inline std::size_t take(const zoomr::top_p&, const std::vector<index_t>&, const std::vector<index_t>&, index_t,
                        choice&) {
  return 0;  // it needs to know the votes: `take_share`
}
/// Takes segments until their votes are so much of all, then what stands beside them among the eligible.
/// @param close  close(gap, votes covered so far): float may have gone on, or not
template <class Close>
std::size_t take_share(const zoomr::top_p& by, const std::vector<index_t>& order, const std::vector<index_t>& eligible,
                       const std::vector<index_t>& tokens, const std::vector<estimate>& votes, choice& made,
                       Close close) {
  double all = 0, covered = 0;
  for (const estimate& of : votes) all += of.value;
  std::int64_t room = by.tokens;
  std::size_t taken = 0;
  for (; taken < order.size() && static_cast<index_t>(taken) < by.segments && room > 0; ++taken) {
    if (taken > 0) close(covered - double{by.share} * all);
    if (taken > 0 && covered >= double{by.share} * all) break;
    room -= take_one(order[taken], tokens, room, made);
    covered += votes[choice::index_of(order[taken])].value;
  }
  for (std::size_t i = 0; i < taken; ++i) {
    const auto at = std::ranges::find(eligible, order[i]) - eligible.begin();
    for (std::ptrdiff_t side = at - by.neighbours; side <= at + by.neighbours; ++side) {
      if (side < 0 || side >= static_cast<std::ptrdiff_t>(eligible.size()) || room <= 0) continue;
      const index_t id = eligible[static_cast<std::size_t>(side)];
      if (made.level_at(id) != level::details) room -= take_one(id, tokens, room, made);
    }
  }
  return taken;
}
inline std::size_t take(const zoomr::select_none&, const std::vector<index_t>&, const std::vector<index_t>&, index_t,
                        choice&) {
  return 0;
}

}  // namespace reference
