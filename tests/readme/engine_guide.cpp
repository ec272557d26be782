// SPDX-License-Identifier: Apache-2.0
// What docs/engine.md says of scales, sinks, and attention that the engine adds, against softmax in double.
#include <doctest/doctest.h>
#include <support/tolerance.hpp>
#include <zoomr/zoomr.hpp>

#include <algorithm>  // std::max
#include <cmath>      // std::exp, std::log, std::sqrt
#include <vector>     // std::vector

namespace {

using namespace zoomr;
using doubles = std::vector<double>;

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

struct attended {
  std::vector<double> out;  // [head_dim]
  double lse = 0;
};

/// Softmax over tokens [first, last), and perhaps a logit without a value.
attended expected(index_t head, double scale, index_t first, index_t last, const double* sink = nullptr) {
  attended made{doubles(std::size_t{row}), 0};
  double sum = sink != nullptr ? std::exp(*sink) : 0.0;
  for (index_t t = first; t < last; ++t) {
    const index_t at = (t * model.kv_heads + head / model.group()) * row;
    double logit = 0;
    for (index_t d = 0; d < row; ++d) {
      logit += double{queries[static_cast<std::size_t>(head * row + d)]} * keys[static_cast<std::size_t>(at + d)];
    }
    const double weight = std::exp(logit * scale);
    sum += weight;
    for (index_t d = 0; d < row; ++d)
      made.out[static_cast<std::size_t>(d)] += weight * values[static_cast<std::size_t>(at + d)];
  }
  for (double& x : made.out) x /= sum;
  made.lse = std::log(sum);
  return made;
}

/// What the cache says for the last of the tokens that it holds.
struct answer {
  std::vector<float> out, lse;
};
answer ask(float by) {  // what queries are multiplied by
  kv_cache cache(model, presets::full, config{.max_tokens = 64});
  const sequence seq = cache.open();
  const std::vector<token_id> ids(std::size_t{held}, 0);
  std::vector<float> asked(std::size_t{held * model.heads * row});
  for (std::size_t i = 0; i < queries.size(); ++i) asked[asked.size() - queries.size() + i] = queries[i] * by;
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

TEST_CASE("a scale of the model's own is a factor of its queries") {
  const double scale = 0.4;
  const answer got = ask(static_cast<float>(scale / usual));
  for (index_t head = 0; head < model.heads; ++head) {
    const attended right = expected(head, static_cast<float>(scale / usual) * usual, 0, held);
    CHECK(std::abs(double{got.lse[static_cast<std::size_t>(head)]} - right.lse) <= allowed(scale) * (1 + right.lse));
    for (index_t d = 0; d < row; ++d) {
      CHECK(std::abs(double{got.out[static_cast<std::size_t>(head * row + d)]} -
                     right.out[static_cast<std::size_t>(d)]) <= allowed(scale));
    }
  }
}

TEST_CASE("attention over other tokens is added by lse") {
  const answer got = ask(1.0f);
  for (index_t head = 0; head < model.heads; ++head) {
    const attended own = expected(head, usual, held, held + others), right = expected(head, usual, 0, held + others);
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

TEST_CASE("a learned sink is a factor of the output") {
  const answer got = ask(1.0f);
  const double sink = 2.5;
  for (index_t head = 0; head < model.heads; ++head) {
    const attended right = expected(head, usual, 0, held, &sink);
    const double by = 1 / (1 + std::exp(sink - got.lse[static_cast<std::size_t>(head)]));
    for (index_t d = 0; d < row; ++d) {
      CHECK(std::abs(by * got.out[static_cast<std::size_t>(head * row + d)] - right.out[static_cast<std::size_t>(d)]) <=
            allowed(usual));
    }
  }
}

}  // namespace
