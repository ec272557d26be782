// SPDX-License-Identifier: Apache-2.0
// Results as a table for people, as JSON and as CSV (README.md says what is in them).
#pragma once

#include <ostream>  // std::ostream
#include <string>   // std::string
#include <vector>   // std::vector

#include "replay_result.hpp"
#include "trace.hpp"

namespace replay {

/// A line for each policy, then what does not follow from it.
void print_table(std::ostream& out, const trace_facts& facts, const std::vector<replay_result>& results);

/// One document. @param files  of the trace
void print_json(std::ostream& out, const trace_facts& facts, const std::vector<std::string>& files,
                const std::vector<replay_result>& results);

/// A line for each policy and, with layer and head, for each of its query heads.
void print_csv(std::ostream& out, const trace_facts& facts, const std::vector<replay_result>& results);

}  // namespace replay
