// SPDX-License-Identifier: Apache-2.0
// Facts that were invented, so that no model knows them and no novel says them.
//
// The answer stands in the second half of the sentence and in the second of the two sentences, and nowhere else. No
// fact has an answer that another one has. The paraphrase has no content word of the sentence.
#pragma once

#include <span>  // std::span

namespace decode::retrieval {

struct fact {
  const char* sentence;
  const char* question;
  const char* answers;     // that are right, the sentence's own one first: "fourteen|14"
  const char* paraphrase;  // the question in other words
  const char* first;       // the same in two sentences: who or what it is about,
  const char* second;      // and the answer
  const char* key;         // of a row of a table, whose value is the answer
};

std::span<const fact> facts();

}  // namespace decode::retrieval
