// SPDX-License-Identifier: Apache-2.0
#include "passages.hpp"

#include <algorithm>  // std::max_element
#include <random>     // std::mt19937_64

#include "../../decode/input_error.hpp"
#include "../../decode/json_file.hpp"

namespace decode::perplexity {

long_text read_long_text(const std::filesystem::path& path, const tokenizer& words) {
  const std::string text = read_text(path, std::uint64_t{1} << 30);
  try {
    return {path.filename().string(), words.encode(text, {.add_special = false, .allow_unknown = false})};
  } catch (const input_error& wrong) {
    fail(named(path), ": ", wrong.what());
  }
}

std::vector<passage> cut(const std::vector<long_text>& texts, const layout& wanted) {
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

std::vector<token_id> tokens_of(const passage& p, const std::vector<long_text>& texts, index_t context,
                                std::optional<token_id> bos) {
  const auto& ids = texts[p.text].ids;
  const auto length = static_cast<std::size_t>(context) - (bos ? 1 : 0);
  std::vector<token_id> out;
  if (bos) out.push_back(*bos);
  out.insert(out.end(), ids.begin() + static_cast<std::ptrdiff_t>(p.end - length),
             ids.begin() + static_cast<std::ptrdiff_t>(p.end));
  return out;
}

text_size size_of(std::span<const token_id> ids, const tokenizer& words) {
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
