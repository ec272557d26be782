// SPDX-License-Identifier: Apache-2.0
// Products with matrices of each stored type, against plain loops in double; and a model whose weights are stored in
// fewer bits against the same numbers in float32.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <zoomr/core/threads/thread_pool.hpp>

#include <nlohmann/json.hpp>

#include "config.hpp"
#include "dense_step.hpp"
#include "model.hpp"
#include "product.hpp"
#include "support.hpp"
#include "weights.hpp"

namespace decode {
namespace {

template <class T>
matrix stored_as(std::size_t rows, std::size_t columns, const std::vector<float>& numbers) {
  zoomr::buffer<T> made(static_cast<std::int64_t>(rows * columns));
  for (std::size_t i = 0; i < rows * columns; ++i) made.data()[i] = zoomr::from_float<T>(numbers[i]);
  return {rows, columns, std::move(made)};
}

std::vector<float> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> any(-1, 1);
  std::vector<float> made(count);
  for (float& number : made) number = any(random);
  return made;
}

std::vector<float> product(const std::vector<float>& x, std::size_t tokens, const matrix& w,
                           const zoomr::executor& threads = {}) {
  std::vector<float> y(tokens * w.rows, -1.0f);
  multiply(x.data(), tokens, w, threads, y.data());
  return y;
}

// One element against a sum in double. Floats may lose a bit of each partial sum.
void check_element(const std::vector<float>& x, const std::vector<float>& w, std::size_t t, std::size_t row,
                   std::size_t columns, float given) {
  double sum = 0, size = 0;
  for (std::size_t i = 0; i < columns; ++i) {
    const double term = double{x[t * columns + i]} * w[row * columns + i];
    sum += term, size += std::abs(term);
  }
  CHECK(std::abs(given - sum) <= 1e-6 * size);
}

template <class T>
void check_products() {
  zoomr::thread_pool two(2), three(3);
  const zoomr::executor lent[] = {{two, 2, 0}, {three, 3, 0}};  // however small the work is
  struct size {
    std::size_t rows, columns;
  };
  for (const auto [rows, columns] :
       {size{1, 1}, size{2, 1}, size{1, 31}, size{7, 33}, size{65, 32}, size{131, 97}, size{64, 64}, size{9, 1500},
        size{21, 1056}, size{9, 4096}, size{19, 4099}, size{21, 4128}, size{8, 8192}, size{300, 40}}) {
    const matrix w = stored_as<T>(rows, columns, random_numbers(rows * columns, 1));
    const std::vector<float> numbers = w.all();
    for (const std::size_t tokens : {1u, 2u, 3u, 8u, 15u, 32u, 33u}) {
      CAPTURE(rows);
      CAPTURE(columns);
      CAPTURE(tokens);
      const std::vector<float> x = random_numbers(tokens * columns, 2);
      const std::vector<float> y = product(x, tokens, w);
      for (std::size_t t = 0; t < tokens; ++t)
        for (std::size_t row = 0; row < rows; ++row) check_element(x, numbers, t, row, columns, y[t * rows + row]);
      for (const zoomr::executor& threads : lent) CHECK(product(x, tokens, w, threads) == y);
      for (std::size_t t = 0; t < tokens && tokens <= tokens_alike; ++t) {
        const auto row = x.begin() + static_cast<std::ptrdiff_t>(t * columns);
        const std::vector<float> alone = product({row, row + static_cast<std::ptrdiff_t>(columns)}, 1, w);
        CHECK(std::equal(alone.begin(), alone.end(), y.begin() + static_cast<std::ptrdiff_t>(t * rows)));
      }
    }
  }
}

// [count, V]  of the first tokens, which pass together.
std::vector<float> logits_of(model& net, const std::vector<token_id>& tokens, std::size_t count) {
  std::vector<zoomr::index_t> each(count);
  std::iota(each.begin(), each.end(), 0);
  std::vector<float> logits(count * net.config().vocab);
  dense_step step;
  const auto rows = static_cast<zoomr::index_t>(count);
  net.forward(step, {tokens.data(), {rows}}, each, each,
              {logits.data(), {rows, static_cast<zoomr::index_t>(net.config().vocab)}});
  return logits;
}

void widen(matrix& w) { w = stored_as<float>(w.rows, w.columns, w.all()); }

}  // namespace

TEST_CASE(
    "products with float32, bfloat16 and float16 are those of plain loops, whatever the threads and tokens beside") {
  check_products<float>();
  check_products<zoomr::bfloat16>();
  check_products<zoomr::float16>();
}

TEST_CASE("a product reads each finite float16 as the number that it means") {
  constexpr std::size_t finite = 0x7c00;
  zoomr::buffer<zoomr::float16> all(2 * finite);
  for (std::size_t i = 0; i < 2 * finite; ++i)
    all.data()[i].bits = static_cast<std::uint16_t>(i < finite ? i : i - finite + 0x8000);
  const matrix w{2 * finite, 1, std::move(all)};
  const std::vector<float> numbers = w.all();
  CHECK(product({1.0f}, 1, w) == numbers);
  const std::vector<float> sixteen = product(std::vector<float>(16, 1.0f), 16, w);
  CHECK(std::equal(numbers.begin(), numbers.end(), sixteen.end() - static_cast<std::ptrdiff_t>(numbers.size())));
}

TEST_CASE("a matrix without rows, or no token, is no work") {
  const matrix none{0, 4, zoomr::buffer<float>(0)};
  CHECK(product({1, 2, 3, 4}, 1, none).empty());
  CHECK(product({}, 0, stored_as<float>(1, 1, {2.0f})).empty());
  CHECK(matrix{}.empty());
}

TEST_CASE("a checkpoint is multiplied as it is stored: logits are those of the same numbers in float32") {
  for (const std::string name : {"llama", "qwen2", "qwen3"}) {
    CAPTURE(name);
    const auto config = read_config(fixture(name));
    const std::vector<token_id> tokens = read_json(fixture(name) / "expected.json")["tokens"];
    model_weights wide = read_weights(fixture(name), config);
    widen(wide.embedding), widen(wide.head);
    for (layer_weights& l : wide.layers)
      for (linear* map : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) widen(map->weight);
    model expected(config, std::move(wide)), net(config, read_weights(fixture(name), config));
    zoomr::thread_pool pool(3);
    model shared(config, read_weights(fixture(name), config), zoomr::executor(pool, 3, 0));
    for (const std::size_t count : {std::size_t{1}, tokens.size()}) {
      const std::vector<float> given = logits_of(net, tokens, count);
      CHECK(logits_of(shared, tokens, count) == given);
      const std::vector<float> of_wide = logits_of(expected, tokens, count);
      double largest = 0, worst = 0;
      for (std::size_t i = 0; i < given.size(); ++i) {
        largest = std::max(largest, double{std::abs(of_wide[i])});
        worst = std::max(worst, double{std::abs(of_wide[i] - given[i])});
      }
      CHECK(worst <= 1e-5 * largest);
    }
  }
}

}  // namespace decode
