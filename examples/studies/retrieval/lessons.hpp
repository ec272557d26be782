// SPDX-License-Identifier: Apache-2.0
// Problems with their answers, as a model should write them: what weights of heads are learnt from.
#pragma once

#include <zoomr/core/token_range.hpp>

#include <cstddef>  // std::size_t
#include <vector>   // std::vector

#include "forms.hpp"
#include "scene.hpp"

namespace decode::retrieval {

/// A choice, and what it should find.
struct moment {
  std::size_t passed = 0;       // tokens
  std::vector<index_t> needed;  // a position in each segment that is needed by what comes next; empty: none is
};

struct lesson {
  task kind = task::needle;                 // says what it is cut by
  std::vector<token_id> text;               // ends before the last moment's next token
  std::vector<zoomr::token_range> prompts;  // the first begins the text; what is between them and behind is written
  zoomr::token_range question;              // positions in the last prompt; empty: they are not known
  std::vector<moment> moments;              // at the end of the last prompt, before each further answer, in its middle
};

lesson lesson_of(const scene& on, const problem& asked);
lesson lesson_of(const tokenizer& words, const form& as, const form_problem& asked);

}  // namespace decode::retrieval
