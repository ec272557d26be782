// SPDX-License-Identifier: Apache-2.0
// Long text cut into passages, of which the last tokens are scored. The scored tokens are the same for every context,
// and no two passages share any: only how much the model may read before them differs.
#pragma once

#include <zoomr/core/types.hpp>

#include <cstddef>     // std::size_t
#include <cstdint>     // std::uint64_t
#include <filesystem>  // std::filesystem::path
#include <optional>    // std::optional
#include <span>        // std::span
#include <string>      // std::string
#include <vector>      // std::vector

#include "../../decode/tokenizer.hpp"

namespace decode::perplexity {

using zoomr::index_t;

/// One file as ids.
struct long_text {
  std::string name;  // of the file, without its folder
  std::vector<token_id> ids;
};

/// Tokens [end - scored, end) of a text, after as many as the context allows.
struct passage {
  std::size_t text = 0;
  std::size_t end = 0;
};

/// What the passages of a run have in common.
struct layout {
  std::vector<index_t> contexts;  // tokens of a passage, <bos> included
  index_t scored = 0;             // its last tokens
  index_t passages = 0;           // of each text
  std::uint64_t seed = 1;
};

/// @throws input_error  unreadable, not UTF-8, or a part that no token stands for
long_text read_long_text(const std::filesystem::path& path, const tokenizer& words);

/// Passages spread evenly over a text, each at a random place of its share.
/// @throws input_error  the text is too short
std::vector<passage> cut(const std::vector<long_text>& texts, const layout& wanted);

/// The tokens of a passage in one context: <bos>, if the model has one, and the text up to the passage's end.
std::vector<token_id> tokens_of(const passage& p, const std::vector<long_text>& texts, index_t context,
                                std::optional<token_id> bos);

/// Bytes and words that some tokens write; words are what lies between blanks, counted where they begin.
struct text_size {
  std::size_t bytes = 0;
  std::size_t words = 0;
};

text_size size_of(std::span<const token_id> ids, const tokenizer& words);

}  // namespace decode::perplexity
