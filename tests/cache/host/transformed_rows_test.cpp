// SPDX-License-Identifier: Apache-2.0
// Rows of blocks that are stored transformed: the bits of a cache that stores rows as they are and whose caller
// transforms keys, queries, values and outputs himself; and what it is for.
#include <cache/support/driving.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/small_policies.hpp>
#include <support/inputs.hpp>
#include <support/voters.hpp>
#include <zoomr/cache/key_rotation.hpp>
#include <zoomr/math/hadamard.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::min
#include <cmath>      // std::sqrt
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using zoomr::hadamard_transform, zoomr::hadamard_width, zoomr::q4_0, zoomr::q8_0;

/// By the definition: number j of the transform is the sum of (-1)^(bits that i and j share) x[i], over sqrt(width).
std::vector<double> naive_transform(const std::vector<float>& row, index_t width) {
  std::vector<double> transformed(row.size());
  for (std::size_t j = 0; j < row.size(); ++j) {
    const std::size_t piece = j / static_cast<std::size_t>(width) * static_cast<std::size_t>(width);
    for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
      std::size_t shared = i & (j - piece);
      bool odd = false;
      for (; shared != 0; shared &= shared - 1) odd = !odd;
      transformed[j] += odd ? -row[piece + i] : row[piece + i];
    }
    transformed[j] /= std::sqrt(static_cast<double>(width));
  }
  return transformed;
}

std::vector<float> random_row(dice& random, index_t size) {
  std::vector<float> row(static_cast<std::size_t>(size));
  for (float& number : row) number = static_cast<float>(random.between(-2000, 2000)) / 1024.0f;
  return row;
}

void transform_rows(std::vector<float>& rows, index_t dim, index_t width) {
  for (std::size_t at = 0; at < rows.size(); at += static_cast<std::size_t>(dim)) {
    hadamard_transform(view<float>(rows.data() + at, {dim}), width);
  }
}

/// One text's keys, values and queries of every token and layer.
struct text_rows {
  shape model;
  std::vector<std::vector<float>> keys, values, queries;  // [tokens * layers], each [heads, width]

  text_rows(const shape& m, index_t tokens, std::uint64_t seed) : model(m) {
    dice random(seed);
    for (index_t row = 0; row < tokens * m.layers; ++row) {
      keys.push_back(random_row(random, m.kv_heads * m.head_dim));
      values.push_back(random_row(random, m.values_in_keys ? 0 : m.kv_heads * m.value_width()));
      queries.push_back(random_row(random, m.heads * m.head_dim));
    }
  }
};

/// Transforms by hand, or leaves that to the cache.
template <class Policy, class T>
struct transforming_player {
  static zoomr::config limits_of(const Policy& policy, const shape& m, bool by_hand) {
    zoomr::config limits = limits_for(160);
    limits.transform_blocks = !by_hand;
    return with_voters(policy, limits, m);
  }
  transforming_player(const Policy& policy, const text_rows& rows, bool transforms_by_hand)
      : text(rows),
        by_hand(transforms_by_hand),
        key_width(hadamard_width(rows.model.values_in_keys ? rows.model.head_dim | rows.model.value_width()
                                                           : rows.model.head_dim)),
        value_width(rows.model.values_in_keys ? key_width : hadamard_width(rows.model.value_width())),
        cache(rows.model, policy, limits_of(policy, rows.model, transforms_by_hand)),
        seq(cache.open()) {}

  /// Passes tokens `first` to `last` in one step.
  void pass(index_t first, index_t last, index_t accepted, bool prompt_ends) {
    const shape& m = text.model;
    const index_t n = last - first;
    std::vector<token_id> ids;
    for (index_t t = first; t < last; ++t) ids.push_back(t % 9 == 8 ? 10 : 20 + t % 5);
    auto step = cache.begin(seq, view<const token_id>(ids.data(), {n}), prompt_ends);
    const index_t taken = step.taken(0);
    for (bool more = true; more;) {
      const index_t begin = step.tokens() == taken ? first : first + std::min(accepted, taken) - step.tokens();
      for (index_t layer = 0; layer < m.layers; ++layer) pass_layer(step, layer, begin, step.tokens());
      more = step.needs_second_pass(std::min(accepted, taken));
    }
    step.commit(std::min(accepted, taken));
  }
  template <class Step>
  void pass_layer(Step& step, index_t layer, index_t first, index_t n) {
    const shape& m = text.model;
    std::vector<float> keys, values, queries;
    for (index_t t = first; t < first + n; ++t) {
      const auto at = static_cast<std::size_t>(t * m.layers + layer);
      keys.insert(keys.end(), text.keys[at].begin(), text.keys[at].end());
      values.insert(values.end(), text.values[at].begin(), text.values[at].end());
      queries.insert(queries.end(), text.queries[at].begin(), text.queries[at].end());
    }
    if (by_hand) {
      transform_rows(keys, m.head_dim, key_width), transform_rows(queries, m.head_dim, key_width);
      transform_rows(values, m.value_width(), value_width);
    }
    step.append(layer, view<const float, 3>(keys.data(), {n, m.kv_heads, m.head_dim}),
                m.values_in_keys ? view<const float, 3>()
                                 : view<const float, 3>(values.data(), {n, m.kv_heads, m.value_width()}));
    std::vector<float> out(static_cast<std::size_t>(n * m.heads * m.value_width()));
    step.attend(layer, view<const float, 3>(queries.data(), {n, m.heads, m.head_dim}),
                view<float, 3>(out.data(), {n, m.heads, m.value_width()}));
    if (by_hand) transform_rows(out, m.value_width(), value_width);
    outputs.insert(outputs.end(), out.begin(), out.end());
  }
  void erase(zoomr::token_range span) {
    const std::vector<float> frequencies(static_cast<std::size_t>(text.model.head_dim / 2), 0.125f);
    const zoomr::key_rotation turn({frequencies.data(), {text.model.head_dim / 2}}, -span.size());
    if (!by_hand) return cache.erase(seq, span, turn);
    cache.erase(seq, span, [&](index_t layer, view<float> key) {
      hadamard_transform(key, key_width);
      turn(layer, key);
      hadamard_transform(key, key_width);
    });
  }
  void live() {
    pass(0, 40, 40, false), pass(40, 61, 61 - 40, true);
    for (index_t t = 61; t < 100; t += 2) pass(t, t + 3, 2, false);
    const index_t end = cache.tokens(seq);
    erase({66, 79});
    for (index_t t = end; t < 140; t += cache.tokens(seq) + 13 - t) pass(t, t + 1, 1, false);
  }

