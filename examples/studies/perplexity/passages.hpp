// SPDX-License-Identifier: Apache-2.0
// Long text cut into passages, of which the last tokens are scored. The scored tokens are the same for every context,
// and no two passages share any: only how much the model may read before them differs.
#pragma once

#include <zoomr/core/types.hpp>

#include <algorithm>   // std::max
#include <filesystem>  // std::filesystem::path
#include <optional>    // std::optional
#include <random>      // std::mt19937_64
#include <string>      // std::string
#include <vector>      // std::vector

#include "../../decode/json_file.hpp"
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
inline long_text read_long_text(const std::filesystem::path& path, const tokenizer& words) {
  const std::string text = read_text(path, std::uint64_t{1} << 30);
  try {
    return {path.filename().string(), words.encode(text, {.add_special = false, .allow_unknown = false})};
  } catch (const input_error& wrong) {
    fail(path.string(), ": ", wrong.what());
  }
}

/// Passages spread evenly over a text, each at a random place of its share.
/// @throws input_error  the text is too short
inline std::vector<passage> cut(const std::vector<long_text>& texts, const layout& wanted) {
  const auto longest = static_cast<std::size_t>(*std::max_element(wanted.contexts.begin(), wanted.contexts.end()));
  const auto scored = static_cast<std::size_t>(wanted.scored), count = static_cast<std::size_t>(wanted.passages);
  std::vector<passage> all;
  std::mt19937_64 draw(wanted.seed);
  for (std::size_t text = 0; text < texts.size(); ++text) {
    const std::size_t size = texts[text].ids.size(), before = longest - scored;
    if (size < before + count * scored)
      fail(texts[text].name, " has ", size, " tokens, but ", count, " passages of ", scored,
           " scored tokens in a context of ", longest, " take at least ", before + count * scored);
    const std::size_t share = (size - before) / count;  // at least `scored`
    for (std::size_t p = 0; p < count; ++p) {
      all.push_back({text, before + p * share + draw() % (share - scored + 1) + scored});
    }
  }
  return all;
}

/// The tokens of a passage in one context: <bos>, if the model has one, and the text up to the passage's end.
inline std::vector<token_id> tokens_of(const passage& p, const std::vector<long_text>& texts, index_t context,
                                       std::optional<token_id> bos) {
  const auto& ids = texts[p.text].ids;
  const auto length = static_cast<std::size_t>(context) - (bos ? 1 : 0);
  std::vector<token_id> out;
  if (bos) out.push_back(*bos);
  out.insert(out.end(), ids.begin() + static_cast<std::ptrdiff_t>(p.end - length),
             ids.begin() + static_cast<std::ptrdiff_t>(p.end));
  return out;
}

/// Bytes and words that some tokens write; words are what lies between blanks, counted where they begin.
struct text_size {
  std::size_t bytes = 0;
  std::size_t words = 0;
};

inline text_size size_of(std::span<const token_id> ids, const tokenizer& words) {
  text_size size;
  bool inside = true;  // what stands at the very begin may be the rest of a word
  for (const token_id id : ids) {
    const std::string piece = words.piece(id, false);
    size.bytes += piece.size();
    for (const char c : piece) {
      const bool blank = c == ' ' || (c >= '\t' && c <= '\r');
      size.words += !blank && !inside;
      inside = !blank;
    }
  }
  return size;
}

}  // namespace decode::perplexity
