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
  std::vector<float> memory(3 * 2 * 16 * 8);
  const std::vector<index_t> pages{2, 0, 1};
  const paged_kv_lane<float> kv_lane{memory.data(), 2 * 16 * 8, kv_rows::in_page<float>({1, 1, 1, 8}, 1, 0), pages};
  CHECK(kv_lane.key(0) - memory.data() == 2 * 256);
  CHECK(kv_lane.key(15) - memory.data() == 2 * 256 + 15 * 8);
  CHECK(kv_lane.key(16) - memory.data() == 0);
  CHECK(kv_lane.key(47) - memory.data() == 256 + 15 * 8);
  CHECK(kv_lane.value(16) - memory.data() == 128);
  CHECK(kv_lane.value(47) - memory.data() == 256 + 128 + 15 * 8);
}

TEST_CASE("rows in blocks take 17 or 9 times two bytes for each 32 numbers, or 33 bytes") {
  // pages of [keys 16, 64 wide | values 16, 32 wide] of two KV heads
  const shape narrow{1, 2, 2, 64, 32}, latent{1, 2, 2, 64, 32, true};
  CHECK(head_numbers<q8_0>(narrow) == 16 * 3 * 17);
  CHECK(head_numbers<q4_0>(narrow) == 16 * 3 * 9);
  CHECK(head_numbers<q4_0>(latent) == 16 * 2 * 9);
  CHECK(head_numbers<mxfp8>(narrow) == 16 * 3 * 33);
  const std::vector<index_t> pages{1, 0};
  std::vector<q4_0> memory(2 * 2 * 16 * 3 * 9);
  const paged_kv_lane<q4_0> lane{memory.data() + 16 * 2 * 9, 2 * 16 * 3 * 9, kv_rows::in_page<q4_0>(narrow, 2, 1),
                                 pages};
  CHECK(lane.key(17) - memory.data() == 16 * 2 * 9 + 2 * 9);
  CHECK(lane.value(17) - memory.data() == 2 * 16 * 2 * 9 + 16 * 9 + 9);
  CHECK(lane.value(15) - memory.data() == 2 * 16 * 3 * 9 + 2 * 16 * 2 * 9 + 16 * 9 + 15 * 9);
  const kv_rows in_keys = kv_rows::in_page<q4_0>(latent, 2, 1);
  CHECK((in_keys.key_stride == 18 && in_keys.value_stride == 18 && in_keys.value_offset == 0));
}

TEST_CASE("values may be wider than keys, narrower, or lie in them") {
  // pages of [keys 16, 24 wide | values 16, 8 wide] of two KV heads
  const shape narrow{1, 2, 2, 24, 8}, wide{1, 2, 2, 8, 24}, latent{1, 2, 2, 24, 8, true};
  CHECK(head_numbers<float>(narrow) == 16 * 32);
  CHECK(head_numbers<scaled_int8>(narrow) == 16 * 32 + 2 * 16 * 4);
  CHECK(head_numbers<float>(latent) == 16 * 24);
  CHECK(head_numbers<scaled_int8>(latent) == 16 * 24 + 16 * 4);
  const std::vector<index_t> pages{0, 1};
  const auto lane = [&](const shape& of, index_t head) {
    return paged_kv_lane<const float>{nullptr, 1000, kv_rows::in_page<float>(of, 2, head), pages};
  };
  const auto value = [&](const shape& of, index_t head, index_t slot) {  // numbers from the head's first key
    std::vector<float> memory(4000);
    paged_kv_lane<const float> made = lane(of, head);
    made.base = memory.data();
    return made.value(slot) - memory.data();
  };
  CHECK(value(narrow, 0, 0) == 2 * 16 * 24);
  CHECK(value(narrow, 0, 3) == 2 * 16 * 24 + 3 * 8);
  CHECK(value(narrow, 1, 19) == 1000 + 16 * 24 + 16 * 8 + 3 * 8);  // its keys begin 16 * 24 later
  CHECK(value(wide, 1, 19) == 1000 + 16 * 8 + 16 * 24 + 3 * 24);
  CHECK(value(latent, 1, 19) == 1000 + 3 * 24);
}

}  // namespace zoomr
