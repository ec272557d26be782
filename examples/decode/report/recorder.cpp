// SPDX-License-Identifier: Apache-2.0
#include "recorder.hpp"

#include <zoomr/cache/host/choosing/chooser.hpp>
#include <zoomr/math/order.hpp>
#include <zoomr/math/softmax.hpp>

#include <algorithm>  // std::max, std::min
#include <cmath>      // std::round
#include <span>       // std::span
#include <utility>    // std::exchange, std::move

#include <nlohmann/json.hpp>

namespace report {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t most_chosen = 8, most_others = 4;  // of a choice that is kept
constexpr std::size_t most_kept = 100'000;               // choices in memory
constexpr index_t most_columns = 4096;                   // of a series
constexpr std::uint8_t of_summary = 1, in_part = 2, whole = 3, chosen = 4;

double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double unit = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * unit) / unit;
}

}  // namespace

recorder::recorder(policy_facts facts)
    : facts_(std::move(facts)),
      pieces_{{-1, -1, -1, 0, -1}},
      levels_(facts_.model.kv_lanes()),
      residency_(facts_.model.kv_lanes()) {}

void recorder::begin(const step_view& now) {
  tiered_ = now.tiers.has_value();
  before_ = {now.tokens - 1, now.stats, now.bytes, now.tiers.value_or(zoomr::tier_statistics{})};
  add_pieces(now);
  const auto covered = static_cast<index_t>(piece_at_.size());
  if (facts_.pinned_prompt && covered < now.tokens) add_piece(covered, now.tokens, now.tokens, -1);
  take_pins(now);
  take_choices(now.tokens - 1, false);
  attended.clear();
}

void recorder::step(const step_view& now) {
  const index_t position = now.tokens - 1;
  add_pieces(now);
  take_pins(now);
  bool second_pass = false;
  for (const zoomr::attended_record& one : attended) second_pass |= one.position == position && one.second_pass;
  take_choices(position, second_pass);
  take_levels(position);
  if (now.in_memory) take_residency(now);
  samples_.push_back({position, now.stats, now.bytes, now.tiers.value_or(zoomr::tier_statistics{})});
  attended.clear();
}

void recorder::add_piece(index_t begin, index_t split, index_t end, index_t segment) {
  const auto id = static_cast<index_t>(pieces_.size());
  pieces_.push_back({begin, split, end, steps(), segment});
  piece_at_.resize(static_cast<std::size_t>(end), id);
  if (segment >= 0) of_segment_[segment] = id;
}

// What lies between segments is a piece too, so that a closed text is covered.
void recorder::add_pieces(const step_view& now) {
  tokens_ = now.tokens;
  const auto covered = [&] { return static_cast<index_t>(piece_at_.size()); };
  for (; facts_.block > 0 && covered() + facts_.block <= tokens_;)
    add_piece(covered(), covered() + facts_.block, covered() + facts_.block, -1);
  if (facts_.block > 0) return;
  for (; segments_ < now.segments.size(); ++segments_) {
    const zoomr::segment& s = now.segments[segments_];
    if (s.begin > covered()) add_piece(covered(), s.begin, s.begin, -1);
    if (s.end > covered()) add_piece(covered(), std::max(s.split, covered()), s.end, segments_);
  }
}

// A pinned segment is all summary to the cache, which reads it in any case; to the page it is text that is read whole.
void recorder::take_pins(const step_view& now) {
  if (now.pinned == pinned_) return;
  for (const auto& [segment, id] : of_segment_) {
    const zoomr::segment& s = now.segments[segment];
    piece& p = pieces_[static_cast<std::size_t>(id)];
    const bool pinned = s.split == s.begin && std::ranges::any_of(now.pinned, [&](const zoomr::pinned_range& range) {
                          return range.tokens.first <= s.begin && s.end <= range.tokens.last;
                        });
    p.split = pinned ? p.end : std::max(s.split, p.begin);
  }
  for (pin& one : pins_) {
    if (one.last < 0 && std::ranges::find(now.pinned, one.range) == now.pinned.end()) one.last = steps();
  }
  for (const zoomr::pinned_range& range : now.pinned) {
    if (std::ranges::find(pinned_, range) == pinned_.end()) pins_.push_back({range, steps(), -1});
  }
  pinned_ = now.pinned;
}

