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

/// @param delimiters  texts of the tokens that end sentences; empty: every token that ends one in prose
/// @return            [vocab]
std::vector<zoomr::token_class> classify(const tokenizer& words, std::size_t vocab,
                                         const std::vector<std::string>& delimiters);

}  // namespace decode
