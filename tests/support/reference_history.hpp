// SPDX-License-Identifier: Apache-2.0
// The naive reference's history of a text, attention in double, and ranking.
#pragma once

#include <support/naive_attention.hpp>
#include <support/reference_segments.hpp>
#include <support/tolerance.hpp>
#include <zoomr/core/shape.hpp>

#include <algorithm>  // std::sort, std::max
#include <cmath>      // std::abs, std::isnan, std::sqrt, std::tanh
#include <limits>     // std::numeric_limits
#include <optional>   // std::optional
#include <vector>     // std::vector

namespace reference {

using zoomr::shape;
namespace tolerance = zoomr_test::tolerance;

/// What a model does to its logits; as it is made here, the usual scale alone.
struct logits_of_model {
  double scale = 0;                     // of products; 0: 1 / sqrt(head_dim)
  double soft_cap = 0;                  // 0: none
  std::vector<double> sinks;            // [layers, heads]; empty: none
  std::vector<double> slopes;           // [heads]  of the bias by distance; empty: none
  index_t window = 0;                   // a query at i sees the keys at j with i - j < window; 0: all
  std::vector<index_t> positions = {};  // [tokens]  model positions, by which they are apart; empty: their places

  index_t model_position(index_t token) const {
    return positions.empty() ? token : positions[static_cast<std::size_t>(token)];
  }
  /// The first position that a query at `position` sees.
  index_t first_seen(index_t position) const {
    index_t first = position;
    while (first > 0 && (window == 0 || model_position(position) - model_position(first - 1) < window)) --first;
    return first;
  }
  double scaled(double product, index_t head_dim) const {
    return scale > 0 ? product * scale : product / std::sqrt(static_cast<double>(head_dim));
  }
  double capped(double logit) const { return soft_cap > 0 ? soft_cap * std::tanh(logit / soft_cap) : logit; }
  /// At most 0.
  double bias(index_t head, index_t key, index_t query) const {
    return slopes.empty() ? 0.0
                          : -slopes[static_cast<std::size_t>(head)] *
                                static_cast<double>(model_position(query) - model_position(key));
  }
  /// The logit of a token, from the product of its key with a query.
  double logit(double product, index_t head_dim, index_t head, index_t key, index_t query) const {
    return capped(scaled(product, head_dim)) + bias(head, key, query);
  }
};

/// Tokens after a prompt that one step has taken whole.
struct whole_item {
  zoomr::token_range tokens;  // that were accepted
  bool complete = true;       // they were all of the step's
};

/// Everything that was ever passed: classes, and queries, keys and values of both passes.
struct history {
  shape model;
  text words;
  std::vector<float> queries[2];  // [pass][token, layer, head, head_dim]
  std::vector<float> keys[2];     // [pass][token, layer, kv_head, head_dim]  as stored
  std::vector<float> values[2];   // [pass][token, layer, kv_head, head_dim]  as stored
  logits_of_model logits;
  std::vector<zoomr::token_range> later_prompts = {};
  std::vector<whole_item> whole_items = {};
  bool exact = false;                                              // scores are exact in float: no close calls
  double voters_unsure = std::numeric_limits<double>::infinity();  // bits above which a posterior is unsure
  double voters_none = -std::numeric_limits<double>::infinity();   // logit of its class none; -infinity: there is none
  double voters_none_slope = 0;                                    // less for each e-fold of eligible segments
  std::vector<float> rotary = {};             // frequencies of the rotary embedding; empty: unknown
  std::vector<index_t> donors = {};           // [layers]  whose keys each layer attends; empty: its own
  std::vector<index_t> anchors = {};          // [layers]  whose choice each layer reads; empty: its own
  std::vector<index_t> anchor_kv_heads = {};  // [layers, kv_heads]  of which KV head there

