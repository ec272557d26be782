// SPDX-License-Identifier: Apache-2.0
// Launches of gather_attend with everything around them: keys and values in shuffled pages, tokens in runs and as
// slots, and the softmax of books to compare with.
#pragma once

#include <zoomr/attention/gather.cuh>

#include <doctest/doctest.h>

#include <algorithm>  // std::max_element, std::swap
#include <cmath>      // std::abs, std::sqrt, std::tanh
#include <vector>     // std::vector

#include "support/device_memory.hpp"
#include "support/inputs.hpp"
#include "support/naive_attention.hpp"
#include "support/tokens_of_slots.hpp"
#include "support/tolerance.hpp"

namespace zoomr_test::gathering {

using namespace zoomr;
using zoomr::index_t;  // not the one of <strings.h>

constexpr index_t page_of_16 = 16;

/// What the rows of a test read; made on the host, legal on the device.
template <class Tokens>
struct listed_rows {
  view<const attending_row<Tokens>> rows;
  index_t count = 0;
  ZOOMR_HD attending_row<Tokens> at(index_t i) const { return rows[i]; }
};

struct problem {
  index_t head_dim = 64;
  index_t group = 4;
  index_t kv_heads = 2;
  std::vector<index_t> attended;  // tokens of each query token
  index_t splits = 1;
  float cap = 0.0f;    // of the logits; 0: none
  bool sinks = false;  // heads have learned sinks
  float scale = 0.0f;  // of q . k; 0: the usual one
  kind look = kind::uniform;
  std::uint64_t seed = 1;
  float key_scale = 1.0f;  // a key is what is stored times this
  float value_scale = 1.0f;
  index_t value_dim = 0;  // numbers of a value; 0: head_dim
  bool in_keys = false;   // values are the first numbers of keys

  index_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
  shape model() const { return {1, group * kv_heads, kv_heads, head_dim, value_dim, in_keys}; }
};

/// What must not be read; an int8 has no NaN, but a number that is never stored.
template <class T>
T poison() {
  return from_float<T>(not_a_number);
}
template <>
inline int8 poison<int8>() {
  return {-128};
}

/// Keys and values of all slots, of which those that no row attends are NaN.
template <class T>
struct stored {
  // [page][key | value][kv_head][16][head_dim], or where values have another width [page][kv_head][16][key | value]
  std::vector<T> numbers;
  index_t pages = 0;
  std::int64_t token = 0;     // numbers from a key to the next one
  std::int64_t head = 0;      // from a KV head to the next one
  std::int64_t page = 0;      // from page to page
  std::int64_t to_value = 0;  // from a key to its value

  stored(const problem& p, index_t of_pages)
      : pages(of_pages),
        token(p.head_dim + (p.value_dim > 0 && !p.in_keys ? p.value_dim : 0)),
        head(page_of_16 * token),
        page(p.kv_heads * head * (p.value_dim > 0 || p.in_keys ? 1 : 2)),
        to_value(p.in_keys         ? 0
                 : p.value_dim > 0 ? p.head_dim
                                   : page / 2) {
    numbers.assign(static_cast<std::size_t>(pages * page), poison<T>());
  }

  T* at(index_t slot, bool value, index_t kv_head) {
    return numbers.data() + slot / page_of_16 * page + kv_head * head + slot % page_of_16 * token +
           (value ? to_value : 0);
  }
  stored_layer<T> layer(const T* base) const { return {base, base + to_value, page, head, token, 4}; }
};

template <class Key>
double logit_of(const problem& p, const float* query, const Key& key) {
  const double logit = naive_dot(p.head_dim, query, key) *
                       (p.scale > 0.0f ? double{p.scale} : 1 / std::sqrt(static_cast<double>(p.head_dim)));
  return p.cap == 0.0f ? logit : static_cast<double>(p.cap) * std::tanh(logit / static_cast<double>(p.cap));
}

/// The learned sink of a query head; every third one has none.
inline float sink_of(const problem& p, index_t head) {
  if (!p.sinks || head % 3 == 2) return -infinity;
  return head % 2 == 0 ? 1.0f : 4.0f - 0.25f * static_cast<float>(head);
}

template <class T>
naive_result reference(const problem& p, stored<T>& held, const std::vector<index_t>& slots, index_t kv_head,
                       const float* query, float sink) {
  const auto row = [&](index_t t, bool value, float scale) {
    const T* const numbers = held.at(slots[static_cast<std::size_t>(t)], value, kv_head);
    return [numbers, scale](index_t d) { return to_float(numbers[d]) * scale; };
  };
  return naive_attention(
      static_cast<index_t>(slots.size()), p.value_width(),
      [&](index_t t) { return logit_of(p, query, row(t, false, p.key_scale)); },
      [&](index_t t) { return row(t, true, p.value_scale); }, static_cast<double>(sink));
}

/// One launch with its inputs, and the tokens in both forms.
template <class T, class Number = float>
struct scene {
  problem p;
  index_t tokens;
  index_t heads;
  std::vector<std::vector<index_t>> slots;       // [tokens]  pool slots that each attends
  std::vector<std::vector<token_range>> ranges;  // [tokens]  the same in the sequence's slots
  std::vector<std::vector<index_t>> before;
  std::vector<index_t> pages;
  stored<T> held;
  std::vector<Number> queries;