// With one row for all layers a choice serves its own token in a second pass alone, else those after it; with more
// rows it serves its token too.
void recorder::take_choices(index_t position, bool second_pass) {
  for (zoomr::choice_record& made : pending_) in_force_[made.row] = std::move(made.chosen);
  pending_.clear();
  for (zoomr::choice_record& made : choices) {
    keep(made);
    if (facts_.per == zoomr::scope::sequence && made.position == position && !second_pass)
      pending_.push_back(std::move(made));
    else
      in_force_[made.row] = std::move(made.chosen);
  }
  choices.clear();
}

double recorder::value(zoomr::votes_t votes, double all) const {
  if (facts_.unit == vote_unit::score) return static_cast<double>(zoomr::unsorted(votes));
  if (facts_.unit == vote_unit::mass) return static_cast<double>(zoomr::sum_of_units(votes));
  return all > 0 ? static_cast<double>(votes) / all : 0;
}

void recorder::keep(const zoomr::choice_record& made) {
  double all = 0, agreed = 0;
  for (std::size_t i = 0; i < made.votes.size(); ++i) {
    all += static_cast<double>(made.votes[i]);
    if (i < made.chosen.size()) agreed += static_cast<double>(made.votes[i]);
  }
  const bool adds_up = facts_.unit == vote_unit::share && all > 0;
  kept_choice kept{steps(), adds_up ? agreed / all : -1, std::min(made.chosen.size(), most_chosen), {}};
  for (std::size_t i = 0; i < kept.chosen; ++i) kept.segments.emplace_back(made.chosen[i], value(made.votes[i], all));
  for (std::size_t i = 0; i < std::min(made.runners_up.size(), most_others); ++i)
    kept.segments.emplace_back(made.runners_up[i], value(made.votes[made.chosen.size() + i], all));
  kept_[{steps() / choice_stride_, made.row}] = std::move(kept);
  if (kept_.size() > most_kept) thin_choices();
}

// Two columns become one, with the later choice.
void recorder::thin_choices() {
  choice_stride_ *= 2;
  std::map<std::pair<index_t, index_t>, kept_choice> fewer;
  for (auto& [at, made] : kept_) fewer[{at.first / 2, at.second}] = std::move(made);
  kept_ = std::move(fewer);
}

// Of each KV head what its query heads have read together, in the last pass of the step's last token.
void recorder::take_levels(index_t position) {
  seen_.resize(static_cast<std::size_t>(tokens_));
  std::erase_if(attended, [&](const zoomr::attended_record& one) { return one.position != position; });
  const auto lane_of = [&](const zoomr::attended_record& of) {
    return of.layer * facts_.model.kv_heads + of.head / facts_.model.group();
  };
  std::ranges::stable_sort(attended, {}, [&](const auto& of) { return std::pair(lane_of(of), !of.second_pass); });
  std::vector<std::uint8_t> levels;
  const std::vector<index_t>* known = nullptr;  // what all heads have read of whom the levels are
  for (std::size_t first = 0, end = 0; first < attended.size(); first = end) {
    const zoomr::attended_record& head = attended[first];
    const auto same_pass = [&](const zoomr::attended_record& other) { return other.second_pass == head.second_pass; };
    const auto same_reading = [&](const zoomr::attended_record& other) { return other.positions == head.positions; };
    for (end = first; end < attended.size() && lane_of(attended[end]) == lane_of(head);) ++end;
    const auto lane = std::span(attended).subspan(first, end - first);
    const auto passed = lane.first(static_cast<std::size_t>(std::ranges::find_if_not(lane, same_pass) - lane.begin()));
    const bool alike = std::ranges::all_of(passed, same_reading);
    if (!alike || known == nullptr || *known != head.positions) levels = levels_of(passed);
    known = alike ? &head.positions : nullptr;
    for (std::uint8_t& level : levels) level &= static_cast<std::uint8_t>(~chosen);
    mark_chosen(lane_of(head), levels);
    levels_.set(lane_of(head), steps(), levels);
  }
}

