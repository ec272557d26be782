// SPDX-License-Identifier: Apache-2.0
// L6. What a device cache keeps for retention: which positions each lane holds, and working memory for one layer.
#pragma once

#include <zoomr/cache/observation.cuh>
#include <zoomr/core/shape.hpp>
#include <zoomr/slots.hpp>

namespace zoomr {
inline namespace v0 {

/// How many tokens each lane of a sequence has kept, as the host knows it; which ones, each lane's table says.
struct held_slots {
  index kept = 0;           // 0: everything
  index compacted_end = 0;  // first position after what has been compacted
};

/// Empty unless the policy gives tokens up.
struct retained_arrays {
  index lanes = 0;
  index most_kept = 0;           // of each lane
  index tokens = 0;              // of a sequence, at most
  index* kept = nullptr;         // [sequences][lanes][most_kept]  ascending positions before `compacted_end`
  observed_sum* sums = nullptr;  // [heads][observed_at_once]
  float* received = nullptr;     // [heads][tokens]
  float* importance = nullptr;   // [kv_heads][tokens]

  /// Takes the arrays from a block.
  template <class Carver>
  void carve(Carver& from, const shape& model, index sequences, index most, index tokens_of_sequence) {
    lanes = model.lanes();
    most_kept = most;
    tokens = most > 0 ? tokens_of_sequence : 0;
    kept = from.template take<index>(std::int64_t{sequences} * lanes * most);
    sums = from.template take<observed_sum>(tokens > 0 ? std::int64_t{model.heads} * observed_at_once : 0);
    received = from.template take<float>(std::int64_t{model.heads} * tokens);
    importance = from.template take<float>(std::int64_t{model.kv_heads} * tokens);
  }

  /// The table of a lane, to be written.  [count]
  ZOOMR_HD view<index> kept_of(index sequence, index lane, index count) const {
    return {kept + (std::int64_t{sequence} * lanes + lane) * most_kept, {count}};
  }
  ZOOMR_HD slot_map slots_of(index sequence, index lane, held_slots held) const {
    if (held.kept == 0) return {};
    return {kept_of(sequence, lane, held.kept), held.compacted_end};
  }
};

}  // namespace v0
}  // namespace zoomr
