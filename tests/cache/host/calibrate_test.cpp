// SPDX-License-Identifier: Apache-2.0
// What `calibrate` says follows from what it has measured; below it a cache attends to everything.
#include <zoomr/presets/table.hpp>

#include <doctest/doctest.h>
#include <bench/tools/calibrate.hpp>
#include <support/inputs.hpp>

#include <vector>  // std::vector

namespace zoomr_test {
namespace {

constexpr shape model{5, 8, 4, 32};

zoomr::config some_limits() {
  zoomr::config made;
  made.max_tokens = 1024, made.max_segments = 300;
  made.classes = classes;
  return made;
}

template <class Policy>
void check(const Policy& policy) {
  const zoomr::config limits = some_limits();
  const std::vector<token_id> text = text_of(markup::sentences, 300, 300, 3);
  const zoomr::crossover made = zoomr::calibrate<zoomr::float16>(model, policy, limits, text);
  REQUIRE(made.rows.size() >= 1);
  CHECK(made.rows.front().tokens == 128);
  bool wins = false, later = true;
  for (auto row = made.rows.rbegin(); row != made.rows.rend(); ++row) {
    CHECK(row->sparse > 0);
    CHECK(row->dense > 0);
    CHECK(row->tokens <= limits.max_tokens);
    later = later && row->sparse < 0.98 * row->dense;
    CHECK((row->tokens >= made.min_sparse_context) == later);
    wins = wins || row->tokens == made.min_sparse_context;
  }
  CHECK((wins || made.min_sparse_context == limits.max_tokens + 1));
}

TEST_CASE("calibrate: the crossover follows from the rows") {
  check(zoomr::presets::sentence_kv_with(64));
  check(zoomr::presets::quest);
  check(zoomr::presets::full);
}

TEST_CASE("calibrate: without a text, or for what cannot be, it says so") {
  const std::vector<token_id> none, some(10);
  CHECK_THROWS_AS(zoomr::calibrate(model, zoomr::presets::full, some_limits(), none), zoomr::precondition_error);
  CHECK_THROWS_AS(zoomr::calibrate({1, 3, 2, 32}, zoomr::presets::full, some_limits(), some),
                  zoomr::precondition_error);
}

TEST_CASE("calibrate: a context too short to be measured leaves everything dense") {
  zoomr::config limits = some_limits();
  limits.max_tokens = 200;
  const std::vector<token_id> text(10);
  const zoomr::crossover made = zoomr::calibrate(model, zoomr::presets::quest, limits, text);
  CHECK(made.rows.empty());
  CHECK(made.min_sparse_context == 201);
}

}  // namespace
}  // namespace zoomr_test
