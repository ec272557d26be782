// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>  // std::string
#include <vector>  // std::vector

#include "attention/gathering.hpp"
#include "support/mutations.hpp"

namespace {

using namespace zoomr_test;
using namespace zoomr_test::gathering;
using zoomr::bfloat16;
using zoomr::index_t;

const std::vector<index_t> any_lengths{0, 1, 15, 16, 17, 31, 33, 67, 131, 300};

}  // namespace

TEST_CASE("attention over chosen tokens is that of the reference, for each head_dim and group") {
  check<64, 1, float>({.group = 1, .attended = any_lengths});
  check<64, 4, float>({.group = 4, .attended = any_lengths});
  check<64, 3, float>({.group = 3, .attended = any_lengths});
  check<128, 2, float>({.group = 2, .attended = any_lengths});
  check<128, 8, float>({.group = 8, .attended = any_lengths});
  check<128, 5, float>({.group = 5, .attended = any_lengths});
  check<128, 16, float>({.group = 16, .kv_heads = 1, .attended = any_lengths});
  check<96, 4, float>({.group = 4, .attended = any_lengths});
  check<256, 4, float>({.group = 4, .attended = any_lengths});
  check<256, 16, float>({.group = 16, .kv_heads = 1, .attended = any_lengths});
}
TEST_CASE("in bfloat16 too") {
  check<64, 4, bfloat16>({.group = 4, .attended = any_lengths});
  check<96, 6, bfloat16>({.group = 6, .attended = any_lengths});
  check<128, 4, bfloat16>({.group = 4, .attended = any_lengths});
  check<128, 8, bfloat16>({.group = 8, .attended = any_lengths});
  check<256, 16, bfloat16>({.group = 16, .kv_heads = 1, .attended = any_lengths});
}
TEST_CASE("split over blocks") {
  for (const zoomr::index_t splits : {2, 3, 7}) {
    check<64, 4, float>({.group = 4, .attended = any_lengths, .splits = splits});
    check<128, 16, bfloat16>({.group = 16, .kv_heads = 1, .attended = any_lengths, .splits = splits});
    check<128, 4, bfloat16>({.group = 4, .kv_heads = 1, .attended = {1000, 513, 128}, .splits = splits});
  }
}
TEST_CASE("peaked logits, and capped ones") {
  check<64, 4, float>({.group = 4, .attended = any_lengths, .look = kind::peaked});
  check<64, 4, float>({.group = 4, .attended = any_lengths, .splits = 3, .look = kind::peaked});
  check<64, 4, float>({.group = 4, .attended = any_lengths, .cap = 1.5f});
  check<64, 2, bfloat16>({.group = 2, .attended = any_lengths, .splits = 2, .cap = 5.0f});
}
TEST_CASE("sinks, with and without a cap and a scale of the model's own") {
  for (const zoomr::index_t splits : {1, 3}) {
    check<64, 4, float, float, true>({.group = 4, .attended = any_lengths, .splits = splits});
    check<64, 4, float, float, true>({.group = 4, .attended = any_lengths, .splits = splits, .look = kind::peaked});
    check<64, 4, float, float, true>(
        {.group = 4, .attended = any_lengths, .splits = splits, .cap = 1.5f, .scale = 0.2f});
  }
  check<64, 4, float>({.group = 4, .attended = any_lengths, .scale = 0.3f});
}

TEST_CASE("the order of threads and blocks changes no bit, and no barrier can be left out") {
  // with 8 heads warps share tokens, so that threads read what others have copied
  scene<bfloat16> s({.head_dim = 128, .group = 8, .kv_heads = 1, .attended = {300, 1, 70}, .splits = 3});
  rows_by_ranges<bfloat16> rows(s);
  const answer first = attend<128, 8>(s, rows.list());
  const auto same = [&] {
    const answer now = attend<128, 8>(s, rows.list());
    return now.out == first.out && now.lse == first.lse;
  };
  in_all_orders([&](const std::string& order) {
    INFO(order);
    CHECK(same());
  });
  // the one in comes_last() orders what other threads have written to global memory, which the shim does not watch
  CHECK(barriers_not_missed(same).size() == 1);
}