  static index_t longest(const problem& p) { return *std::max_element(p.attended.begin(), p.attended.end()); }

  explicit scene(const problem& of)
      : p(of),
        tokens(static_cast<index_t>(of.attended.size())),
        heads(of.group * of.kv_heads),
        slots(of.attended.size()),
        ranges(of.attended.size()),
        before(of.attended.size()),
        held(of, (longest(of) * 10 + 20) / page_of_16 + 1) {
    dice random(p.seed);
    choose_pages(random);
    for (index_t t = 0; t < tokens; ++t) choose_tokens(t, random);
    const tensors numbers{p.model(), p.look, p.seed};
    std::vector<float> row(static_cast<std::size_t>(p.head_dim));
    for (index_t t = 0; t < tokens; ++t) {
      for (index_t h = 0; h < heads; ++h) {
        numbers.fill(zoomr_test::role::query, 9, t, 0, h, 0, row.data());
        for (const float number : row) queries.push_back(from_float<Number>(number));
      }
    }
    for (const auto& of_token : slots) {
      for (const index_t slot : of_token) {
        for (index_t part = 0; part < 2 * p.kv_heads; ++part) {
          const bool value = part % 2 == 1;
          if (value && p.in_keys) continue;
          numbers.fill(value ? zoomr_test::role::value : zoomr_test::role::key, 9, slot, 0, part / 2, 0, row.data());
          for (index_t d = 0; d < (value ? p.value_width() : p.head_dim); ++d) {
            const float scale = value ? p.value_scale : p.key_scale;
            held.at(slot, value, part / 2)[d] = from_float<T>(row[static_cast<std::size_t>(d)] / scale);
          }
        }
      }
    }
  }

  /// The query of a head of a token, as floats.
  std::vector<float> query(index_t row) const {
    std::vector<float> made;
    for (index_t d = 0; d < p.head_dim; ++d) {
      made.push_back(to_float(queries[static_cast<std::size_t>(row * p.head_dim + d)]));
    }
    return made;
  }

  void choose_pages(dice& random) {
    for (index_t page = 0; page < held.pages; ++page) pages.push_back(page);
    for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[random.roll() % i]);
  }

  // Runs of a few tokens with gaps between them.
  void choose_tokens(index_t t, dice& random) {
    const auto of = static_cast<std::size_t>(t);
    index_t left = p.attended[of];
    index_t position = random.between(0, 5);
    index_t counted = 0;
    while (left > 0) {
      const index_t length = std::min(left, random.between(1, 40));
      ranges[of].push_back({position, position + length});
      before[of].push_back(counted);
      for (index_t i = position; i < position + length; ++i) {
        slots[of].push_back(pages[static_cast<std::size_t>(i / page_of_16)] * page_of_16 + i % page_of_16);
      }
      counted += length, left -= length;
      position += length + random.between(1, 9);
    }
  }
};

/// out and lse of one launch.
struct answer {
  std::vector<float> out;
  std::vector<float> lse;
};

/// All bits of it; one NaN is like another, whose sign depends on the order in which a compiler has put operands.
inline std::vector<std::uint32_t> bits(const answer& of) {
  std::vector<std::uint32_t> all;
  for (const auto* numbers : {&of.out, &of.lse}) {
    for (const float number : *numbers) all.push_back(bits_as<std::uint32_t>(number != number ? not_a_number : number));
  }
  return all;
}

