// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/math/dot.hpp>

namespace zoomr {

namespace {

/// The contract, from its root: the tree's node (l, width) is a leaf when width is 32, and otherwise the sum of
/// the nodes l and l + width of the level below it. Leaf l sums dimensions l, l + 32, ... in ascending order.
template <class Term>
float node(index_t l, index_t width, index_t n, Term term) {
  if (width < 32) {
    const float low = node(l, 2 * width, n, term);
    const float high = node(l + width, 2 * width, n, term);
    return low + high;
  }
  float sum = 0.0f;
  for (index_t d = l; d < n; d += 32) sum = term(sum, d);
  return sum;
}

}  // namespace

TEST_CASE("sum_over_dims has the order of the contract, bit for bit") {
  unit::random random(3);
  int differs_from_sequential = 0;
  for (index_t n = 0; n <= 300; ++n) {
    const std::vector<float> numbers = random.floats(unit::size(n), -1000.0f, 1000.0f);
    const auto term = [&](float acc, index_t d) { return acc + numbers[unit::size(d)]; };
    float sequential = 0.0f;
    for (index_t d = 0; d < n; ++d) sequential = term(sequential, d);
    CAPTURE(n);
    const float sum = sum_over_dims(n, term);
    REQUIRE(unit::same_bits(sum, node(0, 1, n, term)));
    differs_from_sequential += sum != sequential ? 1 : 0;
  }
  CHECK(differs_from_sequential > 100);  // otherwise these inputs could not fail
}

TEST_CASE("sum_over_dims calls each dimension once, and partial sums take theirs in ascending order") {
  for (const index_t n : {0, 1, 7, 31, 32, 33, 64, 97, 256}) {
    std::vector<index_t> seen;
    const float count = sum_over_dims(n, [&](float acc, index_t d) {
      for (const index_t before : seen) REQUIRE((before % 32 != d % 32 || before < d));
      seen.push_back(d);
      return acc + 1.0f;
    });
    CHECK(count == static_cast<float>(n));
    CHECK(seen.size() == unit::size(n));
  }
}

TEST_CASE("dot is a fused sum in the contract's order, for both types of storage") {
  unit::random random(4);
  for (const index_t n : {1, 8, 16, 24, 40, 64, 72, 128, 200, 256}) {
    const std::vector<float> a = random.floats(unit::size(n));
    const std::vector<float> b = random.floats(unit::size(n));
    std::vector<bfloat16> stored;
    for (const float value : b) stored.push_back(from_float<bfloat16>(value));
    const auto exact = [&](float acc, index_t d) { return std::fma(a[unit::size(d)], b[unit::size(d)], acc); };
    const auto halved = [&](float acc, index_t d) {
      return std::fma(a[unit::size(d)], to_float(stored[unit::size(d)]), acc);
    };
    CAPTURE(n);
    CHECK(unit::same_bits(dot(a.data(), b.data(), n), node(0, 1, n, exact)));
    CHECK(unit::same_bits(dot(a.data(), stored.data(), n), node(0, 1, n, halved)));
  }
}

TEST_CASE("one NaN or two opposite infinities make a dot NaN, one infinity makes it infinite") {
  for (const index_t where : {0, 31, 32, 39}) {
    std::vector<float> ones(40, 1.0f);
    std::vector<float> b(40, 1.0f);
    b[unit::size(where)] = infinity;
    CHECK(dot(ones.data(), b.data(), 40) == infinity);
    b[unit::size(39 - where)] = -infinity;
    if (where != 39 - where) CHECK(std::isnan(dot(ones.data(), b.data(), 40)));
    b[unit::size(where)] = std::numeric_limits<float>::quiet_NaN();
    CHECK(std::isnan(dot(ones.data(), b.data(), 40)));
  }
}

}  // namespace zoomr
