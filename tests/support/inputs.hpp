// SPDX-License-Identifier: Apache-2.0
// The only inputs of the tests: keys, values and queries that are pure functions of (token id, position, layer,
// head, pass), so that every way of feeding a text sees the same numbers; and texts in several kinds of markup.
#pragma once

#include <zoomr/core/shape.hpp>
#include <zoomr/core/storage.hpp>
#include <zoomr/core/types.hpp>

#include <array>   // std::array
#include <limits>  // std::numeric_limits
#include <vector>  // std::vector

namespace zoomr_test {

using zoomr::index_t;
using zoomr::shape;
using zoomr::token_class;
using zoomr::token_id;

/// Mixes 64 bits (splitmix64): every seeded choice of the tests comes from here.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// A small generator that is the same everywhere, unlike the distributions of <random>.
class dice {
 public:
  explicit constexpr dice(std::uint64_t seed) : state_(mixed(seed)) {}
  constexpr std::uint64_t roll() { return state_ = mixed(state_); }
  /// In [first, last], both inclusive.
  constexpr index_t between(index_t first, index_t last) {
    return first + static_cast<index_t>(roll() % static_cast<std::uint64_t>(last - first + 1));
  }
  constexpr bool chance(index_t percent) { return between(1, 100) <= percent; }
  template <class Choices>
  constexpr auto one_of(const Choices& choices) {
    return choices[static_cast<std::size_t>(roll() % std::size(choices))];
  }

 private:
  std::uint64_t state_;
};

/// What the numbers look like.
enum class kind {
  uniform,          // in [-1, 1]
  peaked,           // one key in ten wins by far for the queries that point its way
  ties,             // four different keys, as exact as integers: many equal scores
  integers,         // means of up to 8 keys, and the products of two such means, are exact in float (head_dim <= 16)
  with_infinities,  // uniform; one key in forty holds NaN or an infinity
};

enum class role { key, value, query };

/// Keys, values and queries of one model for one text.
struct tensors {
  shape model;
  kind look = kind::uniform;
  std::uint64_t seed = 0;
  bool in_16_bits = false;           // each is one of bfloat16, so that a device that is given 16 bits has the same
  std::vector<index_t> donors = {};  // [layers]  whose keys and values a layer has; empty: its own
  bool donors_queries = false;       // and whose queries

  /// One row; pass 1 is the second pass over a token.
  /// @param out  [head_dim]
  void fill(role of, token_id id, index_t position, index_t layer, index_t head, index_t pass, float* out) const {
    if (!donors.empty() && (of != role::query || donors_queries)) layer = donors[static_cast<std::size_t>(layer)];
    const auto token = hash(of, id, position, layer, head, pass);
    for (index_t d = 0; d < model.head_dim; ++d) {
      const float exact = number(of, token, d);
      out[d] = in_16_bits ? zoomr::to_float(zoomr::from_float<zoomr::bfloat16>(exact)) : exact;
    }
  }

 private:
  float number(role of, std::uint64_t token, index_t d) const {
    const auto number = mixed(token + static_cast<std::uint64_t>(d));
    const float noise = static_cast<float>(static_cast<std::int32_t>(number >> 40) - (1 << 23)) / float{1 << 23};
    const auto sign = static_cast<float>(static_cast<int>(number % 3) - 1);
    if (of == role::value) return look == kind::integers ? sign : noise;
    switch (look) {
      case kind::uniform:
        return noise;
      case kind::peaked: {
        const bool pointed = of == role::query || token % 10 == 0;
        const bool positive = mixed(seed + token / 16 % 3 + static_cast<std::uint64_t>(d) * 8) % 2 == 0;
        const float along = (of == role::query ? 2.0f : 3.0f) * (positive ? 1.0f : -1.0f);
        return 0.3f * noise + (pointed ? along : 0.0f);
      }
      case kind::ties:
        return 840.0f / 1024.0f *
               static_cast<float>(static_cast<int>(mixed(token % 4 + seed + static_cast<std::uint64_t>(d) * 8) % 3) -
                                  1);
      case kind::integers:  // 840 is a multiple of 1 ... 8, and 2 * 8 * 840 * 840 < 2^24
        return sign * 840.0f / 1024.0f;
      case kind::with_infinities: {
        if (of == role::query || token % 40 != 0 || d != static_cast<index_t>(token / 64 % 8)) return noise;
        const float odd[] = {std::numeric_limits<float>::quiet_NaN(), zoomr::infinity, -zoomr::infinity};
        return odd[token / 8192 % 3];
      }
    }
    return 0.0f;
  }

