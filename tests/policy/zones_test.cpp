// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/policy/zones.hpp>

#include <string>  // std::string

namespace zoomr {

namespace {

/// The definition, token by token.
bool in_a_zone(const zones& zone, index_t token, index_t position, index_t prompt_end, index_t open_begin) {
  const std::int64_t back = std::int64_t{position} - token;  // tokens between this one and the asking one
  return token < zone.sinks || (zone.prompt && token < prompt_end) || back < zone.recent ||
         (token >= open_begin && back < zone.open) ||
         (std::int64_t{token} >= std::int64_t{prompt_end} - zone.recent && back < zone.turns);
}

void check(const zones& zone, index_t position, index_t prompt_end, index_t open_begin) {
  const index_t front = zone.front(position, prompt_end);
  const index_t back = zone.back(position, prompt_end, open_begin);
  CAPTURE(position);
  CAPTURE(prompt_end);
  CAPTURE(open_begin);
  CAPTURE(front);
  CAPTURE(back);
  REQUIRE(0 <= front);
  REQUIRE(front <= back);
  REQUIRE(back <= position + 1);
  for (index_t token = 0; token <= position; ++token) {
    CAPTURE(token);
    REQUIRE((token < front || token >= back) == in_a_zone(zone, token, position, prompt_end, open_begin));
  }
}

}  // namespace

TEST_CASE("the zones attend exactly what their fields say, and never the same token twice") {
  const index_t sizes[] = {0, 1, 2, 3, 5, 13, 31, unlimited};
  for (const index_t sinks : sizes) {
    for (const index_t recent : sizes) {
      if (recent < 1) continue;
      for (const index_t open : sizes) {
        for (const index_t turns : {0, 1, 9, unlimited}) {
          for (const bool prompt : {false, true}) {
            const zones zone{.sinks = sinks, .recent = recent, .turns = turns, .prompt = prompt, .open = open};
            for (const index_t position : {0, 1, 6, 16, 17, 36}) {
              for (const index_t prompt_end : {1, 7, 17, position + 1}) {
                for (const index_t open_begin : {0, 5, 11, position, position + 1}) {
                  if (open_begin <= position + 1 && prompt_end <= position + 1) {
                    check(zone, position, prompt_end, open_begin);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("by default a token attends to itself, beside what is chosen") {
  CHECK(zones{}.front(9, 4) == 0);
  CHECK(zones{}.back(9, 4, 2) == 9);
}

TEST_CASE("turns: what is recent at the first prompt's end stays until there is too much of it") {
  const zones zone{.recent = 4, .turns = 20};
  CHECK(zone.back(9, -1, 10) == 6);  // the first prompt is still coming
  CHECK(zone.back(9, 10, 10) == 6);
  CHECK(zone.back(16, 10, 17) == 6);
  CHECK(zone.back(25, 10, 26) == 6);
  CHECK(zone.back(26, 10, 27) == 7);
}

TEST_CASE("zones have no overflow at the largest position") {
  const zones zone{.sinks = unlimited, .recent = unlimited, .prompt = true, .open = unlimited};
  const index_t last = unlimited - 1;
  CHECK(zone.front(last, 5) == unlimited);
  CHECK(zone.back(last, 5, 0) == unlimited);
  CHECK(zones{.sinks = 4, .recent = unlimited}.back(last, 5, 0) == 4);
  CHECK(zones{.recent = 4, .turns = unlimited}.back(last, 5, last) == 1);
}

TEST_CASE("each problem of zones has its sentence") {
  CHECK(zones{}.problem() == nullptr);
  CHECK(zones{.recent = 0}.problem() == std::string("zones: recent must be at least 1, the token itself"));
  for (const zones bad : {zones{.sinks = -1}, zones{.open = -1}, zones{.turns = -1}, zones{.dense_layers = -1}}) {
    CHECK(bad.problem() == std::string("zones: no field can be negative"));
  }
}

}  // namespace zoomr
