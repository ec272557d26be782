// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <support/naive_attention.hpp>
#include <zoomr/math/attention_state.hpp>

#include <cmath>  // std::fabs, std::log

namespace zoomr {

namespace {

constexpr index_t head_dim = 37;  // not a multiple of the block that `add` holds in registers

/// Tokens with a logit and a value [head_dim] each.
struct tokens {
  std::vector<float> logits;
  std::vector<float> values;

  index_t count() const { return static_cast<index_t>(logits.size()); }
  const float* value(index_t t) const { return values.data() + t * head_dim; }
};

tokens make_tokens(unit::random& random, index_t count, float low, float high) {
  return {random.floats(unit::size(count), low, high), random.floats(unit::size(count * head_dim))};
}

/// A state with memory of its own.
struct state {
  std::vector<float> out = std::vector<float>(unit::size(head_dim), 0.0f);
  attention_state sums;

  state() { sums.out = out.data(); }
  state(const state&) = delete;
  state& operator=(const state&) = delete;

  void add(const tokens& of, index_t first, index_t last) {
    for (index_t t = first; t < last; ++t) {
      sums.raise(of.logits[unit::size(t)], head_dim);
      add_one(of, t);
    }
  }
  void add_one(const tokens& of, index_t t) {
    float logit = of.logits[unit::size(t)];
    sums.add(&logit, of.value(t), 1, head_dim);
  }
  float finish() { return sums.finish(head_dim); }
};

/// The definition, in double.
zoomr_test::naive_result reference(const tokens& of) {
  return zoomr_test::naive_attention(
      of.count(), head_dim, [&](index_t t) { return static_cast<double>(of.logits[unit::size(t)]); },
      [&](index_t t) { return of.value(t); });
}

/// Values lie in [-1, 1], so an output's error is bounded by that of the weights: 2e-7 for each exponential, twice,
/// and a rounding of 6e-8 for each token added.
double tolerance(index_t count) { return 1e-6 + 1.2e-7 * count; }

void check_near(state& made, const tokens& of) {
  const float lse = made.finish();
  const zoomr_test::naive_result exact = reference(of);
  const double within = tolerance(of.count());
  CHECK(lse == doctest::Approx(exact.lse).epsilon(within));
  for (index_t d = 0; d < head_dim; ++d) {
    CHECK(std::fabs(static_cast<double>(made.out[unit::size(d)]) - exact.out[unit::size(d)]) < within);
  }
}

}  // namespace

TEST_CASE("adding tokens one by one is the softmax of all") {
  unit::random random(5);
  for (const index_t count : {1, 2, 3, 17, 257}) {
    for (const float spread : {0.01f, 1.0f, 30.0f, 1000.0f}) {
      const tokens all = make_tokens(random, count, -spread, spread);
      state whole;
      whole.add(all, 0, count);
      CAPTURE(count);
      CAPTURE(spread);
      check_near(whole, all);
    }
  }
}

TEST_CASE("however the tokens are split, the merge of the parts is the whole") {
  unit::random random(6);
  for (int round = 0; round < 50; ++round) {
    const index_t count = random.between(1, 60);
    const float spread = round % 2 == 0 ? 3.0f : 300.0f;
    const tokens all = make_tokens(random, count, -spread, spread);
    state whole;
    for (index_t first = 0; first < count;) {
      const index_t last = random.between(first, count);  // empty parts too
      state part;
      part.add(all, first, last);
      if (random.chance(0.5)) {
        whole.sums.merge(part.sums, head_dim);
      } else {  // the other way round
        part.sums.merge(whole.sums, head_dim);
        whole.out = part.out;
        whole.sums = part.sums;
        whole.sums.out = whole.out.data();
      }
      first = last;
    }
    CAPTURE(round);
    check_near(whole, all);
  }
}

TEST_CASE("an empty state is neutral and finishes as zeros and -inf") {
  unit::random random(7);
  const tokens some = make_tokens(random, 5, -2.0f, 2.0f);
  state alone;
  alone.add(some, 0, 5);
  state merged;
  merged.add(some, 0, 5);
  state empty;
  merged.sums.merge(empty.sums, head_dim);
  CHECK(merged.out == alone.out);
  CHECK(merged.sums.sum == alone.sums.sum);
  empty.sums.merge(merged.sums, head_dim);
  CHECK(empty.out == alone.out);
  CHECK(empty.sums.max == alone.sums.max);

  state nothing;
  state other;
  nothing.sums.merge(other.sums, head_dim);
  CHECK(nothing.finish() == -infinity);
  CHECK(nothing.out == std::vector<float>(unit::size(head_dim), 0.0f));
}

TEST_CASE("a token with logit -inf weighs nothing, and alone it is like no token") {
  unit::random random(8);
  tokens all = make_tokens(random, 6, -2.0f, 2.0f);
  for (const index_t t : {0, 3, 5}) all.logits[unit::size(t)] = -infinity;
  state made;
  made.add(all, 0, 6);
  check_near(made, all);

  state only;
  only.add(all, 0, 1);
  CHECK(only.finish() == -infinity);
  CHECK(only.out == std::vector<float>(unit::size(head_dim), 0.0f));
}

TEST_CASE("logits of any size do not overflow") {
  unit::random random(9);
  for (const float size : {1e4f, 1e30f, -1e30f, 3e38f}) {
    tokens all = make_tokens(random, 3, 0.0f, 1.0f);
    all.logits = {size, size, -3e38f};
    state made;
    made.add(all, 0, 3);
    const float lse = made.finish();
    CAPTURE(size);
    CHECK(lse == doctest::Approx(static_cast<double>(size) + std::log(2.0)));
    for (index_t d = 0; d < head_dim; ++d) {
      const double mean = (static_cast<double>(all.value(0)[d]) + static_cast<double>(all.value(1)[d])) / 2;
      CHECK(static_cast<double>(made.out[unit::size(d)]) == doctest::Approx(mean));
    }
  }
}

TEST_CASE("a NaN logit shows, wherever it comes and however it is merged") {
  unit::random random(10);
  for (const index_t where : {0, 2, 4}) {
    tokens all = make_tokens(random, 5, -2.0f, 2.0f);
    all.logits[unit::size(where)] = std::numeric_limits<float>::quiet_NaN();
    state made;
    made.add(all, 0, 5);
    state clean;
    const tokens others = make_tokens(random, 5, -2.0f, 2.0f);
    clean.add(others, 0, 5);
    clean.sums.merge(made.sums, head_dim);
    CAPTURE(where);
    CHECK(std::isnan(made.finish()));
    CHECK(std::isnan(made.out[0]));
    CHECK(std::isnan(clean.finish()));
    CHECK(std::isnan(clean.out[7]));
  }
}

TEST_CASE("raising past all logits and adding them afterwards gives the same") {
  unit::random random(11);
  const tokens all = make_tokens(random, 9, -4.0f, 4.0f);
  state made;
  made.sums.raise(5.0f, head_dim);
  for (index_t t = 0; t < 9; ++t) made.add_one(all, t);
  check_near(made, all);
}

TEST_CASE("tokens added together give the bits that they give one by one") {
  unit::random random(12);
  tokens all = make_tokens(random, 9, -4.0f, 4.0f);
  state together;
  state alone;
  together.sums.raise(4.0f, head_dim);
  alone.sums.raise(4.0f, head_dim);
  for (index_t t = 0; t < 9; ++t) alone.add_one(all, t);
  together.sums.add(all.logits.data(), all.value(0), 9, head_dim);
  CHECK(together.sums.sum == alone.sums.sum);
  CHECK(together.out == alone.out);
}

TEST_CASE("values may be stored as bfloat16") {
  state made;
  std::vector<bfloat16> value;
  for (index_t d = 0; d < head_dim; ++d) value.push_back(from_float<bfloat16>(static_cast<float>(d) + 0.5f));
  made.sums.raise(1.0f, head_dim);
  float logit = 1.0f;
  made.sums.add(&logit, value.data(), 1, head_dim);
  CHECK(made.finish() == 1.0f);
  for (index_t d = 0; d < head_dim; ++d) CHECK(made.out[unit::size(d)] == static_cast<float>(d) + 0.5f);
}

}  // namespace zoomr
