// SPDX-License-Identifier: Apache-2.0
// What docs/engine.md says of scales, caps, sinks, ALiBi, and attention that the engine adds, against softmax in
// double.
#include <doctest/doctest.h>
#include <support/naive_attention.hpp>
#include <support/tolerance.hpp>
#include <zoomr/zoomr.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::exp, std::log, std::sqrt, std::tanh
#include <vector>     // std::vector

namespace {

using namespace zoomr;
using zoomr_test::naive_attention, zoomr_test::naive_dot, zoomr_test::naive_result;

constexpr shape model{.layers = 1, .heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr index_t held = 37;   // tokens of the cache
constexpr index_t others = 5;  // that the engine attends to itself: what follows in the same arrays
constexpr index_t row = model.head_dim;

/// Numbers in [-1, 1).
std::vector<float> numbers(index_t count, std::uint32_t seed) {
  std::vector<float> made(static_cast<std::size_t>(count));
  for (float& x : made) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
  }
  return made;
}

const std::vector<float> keys = numbers((held + others) * model.kv_heads * row, 1);
const std::vector<float> values = numbers((held + others) * model.kv_heads * row, 2);
const std::vector<float> queries = numbers(model.heads * row, 3);

/// What a model does to its logits.
struct rule {
  double scale;
  double cap = 0;                // 0: none
  const float* sinks = nullptr;  // [heads]
  double slope = 0;              // of all heads; the query is that of the last token held
};

/// Softmax over tokens [first, last), and perhaps a logit without a value.
naive_result expected(index_t head, const rule& of, index_t first, index_t last) {
  const auto at = [&](index_t i) { return ((first + i) * model.kv_heads + head / model.group()) * row; };
  const auto logit = [&](index_t i) {
    double scaled = naive_dot(row, queries.data() + head * row, keys.data() + at(i)) * of.scale;
    if (of.cap > 0) scaled = of.cap * std::tanh(scaled / of.cap);
    return scaled + of.slope * (first + i - (held - 1));
  };
  const auto value = [&](index_t i) { return values.data() + at(i); };
  const double sink = of.sinks != nullptr ? double{of.sinks[head]} : zoomr_test::no_sink;
  return naive_attention(last - first, row, logit, value, sink);
}

/// What the cache says for the last of the tokens that it holds.
struct answer {
  std::vector<float> out, lse;
};
answer ask(const logit_rule& logits) {
  config limits{.max_tokens = 64};
  limits.logits = logits;
  kv_cache cache(model, presets::full, limits);
  const sequence seq = cache.open();
  const std::vector<token_id> ids(std::size_t{held}, 0);
  std::vector<float> asked(std::size_t{held * model.heads * row});
  for (std::size_t i = 0; i < queries.size(); ++i) asked[asked.size() - queries.size() + i] = queries[i];
  std::vector<float> out(asked.size()), lse(std::size_t{held * model.heads});
  auto step = cache.begin(seq, ids, true);
  step.append(0, {keys.data(), {held, model.kv_heads, row}}, {values.data(), {held, model.kv_heads, row}});
  step.attend(0, {asked.data(), {held, model.heads, row}}, {out.data(), {held, model.heads, row}},
              {lse.data(), {held, model.heads}});
  step.commit();
  return {{out.end() - model.heads * row, out.end()}, {lse.end() - model.heads, lse.end()}};
}

/// Of numbers below 1 in size, and logits of up to 16 times the scale.
double allowed(double scale) { return zoomr_test::tolerance::end_to_end(row, row * scale, held + others); }

const double usual = 1 / std::sqrt(double{row});

void check(const answer& got, const rule& of) {
  for (index_t head = 0; head < model.heads; ++head) {
    const naive_result right = expected(head, of, 0, held);
    CHECK(std::abs(double{got.lse[static_cast<std::size_t>(head)]} - right.lse) <=
          allowed(of.scale) * (1 + std::abs(right.lse)));
    for (index_t d = 0; d < row; ++d) {
      CHECK(std::abs(double{got.out[static_cast<std::size_t>(head * row + d)]} -
                     right.out[static_cast<std::size_t>(d)]) <= allowed(of.scale));
    }
  }
}

const std::vector<float> sinks{2.5f, -infinity, 40.0f, -1.0f};
const view<const float, 2> table_of_sinks(sinks.data(), {model.layers, model.heads});

TEST_CASE("without any of it logits are q . k / sqrt(head_dim)") { check(ask({}), {usual}); }

TEST_CASE("a scale and a soft cap of the model's own") {
  check(ask({.scale = 0.4f}), {double{0.4f}});
  check(ask({.soft_cap = 0.5f}), {usual, 0.5});
  check(ask({.scale = 0.4f, .soft_cap = 0.5f}), {double{0.4f}, 0.5});
}

TEST_CASE("learned sinks: out and lse contain them") {
  check(ask({.sinks = table_of_sinks}), {usual, 0, sinks.data()});
}

TEST_CASE("ALiBi: logits fall by the distance") {
  const std::vector<float> slopes(std::size_t{model.heads}, 0.125f);
  check(ask({.alibi_slopes = view<const float>(slopes)}), {usual, 0, nullptr, 0.125});
}

// The first part has the sinks, if there are any.
TEST_CASE("attention over other tokens is added by lse") {
  for (const bool with_sinks : {false, true}) {
    const answer got = ask({.sinks = with_sinks ? table_of_sinks : view<const float, 2>{}});
    for (index_t head = 0; head < model.heads; ++head) {
      const naive_result own = expected(head, {usual}, held, held + others);
      const naive_result right = expected(head, {usual, 0, with_sinks ? sinks.data() : nullptr}, 0, held + others);
      const double lse = got.lse[static_cast<std::size_t>(head)], most = std::max(lse, own.lse);
      const double a = std::exp(lse - most), b = std::exp(own.lse - most);
      CHECK(std::abs(most + std::log(a + b) - right.lse) <= allowed(usual) * (1 + right.lse));
      for (index_t d = 0; d < row; ++d) {
        const double out = got.out[static_cast<std::size_t>(head * row + d)];
        CHECK(std::abs((a * out + b * own.out[static_cast<std::size_t>(d)]) / (a + b) -
                       right.out[static_cast<std::size_t>(d)]) <= allowed(usual));
      }
    }
  }
}

}  // namespace
