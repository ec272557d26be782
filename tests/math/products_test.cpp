// SPDX-License-Identifier: Apache-2.0
// Work on many numbers has the bits of the functions that do it one by one, on every path that this machine has.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/math/products.hpp>

#include <algorithm>  // std::min
#include <cstring>    // std::memcmp
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr {

namespace {

/// Mostly such that sums are finite, sometimes anything at all.
float some_number(unit::random& random) {
  return random.below(50) == 0 ? random.any_float() : random.uniform(-10.0f, 10.0f);
}

template <class Test>
void on_each_path(Test test) {
  for (const cpu_path path :
       {cpu_path::portable, cpu_path::avx2, cpu_path::avx512, cpu_path::avx512_bf16, cpu_path::neon}) {
    if (!has_cpu_path(path)) continue;
    const std::string name = name_of(path);
    CAPTURE(name);
    test(path);
  }
}

}  // namespace

TEST_CASE_TEMPLATE("products are dot's, whatever the path", T, float, bfloat16, float16, float8, int8) {
  unit::random random(80);
  on_each_path([&](cpu_path path) {
    for (const index_t dims : {1, 8, 16, 24, 32, 48, 80, 128, 144, 576}) {
      for (const index_t queries : {1, 2, 3, 4, 5, 7, 8}) {
        const index_t rows = random.between(1, 70);
        std::vector<float> asks(unit::size(queries * dims)), made(unit::size(queries * (rows + 3)), 7.0f);
        std::vector<T> numbers(unit::size(rows * dims));
        for (float& number : asks) number = some_number(random);
        for (T& number : numbers) number = from_float<T>(some_number(random));
        const view<const float, 2> asking(asks.data(), {queries, dims});
        detail::products(path, asking, numbers.data(), dims,
                         view<float, 2>(made.data(), {queries, rows}, {rows + 3, 1}));
        CAPTURE(dims);
        CAPTURE(queries);
        for (index_t q = 0; q < queries; ++q) {
          for (index_t r = 0; r < rows; ++r) {
            const float expected = dot(asking[q].data(), numbers.data() + r * dims, dims);
            CAPTURE(expected);
            CAPTURE(made[unit::size(q * (rows + 3) + r)]);
            REQUIRE(unit::same_bits(made[unit::size(q * (rows + 3) + r)], expected));
          }
          for (index_t r = rows; r < rows + 3; ++r) REQUIRE(made[unit::size(q * (rows + 3) + r)] == 7.0f);
        }
      }
    }
  });
}

TEST_CASE("exponentials are exponential's, whatever the path") {
  unit::random random(81);
  on_each_path([&](cpu_path path) {
    for (index_t count = 0; count < 70; ++count) {
      const float from = some_number(random);
      std::vector<float> given(unit::size(count));
      for (float& number : given)
        number = std::min(random.below(2) == 0 ? random.any_float() : random.uniform(-100.0f, 10.0f),
                          from + 80.0f);  // of its domain
      std::vector<float> made = given;
      detail::exponentials(path, made, from);
      for (std::size_t i = 0; i < given.size(); ++i) {
        CAPTURE(given[i]);
        CAPTURE(from);
        REQUIRE(unit::same_bits(made[i], exponential(given[i] - from)));
      }
    }
  });
}

TEST_CASE_TEMPLATE("every number of a type is widened as to_float does, times a scale, whatever the path", T, bfloat16,
                   float16, float8, int8) {
  constexpr std::size_t count = std::size_t{1} << (8 * sizeof(T));
  std::vector<T> all(count + 5);
  for (std::size_t i = 0; i < count; ++i) all[i].bits = static_cast<decltype(T::bits)>(i);
  on_each_path([&](cpu_path path) {
    std::vector<float> made(all.size());
    for (const float scale : {1.0f, 0.37f}) {
      detail::widen(path, all.data(), scale, made);
      for (std::size_t i = 0; i < all.size(); ++i) {
        CAPTURE(i);
        REQUIRE(unit::same_bits(made[i], to_float(all[i]) * scale));
      }
    }
  });
}

TEST_CASE_TEMPLATE("every float is narrowed as from_float does, whatever the path", T, float, bfloat16, float16, float8,
                   int8) {
  std::vector<float> all;
  for (std::uint32_t upper = 0; upper < 0x10000; upper += 3) {  // signs, exponents, odd values, and what decides ties
    for (const std::uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0x1000u, 0x0fffu, 0xffffu}) {
      all.push_back(bits_as<float>(upper << 16 | lower));
    }
  }
  for (std::uint32_t size = 0; size < 0x5000; ++size) all.push_back(static_cast<float>(size) * 0.01f - 100.0f);
  all.push_back(not_a_number), all.push_back(-infinity), all.push_back(bits_as<float>(0xffffffffu));
  for (const float scale : {1.0f, 0.37f}) {
    std::vector<T> expected(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) expected[i] = from_float<T>(all[i] / scale);
    on_each_path([&](cpu_path path) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{7}, std::size_t{17}, all.size()}) {
        std::vector<T> made(count);
        detail::narrow(path, view<const float>(all).slice(0, static_cast<index_t>(count)), scale, made.data());
        CHECK((count == 0 || std::memcmp(made.data(), expected.data(), count * sizeof(T)) == 0));
      }
    });
  }
}

TEST_CASE("kernels in vectors are those of the path, and of the one without pairs where they multiply none") {
  on_each_path([](cpu_path path) {
    std::vector<cpu_path> called, multiplying;
    const bool vectors = detail::dispatch(path, [&](auto kernels) { called.push_back(decltype(kernels)::value); });
    const bool pairs =
        detail::dispatch_pairs(path, [&](auto kernels) { multiplying.push_back(decltype(kernels)::value); });
    const bool has_pairs = path == cpu_path::avx512_bf16;
    CHECK(vectors == (path != cpu_path::portable));
    CHECK(called == std::vector<cpu_path>(vectors ? 1 : 0, has_pairs ? cpu_path::avx512 : path));
    CHECK(multiplying == std::vector<cpu_path>(has_pairs ? 1 : 0, path));
    CHECK(pairs == has_pairs);
  });
}

TEST_CASE("a callable runs once, on the path that was asked for") {
  on_each_path([](cpu_path path) {
    int calls = 0;
    detail::on_path(path, [&] { ++calls; });
    CHECK(calls == 1);
  });
  CHECK(has_cpu_path(cpu_path::portable));
  CHECK(has_cpu_path(fastest_cpu_path()));
}

}  // namespace zoomr