  const text_rows& text;
  bool by_hand;
  index_t key_width, value_width;
  zoomr::kv_cache<Policy, T> cache;
  zoomr::sequence seq;
  std::vector<float> outputs;
};

template <class T, class Policy>
void check_bits(const char* name, const Policy& policy, const shape& model, std::uint64_t seed) {
  CAPTURE(std::string(name));
  const text_rows text(model, 160, seed);
  transforming_player<Policy, T> cache(policy, text, false), caller(policy, text, true);
  cache.live(), caller.live();
  REQUIRE(cache.outputs.size() > 1000);
  CHECK(cache.outputs == caller.outputs);
}

/// How far outputs over rounded rows are from those over floats, squared, when some dimensions of keys are large.
template <class T>
double error_of_outputs(bool transformed) {
  constexpr shape model{1, 4, 2, 64};
  text_rows text(model, 64, 5);
  for (auto& row : text.keys) row[3] *= 12.0f, row[64 + 40] *= 20.0f;
  for (auto& row : text.values) row[10] *= 15.0f;
  for (auto& row : text.queries) {
    for (std::size_t head = 0; head < 4; ++head) row[head * 64 + 3] *= 0.05f, row[head * 64 + 40] *= 0.05f;
  }
  using policy_type = std::decay_t<decltype(small::full)>;
  transforming_player<policy_type, T> rounded(small::full, text, !transformed);
  rounded.by_hand = false;
  transforming_player<policy_type, float> exact(small::full, text, false);
  rounded.pass(0, 60, 60, true), exact.pass(0, 60, 60, true);
  double sum = 0;
  for (std::size_t i = 0; i < exact.outputs.size(); ++i) {
    sum += (exact.outputs[i] - rounded.outputs[i]) * (exact.outputs[i] - rounded.outputs[i]);
  }
  return sum;
}

}  // namespace

TEST_CASE("the Walsh-Hadamard transform is what its definition says, and its own inverse") {
  dice random(3);
  for (const index_t size : {8, 24, 32, 64, 96, 128, 576}) {
    const index_t width = hadamard_width(size);
    CHECK((size % width == 0 && (size / width) % 2 == 1));
    const std::vector<float> row = random_row(random, size);
    std::vector<float> transformed = row;
    hadamard_transform(view<float>(transformed), width);
    const std::vector<double> expected = naive_transform(row, width);
    for (std::size_t i = 0; i < row.size(); ++i) CHECK(std::abs(transformed[i] - expected[i]) < 1e-5);
    hadamard_transform(view<float>(transformed), width);
    for (std::size_t i = 0; i < row.size(); ++i) CHECK(std::abs(transformed[i] - row[i]) < 1e-5);
  }
}

TEST_CASE_TEMPLATE("transformed rows: the bits of a caller that transforms by hand", T, q8_0, q4_0) {
  check_bits<T>("full", small::full, {2, 4, 2, 64}, 1);
  check_bits<T>("full, 96 and 32 wide", small::full, {2, 4, 2, 96, 32}, 2);
  check_bits<T>("full, values in keys", small::full, {2, 4, 1, 96, 64, true}, 3);
  check_bits<T>("quest", small::quest, {2, 4, 2, 64}, 4);
  check_bits<T>("sentence_kv", small::sentence_kv, {2, 4, 2, 64}, 5);
  check_bits<T>("zoomr_second_pass", small::zoomr_second_pass, {2, 4, 2, 64}, 6);
}

TEST_CASE("a dimension that is large in all keys and values costs a transformed cache less") {
  CHECK(error_of_outputs<q4_0>(true) < 0.5 * error_of_outputs<q4_0>(false));
  CHECK(error_of_outputs<q8_0>(true) < 0.5 * error_of_outputs<q8_0>(false));
}

TEST_CASE("a sequence that was saved transformed is not loaded as if it were not") {
  const text_rows text({2, 4, 2, 64}, 160, 9);
  using policy_type = std::decay_t<decltype(small::full)>;
  transforming_player<policy_type, q4_0> transformed(small::full, text, false), plain(small::full, text, true);
  transformed.pass(0, 40, 40, true), plain.pass(0, 40, 40, true);
  const auto file = saved(transformed.cache, transformed.seq);
  plain.cache.close(plain.seq);
  CHECK(sentence_of([&] {
          plain.cache.load(memory_source(file));
        }).find("its keys and values are stored as q4_0_hadamard, this cache's as q4_0") != std::string::npos);
  transformed.cache.close(transformed.seq);
  transformed.seq = transformed.cache.load(memory_source(file));
  CHECK(transformed.cache.tokens(transformed.seq) == 40);
}

}  // namespace zoomr_test
