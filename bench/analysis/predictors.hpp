// SPDX-License-Identifier: Apache-2.0
// What is likely to be chosen next, by what was chosen before.
#pragma once

#include <algorithm>  // std::find, std::min
#include <vector>     // std::vector

#include "trace.hpp"

namespace tier_trace {

inline bool has(const std::vector<index_t>& ids, index_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// The choices of one reader: those made so far, the newest last, and the one that comes next.
struct known {
  const std::vector<const choice*>& made;
  const choice* next;
};

/// Segments that may be chosen next time, likeliest first.
using predictor = std::vector<index_t> (*)(const known&);

inline std::vector<index_t> nothing(const known&) { return {}; }

template <std::size_t Count>
std::vector<index_t> runners_up(const known& of) {
  const std::vector<index_t>& all = of.made.back()->runners_up;
  return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(Count, all.size()))};
}

inline std::vector<index_t> neighbours(const known& of) {
  std::vector<index_t> made;
  for (const index_t id : of.made.back()->chosen) {
    for (const index_t beside : {id + 1, id - 1}) {
      if (!has(of.made.back()->chosen, beside) && !has(made, beside)) made.push_back(beside);
    }
  }
  return made;
}

/// Chosen at one of the last `Choices`, but not at the very last.
template <std::size_t Choices>
std::vector<index_t> lately_chosen(const known& of) {
  std::vector<index_t> made;
  for (std::size_t back = 1; back < std::min(Choices, of.made.size()); ++back) {
    for (const index_t id : of.made[of.made.size() - 1 - back]->chosen) {
      if (!has(of.made.back()->chosen, id) && !has(made, id)) made.push_back(id);
    }
  }
  return made;
}

/// What no predictor can beat.
inline std::vector<index_t> next_choice(const known& of) {
  return of.next == nullptr ? std::vector<index_t>{} : of.next->chosen;
}

struct entry {
  const char* name;
  predictor predicts;
};
inline constexpr entry predictors[] = {{"nothing", nothing},
                                       {"runners_up_1", runners_up<1>},
                                       {"runners_up_4", runners_up<4>},
                                       {"runners_up_16", runners_up<16>},
                                       {"neighbours", neighbours},
                                       {"lately_chosen_8", lately_chosen<8>},
                                       {"layer_before", nullptr},  // what it has just chosen comes for the next layer
                                       {"next_choice", next_choice}};

}  // namespace tier_trace
