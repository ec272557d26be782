// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/core/types.hpp>

namespace zoomr {

TEST_CASE("classes of a token can be joined and asked for one by one") {
  using enum token_class;
  const token_class both = delimiter | summary_end;
  CHECK(has(both, delimiter));
  CHECK(has(both, summary_end));
  CHECK(has(both, delimiter | thought_begin));
  CHECK_FALSE(has(both, thought_begin | thought_end | summary_begin));
  CHECK_FALSE(has(plain, both));
  CHECK_FALSE(has(both, plain));
  CHECK((plain | delimiter) == delimiter);
}

}  // namespace zoomr
