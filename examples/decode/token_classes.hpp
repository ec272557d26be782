// SPDX-License-Identifier: Apache-2.0
// Which ids of a vocabulary end sentences, and which mark thoughts and summaries: the table that the policies
// read, one byte for each id.
#pragma once

#include <zoomr/vocabulary.hpp>

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "tokenizer.hpp"

namespace decode {

using zoomr::line_rule;
using zoomr::mark_rule;

/// @param delimiters  texts of the tokens that end sentences, as they stand in a text (" Paris") or as the vocabulary
///                    spells them ("ĠParis"), also several with blanks between; empty: those that
///                    zoomr::classify_sentences finds
/// @param marks       which these are
/// @param lines       whether the end of a line is one
/// @return            [vocab]
std::vector<zoomr::token_class> classify(const tokenizer& words, std::size_t vocab,
                                         const std::vector<std::string>& delimiters,
                                         mark_rule marks = mark_rule::anywhere, line_rule lines = line_rule::go_on);

/// Makes four tokens begin and end thoughts and summaries: begin, end, begin, end. None changes nothing.
/// @throws input_error
void mark_thoughts(const tokenizer& words, const std::vector<std::string>& marks,
                   std::vector<zoomr::token_class>& classes);

}  // namespace decode
