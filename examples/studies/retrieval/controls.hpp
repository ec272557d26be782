// SPDX-License-Identifier: Apache-2.0
// Controls beside the presets, by name: what finding costs nothing, and what nothing finds.
//
//   oracle  reads the segments that are needed next, and no others
//   random  reads two segments at random
//
// Those of single tokens are in ../evaluate/token_controls.hpp.
#pragma once

#include <zoomr/policy/compose.hpp>

#include <vector>  // std::vector

#include "../../decode/policies.hpp"
#include "../evaluate/policy_spec.hpp"
#include "../evaluate/token_controls.hpp"
#include "../ledger/controls.hpp"
#include "scene.hpp"

namespace decode::retrieval {

/// Takes what is needed, which changes while the answers are written.
struct needed_alone {
  using role = zoomr::role::selector;
  static constexpr const char* name = "needed_alone";

  const std::vector<index_t>* next = nullptr;

  void choose(zoomr::best_first&, const zoomr::selection_input& input, zoomr::selection_row& row) const {
    for (const index_t id : *next) {
      if (id >= 0 && id < input.tokens.size() && input.tokens[id] > 0) row.take(id);
    }
  }
  friend constexpr bool operator==(const needed_alone&, const needed_alone&) = default;
};

/// What controls of segments read beside them, unless something else is said.
constexpr zoomr::zones control_zones(task kind) {
  return {.sinks = 4, .recent = 64, .open = has_notes(kind) ? zoomr::unlimited : 0};
}

namespace detail {

template <class Selector, class Visit>
void with_control(task kind, Selector selector, const zoomr::zones& zone, Visit visit) {
  with_segmenter(kind, [&](auto segmenter) {
    visit(zoomr::compose(segmenter, zoomr::key_mean{}, zoomr::head_mass{}, selector, zoomr::every_token{}, zone,
                         zoomr::placement{.details_on_host = true}));
  });
}

}  // namespace detail

inline bool is_control(const std::string& name) {
  return name == "oracle" || name == "random" || is_token_control(name);
}

/// Refuses what a control or a policy cannot do.
/// @throws input_error
inline void expect_named(const policy_choice& choice, const std::string& spec) {
  if (!is_control(choice.name)) {
    return with_preset_or_code(choice, [&](const auto& policy) { expect_options(policy, spec, choice, {}); });
  }
  if (is_token_control(choice.name)) return expect_token_control(choice, spec);
  if (!choice.settings.empty()) fail(spec, ": ", choice.name, " has no options");
  if (choice.budget > 0) fail(spec, ": ", choice.name, " has no budget");
}

/// Calls visit(policy) with what is asked for by name: a preset or a control.
/// @param next  the segments that are needed next, as long as the policy works
/// @param zone  of a control of segments
template <class Visit>
void with_named(const policy_choice& choice, task kind, const std::vector<index_t>& next, const zoomr::zones& zone,
                Visit visit) {
  if (choice.name == "oracle") return detail::with_control(kind, needed_alone{&next}, zone, visit);
  if (choice.name == "random") return detail::with_control(kind, ledger::random_segments{.segments = 2}, zone, visit);
  with_policy_or_control(choice, visit);
}
template <class Visit>
void with_named(const policy_choice& choice, task kind, const std::vector<index_t>& next, Visit visit) {
  with_named(choice, kind, next, control_zones(kind), visit);
}

}  // namespace decode::retrieval
