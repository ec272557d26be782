// SPDX-License-Identifier: Apache-2.0
// L6. A record of what was attended, for tests, audits and pictures. Off unless the caller attaches it.
#pragma once

#include <zoomr/core/types.hpp>

#include <vector>  // std::vector

namespace zoomr::inline v0 {

/// What one query head attended in one pass after the prompt.
struct attended_record {
  index_t seq = 0;
  index_t position = 0;  // of the query
  index_t layer = 0;
  index_t head = 0;
  bool second_pass = false;
  std::vector<index_t> positions;  // ascending

  friend bool operator==(const attended_record&, const attended_record&) = default;
};

/// Records in the order of the queries; the caller clears it. Grows without bound while it is attached.
using attention_trace = std::vector<attended_record>;

/// One row of one choice. Segments of which nothing is left between the zones are in neither list.
struct choice_record {
  index_t seq = 0;
  index_t position = 0;             // of the token that made the choice
  index_t row = 0;                  // of the selection
  std::vector<index_t> chosen;      // segments whose details are read, best first
  std::vector<index_t> runners_up;  // the others, best first
  std::vector<votes_t> votes;       // of `chosen`, then of `runners_up`; in the aggregator's unit
  bool unsure = false;              // everything is read; `chosen` would have been without the gate

  friend bool operator==(const choice_record&, const choice_record&) = default;
};

/// Records in the order of the choices; the caller clears it. Grows without bound while it is attached.
using choice_trace = std::vector<choice_record>;

}  // namespace zoomr::inline v0
