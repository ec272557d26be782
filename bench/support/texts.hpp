// SPDX-License-Identifier: Apache-2.0
// What the sequences of a device cache say, and how many of them there are.
#pragma once

#include <zoomr/core/token_range.hpp>
#include <zoomr/core/types.hpp>

#include <array>  // std::array

#include "rows.hpp"

namespace zoomr_bench {

using zoomr::index_t;
using zoomr::token_class;
using zoomr::token_id;

/// How many sequences make their steps together, and the heads of their model.
struct head_count {
  index_t batch = toy ? 2 : 8;
  index_t kv_heads = toy ? 2 : 8;
  index_t group = 4;
};
/// The model and batch that Quest's kernels are measured with: each query head has keys of its own.
inline constexpr head_count quest_heads{.batch = 1, .kv_heads = toy ? 3 : 32, .group = 1};

/// What a text looks like: how long its prompt is, what is written after it, and where sentences end.
struct text {
  index_t prompt = 0;
  index_t sentence = 24;   // tokens from delimiter to delimiter, while steps are timed
  index_t thought = 0;     // tokens of a thought, after the prompt; 0: none
  index_t summary = 0;     // tokens of its summary, markers included
  index_t timed_from = 0;  // the context

  static constexpr token_id plain = 0, delimiter = 1, summary_begin = 2,
                            summary_end = 4;  // the next one ends a sentence
  static constexpr std::array<token_class, 6> classes{
      token_class::plain,         token_class::delimiter,
      token_class::summary_begin, token_class::summary_begin | token_class::delimiter,
      token_class::summary_end,   token_class::summary_end | token_class::delimiter};

  /// The prompt that writes this token of the context: the first one, or a later one behind it.
  zoomr::token_range prompt_at(index_t position) const {
    return position < prompt ? zoomr::token_range{0, prompt} : zoomr::token_range{prompt, timed_from};
  }
  /// While the context is written there are no delimiters: no choice is made that nobody attends under.
  bool ends_sentence(index_t position) const { return position >= timed_from && (position + 1) % sentence == 0; }
  token_id at(index_t position) const {
    token_id of = plain;
    if (thought > 0 && position >= prompt) {
      const index_t of_pair = (position - prompt) % (thought + summary);
      if (of_pair == thought) of = summary_begin;
      if (of_pair == thought + summary - 1) of = summary_end;
    }
    return of + (ends_sentence(position) ? delimiter : plain);
  }
};

/// All of the context is the prompt.
inline text long_prompt(index_t context) {
  return {.prompt = context, .sentence = toy ? 8 : 24, .timed_from = context};
}
/// A short prompt; the context is thoughts with their summaries.
inline text thoughts_after_prompt(index_t context) {
  return {.prompt = toy ? 16 : 512,
          .sentence = toy ? 8 : 24,
          .thought = toy ? 20 : 400,
          .summary = toy ? 6 : 30,
          .timed_from = context};
}

}  // namespace zoomr_bench