  /// The later prompt that a token is in, if it is in one.
  std::optional<zoomr::token_range> later_prompt_at(index_t position) const {
    for (const zoomr::token_range& later : later_prompts) {
      if (later.first <= position && position < later.last) return later;
    }
    return std::nullopt;
  }
  /// The item that was passed whole with this token, or nullptr.
  const whole_item* whole_item_at(index_t position) const {
    for (const whole_item& item : whole_items) {
      if (item.tokens.first <= position && position < item.tokens.last) return &item;
    }
    return nullptr;
  }
  /// The first position after the last prompt that ended before this token, or with it.
  index_t generated_from(index_t position) const {
    auto from = static_cast<index_t>(words.prompt_end);
    for (const zoomr::token_range& later : later_prompts) {
      if (later.last <= position + 1) from = later.last;
    }
    return from;
  }

  const float* query(index_t position, index_t layer, index_t head, index_t pass) const {
    return row(queries[pass], position, layer, model.heads, head);
  }
  const float* key(index_t position, index_t layer, index_t kv_head, index_t pass) const {
    return row(keys[pass], position, layer, model.kv_heads, kv_head);
  }
  const float* value(index_t position, index_t layer, index_t kv_head, index_t pass) const {
    return row(values[pass], position, layer, model.kv_heads, kv_head);
  }

 private:
  const float* row(const std::vector<float>& of, index_t position, index_t layer, index_t heads, index_t head) const {
    const auto place = (static_cast<std::size_t>(position) * static_cast<std::size_t>(model.layers) +
                        static_cast<std::size_t>(layer)) *
                           static_cast<std::size_t>(heads) +
                       static_cast<std::size_t>(head);
    return of.data() + place * static_cast<std::size_t>(model.head_dim);
  }
};

/// A number and the sum of the magnitudes that were added up to make it, for its rounding.
struct estimate {
  double value = 0;
  double magnitude = 0;
};

struct attention : zoomr_test::naive_result {
  double largest_value = 0;  // magnitudes, for tolerances
  double largest_logit = 0;
};

/// Softmax attention of one query over `positions`; `key` and `value` give rows by position.
/// @param of     what the model does to logits
/// @param row    layer * heads + head of the query, at position `at`
template <class Keys, class Values>
attention attend(const std::vector<index_t>& positions, const float* query, index_t head_dim, Keys key, Values value,
                 const logits_of_model& of = {}, index_t row = 0, index_t heads = 1, index_t at = 0) {
  const index_t head = row % heads;
  double largest_logit = 0, largest_value = 0;
  for (const index_t position : positions) {
    double magnitude = 0;
    for (index_t d = 0; d < head_dim; ++d) {
      magnitude += std::abs(double{query[d]} * double{key(position)[d]});
      largest_value = std::max(largest_value, std::abs(double{value(position)[d]}));
    }
    largest_logit = std::max(largest_logit, of.scaled(magnitude, head_dim) + std::abs(of.bias(head, position, at)));
  }
  const auto logit = [&](index_t t) {
    const index_t position = positions[static_cast<std::size_t>(t)];
    return of.logit(zoomr_test::naive_dot(head_dim, query, key(position)), head_dim, head, position, at);
  };
  return {zoomr_test::naive_attention(
              static_cast<index_t>(positions.size()), head_dim, logit,
              [&](index_t t) { return value(positions[static_cast<std::size_t>(t)]); },
              of.sinks.empty() ? zoomr_test::no_sink : of.sinks[static_cast<std::size_t>(row)]),
          largest_value, largest_logit};
}

/// Ids [0, values.size()), highest value first, ties to the lower id, NaN last.
inline std::vector<index_t> ranked(const std::vector<estimate>& values, std::vector<index_t> ids) {
  const auto at = [&](index_t id) { return values[static_cast<std::size_t>(id)].value; };
  std::sort(ids.begin(), ids.end(), [&](index_t a, index_t b) {
    if (std::isnan(at(a)) || std::isnan(at(b)))
      return std::isnan(at(a)) == std::isnan(at(b)) ? a < b : std::isnan(at(b));
    return at(a) != at(b) ? at(a) > at(b) : a < b;
  });
  return ids;
}

}  // namespace reference
