// SPDX-License-Identifier: Apache-2.0
// Levels over time: of each lane and piece of text a small number in each column, kept as its changes and written as
// runs. A column is a step, or several of them where a page must not become larger.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstdint>  // std::uint8_t
#include <span>     // std::span
#include <vector>   // std::vector

#include <nlohmann/json_fwd.hpp>

namespace report {

using zoomr::index_t;

/// Level 0 is the absence of all others, and is not written.
class level_grid {
 public:
  explicit level_grid(index_t lanes) : lanes_(static_cast<std::size_t>(lanes)), now_(lanes_.size()) {}

  /// The levels of a lane from this step on; pieces that are not named keep theirs.
  /// @param steps   ascending
  /// @param levels  [pieces]
  void set(index_t lane, index_t step, std::span<const std::uint8_t> levels);

  /// {"stride": steps of a column, "lanes": [lanes], "classes": [...]}: lanes that are alike have the same class. A
  /// class is a list of numbers: piece, runs, and for each run its distance from the one before, its columns, its
  /// level. In a column of several steps a piece has the highest of its levels.
  /// @param steps  in all
  /// @param limit  bytes that the classes may take, at least a few for each piece; the stride is doubled until they do
  nlohmann::ordered_json to_json(index_t steps, std::size_t limit) const;

 private:
  struct change {
    index_t step;
    std::uint8_t level;
  };
  using history = std::vector<change>;
  using numbers = std::vector<index_t>;

  static void add_runs(const history& of, index_t steps, index_t stride, index_t piece, numbers& out);
  numbers encoded(const std::vector<history>& lane, index_t steps, index_t stride) const;

  std::vector<std::vector<history>> lanes_;     // [lanes][pieces]
  std::vector<std::vector<std::uint8_t>> now_;  // [lanes][pieces]  what was set last
};

}  // namespace report