template <index_t HeadDim, index_t Group, bool Sinks = false, class Values = values_apart<HeadDim>, class T,
          class Number, class Rows>
answer attend(scene<T, Number>& s, const Rows& rows) {
  device_array<T> numbers(s.held.numbers);
  device_array<Number> queries(s.queries);
  device_array<Number> out(std::int64_t{s.tokens} * s.heads * Values::width, from_float<Number>(77.0f));
  device_array<float> lse(std::int64_t{s.tokens} * s.heads, 77.0f);
  const std::int64_t states = std::int64_t{rows.count} * s.p.splits * Group * state_numbers(Values::width);
  device_array<float> partial(states, not_a_number);
  device_array<unsigned> arrived(std::int64_t{rows.count} * 16, 0u);
  const extents<3> wide{{s.tokens, s.heads, s.p.head_dim}}, of_out{{s.tokens, s.heads, Values::width}};
  const float scale = s.p.scale > 0.0f ? s.p.scale : 1.0f / std::sqrt(static_cast<float>(s.p.head_dim));
  const auto go = [&](auto logits) {
    gather_task<T, Number, Rows, decltype(logits)> task;
    task.layer = s.held.layer(numbers.data());
    task.rows = rows;
    task.logits = logits;
    task.queries = {queries.data(), wide};
    task.out = {out.data(), of_out};
    task.lse = {lse.data(), {{s.tokens, s.heads}}};
    task.key_scale = s.p.key_scale;
    task.value_scale = s.p.value_scale;
    task.partial = partial.data();
    task.arrived = arrived.data();
    gather_attend<T, HeadDim, Group, Values>(task, s.p.splits, zoomr::stream_ref{});
  };
  if constexpr (Sinks) {
    std::vector<float> sinks;
    for (index_t head = 0; head < s.heads; ++head) sinks.push_back(sink_of(s.p, head));
    device_array<float> of_heads(sinks);
    go(layer_logits{scale, s.p.cap, of_heads.data()});
  } else if (s.p.cap == 0.0f) {
    go(scaled_logits{scale});
  } else {
    go(layer_logits{scale, s.p.cap});
  }
  for (const unsigned left : arrived.values()) CHECK(left == 0u);
  answer made;
  for (const Number number : out.values()) made.out.push_back(to_float(number));
  made.lse = lse.values();
  return made;
}

/// The rows of a scene as runs.
template <class T, class Number = float>
struct rows_by_ranges {
  device_array<token_range> ranges;
  device_array<index_t> before;
  device_array<index_t> pages;
  device_array<attending_row<tokens_of_ranges>> rows;

  template <class U>
  static std::vector<U> joined(const std::vector<std::vector<U>>& lists) {
    std::vector<U> all;
    for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
  }
  explicit rows_by_ranges(scene<T, Number>& s)
      : ranges(joined(s.ranges)), before(joined(s.before)), pages(s.pages), rows(make(s)) {}

  std::vector<attending_row<tokens_of_ranges>> make(scene<T, Number>& s) {
    std::vector<attending_row<tokens_of_ranges>> made;
    index_t first = 0;
    for (index_t t = 0; t < s.tokens; ++t) {
      const auto of = static_cast<std::size_t>(t);
      const auto count = static_cast<index_t>(s.ranges[of].size());
      for (index_t kv_head = 0; kv_head < s.p.kv_heads; ++kv_head) {
        const tokens_of_ranges tokens{view<const token_range>(ranges.data() + first, {count}),
                                      view<const index_t>(before.data() + first, {count}), pages.view(),
                                      static_cast<index_t>(s.slots[of].size()), 4};
        made.push_back({tokens, t, kv_head, kv_head * s.p.group, s.p.group});
      }
      first += count;
    }
    return made;
  }
  listed_rows<tokens_of_ranges> list() { return {rows.view(), rows.view().size()}; }
};

/// The same as slots, padded with -1.
template <class T, class Number = float>
struct rows_by_slots {
  device_array<index_t> slots;
  device_array<attending_row<tokens_of_slots>> rows;

