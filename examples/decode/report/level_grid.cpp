// SPDX-License-Identifier: Apache-2.0
#include "level_grid.hpp"

#include <algorithm>  // std::min
#include <cstring>    // std::memcmp
#include <map>        // std::map
#include <utility>    // std::exchange, std::move

#include <nlohmann/json.hpp>

namespace report {
namespace {

constexpr std::size_t at_once = 64;  // levels that are compared together: few of them change in a step

std::size_t bytes_as_text(std::span<const index_t> numbers) {
  std::size_t bytes = 2;
  for (index_t number : numbers) {
    ++bytes;  // the comma
    do ++bytes;
    while ((number /= 10) > 0);
  }
  return bytes;
}

struct run {
  index_t first, last;  // columns, the last exclusive
  std::uint8_t level;
};

/// Adds a run behind others. Where both have a part of the same column, this has the higher level.
void append(std::vector<run>& runs, run next) {
  if (!runs.empty() && runs.back().last > next.first) {
    if (next.level > runs.back().level)
      --runs.back().last;
    else
      ++next.first;
    if (runs.back().first == runs.back().last) runs.pop_back();
  }
  if (next.first >= next.last) return;
  if (!runs.empty() && runs.back().last == next.first && runs.back().level == next.level)
    runs.back().last = next.last;
  else
    runs.push_back(next);
}

}  // namespace

void level_grid::set(index_t lane, index_t step, std::span<const std::uint8_t> levels) {
  std::vector<history>& pieces = lanes_[static_cast<std::size_t>(lane)];
  std::vector<std::uint8_t>& now = now_[static_cast<std::size_t>(lane)];
  if (pieces.size() < levels.size()) pieces.resize(levels.size()), now.resize(levels.size());
  for (std::size_t first = 0; first < levels.size(); first += at_once) {
    const std::size_t last = std::min(first + at_once, levels.size());
    if (std::memcmp(&now[first], &levels[first], last - first) == 0) continue;
    for (std::size_t piece = first; piece < last; ++piece) {
      if (std::exchange(now[piece], levels[piece]) != levels[piece]) pieces[piece].push_back({step, levels[piece]});
    }
  }
}

void level_grid::add_runs(const history& of, index_t steps, index_t stride, index_t piece, numbers& out) {
  std::vector<run> runs;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const index_t end = i + 1 < of.size() ? of[i + 1].step : steps;
    if (of[i].level > 0 && end > of[i].step) append(runs, {of[i].step / stride, (end - 1) / stride + 1, of[i].level});
  }
  if (runs.empty()) return;
  out.insert(out.end(), {piece, static_cast<index_t>(runs.size())});
  index_t at = 0;
  for (const run& one : runs) {
    out.insert(out.end(), {one.first - at, one.last - one.first, one.level});
    at = one.last;
  }
}

level_grid::numbers level_grid::encoded(const std::vector<history>& lane, index_t steps, index_t stride) const {
  numbers out;
  for (std::size_t piece = 0; piece < lane.size(); ++piece)
    add_runs(lane[piece], steps, stride, static_cast<index_t>(piece), out);
  return out;
}

nlohmann::ordered_json level_grid::to_json(index_t steps, std::size_t limit) const {
  for (index_t stride = 1;; stride *= 2) {
    std::map<numbers, std::size_t> known;
    std::vector<std::size_t> lanes;
    auto classes = nlohmann::ordered_json::array();
    std::size_t bytes = 0;
    for (const std::vector<history>& lane : lanes_) {
      const auto [at, added] = known.try_emplace(encoded(lane, steps, stride), known.size());
      lanes.push_back(at->second);
      if (!added) continue;
      bytes += bytes_as_text(at->first);
      if (bytes > limit && stride < steps) break;
      classes.push_back(at->first);
    }
    if (bytes > limit && stride < steps) continue;
    return {{"stride", stride}, {"lanes", lanes}, {"classes", std::move(classes)}};
  }
}

}  // namespace report
