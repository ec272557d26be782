// SPDX-License-Identifier: Apache-2.0
// gather_attend where values are narrower than keys, or lie in them.
#include <doctest/doctest.h>

#include <string>  // std::string
#include <vector>  // std::vector

#include "attention/gathering.hpp"
#include "support/mutations.hpp"
#include "support/stride.hpp"

namespace {

using namespace zoomr_test;
using namespace zoomr_test::gathering;
using zoomr::bfloat16;
using zoomr::fits_tensor_cores;
using zoomr::float16;
using zoomr::float8;
using zoomr::index_t;
using zoomr::values_apart;
using zoomr::values_in_keys;

using latents = values_in_keys<512>;  // behind them 64 rotary dimensions

static_assert(fits_tensor_cores<bfloat16, bfloat16, 576, 16, latents>());
static_assert(fits_tensor_cores<float8, bfloat16, 192, 8, values_apart<128>>());
static_assert(!fits_tensor_cores<bfloat16, bfloat16, 576, 16>());  // as wide as keys
// what eight lanes read at once would go on behind the value; two tiles would be too large
static_assert(!fits_tensor_cores<bfloat16, bfloat16, 128, 8, values_in_keys<96>>());
static_assert(!fits_tensor_cores<bfloat16, bfloat16, 576, 16, values_apart<256>>());

// around tiles of 16 tokens
const std::vector<index_t> short_lengths{0, 1, 15, 16, 17, 33, 67, 131};

template <class T, class Number>
void check_latents(problem p) {
  p.kv_heads = 1;
  p.attended = short_lengths;
  for (const index_t splits : some_of<index_t>({1, 3})) {
    p.splits = splits;
    p.group = 16;
    check<576, 16, T, Number, false, latents>(p);
    p.group = 11;
    p.look = kind::peaked;
    check<576, 16, T, Number, false, latents>(p);
    p.look = kind::uniform;
  }
}

TEST_CASE("latents: attention is that of the reference") {
  check_latents<bfloat16, bfloat16>({.attended = {}, .scale = 0.07f});
  check_latents<float8, bfloat16>({.attended = {}, .key_scale = 0.25f, .value_scale = 0.25f});
  check_latents<float8, float16>({});
  check<576, 32, bfloat16, bfloat16, true, latents>(
      {.group = 32, .kv_heads = 1, .attended = short_lengths, .splits = 2});  // two blocks of heads, and sinks
}
TEST_CASE("latents without tensor cores") {
  check<576, 4, float, float, false, latents>({.group = 4, .kv_heads = 2, .attended = short_lengths, .splits = 2});
  check<576, 3, bfloat16, float, false, latents>({.group = 3, .kv_heads = 1, .attended = short_lengths});
  check<24, 2, float, float, false, values_in_keys<16>>({.group = 2, .attended = short_lengths, .splits = 2});
}
TEST_CASE("widths for which tiles are small, or blocks have fewer warps") {
  check<128, 8, bfloat16, bfloat16, false, values_in_keys<96>>({.group = 8, .attended = short_lengths, .splits = 2});
  check<576, 1, bfloat16, bfloat16, false>({.group = 1, .attended = short_lengths, .splits = 2});
  check<256, 8, float8, bfloat16, false, values_in_keys<256>>({.group = 8, .kv_heads = 1, .attended = short_lengths});
}
TEST_CASE("values that are narrower than keys") {
  for (const index_t splits : some_of<index_t>({1, 3})) {
    check<192, 8, bfloat16, bfloat16, false, values_apart<128>>(
        {.group = 8, .attended = short_lengths, .splits = splits});
    check<192, 8, float8, bfloat16, false, values_apart<128>>(
        {.group = 8, .attended = short_lengths, .splits = splits, .key_scale = 0.25f, .value_scale = 2.0f});
    check<192, 2, float, float, false, values_apart<128>>({.group = 2, .attended = short_lengths, .splits = splits});
    check<24, 3, float, float, false, values_apart<16>>({.group = 3, .attended = short_lengths, .splits = splits});
  }
}

TEST_CASE("latents: the order of threads and blocks changes no bit, and no barrier can be left out") {
  problem p{.head_dim = 576, .group = 16, .kv_heads = 1, .attended = {70, 1, 33}, .splits = 2};
  p.value_dim = 512, p.in_keys = true;
  scene<bfloat16, bfloat16> s(p);
  rows_by_ranges<bfloat16, bfloat16> rows(s);
  const auto now = [&] { return bits(attend<576, 16, false, latents>(s, rows.list())); };
  const auto first = now();
  const auto same = [&] { return now() == first; };
  in_all_orders([&](const std::string& order) {
    INFO(order);
    CHECK(same());
  });
  // the one in comes_last() orders what other threads have written to global memory, which the shim does not watch
  CHECK(barriers_not_missed(same).size() == 1);
}

}  // namespace
