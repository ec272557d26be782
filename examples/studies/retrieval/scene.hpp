// SPDX-License-Identifier: Apache-2.0
// A model, its tokenizer and its problems, and the segments that a problem needs.
#pragma once

#include <zoomr/policy/segment/code_segments.hpp>
#include <zoomr/policy/segment/sentences.hpp>
#include <zoomr/policy/segment/thoughts.hpp>

#include <cstdint>      // std::uint64_t
#include <functional>   // std::function
#include <span>         // std::span
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::pair
#include <vector>       // std::vector

#include "../../decode/code_policies.hpp"
#include "../evaluate/line_file.hpp"
#include "../evaluate/loaded_model.hpp"
#include "problems.hpp"

namespace decode::retrieval {

/// What both measurements of retrieval are told.
struct scene_options {
  std::string directory;                                // of the checkpoint
  std::vector<std::string> texts;                       // files
  std::vector<std::string> tasks = {"needle", "keys"};  // see problems.hpp; "keys@4096": of so many tokens
  std::vector<std::string> marks;                       // four tokens, for notes
  std::vector<index_t> tokens = {1024, 2048};           // of a problem
  std::vector<index_t> notes;                           // of a problem, for tasks that have some; empty: by tokens
  index_t problems = 12;                                // of each task and size
  index_t questions = 1;                                // one after the other, about one text
  std::uint64_t seed = 1;
  std::string resume;  // file of what is done: it is not done again
};

/// One kind of problem.
struct group {
  task kind = task::needle;
  problem_size size;

  /// "keys 2000", "notes x12"
  std::string name() const {
    return std::string(name_of(kind)) + (size.notes > 0 ? " x" : " ") + std::to_string(size.number());
  }
};

/// "keys@4096": what is before the @, and the tokens of its problems; 0 if none are named.
/// @throws input_error
std::pair<std::string, index_t> name_and_tokens(const std::string& spec);

/// What is asked for.
/// @throws input_error  a task that is unknown
std::vector<group> groups_of(const scene_options& asked);

struct scene : loaded_model {
  const scene_options& given;
  problem_maker problems;
  std::vector<group> groups;

  /// @throws input_error
  explicit scene(const scene_options& from);

  /// With several questions as many problems are about one text. They ask for the same, each for another thing first.
  /// @throws input_error  it is longer than the model's context
  problem make(const group& of, index_t number) const;
  /// What results depend on, but for the kind of problem and the policy: "smollm2, war-and-peace.txt, seed 77".
  std::string label() const;
  /// The file of what is done: visit is called with each line.
  /// @param label  of each line; another one is an input_error
  line_file resume(const std::string& label, const std::function<void(const field& line)>& visit) const;

  /// [answers]  the number of the segment of a prompt that says each; -1 if none that is closed does.
  std::vector<index_t> needed_segments(std::span<const token_id> prompt, const problem& asked) const;
};

/// Which segments say what is written next: that of the first answer that does not stand in the text so far. Where
/// answers have no order, those of all such answers. When all are written, that of the last one, or those of all.
/// @param needed  [answers]  scene::needed_segments
std::vector<index_t> needed_next(const problem& asked, const std::vector<index_t>& needed, std::string_view written);

/// Calls visit(segmenter) with what a task's prompts are cut by.
template <class Visit>
void with_segmenter(task kind, Visit visit) {
  if (has_notes(kind)) return visit(zoomr::thoughts{});
  if (kind == task::calls) return visit(zoomr::code_segments{});
  visit(zoomr::sentences{});
}

}  // namespace decode::retrieval
