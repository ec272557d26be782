// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <zoomr/paging/paged_kv_lane.hpp>

#include <vector>  // std::vector

namespace zoomr {

TEST_CASE("pages_for rounds up, without overflow") {
  CHECK(pages_for(0) == 0);
  CHECK(pages_for(1) == 1);
  CHECK(pages_for(16) == 1);
  CHECK(pages_for(17) == 2);
  CHECK(pages_for(unlimited) == unlimited / 16 + 1);
}

TEST_CASE("a slot's key and value lie in its page, wherever that is") {
  // 3 pages of [key | value][16][8], used in the order 2, 0, 1
  std::vector<int> memory(3 * 2 * 16 * 8);
  const std::vector<index_t> pages{2, 0, 1};
  const paged_kv_lane<int> kv_lane{memory.data(), 2 * 16 * 8, 16 * 8, 8, pages};
  CHECK(kv_lane.key(0) - memory.data() == 2 * 256);
  CHECK(kv_lane.key(15) - memory.data() == 2 * 256 + 15 * 8);
  CHECK(kv_lane.key(16) - memory.data() == 0);
  CHECK(kv_lane.key(47) - memory.data() == 256 + 15 * 8);
  CHECK(kv_lane.value(16) - memory.data() == 128);
  CHECK(kv_lane.value(47) - memory.data() == 256 + 128 + 15 * 8);
}

}  // namespace zoomr
