// SPDX-License-Identifier: Apache-2.0
// Which ids of a vocabulary end sentences, and which mark thoughts and summaries: the table that the policies
// read, one byte for each id.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstddef>  // std::size_t
#include <string>   // std::string
#include <vector>   // std::vector

#include "tokenizer.hpp"

namespace decode {

/// Where . ! ? and … end a sentence: wherever they stand, as in 3.14 and "Dr.", or before white space alone, which is
/// known one token later. Marks of other scripts, such as 。 and ؟, and empty lines always do.
enum class mark_rule { anywhere, before_blank };

/// A token ends a sentence if it is one of these marks with nothing but white space, closing marks and marks around it,
/// or if it ends with another character of Unicode's property Sentence_Terminal and such things, or if it holds an
/// empty line (LF or CR LF). A mark whose bytes are in several tokens is not seen.
///
/// @param delimiters  texts of the tokens that end sentences; empty: every token that ends one in prose
/// @param marks       without `delimiters`: tokens that end with . ! ? or … and no white space are of the class `mark`
///                    if they end a sentence before a blank alone, and those are `blank` that begin with white space or
///                    are no text
/// @return            [vocab]
std::vector<zoomr::token_class> classify(const tokenizer& words, std::size_t vocab,
                                         const std::vector<std::string>& delimiters,
                                         mark_rule marks = mark_rule::anywhere);

}  // namespace decode