std::vector<std::uint8_t> recorder::levels_of(std::span<const zoomr::attended_record> heads) {
  details_.assign(pieces_.size(), 0), summaries_.assign(pieces_.size(), 0);
  ++stamp_;
  for (std::size_t i = 0; i < heads.size(); ++i) {
    if (i > 0 && heads[i].positions == heads[i - 1].positions) continue;
    for (const index_t position : heads[i].positions) {
      const auto at = static_cast<std::size_t>(position);
      if (std::exchange(seen_[at], stamp_) == stamp_) continue;
      const auto id = static_cast<std::size_t>(at < piece_at_.size() ? piece_at_[at] : 0);
      ++(id > 0 && position >= pieces_[id].split ? summaries_ : details_)[id];
    }
  }
  std::vector<std::uint8_t> levels(pieces_.size());
  for (std::size_t id = 0; id < pieces_.size(); ++id) {
    const index_t all =
        id > 0 ? pieces_[id].split - pieces_[id].begin : tokens_ - static_cast<index_t>(piece_at_.size());
    levels[id] = details_[id] == 0     ? (summaries_[id] > 0 ? of_summary : std::uint8_t{0})
                 : details_[id] == all ? whole
                                       : in_part;
  }
  return levels;
}

void recorder::mark_chosen(index_t lane, std::vector<std::uint8_t>& levels) const {
  const index_t group = facts_.model.group();
  const index_t layer = lane / facts_.model.kv_heads, head = lane % facts_.model.kv_heads * group;
  const index_t rows = facts_.per == zoomr::scope::head ? group : 1;
  for (index_t i = 0; i < rows; ++i) {
    const auto row = in_force_.find(zoomr::detail::row_for(facts_.model, facts_.per, layer, head + i).row);
    if (row == in_force_.end()) continue;
    for (const index_t segment : row->second) {
      const auto id = of_segment_.find(segment);
      if (id == of_segment_.end()) continue;
      std::uint8_t& level = levels[static_cast<std::size_t>(id->second)];
      if (level >= in_part) level |= chosen;
    }
  }
}

// One token of each page that a piece may reach into stands for the others.
void recorder::take_residency(const step_view& now) {
  for (index_t lane = 0; lane < facts_.model.kv_lanes(); ++lane) {
    const index_t layer = lane / facts_.model.kv_heads, head = lane % facts_.model.kv_heads;
    std::vector<std::uint8_t> levels(pieces_.size());
    for (std::size_t id = 1; id < pieces_.size(); ++id) {
      index_t here = 0, all = 0;
      for (index_t at = pieces_[id].begin; at < pieces_[id].end;
           at = (at / zoomr::page_tokens + 1) * zoomr::page_tokens)
        ++all, here += now.in_memory(layer, head, at) ? 1 : 0;
      levels[id] = here == 0 ? std::uint8_t{0} : here == all ? std::uint8_t{2} : std::uint8_t{1};
    }
    residency_.set(lane, steps(), levels);
  }
}

// [step, row, agreeability in 10^-4 or -1, chosen ones, then segment and value of each]
ordered_json recorder::choices_json(std::size_t limit) const {
  static constexpr const char* units[] = {"share", "score", "mass"};
  const std::size_t most = std::max<std::size_t>(1, limit / (24 + 13 * (most_chosen + most_others)));
  index_t stride = choice_stride_;
  std::map<std::pair<index_t, index_t>, const kept_choice*> left;
  for (const auto& [at, made] : kept_) left[at] = &made;
  for (; left.size() > most && stride <= steps(); stride *= 2) {
    std::map<std::pair<index_t, index_t>, const kept_choice*> fewer;
    for (const auto& [at, made] : left) fewer[{at.first / 2, at.second}] = made;
    left = std::move(fewer);
  }
  auto list = ordered_json::array();
  for (const auto& [at, made] : left) {
    auto one = ordered_json::array(
        {made->step, at.second, made->agreeability < 0 ? -1 : std::lround(made->agreeability * 1e4), made->chosen});
    for (const auto& [segment, value] : made->segments) {
      one.push_back(segment);
      one.push_back(std::round(value * 1e4) / 1e4);
    }
    list.push_back(std::move(one));
  }
  return {{"unit", units[static_cast<int>(facts_.unit)]}, {"stride", stride}, {"list", std::move(list)}};
}

