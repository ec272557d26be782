// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <core/random.hpp>
#include <zoomr/policy/query/last_query.hpp>
#include <zoomr/policy/query/running_mean.hpp>

namespace zoomr {

TEST_CASE("last_query asks with the token's own query and needs no sum") {
  CHECK(last_query{}.query(3.5f, std::numeric_limits<float>::quiet_NaN(), 7) == 3.5f);
  CHECK_FALSE(last_query::sums);
}

TEST_CASE("running_mean asks with the mean of the queries in its sum") {
  CHECK(running_mean::sums);
  unit::random random(22);
  float sum = 0.0f;
  for (index_t count = 1; count < 100; ++count) {
    const float query = random.uniform(-1.0f, 1.0f);
    sum += query;
    CHECK(running_mean{}.query(query, sum, count) == sum / static_cast<float>(count));
  }
  CHECK(running_mean{}.query(0.3f, 0.3f, 1) == 0.3f);  // the first token of a sentence asks alone
}

}  // namespace zoomr