  static std::vector<index_t> padded(const scene<T, Number>& s, index_t width) {
    std::vector<index_t> all;
    for (const auto& list : s.slots) {
      all.insert(all.end(), list.begin(), list.end());
      all.resize(all.size() + static_cast<std::size_t>(width) - list.size(), -1);
    }
    return all;
  }
  static index_t width(const scene<T, Number>& s) { return scene<T, Number>::longest(s.p) + 3; }
  explicit rows_by_slots(scene<T, Number>& s) : slots(padded(s, width(s))), rows(make(s)) {}

  std::vector<attending_row<tokens_of_slots>> make(scene<T, Number>& s) {
    std::vector<attending_row<tokens_of_slots>> made;
    for (index_t t = 0; t < s.tokens; ++t) {
      const tokens_of_slots tokens{view<const index_t>(slots.data() + t * width(s), {width(s)}),
                                   static_cast<index_t>(s.slots[static_cast<std::size_t>(t)].size())};
      for (index_t kv_head = 0; kv_head < s.p.kv_heads; ++kv_head) {
        made.push_back({tokens, t, kv_head, kv_head * s.p.group, s.p.group});
      }
    }
    return made;
  }
  listed_rows<tokens_of_slots> list() { return {rows.view(), rows.view().size()}; }
};

/// Bits of a number's mantissa that are stored.
template <class Number>
inline constexpr int mantissa = std::is_same_v<Number, bfloat16>  ? 7
                                : std::is_same_v<Number, float16> ? 10
                                                                  : 23;

/// @param rounds_weights  to the type of queries
template <class T, class Number>
void compare(scene<T, Number>& s, const answer& got, bool rounds_weights) {
  const problem& p = s.p;
  double logit = 0.0;  // sum of magnitudes: queries and keys lie in [-1, 1], peaked ones are smaller than 3.3
  logit = (p.look == kind::peaked ? 2.3 * 3.3 : 1.0) * std::sqrt(static_cast<double>(p.head_dim));
  for (index_t t = 0; t < s.tokens; ++t) {
    const auto& slots = s.slots[static_cast<std::size_t>(t)];
    const auto count = static_cast<double>(slots.size());
    const double allowed = tolerance::end_to_end(p.head_dim, logit, count);
    const double of_weights = rounds_weights ? tolerance::rounded_weights(mantissa<Number>, count) : 0.0;
    for (index_t h = 0; h < s.heads; ++h) {
      const index_t row = t * s.heads + h;
      const auto expected = reference(p, s.held, slots, h / p.group, s.query(row).data(), sink_of(p, h));
      for (index_t d = 0; d < p.value_width(); ++d) {
        const double value = static_cast<double>(got.out[static_cast<std::size_t>(row * p.value_width() + d)]);
        const double wanted = expected.out[static_cast<std::size_t>(d)];
        const double of_out = std::is_same_v<Number, float> ? 0.0 : tolerance::rounded(mantissa<Number>);
        CAPTURE(t);
        CAPTURE(h);
        CAPTURE(d);
        REQUIRE(tolerance::within(value, wanted, allowed + of_weights + of_out * std::abs(wanted)));
      }
      REQUIRE(tolerance::within(static_cast<double>(got.lse[static_cast<std::size_t>(row)]), expected.lse,
                                allowed * (1 + std::abs(expected.lse))));
    }
  }
}

template <index_t HeadDim, index_t Group, class T, class Number = float, bool Sinks = false,
          class Values = values_apart<HeadDim>>
void check(problem p) {
  p.head_dim = HeadDim, p.sinks = Sinks;
  p.value_dim = Values::width == HeadDim ? 0 : Values::width, p.in_keys = Values::in_keys;
  scene<T, Number> s(p);
  INFO("head_dim ", HeadDim, ", group ", p.group, ", splits ", p.splits, ", seed ", p.seed);
  rows_by_ranges<T, Number> ranges(s);
  const answer by_ranges = attend<HeadDim, Group, Sinks, Values>(s, ranges.list());
  compare(s, by_ranges, fits_tensor_cores<T, Number, HeadDim, Group, Values>());
  rows_by_slots<T, Number> slots(s);
  const answer by_slots = attend<HeadDim, Group, Sinks, Values>(s, slots.list());
  CHECK(bits(by_slots) == bits(by_ranges));
}

}  // namespace zoomr_test::gathering
