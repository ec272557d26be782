// SPDX-License-Identifier: Apache-2.0
// A model, its tokenizer and its problems, and the segment that a problem needs.
#pragma once

#include <zoomr/policy/segment/sentences.hpp>
#include <zoomr/policy/segment/thoughts.hpp>

#include <cstdint>  // std::uint64_t
#include <string>   // std::string
#include <vector>   // std::vector

#include <zoomr/core/thread_pool.hpp>

#include "../../decode/model.hpp"
#include "../../decode/token_classes.hpp"
#include "../../decode/voters.hpp"
#include "problems.hpp"

namespace decode::retrieval {

/// What both measurements of retrieval are told.
struct scene_options {
  std::string directory;                                // of the checkpoint
  std::vector<std::string> texts;                       // files
  std::vector<std::string> tasks = {"needle", "keys"};  // see problems.hpp
  std::vector<std::string> marks;                       // four tokens, for notes
  std::vector<index_t> tokens = {1024, 2048};           // of a problem
  index_t problems = 12;                                // of each task and length
  std::uint64_t seed = 1;
  std::string voters;  // file of weights; empty: voters.json beside the model, if it is there
  std::string resume;  // file of what is done: it is not done again
};

/// One kind of problem.
struct group {
  task of = task::needle;
  index_t tokens = 0;
  std::string name() const { return std::string(name_of(of)) + ' ' + std::to_string(tokens); }
};

struct scene {
  const scene_options& given;
  zoomr::thread_pool pool;
  model_config config;
  model net;
  tokenizer words;
  problem_maker problems;
  std::vector<zoomr::token_class> classes;  // [V]
  std::vector<group> groups;

  /// @throws input_error
  explicit scene(const scene_options& from);

  problem make(const group& of, index_t number) const;
  /// The number of the segment that the evidence lies in; -1 if it lies in none that is closed.
  index_t needed_segment(const problem& of) const;
};

/// Calls visit(segmenter) with what a task's prompts are cut by.
template <class Visit>
void with_segmenter(task of, Visit visit) {
  if (of == task::notes) return visit(zoomr::thoughts{});
  visit(zoomr::sentences{});
}

}  // namespace decode::retrieval
