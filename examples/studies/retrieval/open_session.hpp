// SPDX-License-Identifier: Apache-2.0
// A sequence under a policy that is known by name. All policies are compiled in one place, open_session.cpp.
#pragma once

#include <memory>  // std::unique_ptr
#include <span>    // std::span
#include <vector>  // std::vector

#include "../../decode/code_policies.hpp"
#include "../../decode/session.hpp"
#include "contender.hpp"
#include "problems.hpp"

namespace decode::retrieval {

/// What the controls oracle and random cut texts by, and what they read beside what they choose.
struct control_form {
  task cut_as = task::needle;  // by sentences, or as notes, by thoughts
  zoomr::zones zone;
};

struct opened_session {
  std::unique_ptr<session<>> run;  // of one sequence
  bool one_row = false;            // one choice serves all layers and heads
};

/// The policy's voters become the model's.
/// @param needed   segments that the oracle reads, as long as the session works
/// @param tokens   of the longest text
/// @param classes  must outlive the session
/// @throws input_error
opened_session open_session(model& net, const contender& policy, const control_form& controls,
                            const std::vector<index_t>& needed, index_t tokens, const class_tables& classes);

/// Calls visit(cache, sequence) with the layers that the policy is for.
template <class Visit>
void with_policy_cache(session<>& run, Visit visit) {
  run.with_cache([&](auto& cache) {
    if constexpr (requires { cache.group(0); }) {
      visit(cache.group(0), cache.in_group(run.at(0), 0));
    } else {
      visit(cache, run.at(0));
    }
  });
}

/// Passes the last token of each writer that goes on, in one step: the weights are read once for all.
/// @param goes_on  goes_on(writer), for each once
/// @return false: none does
template <class Writer, class GoesOn>
bool advance_writers(const std::vector<std::unique_ptr<Writer>>& writers, GoesOn goes_on) {
  std::vector<Writer*> writing;
  std::vector<session<>*> runs;
  std::vector<token_id> passed;
  for (const auto& one : writers) {
    if (!goes_on(*one)) continue;
    writing.push_back(one.get()), runs.push_back(&one->run()), passed.push_back(one->last());
  }
  if (runs.empty()) return false;
  session<>::advance_each(runs, passed);
  for (Writer* const one : writing) one->write();
  return true;
}

/// [positions]  the segment of the policy whose details hold each; -1 if none does, as of what is pinned.
std::vector<index_t> segments_holding(session<>& run, std::span<const index_t> positions);

}  // namespace decode::retrieval