  std::uint64_t hash(role of, token_id id, index_t position, index_t layer, index_t head, index_t pass) const {
    std::uint64_t h = seed;
    for (const index_t part : {static_cast<index_t>(of), id, position, layer, head, pass}) {
      h = mixed(h ^ static_cast<std::uint64_t>(part));
    }
    return h;
  }
};

// Token ids of the texts. Those from `plain_id` on are plain.
inline constexpr token_id delimiter_id = 1;
inline constexpr token_id thought_id = 2;
inline constexpr token_id thought_end_id = 3;
inline constexpr token_id summary_id = 4;
inline constexpr token_id summary_end_id = 5;
inline constexpr token_id thought_end_delimiter_id = 6;  // two flags at once
inline constexpr token_id summary_end_delimiter_id = 7;
inline constexpr token_id plain_id = 8;
inline constexpr token_id mark_id = 40;
inline constexpr token_id blank_id = 41;
inline constexpr token_id blank_mark_id = 42;  // two flags at once
inline constexpr token_id message_id = 43;
inline constexpr std::size_t vocabulary = 64;
inline constexpr token_id unspoken_id = vocabulary - 1;  // in no text

/// [vocabulary]  the class of each token id, for config.classes.
inline constexpr std::array<token_class, vocabulary> classes = [] {
  using enum token_class;
  std::array<token_class, vocabulary> table{
      plain,         delimiter,   thought_begin,           thought_end,
      summary_begin, summary_end, thought_end | delimiter, summary_end | delimiter};
  table[mark_id] = mark, table[blank_id] = blank, table[blank_mark_id] = blank | mark;
  table[message_id] = message;
  return table;
}();

inline token_class class_of(token_id id) { return classes[static_cast<std::size_t>(id)]; }

/// What a text looks like.
enum class markup {
  pairs,            // <thought>...</thought><summary>...</summary>; some without a summary, some parts empty
  summaries_alone,  // text <summary>...</summary> text ...
  sentences,        // words and delimiters; some sentences of one token
  marks,            // words, marks, blanks and a few delimiters; some marks before words, and in rows
  no_delimiter,     // words
  stray,            // any marker anywhere
};

/// A text of `tokens` tokens, of which the first `prompt` are a prompt: mostly sentences, now and then markup.
inline std::vector<token_id> text_of(markup look, index_t tokens, index_t prompt, std::uint64_t seed) {
  dice random(seed ^ 0x5eed);
  std::vector<token_id> ids;
  const auto add = [&](token_id id) { ids.push_back(id); };
  const auto words = [&](index_t least, index_t most, index_t delimiter_percent) {
    for (index_t left = random.between(least, most); left > 0; --left) {
      add(random.chance(delimiter_percent) ? delimiter_id : random.between(plain_id, plain_id + 30));
    }
  };
  while (static_cast<index_t>(ids.size()) < tokens) {
    const bool in_prompt = static_cast<index_t>(ids.size()) < prompt && !random.chance(10);
    if (look == markup::no_delimiter) {
      words(1, 9, 0);
    } else if (look == markup::marks) {
      words(0, 6, 5);
      add(random.chance(20) ? blank_mark_id : mark_id);
      if (!random.chance(30)) add(blank_id);
    } else if (look == markup::stray) {
      words(0, 6, 15);
      add(random.between(delimiter_id, summary_end_delimiter_id));
    } else if (look == markup::sentences || in_prompt) {
      words(0, 9, 0);
      add(delimiter_id);
    } else if (look == markup::summaries_alone) {
      words(random.chance(10) ? 0 : 4, 24, 15);
      add(summary_id);
      words(random.chance(10) ? 0 : 1, 6, 0);
      add(random.chance(30) ? summary_end_delimiter_id : summary_end_id);
    } else {
      if (random.chance(15)) words(1, 5, 20);  // text between thoughts
      add(thought_id);
      words(random.chance(10) ? 0 : 4, 26, 15);
      if (!random.chance(7)) add(random.chance(30) ? thought_end_delimiter_id : thought_end_id);
      if (random.chance(15)) continue;  // no summary
      add(summary_id);
      if (!random.chance(12)) words(1, 5, 0);
      if (!random.chance(5)) add(random.chance(30) ? summary_end_delimiter_id : summary_end_id);
    }
  }
  ids.resize(static_cast<std::size_t>(tokens));
  return ids;
}

}  // namespace zoomr_test