// Counts are sums over the steps of a column, so that they add up to the statistics; bytes are those at its end.
ordered_json recorder::series_json() const {
  index_t stride = 1;
  while (steps() > most_columns * stride) stride *= 2;
  ordered_json out = {{"stride", stride}};
  const auto add = [&](const char* name, auto field, bool counts) {
    auto values = ordered_json::array();
    const sample* last = &before_;
    bool some = false;
    for (index_t end = stride; last != &samples_.back(); end += stride) {
      const sample& now = samples_[static_cast<std::size_t>(std::min(end, steps()) - 1)];
      const auto value = counts ? field(now) - field(*last) : field(now);
      some = some || value != 0;
      if constexpr (std::is_integral_v<decltype(value)>)
        values.push_back(value);
      else
        values.push_back(rounded(value));
      last = &now;
    }
    if (some) out[name] = std::move(values);
  };
  if (samples_.empty()) return out;
#define ZOOMR_SERIES(name, member, counts) \
  add(                                     \
      name, [](const sample& s) { return s.member; }, counts)
  ZOOMR_SERIES("attended", stats.attended, true);
  ZOOMR_SERIES("refreshes", stats.refreshes, true);
  ZOOMR_SERIES("zooms", stats.zooms, true);
  ZOOMR_SERIES("chosen", stats.chosen, true);
  ZOOMR_SERIES("agreeability_sum", stats.agreeability_sum, true);
  ZOOMR_SERIES("agreeability_count", stats.agreeability_count, true);
  ZOOMR_SERIES("entropy_sum", stats.entropy_sum, true);
  ZOOMR_SERIES("entropy_count", stats.entropy_count, true);
  ZOOMR_SERIES("captured_sum", stats.captured_sum, true);
  ZOOMR_SERIES("captured_count", stats.captured_count, true);
  ZOOMR_SERIES("hits", tiers.hits, true);
  ZOOMR_SERIES("misses", tiers.misses, true);
  ZOOMR_SERIES("stalls", tiers.stalls, true);
  ZOOMR_SERIES("bytes_in", tiers.bytes_in, true);
  ZOOMR_SERIES("bytes_out", tiers.bytes_out, true);
  ZOOMR_SERIES("details", bytes.details, false);
  ZOOMR_SERIES("summaries", bytes.summaries, false);
  ZOOMR_SERIES("metadata", bytes.metadata, false);
  ZOOMR_SERIES("file", bytes.file, false);
#undef ZOOMR_SERIES
  return out;
}

ordered_json recorder::to_json(std::size_t limit) const {
  static constexpr const char* scopes[] = {"sequence", "layer", "kv_head", "head"};
  auto pieces = ordered_json::array();
  for (const piece& p : pieces_) pieces.insert(pieces.end(), {p.begin, p.split, p.end, p.since, p.segment});
  auto pinned = ordered_json::array();
  for (const pin& p : pins_) {
    const index_t last = p.last < 0 ? steps() : p.last;
    pinned.insert(pinned.end(),
                  {p.range.tokens.first, p.range.tokens.last, static_cast<index_t>(p.range.role), p.first, last});
  }
  auto positions = ordered_json::array();
  for (std::size_t i = 0, first = 0; i < samples_.size(); ++i) {
    if (i + 1 < samples_.size() && samples_[i + 1].position == samples_[i].position + 1) continue;
    positions.insert(positions.end(), {samples_[first].position, static_cast<index_t>(i + 1 - first)});
    first = i + 1;
  }
  std::vector<index_t> layers = facts_.layers;
  for (index_t layer = 0; facts_.layers.empty() && layer < facts_.model.layers; ++layer) layers.push_back(layer);
  const ordered_json series = series_json();
  const std::size_t fixed =
      pieces.dump().size() + pinned.dump().size() + positions.dump().size() + series.dump().size() + 1024;
  const std::size_t left = limit > fixed ? limit - fixed : 0;
  return {{"prompt", before_.position + 1},
          {"tokens", tokens_},
          {"steps", steps()},
          {"per", facts_.chooses ? ordered_json(scopes[static_cast<int>(facts_.per)]) : ordered_json(nullptr)},
          {"layers", layers},
          {"kv_heads", facts_.model.kv_heads},
          {"group", facts_.model.group()},
          {"query_heads", facts_.query_heads},
          {"positions", positions},
          {"pieces", pieces},
          {"pinned", pinned},
          {"levels", levels_.to_json(steps(), left / 8 * 5)},
          {"in_memory", tiered_ ? residency_.to_json(steps(), left / 8) : ordered_json(nullptr)},
          {"choices", facts_.chooses ? choices_json(left / 4) : ordered_json(nullptr)},
          {"series", series}};
}

}  // namespace report
