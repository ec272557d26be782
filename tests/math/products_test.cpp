// SPDX-License-Identifier: Apache-2.0
// Work on many numbers has the bits of the functions that do it one by one, on every path that this machine has.
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <core/type_lists.hpp>
#include <support/tolerance.hpp>
#include <zoomr/math/products.hpp>

#include <algorithm>  // std::min
#include <cmath>      // std::fabs
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

TEST_CASE_TEMPLATE_DEFINE("products are dot's, whatever the path", T, multiplied) {
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
TEST_CASE_TEMPLATE_APPLY(multiplied, unit::as_tuple<unit::plain_types>);

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

TEST_CASE_TEMPLATE_DEFINE("every number of a type is widened as to_float does, times a scale, whatever the path", T,
                          widened) {
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
TEST_CASE_TEMPLATE_APPLY(widened, unit::as_tuple<unit::narrow_types>);

TEST_CASE_TEMPLATE_DEFINE("every float is narrowed as from_float does, whatever the path", T, narrowed) {
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
TEST_CASE_TEMPLATE_APPLY(narrowed, unit::as_tuple<unit::plain_types>);

namespace {

/// Blocks with any bytes, and mostly usual scales.
template <class T>
std::vector<T> some_blocks(unit::random& random, std::int64_t numbers) {
  std::vector<T> blocks(static_cast<std::size_t>(stored_size<T>(numbers)));
  for (T& bits : blocks) bits.bits = static_cast<decltype(T::bits)>(random.bits());
  for (std::size_t at = 0; at < blocks.size(); at += std::size_t{block_size<T>}) {
    if (random.below(50) == 0) continue;
    if constexpr (sizeof(T) == 1) {
      blocks[at].bits = static_cast<std::uint8_t>(random.between(110, 130));
      for (std::size_t i = 1; i <= 32; ++i) blocks[at + i].bits &= 0xfe;  // few of them are NaN
    } else {
      blocks[at].bits = from_float<float16>(random.uniform(-0.1f, 0.1f)).bits;
    }
  }
  return blocks;
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("of rows in blocks: products are dot's, and those of books, whatever the path", T,
                          multiplied_in_blocks) {
  unit::random random(82);
  on_each_path([&](cpu_path path) {
    for (const index_t dims : {32, 64, 96, 128, 256, 576}) {
      for (const index_t queries : {1, 2, 3, 4, 7}) {
        const index_t rows = random.between(1, 40);
        const std::int64_t stride = stored_size<T>(dims) + random.below(2) * block_size<T>;
        std::vector<float> numbers = random.floats(unit::size(queries * dims), -10.0f, 10.0f);
        std::vector<float> outputs(unit::size(queries * rows));
        const std::vector<T> blocks = some_blocks<T>(random, rows * stride / block_size<T> * 32);
        const view<const float, 2> asking(numbers.data(), {queries, dims});
        detail::products(path, asking, blocks.data(), stride, view<float, 2>(outputs.data(), {queries, rows}));
        CAPTURE(dims);
        CAPTURE(queries);
        for (index_t q = 0; q < queries; ++q) {
          for (index_t r = 0; r < rows; ++r) {
            const T* const row = blocks.data() + r * stride;
            double exact = 0.0, sizes = 0.0;
            for (index_t d = 0; d < dims; ++d) {
              const double product = double{asking(q, d)} * double{number_at(row, d)};
              exact += product, sizes += std::fabs(product);
            }
            const float got = outputs[unit::size(q * rows + r)];
            REQUIRE(unit::same_bits(got, dot(asking[q].data(), row, dims)));
            if (!(sizes < 1e30)) continue;  // of infinities
            REQUIRE(zoomr_test::tolerance::within(double{got}, exact, zoomr_test::tolerance::reduction(dims) * sizes));
          }
        }
      }
    }
  });
}
TEST_CASE_TEMPLATE_APPLY(multiplied_in_blocks, unit::as_tuple<block_types>);

TEST_CASE_TEMPLATE_DEFINE(
    "of rows in blocks: widened is number_at times a scale, narrowed store_block, whatever the path", T,
    widened_in_blocks) {
  unit::random random(83);
  for (const index_t count : {0, 32, 96, 32 * 0x10000}) {
    std::vector<T> blocks = some_blocks<T>(random, count);
    for (index_t block = 0; count > 1000 && block < count / 32; ++block) {  // all scales, and of one byte all numbers
      T* const first = blocks.data() + block * block_size<T>;
      first->bits = static_cast<decltype(T::bits)>(block);
      for (index_t i = 1; sizeof(T) == 1 && i <= 32; ++i)
        first[i].bits = static_cast<decltype(T::bits)>(block / 256 + 8 * i);
    }
    std::vector<float> floats(unit::size(count)), wide(unit::size(count));
    for (float& number : floats) number = some_number(random);
    std::vector<T> expected(blocks.size());
    for (index_t i = 0; i < count; i += 32) {
      store_block(floats.data() + i, 0.37f, expected.data() + stored_size<T>(i));
    }
    on_each_path([&](cpu_path path) {
      detail::widen(path, blocks.data(), 0.37f, wide);
      bool same = true;
      for (index_t i = 0; i < count; ++i) {
        same = same && unit::same_bits(wide[unit::size(i)], number_at(blocks.data(), i) * 0.37f);
      }
      CHECK(same);
      std::vector<T> outputs(blocks.size());
      detail::narrow(path, view<const float>(floats), 0.37f, outputs.data());
      CHECK(outputs == expected);
    });
  }
}
TEST_CASE_TEMPLATE_APPLY(widened_in_blocks, unit::as_tuple<block_types>);

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
