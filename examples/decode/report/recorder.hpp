// SPDX-License-Identifier: Apache-2.0
// What one sequence has read under one policy, step by step: from the cache's traces and counters to the JSON of a
// page (docs/report.md). Nothing here knows a decoder, so whatever drives a cache can be recorded.
#pragma once

#include <zoomr/cache/sequence.hpp>
#include <zoomr/cache/statistics.hpp>
#include <zoomr/cache/trace.hpp>
#include <zoomr/core/shape.hpp>
#include <zoomr/paging/tiers/tier_statistics.hpp>
#include <zoomr/policy/segment.hpp>

#include <functional>  // std::function
#include <map>         // std::map
#include <optional>    // std::optional
#include <span>        // std::span
#include <utility>     // std::pair
#include <vector>      // std::vector

#include <nlohmann/json_fwd.hpp>

#include "level_grid.hpp"

namespace report {

/// In which unit an aggregator counts: shares of all votes, scores as they are, or mass that does not add up.
enum class vote_unit { share, score, mass };

/// What is known of a policy before it runs.
struct policy_facts {
  zoomr::shape model;           // of the layers that it is for
  std::vector<index_t> layers;  // their numbers in the model; empty: 0, 1, ...
  index_t query_heads = 0;      // of all layers, those that it is not for included
  zoomr::scope per = zoomr::scope::sequence;
  vote_unit unit = vote_unit::share;
  bool chooses = false;
  bool pinned_prompt = false;  // it is no segment
  index_t block = 0;           // of a policy without segments: tokens of a piece
};

/// What a cache says of its sequence after a step.
struct step_view {
  zoomr::view<const zoomr::segment> segments;
  index_t tokens = 0;
  zoomr::statistics stats;
  zoomr::memory_use bytes;
  std::vector<zoomr::pinned_range> pinned;
  std::optional<zoomr::tier_statistics> tiers;
  /// in_memory(layer, KV head, position); empty without tiers
  std::function<bool(index_t, index_t, index_t)> in_memory;
};

/// Of one sequence that is never rolled back. Memory grows with the text, and with what changes.
class recorder {
 public:
  explicit recorder(policy_facts facts);

  /// For the cache: `trace` and `trace_choices`, from the beginning.
  zoomr::attention_trace attended;
  zoomr::choice_trace choices;

  /// After the first prompt.
  void begin(const step_view& now);
  /// After each step from there on; forgets what has been traced.
  void step(const step_view& now);

  index_t steps() const { return static_cast<index_t>(samples_.size()); }

  /// All that was recorded, without text.
  /// @param limit  bytes that it may take
  nlohmann::ordered_json to_json(std::size_t limit) const;

 private:
  struct piece {
    index_t begin, split, end;
    index_t since;    // the step from which on it is closed
    index_t segment;  // of the cache; -1: text between segments
  };
  struct sample {
    index_t position;
    zoomr::statistics stats;  // since the sequence was opened
    zoomr::memory_use bytes;
    zoomr::tier_statistics tiers;
  };
  struct pin {
    zoomr::pinned_range range;
    index_t first, last;  // steps; last -1: it is pinned still
  };
  struct kept_choice {
    index_t step;
    double agreeability;                               // -1: not known
    std::size_t chosen;                                // how many of these, from the first on
    std::vector<std::pair<index_t, double>> segments;  // the best of both kinds
  };

  void add_pieces(const step_view& now);
  void take_pins(const step_view& now);
  void add_piece(index_t begin, index_t split, index_t end, index_t segment);
  void take_choices(index_t position, bool second_pass);
  void keep(const zoomr::choice_record& made);
  void thin_choices();
  double value(zoomr::votes_t votes, double all) const;
  void take_levels(index_t position);
  std::vector<std::uint8_t> levels_of(std::span<const zoomr::attended_record> heads);
  void mark_chosen(index_t lane, std::vector<std::uint8_t>& levels) const;
  void take_residency(const step_view& now);

  nlohmann::ordered_json choices_json(std::size_t limit) const;
  nlohmann::ordered_json series_json() const;

  policy_facts facts_;
  std::vector<piece> pieces_;                // the first is the open text
  std::vector<index_t> piece_at_;            // [tokens that are in closed pieces]
  std::map<index_t, index_t> of_segment_;    // pieces by segments
  std::vector<pin> pins_;                    // in the order in which they began
  std::vector<zoomr::pinned_range> pinned_;  // now
  index_t segments_ = 0;                     // seen
  index_t tokens_ = 0;
  std::map<index_t, std::vector<index_t>> in_force_;  // by row: the segments of the choice that serves
  std::vector<zoomr::choice_record> pending_;         // choices that serve the next step
  index_t choice_stride_ = 1;
  std::map<std::pair<index_t, index_t>, kept_choice> kept_;  // by column and row: its last choice
  level_grid levels_, residency_;
  bool tiered_ = false;
  sample before_ = {};
  std::vector<sample> samples_;
  std::vector<std::uint32_t> seen_;  // [tokens]  by the lane with this stamp
  std::uint32_t stamp_ = 0;
  std::vector<index_t> details_, summaries_;  // [pieces]  tokens that a lane has read
};

}  // namespace report
