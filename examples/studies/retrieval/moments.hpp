// SPDX-License-Identifier: Apache-2.0
// What the heads of a model make of the moments of a lesson: each head's share of each segment.
#pragma once

#include <zoomr/presets/voters.hpp>

#include <functional>  // std::function
#include <string>      // std::string
#include <vector>      // std::vector

#include "learn.hpp"
#include "lessons.hpp"
#include "scene.hpp"

namespace decode::retrieval {

/// Whose queries score: head_posterior.queries and .question.
struct scoring_queries {
  index_t last = 16;  // so many
  // Those of the question too, which is named and pinned, as long as its first token is one of the last
  // `most_of_question`. Where it is not known the last ones score alone.
  bool question = false;

  static constexpr index_t most_of_question = zoomr::presets::sentence_voters.aggregate.question;

  /// "16", "question"
  std::string name() const { return question ? "question" : std::to_string(last); }
  /// @throws input_error
  static scoring_queries named(const std::string& text);
};

/// One dense pass, with every head a voter that has no sliding window. The policy pins what the presets of voters pin.
/// @param passed  called with the number of tokens passed so far
/// @return        [queries][moments]; without those at which there is nothing to choose from
std::vector<std::vector<example>> record(scene& on, const lesson& from, const std::vector<scoring_queries>& queries,
                                         const std::function<void(std::size_t)>& passed);

nlohmann::json to_json(const std::vector<example>& examples);

/// @throws input_error  of a model with another number of heads
std::vector<example> examples_from(const field& line, std::size_t heads);

}  // namespace decode::retrieval
